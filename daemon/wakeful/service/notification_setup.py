"""Constructs the notifications, with the parts of the daemon that they read, report to and send by."""

from __future__ import annotations

import functools
import os
import socket
import time

from wakeful.core.deciding.core import Core
from wakeful.eventlog.contract import LogReader
from wakeful.notifications.channels.program import Programs
from wakeful.notifications.channels.send import ChannelSender
from wakeful.notifications.delivery_loop import Notifications
from wakeful.notifications.ledger import LedgerFiles
from wakeful.runners.isolation.written_places import WrittenPlaces
from wakeful.runners.process.environment import select_inherited
from wakeful.secrets.known import KnownSecrets
from wakeful.service.log_printer import LogPrinter
from wakeful.service.reports import ObservationPort
from wakeful.settings import Places
from wakeful.system.journal import WARNING

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
