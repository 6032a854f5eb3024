"""The contract of the log: its values, its errors and its ports, without any engine. Does no I/O.

A record is addressed by session and seq; the seqs of a session are gap-free and begin at 1. An append is atomic over
all sessions it names, and is acknowledged only when it is durable.

An engine must implement `EventLog`: append, read, follow, keep snapshots. Every other ability has a port of its own,
which an engine may implement: `PayloadStore`, `RecordImports`, `RecordSearch`, `LogVerification`, `LogBackup`,
`StoreHealth`. A caller depends on the smallest port it needs; for most callers that is `LogReader`. `DaemonLog`
combines the ports that a running daemon needs. docs/eventlog.md explains how to add an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from wakeful.errors import CallerError, InternalError, OperatorError

# A callback for the progress of long work: (done, total). Called on the caller's thread.
Progress: TypeAlias = Callable[[int, int], None]


class Conflict(InternalError):
    """The session's head is not where the append expected it, or another record is at that seq. Nothing was written."""


class BadAppend(CallerError):
    """An append that no engine can record: no drafts, a number out of range, text that is not Unicode.

    Nothing was written."""


class BadImport(CallerError):
    """Records that do not match their hashes, leave a gap or were not announced. None of them was written.

    Also raised for an erasure or an archive of a seq that the session does not have.
    """


class BadSearch(CallerError):
    """A search that names no word."""


class StoreBehindAnchor(OperatorError):
    """The store holds less than was acknowledged, or another history. It can be read, not written."""


class StoreUnsafe(OperatorError):
    """Writing here could lose acknowledged records: an affected library, an unsafe file system or a folder of another
    user."""


class StoreShort(OperatorError):
    """The process has no file descriptor left for reading.

    The log itself is not the cause, and later reads may succeed.
    """


class StoreDamaged(OperatorError):
    """The store, or a part of it, cannot be read as a log."""


class StoreUnfinished(OperatorError):
    """The first start was cut short before the store had its schema.

    The store holds no records, and the next start creates it again.
    """


class StoreFailed(OperatorError):
    """A write or flush failed and its effect is unknown. Nothing is acknowledged any more, and the process must end."""


class StoreGone(StoreFailed):
    """The files of the open log were deleted, replaced or truncated. A record written now would be lost."""


class StoreFull(OperatorError):
    """No space: the append was refused whole and nothing was written. Later appends may succeed."""


class StoreReadOnly(OperatorError):
    """The log was opened for reading only."""


class StoreClosed(InternalError):
    """The log was closed before this call."""


class NewerSchema(OperatorError):
    """The store was written by a newer release. It was left untouched."""


class BackupRefused(OperatorError):
    """The backup cannot be written there, or its copy did not verify."""


class RestoreRefused(OperatorError):
    """The restore would replace something newer than the backup, or the backup does not verify."""


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
    """Drafts for one session.

    `expected_seq` is the session's head before these drafts (0 for a new session). `key` is unique per session.
    `digest` identifies the content of the call, if the caller wants to compare it later. With `finishes_import`, the
    drafts follow imported records, and the append also finishes that import.
    """

    session: str
    expected_seq: int
    drafts: tuple[Draft, ...]
    key: str | None = None
    finishes_import: bool = False
    digest: bytes | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The seqs of an append. A repeated call gets the seqs of the first time, or 0 if this append had no key.

    `digest` is the digest that was stored with the key. Callers get it from `find_key` and `find_keys`; the answer to
    an append may lack it.
    """

    session: str
    first_seq: int
    last_seq: int
    duplicate: bool = False
    digest: bytes | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event as recorded. `at` is in microseconds, UTC. An erased or archived payload is None; its hash stays.

    `is_damaged` means that the stored payload is not the recorded one, so it is not returned.
    """

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
    is_damaged: bool = False


class Head(msgspec.Struct, frozen=True, gc=False):
    """The newest record of a session. A session without records has seq 0 and 32 zero bytes."""

    seq: int
    hash: bytes


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A saved fold of a session's records up to and including `seq`: a cache, never the truth."""

    seq: int
    state: bytes
    state_hash: bytes


class Import(msgspec.Struct, frozen=True, gc=False):
    """An announced import. It ends at `last_seq`, whose hash is `head`. The session's newest record is now at `seq`."""

    session: str
    last_seq: int
    head: bytes
    seq: int


