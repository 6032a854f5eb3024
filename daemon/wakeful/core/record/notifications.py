"""Records of messages to people: a notifier delivered a message, or gave up.

Part of the union in events.py. Folding these records changes nothing, and a replay sends nothing again.
"""

from __future__ import annotations

from msgspec import Struct

from wakeful.core.spec.notifier import NotifyEvent


class NotificationDelivered(Struct, frozen=True, kw_only=True):
    """A notifier delivered a message about record `about`. After a crash it may have sent the message twice,
    with the same `delivery`."""

    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int = 1


class NotificationAbandoned(Struct, frozen=True, kw_only=True):
    """A notifier gave up a message about record `about`. `words` say why."""

    notifier: str
    event: NotifyEvent
    about: int
    delivery: str
    attempts: int
    words: str
