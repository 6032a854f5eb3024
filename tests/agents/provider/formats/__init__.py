"""The wire formats, each a module of its own: which paths are its, how it reads a request, writes an answer, streams one, and fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from agents.provider.answer import Answer
from agents.provider.asked import Asked


class Wire(msgspec.Struct, frozen=True):
    """An HTTP request as it came; header names in small letters."""

    number: int
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, object]


class Format(Protocol):
    """What the server needs of a provider's wire format."""

    name: str
    # What ids of calls begin with; None where the provider sends no ids.
    call_prefix: str | None

    def serves(self, path: str) -> bool: ...

    def read(self, wire: Wire) -> Asked: ...

    def write(self, answer: Answer) -> dict[str, object]: ...

    def stream(self, answer: Answer, asked: Asked) -> Iterator[str]:
        """Yield whole server-sent events, one a chunk."""
        ...

    def fail(self, status: int, message: str, retry_after: float | None) -> dict[str, object]: ...

    def fail_event(self, status: int, message: str) -> str:
        """Tell of a failure in the middle of a stream, where no status can be sent any more."""
        ...