class Span(msgspec.Struct, frozen=True, gc=False):
    """Records of one session from `first` to `last`, both included."""

    first: int
    last: int


class Finding(msgspec.Struct, frozen=True):
    """One damage: its place ("session payroll, seq 12", "anchor", "store") and what was found there.

    `is_derived` means that the damage is not in a record but in data that can be derived again from the records.
    """

    where: str
    what: str
    is_derived: bool = False


class Mended(msgspec.Struct, frozen=True):
    """The result of a mend: what was done, the copy made before it, and what verification still finds."""

    done: tuple[str, ...]
    copy: Path | None
    report: Report


class Report(msgspec.Struct, frozen=True):
    """How much verification checked, and what it found."""

    sessions: int
    records: int
    erased: int
    snapshots: int
    findings: tuple[Finding, ...]
    archived: int = 0
    unfinished: int = 0

    @property
    def is_sound(self) -> bool:
        return not self.findings


class Durable(asyncio.Future[tuple[Appended, ...]]):
    """The answer to an append: done once the append is durable, or refused.

    `cancel` does nothing, because the writer already has the append and writes it even if the caller no longer waits.
    """

    def cancel(self, msg: object = None) -> bool:
        return False


class LogReader(Protocol):
    """Reads the log. Every call is short and blocking. Any number of threads may read at once."""

    @property
    def store(self) -> str:
        """The id of this store: a random number from its creation, the same in its backups."""

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
        """Read the records within all given bounds (each inclusive), in the order of seqs, even if the clock was set
        back.
        """

    def head(self, session: str) -> Head: ...

    def heads(self) -> dict[str, Head]:
        """Return the head of every session. During an import a session keeps its old head, and a new session is left
        out.
        """

    def find_key(self, session: str, key: str) -> Appended | None:
        """Find the seqs of the append with this key."""

    def find_keys(self, key: str) -> list[Appended]:
        """Find the seqs of appends with this key, in all sessions."""

    def snapshot(self, session: str, at_or_before: int | None = None) -> Snapshot | None:
        """Return the newest undamaged snapshot (at or before a seq)."""

    def tails(self) -> Iterator[tuple[str, Snapshot | None, list[Record] | StoreDamaged]]:
        """Read every session with its newest snapshot and the records after it, in one pass. A start needs no more.

        During an import a session has only its old records, and a new session is left out, because half a history has
        no state. A session whose records cannot be read comes with the reason.
        """

    def position(self) -> int:
        """Return the position of the newest record in the order of all sessions. 0 if there is none."""

    def read_after(
        self,
        position: int,
        limit: int,
        kinds: Sequence[str] | None = None,
        *,
        imported: bool = False,
        most_bytes: int | None = None,
    ) -> tuple[int, list[Record]]:
        """Read the next records of all sessions (of these kinds) in the order of recording.

        Returns the position that the reading has reached, and the records. Reading stops once the payloads reach
        `most_bytes` together. At least one record is read, so that a reader advances. Imported records are left out
        unless `imported` is true. They were recorded elsewhere, so a follower of this log has not missed them.
        """


class EventLog(LogReader, Protocol):
    """The log as the reactor uses it. This is the smallest port that an engine must implement.

    `append` and `save_snapshot` are called on the event loop and never block it.
    """

    @property
    def read_only(self) -> str | None:
        """The reason why nothing can be appended. None if appends are accepted."""

    def append(self, appends: Sequence[Append], at: int) -> Durable:
        """Record all of `appends` or nothing. The result is done once they are durable.

        If any (session, key) is already known, nothing of the call is written.
        """

    def append_blocking(self, appends: Sequence[Append], at: int) -> tuple[Appended, ...]:
        """Record all of `appends` or nothing, for callers without an event loop. Blocking."""

    def save_snapshot(self, session: str, seq: int, state: bytes) -> asyncio.Future[None]:
        """Store `state` as the fold up to `seq`. Older snapshots are thinned out; the newest is always kept."""

    def save_snapshot_blocking(self, session: str, seq: int, state: bytes) -> None:
        """Store a snapshot, for callers without an event loop. Blocking."""

    def close(self) -> None:
        """Finish the calls accepted so far, then release the store."""


