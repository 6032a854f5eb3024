"""Records of messages to people: a notifier delivered one, or gave up.

Part of the union in events.py. Folding one changes nothing: a replay sends nothing again.
"""

from __future__ import annotations

from msgspec import Struct

from wakeful.core.spec.notifier import NotifyEvent


class NotificationDelivered(Struct, frozen=True, kw_only=True):
    """People were told of record `about` by a notifier. At least once: a crash may have sent it twice,
    under one `delivery`."""

    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int = 1


class NotificationAbandoned(Struct, frozen=True, kw_only=True):
    """People were not told of record `about`: the notifier gave up, and this is why."""

    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int
    words: str
