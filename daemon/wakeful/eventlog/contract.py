"""What every engine of the log promises, worded without any engine.

The reactor appends and reads through `EventLog`; views, verification and the command line only read.
A record is addressed by session and seq; seqs of a session are gap-free and begin at 1. An append is atomic over all
sessions it names, and acknowledged only when it is on disk. This module holds values, errors and the protocol; it does no I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from wakeful.errors import CallerError, InternalError, OperatorError


class Conflict(InternalError):
    """The session's head was not where the append expected it; nothing was written."""


class BadAppend(CallerError):
    """An append no engine can record: no drafts, a number out of range, text that is not Unicode; nothing was written."""


class StoreBehindAnchor(OperatorError):
    """The store holds less than was acknowledged, or another history: it can be read, not written."""


class StoreUnsafe(OperatorError):
    """Writing here could lose what was acknowledged: an affected library, a file system or an owner that is not ours."""


class StoreDamaged(OperatorError):
    """The store cannot be read as what it should be."""


class StoreFailed(OperatorError):
    """A write or flush failed, its effect is unknown; nothing is acknowledged any more and the process must end."""


class StoreFull(OperatorError):
    """No space: this append was refused whole, nothing was written, later ones may succeed."""


class StoreReadOnly(OperatorError):
    """The log was opened for reading alone."""


class StoreClosed(InternalError):
    """The log was closed before this call was taken."""


class NewerSchema(OperatorError):
    """The store was written by a newer release; it was left untouched."""


class BackupRefused(OperatorError):
    """The backup cannot be written there, or its copy did not verify."""


class RestoreRefused(OperatorError):
    """The restore would put aside something newer than the backup, or the backup does not verify."""


class StateInUse(OperatorError):
    """Another daemon holds this state folder."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """One event to be recorded. `payload` is JSON text; `parent` is the "session:seq" of the record that caused it."""

    kind: str
    payload: bytes
    author: str
    run: int | None = None
    parent: str | None = None
    rationale: str | None = None


class Append(msgspec.Struct, frozen=True):
    """Drafts for one session. `expected_seq` is its head before (0: a new session); `key` is unique per session."""

    session: str
    expected_seq: int
    drafts: tuple[Draft, ...]
    key: str | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where an append landed. A duplicate repeats where it landed the first time; 0 where it named no key of its own."""

    session: str
    first_seq: int
    last_seq: int
    duplicate: bool = False


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event as recorded. `at` is microseconds UTC; `payload` is None when it was erased, its hash stays."""

    session: str
    seq: int
    at: int
    kind: str
    author: str
    run: int | None
    parent: str | None
    rationale: str | None
    payload: bytes | None
    payload_hash: bytes
    hash: bytes


class Head(msgspec.Struct, frozen=True, gc=False):
    """The newest record of a session: seq 0 and 32 zero bytes for one that has none."""

    seq: int
    hash: bytes


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A saved fold of a session's records up to and including `seq`: a cache, never the truth."""

    seq: int
    state: bytes
    state_hash: bytes


class Finding(msgspec.Struct, frozen=True):
    """One damage: where ("session payroll, seq 12", "anchor", "store") and what was found there."""

    where: str
    what: str


class Report(msgspec.Struct, frozen=True):
    """What verification looked at and what it found; sound when there are no findings."""

    sessions: int
    records: int
    erased: int
    snapshots: int
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        return not self.findings


class EventLog(Protocol):
    """The log as the reactor knows it. Appends are called on the event loop and never block it; reads are short and do."""

    @property
    def read_only(self) -> str | None:
        """Why nothing can be appended, in words; None when appends are taken."""

    def append(self, appends: Sequence[Append], at: int) -> asyncio.Future[tuple[Appended, ...]]:
        """Record all of `appends` or nothing; done once durable. A known (session, key) writes nothing of the whole call."""

    def append_blocking(self, appends: Sequence[Append], at: int) -> tuple[Appended, ...]:
        """The same for callers without an event loop."""

    def save_snapshot(self, session: str, seq: int, state: bytes) -> asyncio.Future[None]:
        """Keep `state` as the fold up to `seq`; older snapshots are thinned out, the newest is always kept."""

    def save_snapshot_blocking(self, session: str, seq: int, state: bytes) -> None:
        """The same for callers without an event loop."""

    def read(
        self,
        session: str,
        from_seq: int = 1,
        to_seq: int | None = None,
        since: int | None = None,
        until: int | None = None,
        kinds: Sequence[str] | None = None,
        run: int | None = None,
        author: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        """Records within all given bounds (each inclusive), in the order of seqs, whatever the clock did."""

    def head(self, session: str) -> Head: ...

    def heads(self) -> dict[str, Head]: ...

    def find_key(self, session: str, key: str) -> Appended | None:
        """Where the append with this key landed."""

    def snapshot(self, session: str, at_or_before: int | None = None) -> Snapshot | None:
        """The newest undamaged snapshot (at or before a seq)."""

    def tails(self) -> Iterator[tuple[str, Snapshot | None, list[Record]]]:
        """Every session with its newest snapshot and the records after it: all a start needs, in one pass."""

    def position(self) -> int:
        """The newest record's place in the order of all sessions; 0 when there is none."""

    def read_after(self, position: int, limit: int) -> tuple[int, list[Record]]:
        """The next records of all sessions in the order they were recorded, and the position after them."""

    def verify(self, session: str | None = None) -> Report:
        """Recompute everything that can be; takes seconds on a large store, so call it off the loop."""

    def backup(self, path: Path) -> Report:
        """Write a verified copy to `path` while appends go on; takes as long as the store is large."""

    def close(self) -> None:
        """Finish what was taken, then let go of the store."""
