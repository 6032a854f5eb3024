"""The result of one attempt to send a message, and the port that sends."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from wakeful.core.spec.notifier import Channel
from wakeful.notifications.messages import Message

# One attempt takes no longer than this.
ATTEMPT_SECONDS = 20.0


class Delivered(Struct, frozen=True):
    """The receiver took it; `words` say what it answered."""

    words: str


class Refused(Struct, frozen=True):
    """It did not arrive, and may later. `retry_after`: the receiver asks to be left alone for so many seconds."""

    words: str
    retry_after: float | None = None


class Gone(Struct, frozen=True):
    """The receiver wants no more messages."""

    words: str


Sent = Delivered | Refused | Gone


class Sender(Protocol):
    async def send(self, channel: Channel, message: Message) -> Sent:
        """One attempt, within its time limit. Raises nothing but a cancellation."""
        ...
