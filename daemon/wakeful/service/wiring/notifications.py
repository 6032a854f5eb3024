"""Constructs the notifications, with the parts of the daemon that they read, report to and send by.

`NotificationReport` is their part of `wakeful health` and Prometheus: the notifications that were not delivered, and
the numbers of all.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Iterator

from wakeful.core.deciding.working_state import Core
from wakeful.eventlog.contract import LogReader
from wakeful.monitoring.findings import Finding
from wakeful.monitoring.metrics_text import Family, Sample
from wakeful.notifications.channels.program import Programs
from wakeful.notifications.channels.send import ChannelSender
from wakeful.notifications.delivery_loop import Notifications
from wakeful.notifications.ledger import Ledger, LedgerFiles
from wakeful.runners.isolation.written_places import WrittenPlaces
from wakeful.runners.process.environment import select_inherited
from wakeful.secrets.known_secrets import KnownSecrets
from wakeful.service.log_printer import LogPrinter
from wakeful.service.reports import ObservationPort
from wakeful.settings import Places
from wakeful.system.journal import WARNING
from wakeful.text.display import count

# The variables by which a program finds the desktop of its user.
_DESKTOP = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY")


def build_notifications(
    places: Places,
    core: Core,
    log: LogReader,
    known: KnownSecrets,
    printer: LogPrinter,
    observe: ObservationPort,
    written: WrittenPlaces,
) -> Notifications:
    host = socket.gethostname()
    # A program that the user named may show something on their desktop.
    environ = select_inherited(os.environ) | {name: os.environ[name] for name in _DESKTOP if name in os.environ}

    def find_writer(path: str) -> str | None:
        found = written.find(path, os.path.isdir)
        return found.session if found is not None else None

    def read_secret(name: str) -> bytes:
        return known.hand_out((name,))[0].value

    programs = Programs(str(places.specs.parent), environ, find_writer)
    return Notifications(
        core,
        log,
        LedgerFiles(places.state),
        ChannelSender(programs, read_secret, host),
        host=host,
        observe=observe,
        say=functools.partial(printer.say, priority=WARNING),
        redact=known.redact,
        read_wall=lambda: time.time_ns() // 1000,
    )


class NotificationReport:
    """Implements `monitoring.findings.Reporter`."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications

    def find_problems(self) -> Iterator[Finding]:
        for notifier, ledger in self._notifications.list_ledgers():
            if ledger is None:
                continue
            mend = f"wakeful notify test {notifier.name}"
            if ledger.disabled is not None:
                words = f"notifier {notifier.name} is disabled: {ledger.disabled}"
                yield Finding(what="notify", words=words, mend=mend)
            elif ledger.delivery is not None and ledger.delivery.problem is not None:
                delivery = ledger.delivery
                tried = count(delivery.attempts, "attempt")
                words = f"a message of notifier {notifier.name} is not delivered after {tried}: {delivery.problem}"
                yield Finding(what="notify", words=words, since=delivery.made_at, mend=mend)
            elif ledger.ended and ledger.ended[-1].problem is not None:
                last = ledger.ended[-1]
                words = f"notifier {notifier.name} gave up a message: {last.problem}"
                yield Finding(what="notify", words=words, since=last.at, mend=mend)

    def measure(self) -> Iterator[Family]:
        posts = [
            (notifier.name, ledger or Ledger(position=0)) for notifier, ledger in self._notifications.list_ledgers()
        ]
        if not posts:
            return
        yield Family(
            "wakeful_notifications_total",
            "counter",
            "Messages to people, delivered or given up, since the notifier was added.",
            [
                Sample(count, {"notifier": name, "result": result})
                for name, ledger in posts
                for result, count in (("delivered", ledger.delivered), ("given_up", ledger.given_up))
            ],
        )
        yield Family(
            "wakeful_notifications_waiting",
            "gauge",
            "Notices that wait to be sent.",
            [
                Sample(
                    len(ledger.waiting) + (len(ledger.delivery.notices) if ledger.delivery is not None else 0),
                    {"notifier": name},
                )
                for name, ledger in posts
            ],
        )
