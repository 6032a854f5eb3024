"""The system calls as values: one verb each, the same in CLI, API and event (design.md, section 3).

The API builds them; `take` judges them. Each is safe to repeat: the caller's key is unique per
session in the log, and a call that would change nothing says so instead of failing.
"""

from __future__ import annotations

from msgspec import Struct


class Activate(Struct, frozen=True, kw_only=True):
    name: str
    note: str | None = None
    fresh: bool = False


class Resume(Struct, frozen=True, kw_only=True):
    name: str


class Suspend(Struct, frozen=True, kw_only=True):
    name: str


class Sleep(Struct, frozen=True, kw_only=True):
    name: str
    seconds: float | None = None
    until: int | None = None
    words: str | None = None


class Interrupt(Struct, frozen=True, kw_only=True):
    name: str


class Cancel(Struct, frozen=True, kw_only=True):
    name: str


class Terminate(Struct, frozen=True, kw_only=True):
    name: str
    reason: str | None = None


class Open(Struct, frozen=True, kw_only=True):
    name: str
    again: bool = False


class Rename(Struct, frozen=True, kw_only=True):
    name: str
    new: str


class Send(Struct, frozen=True, kw_only=True):
    """`sender` is the name of the sending session, None for a person."""

    name: str
    text: str
    wake: bool = True
    sender: str | None = None


class Note(Struct, frozen=True, kw_only=True):
    name: str
    text: str


class Remember(Struct, frozen=True, kw_only=True):
    name: str
    key: str
    value: str
    rationale: str | None = None


class Forget(Struct, frozen=True, kw_only=True):
    name: str
    key: str
    rationale: str | None = None


Call = (
    Activate | Resume | Suspend | Sleep | Interrupt | Cancel | Terminate | Open | Rename | Send | Note | Remember | Forget
)


class Called(Struct, frozen=True, kw_only=True):
    """A call as an observation: who called, and the key that makes it safe to repeat."""

    call: Call
    author: str
    key: str | None = None
    # The run the call came from, for its own session's log.
    run: int | None = None
