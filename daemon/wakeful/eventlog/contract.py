"""What every engine of the log promises, worded without any engine.

The reactor appends and reads through `EventLog`; views, verification and the command line only read.
A record is addressed by session and seq; seqs of a session are gap-free and begin at 1. An append is atomic over all
sessions it names, and acknowledged only when it is on disk. This module holds values, errors and the protocol; it does no I/O.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol, TypeAlias

import msgspec

from wakeful.errors import CallerError, InternalError, OperatorError

# Told now and then how much of how much is done; called on the caller's thread.
Progress: TypeAlias = Callable[[int, int], None]


class Conflict(InternalError):
    """The session's head was not where the append expected it, or another record stands there; nothing was written."""


class BadAppend(CallerError):
    """An append no engine can record: no drafts, a number out of range, text that is not Unicode; nothing was written."""


class BadImport(CallerError):
    """Records that are not what their hashes say, that leave a gap, or that nobody announced; nothing of them was written."""


class BadSearch(CallerError):
    """A search that asks for nothing."""


class StoreBehindAnchor(OperatorError):
    """The store holds less than was acknowledged, or another history: it can be read, not written."""


class StoreUnsafe(OperatorError):
    """Writing here could lose what was acknowledged: an affected library, a file system or an owner that is not ours."""


class StoreShort(OperatorError):
    """The system has no descriptor or memory to read with now; it says nothing against the log, and later reads may succeed."""


class StoreDamaged(OperatorError):
    """The store cannot be read as what it should be."""


class StoreUnfinished(OperatorError):
    """The first start was cut short before the store had its schema: it holds nothing, and the next start makes it anew."""


class StoreFailed(OperatorError):
    """A write or flush failed, its effect is unknown; nothing is acknowledged any more and the process must end."""


class StoreGone(StoreFailed):
    """The files of the open log were deleted, replaced or cut short: what is written now nobody would find."""


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
    """Drafts for one session. `expected_seq` is its head before (0: a new session); `key` is unique per session.

    `finishes_import`: the drafts follow records that were imported, and the import counts as finished with them."""

    session: str
    expected_seq: int
    drafts: tuple[Draft, ...]
    key: str | None = None
    finishes_import: bool = False


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where an append landed. A duplicate repeats where it landed the first time; 0 where it named no key of its own."""

    session: str
    first_seq: int
    last_seq: int
    duplicate: bool = False


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event as recorded. `at` is microseconds UTC; `payload` is None when it was erased or archived, its hash stays.

    `is_damaged`: a payload is there, but is not the one that was recorded, and so is not given out."""

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
    """The newest record of a session: seq 0 and 32 zero bytes for one that has none."""

    seq: int
    hash: bytes


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A saved fold of a session's records up to and including `seq`: a cache, never the truth."""

    seq: int
    state: bytes
    state_hash: bytes


class Import(msgspec.Struct, frozen=True, gc=False):
    """An import that was begun and not finished: it ends at `last_seq` with the hash `head`, and has come to `seq`."""

    session: str
    last_seq: int
    head: bytes
    seq: int


class Span(msgspec.Struct, frozen=True, gc=False):
    """Records of one session from `first` to `last`, both included."""

    first: int
    last: int


class Finding(msgspec.Struct, frozen=True):
    """One damage: where ("session payroll, seq 12", "anchor", "store") and what was found there.

    `is_derived`: not in the records themselves but in what is told from them, and can be told again."""

    where: str
    what: str
    is_derived: bool = False


class Mended(msgspec.Struct, frozen=True):
    """What mending did, in words, the copy it made before, and what verification still finds: that is in the records themselves."""

    done: tuple[str, ...]
    copy: Path | None
    report: Report


class Report(msgspec.Struct, frozen=True):
    """What verification looked at and what it found; sound when there are no findings."""

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
    """Done when an append is durable, or refused. It is never cancelled: what was handed over is written, whoever still waits for it.

    `then` is called in the turn of the loop in which that is heard; the callbacks of a future, and whoever awaits it, have theirs in the next."""

    then: Callable[[Durable], None] | None = None

    def __init__(self, *, loop: asyncio.AbstractEventLoop, is_begun_at_once: bool = False) -> None:
        """`is_begun_at_once`: nothing stands between it and being written."""
        super().__init__(loop=loop)
        self._outcome: tuple[Appended, ...] | Exception | None = None
        self._is_worth_waiting = is_begun_at_once
        self._unwritten = Lock()
        self._unwritten.acquire()
        self._unknown = Lock()
        self._unknown.acquire()

    def note_written(self) -> None:
        """By whoever writes, in any thread: what is left is the flush."""
        if self._unwritten.locked():
            self._unwritten.release()

    def give_way(self, seconds: float) -> None:
        """Blocks until it is written but for its flush, at most for so long; not at all where others are written first.

        For who has work that does not depend on it: done now, it would share the interpreter with the writer, and each system call of one would
        wait for the other (0.4 ms more until both are done). A flush takes no interpreter."""
        is_worth_waiting, self._is_worth_waiting = self._is_worth_waiting, False
        if is_worth_waiting:
            self._unwritten.acquire(timeout=seconds)
            # Woken on the writer's processor one would go ahead of it, and the flush would only begin when all work is done.
            os.sched_yield()

    def note_outcome(self, outcome: tuple[Appended, ...] | Exception) -> None:
        """By whoever wrote, in any thread, before the loop is told."""
        self._outcome = outcome
        if self._unknown.locked():
            self._unknown.release()

    def hear(self, seconds: float = 0.0) -> None:
        """On the loop: be done now, if the outcome is known, and not a turn later. Blocks for it, at most for so long."""
        if self.done() or not self._unknown.acquire(timeout=seconds) or self._outcome is None:
            return
        if isinstance(self._outcome, Exception):
            self.set_exception(self._outcome)
        else:
            self.set_result(self._outcome)

    def set_result(self, result: tuple[Appended, ...]) -> None:
        super().set_result(result)
        self._tell()

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        super().set_exception(exception)
        self._tell()

    def _tell(self) -> None:
        if self.then is not None:
            self.then(self)

    def cancel(self, msg: object = None) -> bool:
        return False


