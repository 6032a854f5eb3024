"""The wire formats. Each module has one: its paths, and how it reads a request, writes, streams and fails an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from agents.provider.answer import Answer
from agents.provider.model_request import Asked


class Wire(msgspec.Struct, frozen=True):
    """An HTTP request as it came. Header names are in small letters."""

    number: int
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, object]


class Format(Protocol):
    """The interface of a provider's wire format for the server."""

    name: str
    # The prefix of call ids. None if the provider sends no ids.
    call_prefix: str | None

    def serves(self, path: str) -> bool: ...

    def read(self, wire: Wire) -> Asked: ...

    def write(self, answer: Answer) -> dict[str, object]: ...

    def stream(self, answer: Answer, asked: Asked) -> Iterator[str]:
        """Yield whole server-sent events, one in each chunk."""
        ...

    def fail(self, status: int, message: str, retry_after: float | None) -> dict[str, object]: ...

    def fail_event(self, status: int, message: str) -> str:
        """Return the event for a failure in mid-stream, where no status can be sent any more."""
        ...