class PayloadStore(Protocol):
    """Payloads that leave the log: erased for good, or archived elsewhere and restored later. Their hashes stay.

    The calls block for a time that grows with the history, so they are made off the loop. Appends continue meanwhile.
    """

    def erase(self, session: str, seqs: Iterable[int]) -> int:
        """Erase these payloads for good. Returns how many were still there. The records and their hashes stay.

        When this returns, the log no longer contains the bytes: not in a snapshot of the session, not in the search
        index, and not in a copy that the log made of itself. A backup made by a person must be deleted by that person.
        """

    def archive(self, session: str, through_seq: int) -> int:
        """Remove the payloads up to a seq from the log, after they were stored elsewhere. Returns how many."""

    def restore_payloads(self, session: str, records: Sequence[Record]) -> int:
        """Put archived payloads back, in the order of seqs, each checked against its hash. Returns how many.

        The records begin where the archived span begins; earlier ones are ignored. A payload that was erased meanwhile
        stays erased.
        """

    def archived(self, session: str) -> Span | None:
        """Return the span of a session's archived payloads. An erased payload inside the span stays erased."""

    def sizes(self) -> dict[str, int]:
        """Measure the bytes of payloads that each session has in the log. Reads all payloads."""


class RecordImports(Protocol):
    """Imports records of another log with their seqs, times, authors and hashes. Blocking, so called off the loop."""

    def begin_import(self, session: str, last_seq: int, head: bytes, *, extend: bool = False) -> int:
        """Announce the records of a session up to `last_seq`, whose hash is `head`.

        Returns the seq of the first missing record. `last_seq` + 1 means that no record is missing, and no import was
        begun. If a shorter history of the session is here, it is continued only with `extend`. Another history of the
        session is a Conflict. Until the import is finished, the session accepts only an append with `finishes_import`.
        The same announcement again resumes the import. A longer one replaces an unfinished import, and the records that
        arrived are then compared with the longer history.
        """

    def import_records(self, session: str, records: Sequence[Record]) -> Head:
        """Record these unchanged. Each is checked against the chain before it is written.

        Equal records that are already here are skipped. A different record is a Conflict, and a record that does not
        verify is a BadImport. In both cases nothing of this call is written. A payload of None is recorded as erased.
        """

    def import_next(self, session: str, record: Record) -> Head:
        """Import the one record that follows the session's last: announced, checked and finished in one step."""

    def finish_import(self, session: str, *, is_inert: bool = False) -> Head:
        """Show the imported session. Raises BadImport if it has not reached the announced head.

        An inert session can be read by its id and searched, but heads and tails leave it out, until its import is
        finished again without `is_inert`.
        """

    def imports(self) -> tuple[Import, ...]:
        """List the imports that were begun and not finished. Heads, tails and search hide their records."""


class RecordSearch(Protocol):
    """Full-text search. Blocking, so called off the loop."""

    def search(
        self,
        text: str,
        session: str | None = None,
        since: int | None = None,
        until: int | None = None,
        kinds: Sequence[str] | None = None,
        author: str | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Find the records whose payload or rationale contains all words of `text`, the newest recorded first.

        A word that ends in * matches every word with that beginning. "several words" in quotes must be next to each
        other. Erased and archived payloads and unfinished imports are not found.
        """


class LogVerification(Protocol):
    """Recomputes the hashes of the log. Blocking, so called off the loop."""

    def verify(self, session: str | None = None, progress: Progress | None = None) -> Report:
        """Recompute all hashes, of one session or of all, and report every record or span that fails."""


class LogBackup(Protocol):
    """Copies a log that is in use. Blocking, so called off the loop."""

    def backup(self, path: Path, progress: Progress | None = None) -> Report:
        """Write a verified copy to `path` while appends continue."""


class StoreHealth(Protocol):
    """Checks the files of an open log."""

    def find_loss(self) -> StoreGone | None:
        """Return the loss of the store's files, if they are no longer the files that were opened.

        Appends check this themselves.
        """

    def read_anchored(self) -> int | None:
        """Return the position in the anchor.

        After a restart the log must reach it. None if the anchor cannot be read.
        """


class DaemonLog(EventLog, PayloadStore, RecordImports, RecordSearch, LogVerification, StoreHealth, Protocol):
    """The log of a running daemon: every port except the backup, which runs in its own process."""
