"""The result of one attempt to send a message, and the interface that sends."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from wakeful.core.spec.notifier import Channel
from wakeful.notifications.messages import Message

# The most seconds of one attempt.
ATTEMPT_SECONDS = 20.0


class Delivered(Struct, frozen=True):
    """The receiver accepted the message. `words` describes its answer."""

    words: str


class Refused(Struct, frozen=True):
    """The message was not accepted, but may be later. `retry_after`: seconds that the receiver asks us to wait."""

    words: str
    retry_after: float | None = None


class Gone(Struct, frozen=True):
    """The receiver wants no more messages."""

    words: str


Sent = Delivered | Refused | Gone


class Sender(Protocol):
    async def send(self, channel: Channel, message: Message) -> Sent:
        """Make one attempt, within its time limit. Raises nothing except a cancellation."""
        ...
