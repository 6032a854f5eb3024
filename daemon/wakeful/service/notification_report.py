"""Notifications in `wakeful health` and Prometheus: those that were not delivered, and the numbers of all.

It reads from the `NotificationDesk`, which answers from memory. The wiring passes it to `Monitoring`.
"""

from __future__ import annotations

from collections.abc import Iterator

from wakeful.monitoring.findings import Finding
from wakeful.monitoring.metrics_text import Family, Sample
from wakeful.notifications.delivery_loop import Notifications
from wakeful.notifications.ledger import Ledger


class NotificationReport:
    """Implements `monitoring.findings.Reporter`."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications

    def find_problems(self) -> Iterator[Finding]:
        for notifier, ledger in self._notifications.list_posts():
            if ledger is None:
                continue
            mend = f"wakeful notify test {notifier.name}"
            if ledger.disabled is not None:
                words = f"notifier {notifier.name} is disabled: {ledger.disabled}"
                yield Finding(what="notify", words=words, mend=mend)
            elif ledger.delivery is not None and ledger.delivery.problem is not None:
                delivery = ledger.delivery
                words = f"notifier {notifier.name} reaches nobody, tried {delivery.attempts} times: {delivery.problem}"
                yield Finding(what="notify", words=words, since=delivery.made_at, mend=mend)
            elif ledger.ended and ledger.ended[-1].problem is not None:
                last = ledger.ended[-1]
                words = f"notifier {notifier.name} gave up a message: {last.problem}"
                yield Finding(what="notify", words=words, since=last.at, mend=mend)

    def measure(self) -> Iterator[Family]:
        posts = [(notifier.name, ledger or Ledger(position=0)) for notifier, ledger in self._notifications.list_posts()]
        if not posts:
            return
        yield Family(
            "wakeful_notifications_total",
            "counter",
            "Messages to people, delivered or given up, since the notifier is there.",
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