class EventLog(Protocol):
    """The log as the reactor knows it. Appends are called on the event loop and never block it; reads are short and do.

    What moves whole histories (importing, erasing, archiving, searching, verifying, backing up) takes as long as they are
    large and blocks its caller: off the loop. Appends go on meanwhile."""

    @property
    def store(self) -> str:
        """Which store this is: drawn when it was made, the same in its backups."""

    @property
    def read_only(self) -> str | None:
        """Why nothing can be appended, in words; None when appends are taken."""

    def append(self, appends: Sequence[Append], at: int) -> Durable:
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

    def heads(self) -> dict[str, Head]:
        """Of every session, as it was before an import that is not finished; one that was not here before is left out."""

    def find_key(self, session: str, key: str) -> Appended | None:
        """Where the append with this key landed."""

    def find_keys(self, key: str) -> list[Appended]:
        """Where appends with this key landed, in whatever session."""

    def snapshot(self, session: str, at_or_before: int | None = None) -> Snapshot | None:
        """The newest undamaged snapshot (at or before a seq)."""

    def tails(self) -> Iterator[tuple[str, Snapshot | None, list[Record] | StoreDamaged]]:
        """Every session with its newest snapshot and the records after it: all a start needs, in one pass.

        Half a history has no state: a session whose import is not finished ends where it ended before, and is left out where it was not here.
        One whose records cannot be read comes with the reason."""

    def position(self) -> int:
        """The newest record's place in the order of all sessions; 0 when there is none."""

    def read_after(
        self,
        position: int,
        limit: int,
        kinds: Sequence[str] | None = None,
        *,
        imported: bool = False,
        most_bytes: int | None = None,
    ) -> tuple[int, list[Record]]:
        """The next records of all sessions (of these kinds) in the order they were recorded, and the position after them.

        No more are read once their payloads have `most_bytes` together; one is read in any case, so that whoever reads gets on.
        Imported records are passed over unless asked for: they happened elsewhere, and nobody who follows this log missed them."""

    def begin_import(self, session: str, last_seq: int, head: bytes, *, extend: bool = False) -> int:
        """Announce that a session's records up to `last_seq`, whose hash is `head`, will be brought from elsewhere.

        Returns the seq of the first one that is missing; `last_seq` + 1 says that all are here, and nothing was begun.
        A session that is here and shorter is taken up only with `extend`; one with another history is a Conflict.
        Until the import is finished the session takes no appends, but one that finishes it. Begun again, it goes on where it was left.
        A longer history may take the place of one that was announced and never finished: its records are compared with those that came."""

    def import_records(self, session: str, records: Sequence[Record]) -> Head:
        """Record them as they are: seq, time, author, hashes. Each is checked against the chain while it is written.

        Records that are here already and equal are passed over; a different one is a Conflict, one that does not verify
        a BadImport, and then nothing of this call is written. A payload of None comes in as erased."""

    def import_next(self, session: str, record: Record) -> Head:
        """Record the one that follows a session's last, from elsewhere: announced, checked and finished in one step."""

    def finish_import(self, session: str, *, is_inert: bool = False) -> Head:
        """The session now counts. A BadImport when it has not come to the head that was announced.

        One that is `is_inert` is here to be read, by its id alone: heads, tails and search pass it over, until its
        import is finished again without."""

    def imports(self) -> tuple[Import, ...]:
        """Those begun and not finished: their records are hidden from heads, tails and search, and resumed by importing the same again."""

    def erase(self, session: str, seqs: Iterable[int]) -> int:
        """Forget these payloads for good; returns how many were still there. The records and their hashes stay.

        When this returns, the bytes are on no disk under the log's care: not in a snapshot of the session that could
        hold them, not in the search, not in a copy the log made of itself. Backups made by a person are that person's."""

    def archive(self, session: str, through_seq: int) -> int:
        """Take the payloads up to a seq out of the log, which keep their hashes; returns how many. For payloads kept elsewhere."""

    def restore_payloads(self, session: str, records: Sequence[Record]) -> int:
        """Put archived payloads back, in the order of seqs, each checked against its hash; returns how many.

        Begins where the archived span begins (earlier records are passed over). What was erased meanwhile stays erased."""

    def sizes(self) -> dict[str, int]:
        """How many bytes of payloads each session has at hand; reads all of them, so call it off the loop."""

    def archived(self, session: str) -> Span | None:
        """Which payloads of a session are archived: those in this span that were not erased."""

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
        """Records whose payload or rationale holds all the words of `text`, the newest recorded first.

        A word ending in * stands for its beginnings, "several words" in quotes stand together. Erased and archived payloads
        and unfinished imports are not found."""

    def verify(self, session: str | None = None, progress: Progress | None = None) -> Report:
        """Recompute everything that can be, and name every record or span that does not hold."""

    def backup(self, path: Path, progress: Progress | None = None) -> Report:
        """Write a verified copy to `path` while appends go on; takes as long as the store is large."""

    def find_loss(self) -> StoreGone | None:
        """What became of the store's files, where they are no longer those that were opened. Appends find it out by themselves."""

    def close(self) -> None:
        """Finish what was taken, then let go of the store."""
