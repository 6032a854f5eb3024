"""The one writer: a thread that owns the only connection that writes. It also does every checkpoint.

The engine passes it calls through a queue. The writer takes all waiting calls (no artificial delay), writes them in one
transaction, notes the anchor, and checks that the files are still the opened ones. Only then does it answer the whole
group, with one wake-up of the event loop. The anchor is flushed a little later. A failed write or flush has an unknown
effect, and a flush is never tried again: the writer stops acknowledging and calls `on_fatal`. The one exception is a
full disk that is noticed before the commit. Then the whole group is refused, and the log accepts later calls. The
reactor's state is then ahead of the log, so the daemon ends.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import apsw
import msgspec

from wakeful.eventlog import chain
from wakeful.eventlog.contract import (
    Append,
    Appended,
    BadAppend,
    BadImport,
    Conflict,
    Head,
    Import,
    Record,
    StoreClosed,
    StoreFailed,
    StoreFull,
    StoreGone,
)
from wakeful.eventlog.group_commit import Group, SessionHead, choose_dropped
from wakeful.eventlog.sqlite.anchor import AnchorFile, Mark
from wakeful.eventlog.sqlite.file_identity import FileIdentity, Loss
from wakeful.eventlog.sqlite.files import (
    BUSY_MILLISECONDS,
    RAISE_DESCRIPTORS,
    WAL_KEPT_BYTES,
    has_descriptor,
    lay_out_wal,
    read_code,
    read_mark,
)
from wakeful.eventlog.sqlite.import_store import read_imports

GROUP_EVENTS = 512
# The pages at which a checkpoint moves the write-ahead log into the main file. Under load these are 16 MiB, which
# amortises the cost well; at rest it is REST_PAGES. A shorter log is left alone, because the first append after a reset
# needs a third flush for the log's new header.
LOAD_PAGES = 2_000
REST_PAGES = 500
REST_SECONDS = 0.5
# The size to which the write-ahead log is preallocated: a little more than its size at a checkpoint at rest.
LAID_OUT_BYTES = 5 * 1024 * 1024
# Seconds that a note in the anchor waits for its flush, and the most groups that share one flush. The caller acts on an
# answer, often by starting a run, and a flush at that moment would delay the start by a third of a millisecond.
ANCHOR_SECONDS = 0.005
ANCHOR_GROUPS = 4
# Seconds between two checks of the files while nothing is appended.
IDENTITY_SECONDS = 2.0
# Seconds between two attempts to empty a write-ahead log that a reader holds.
EMPTYING_SECONDS = 0.05

Waiter: TypeAlias = "asyncio.Future[Any] | concurrent.futures.Future[Any]"


class AppendCall(msgspec.Struct, frozen=True):
    appends: Sequence[Append]
    at: int
    waiter: Waiter


class SnapshotCall(msgspec.Struct, frozen=True):
    session: str
    seq: int
    state: bytes
    waiter: Waiter


class ImportCall(msgspec.Struct, frozen=True):
    """A batch of imported records, written in its own group.

    `is_whole` means that the batch is the whole import, and was not announced.
    """

    session: str
    records: Sequence[Record]
    waiter: Waiter
    is_whole: bool = False


class KeepCall(msgspec.Struct, frozen=True):
    """Other work on the store, in its own transaction. It records nothing.

    With `is_erasing`, it is answered only when the write-ahead log no longer contains the erased bytes.
    """

    work: Callable[[apsw.Connection], Any]
    waiter: Waiter
    is_erasing: bool = False


class Stop(msgspec.Struct, frozen=True):
    """Ends the writer after the calls that were queued before it."""


Call: TypeAlias = "AppendCall | SnapshotCall | ImportCall | KeepCall"
Outcome: TypeAlias = "tuple[Appended, ...] | Head | int | Exception | None"


class Writer:
    """Owns the writing connection and the anchor. All other code only queues calls."""

    def __init__(
        self,
        connection: apsw.Connection,
        anchor: AnchorFile,
        on_fatal: Callable[[StoreFailed], None],
        identity: FileIdentity,
        tell: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._anchor = anchor
        self._identity = identity
        self._tell = tell
        # True if the operator was told that a reader holds the write-ahead log.
        self._has_told_held = False
        self._on_fatal = on_fatal
        self._mark = read_mark(connection)
        self._sessions: int = connection.execute("SELECT coalesce(max(key), 0) FROM session").get
        self._tips: dict[str, SessionHead] = {}
        self.imports: dict[str, Import] = {}
        self._read_imports()
        # A crash may have left an erased payload in the write-ahead log, so every start empties it once.
        self._is_emptying_owed = True
        self._erased: list[tuple[KeepCall, Outcome]] = []
        self._wal_pages = 0
        # The time of the first note that waits for the anchor's flush.
        self._noted_at = 0.0
        self._queue: SimpleQueue[Call | Stop] = SimpleQueue()
        self.failed: StoreFailed | None = None
        connection.set_wal_hook(self._note_wal_pages)
        self._thread = threading.Thread(target=self._run, name="wakeful-log-writer", daemon=True)
        self._thread.start()

    def put(self, call: Call) -> None:
        self._queue.put(call)

    def stop(self) -> None:
        """Finish the queued calls and close. Blocking."""
        self._queue.put(Stop())
        self._thread.join()

    def find_loss(self) -> StoreGone | None:
        """Return the loss of the store's files, or None. Any thread."""
        lost = self._identity.find_loss(self._wal_pages)
        return _make_gone(lost) if lost is not None else None

    # The content of the store before a group (group_commit.Known).

    def tip(self, session: str) -> SessionHead | None:
        tip = self._tips.get(session)
        if tip is not None:
            return tip
        row = self._connection.execute(
            "SELECT s.key, e.seq, e.at, e.hash FROM session s JOIN event e ON e.session = s.key WHERE s.id = ? "
            "ORDER BY e.seq DESC LIMIT 1",
            (session,),
        ).fetchone()
        if row is None:
            return None
        return self._tips.setdefault(session, SessionHead(*row))

    def find_key(self, session: str, key: str) -> Appended | None:
        tip = self.tip(session)
        if tip is None:
            return None
        row = self._connection.execute(
            "SELECT first_seq, last_seq FROM idempotency WHERE session = ? AND key = ?", (tip.key, key)
        ).fetchone()
        return Appended(session, *row) if row is not None else None

    def read_hashes(self, session: str, first: int, last: int) -> list[bytes]:
        rows = self._connection.execute(
            "SELECT e.hash FROM session s JOIN event e ON e.session = s.key WHERE s.id = ? AND e.seq BETWEEN ? AND ? "
            "ORDER BY e.seq",
            (session, first, last),
        )
        return [digest for (digest,) in rows]

    # The life of the thread

    def _run(self) -> None:
        calls: list[Call] = []
        try:
            is_stopping = False
            while not is_stopping:
                calls, is_stopping = self._take()
                match calls:
                    case [*before, KeepCall() as last]:
                        self._commit(before)
                        self._keep(last)
                    # An import is planned from the store alone, so the appends queued before it must be in the store.
                    case [*before, ImportCall() as last]:
                        self._commit(before)
                        self._commit([last])
                    case _:
                        self._commit(calls)
                if self._wal_pages >= LOAD_PAGES:
                    self._checkpoint()
            self._give_up_emptying()
            self._connection.close()
            self._anchor.close()
        except Exception as error:  # an error in the only writer must end the process
            self._fail(calls, error)

    def _take(self) -> tuple[list[Call], bool]:
        """Take all waiting calls, up to a group. Returns them, and True if the writer stops after them."""
        calls: list[Call] = []
        events = 0
        call = self._wait()
        while not isinstance(call, Stop):
            calls.append(call)
            events += sum(len(append.drafts) for append in call.appends) if isinstance(call, AppendCall) else 1
            if events >= GROUP_EVENTS or isinstance(call, (ImportCall, KeepCall)) or not self._queue.qsize():
                return calls, False
            call = self._queue.get()
        return calls, True

    def _wait(self) -> Call | Stop:
        while self._anchor.unflushed:
            rest = self._noted_at + ANCHOR_SECONDS - time.monotonic()
            try:
                return self._queue.get(timeout=max(rest, 0.0))
            except Empty:
                self._anchor.flush()
        while self._is_emptying_owed:
            try:
                return self._queue.get(timeout=EMPTYING_SECONDS)
            except Empty:
                self._empty_wal()
        if self._wal_pages >= REST_PAGES:
            try:
                return self._queue.get(timeout=REST_SECONDS)
            except Empty:
                self._checkpoint()
        while True:
            try:
                return self._queue.get(timeout=IDENTITY_SECONDS)
            except Empty:
                self._refuse_loss()

    def _commit(self, calls: list[Call]) -> None:
        """Write one group and answer it."""
        group = Group(self, self._mark.position, self._sessions)
        outcomes = [_decide(group, call) for call in calls]
        snapshots = [
            call
            for call, outcome in zip(calls, outcomes, strict=True)
            if outcome is None and isinstance(call, SnapshotCall)
        ]
        if not group.rows.events and not snapshots:
            self._refuse_loss()
            return _answer(calls, outcomes)
        # If the write-ahead log was truncated, SQLite would continue it after a hole. The check after the commit would
        # then see its full length and notice nothing, so the length is checked here.
        if not self._identity.holds_frames(self._wal_pages):
            self._refuse_loss()
        try:
            mark = self._write(group, snapshots)
        except apsw.FullError as error:
            self._roll_back()
            full = StoreFull(
                f"no space left for the log: {error}; nothing of this append was written, free some space and repeat it"
            )
            return _answer(calls, [outcome if isinstance(outcome, Exception) else full for outcome in outcomes])
        except (apsw.ConstraintError, apsw.TooBigError, TypeError, ValueError, OverflowError) as error:
            self._roll_back()
            return self._commit_apart(calls, error)
        # The records are durable. They may be acknowledged after the anchor has the mark as well.
        if group.rows.events:
            self._note_anchor(mark)
        self._mark = mark
        self._sessions = group.sessions
        self._tips.update(group.tips)
        if group.rows.finished:
            self._read_imports()
        self._refuse_loss()
        _answer(calls, outcomes)

    def _refuse_loss(self) -> None:
        """Raise StoreGone if the files are not the opened ones.

        If only the write-ahead log was deleted, its records are saved first.
        """
        lost = self._identity.find_loss(self._wal_pages)
        if lost is None:
            return
        if lost.is_whole and self._identity.has_database():
            self._checkpoint()
        raise _make_gone(lost)

    def _note_anchor(self, mark: Mark) -> None:
        if self._anchor.unflushed >= ANCHOR_GROUPS:
            self._anchor.flush()
        if not self._anchor.unflushed:
            self._noted_at = time.monotonic()
        self._anchor.note(mark)

    def _keep(self, call: KeepCall) -> None:
        """Do one piece of work on the store in a transaction, and answer it."""
        outcome: Outcome
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            outcome = call.work(self._connection)
            self._connection.execute("COMMIT")
        except apsw.FullError as error:
            self._roll_back()
            outcome = StoreFull(
                f"no space left for the log: {error}; nothing was changed, free some space and repeat it"
            )
        except (Conflict, BadImport) as error:
            self._roll_back()
            outcome = error
        self._read_imports()
        self._refuse_loss()
        if not call.is_erasing or isinstance(outcome, Exception):
            return _answer([call], [outcome])
        self._erased.append((call, outcome))
        self._is_emptying_owed = True
        self._empty_wal()

    def _empty_wal(self) -> None:
        """Move the whole write-ahead log into the main file and truncate it.

        Until then both may contain the erased bytes.
        """
        # Give up at once if a reader holds the log, so that no append waits. The next attempt is between two groups.
        self._connection.set_busy_timeout(0)
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.FullError):
            return
        finally:
            self._connection.set_busy_timeout(BUSY_MILLISECONDS)
        self._wal_pages = 0
        self._is_emptying_owed = False
        self._refuse_loss()
        self._answer_erased()
        lay_out_wal(Path(self._connection.filename_wal), LAID_OUT_BYTES)

    def _answer_erased(self) -> None:
        erased, self._erased = self._erased, []
        _answer([call for call, _ in erased], [outcome for _, outcome in erased])

    def _give_up_emptying(self) -> None:
        """Refuse erasures that a reader still holds back when the log closes, because they are not complete."""
        if self._erased:
            self._empty_wal()
        held = StoreClosed(
            "the payloads are erased, but a reader kept their bytes in the write-ahead log until the log was closed; "
            "the next start removes them"
        )
        self._erased = [(call, held) for call, _ in self._erased]
        self._answer_erased()

    def _read_imports(self) -> None:
        self.imports = {begun.session: begun for begun in read_imports(self._connection)}

    def _commit_apart(self, calls: list[Call], error: Exception) -> None:
        """Commit each call alone, because one of them has a value that the store cannot hold.

        Only that call is refused.
        """
        if isinstance(error, apsw.ConstraintError) and read_code(error) not in _MALFORMED:
            raise error
        if len(calls) == 1:
            return _answer(calls, [BadAppend(f"the append cannot be recorded: {error}")])
        for call in calls:
            self._commit([call])

    def _write(self, group: Group, snapshots: list[SnapshotCall]) -> Mark:
        """Write the transaction. Returns the mark for the anchor."""
        execute = self._connection.execute
        mark, rows = self._mark, group.rows
        execute("BEGIN IMMEDIATE")
        for insert, some in (
            ("INSERT INTO session VALUES (?, ?)", rows.sessions),
            ("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows.events),
            ("INSERT INTO payload VALUES (?, ?)", rows.payloads),
            ("INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)", rows.keys),
            ("INSERT INTO clock_step VALUES (?, ?)", rows.clock_steps),
            ("INSERT INTO imported VALUES (?, ?, ?)", rows.imported),
            ("DELETE FROM import WHERE session = ?", rows.finished),
            ("DELETE FROM inert WHERE session = ?", rows.finished),
        ):
            if some:
                self._connection.executemany(insert, some)
        if rows.events:
            mark = Mark(mark.store, mark.flush + 1, group.position, chain.roll_forward(mark.roll, group.hashes))
            execute("INSERT INTO flush VALUES (?, ?, ?)", (mark.flush, mark.position, mark.roll))
        for snapshot in snapshots:
            self._save_snapshot(group, snapshot)
        execute("COMMIT")
        return mark

    def _save_snapshot(self, group: Group, call: SnapshotCall) -> None:
        tip = group.tip(call.session)
        assert tip is not None, "decided in _decide"
        execute = self._connection.execute
        execute(
            "INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)",
            (tip.key, call.seq, call.state, chain.hash_bytes(call.state)),
        )
        kept = [seq for (seq,) in execute("SELECT seq FROM snapshot WHERE session = ? ORDER BY seq", (tip.key,))]
        for seq in choose_dropped(kept):
            execute("DELETE FROM snapshot WHERE session = ? AND seq = ?", (tip.key, seq))

    def _roll_back(self) -> None:
        """Undo a group and check the result. A store that is not at its old mark has an unknown content."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        if read_mark(self._connection) != self._mark:
            raise StoreFailed("a refused group was found in the store after its rollback")

    def _checkpoint(self) -> None:
        """Move the write-ahead log into the main file as far as readers allow. The next checkpoint moves the rest."""
        try:
            frames, moved = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._tell_held(frames * self._identity.frame_bytes, is_held=moved < frames)
        except (apsw.BusyError, apsw.FullError):
            # Another process holds the store, or there is no space for the main file. The write-ahead log still
            # contains everything.
            return
        finally:
            self._wal_pages = 0  # the next commit counts again, so a failed checkpoint is then tried again

    def _tell_held(self, wal_bytes: int, *, is_held: bool) -> None:
        """Tell the operator once that a reader holds the log, and again only after a complete checkpoint."""
        if not is_held:
            self._has_told_held = False
        elif wal_bytes > WAL_KEPT_BYTES and not self._has_told_held:
            self._has_told_held = True
            self._tell(
                f"the write-ahead log has grown to {wal_bytes // 1_000_000} MB, because a process keeps a read of the "
                "log open; nothing is lost, but the disk fills: wakeful doctor says how to find that process"
            )

    def _note_wal_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _fail(self, calls: list[Call], error: Exception) -> None:
        """Acknowledge nothing from here on. The connection stays open, because closing it would write."""
        failed = _NO_MEMORY if isinstance(error, MemoryError | apsw.NoMemError) else self._explain(error)
        try:
            failed.__cause__ = error if failed is not error else None
            self.failed = failed
            waiting = [*calls, *(call for call, _ in self._erased)]
            _answer(waiting, [failed] * len(waiting))
        finally:
            # This runs even if there is no memory for an answer, so that no caller waits for a writer that is gone.
            self._on_fatal(failed)
        while not isinstance(call := self._queue.get(), Stop):
            _answer([call], [failed])

    def _explain(self, error: Exception) -> StoreFailed:
        """Make the error for a failure. If files of the log are gone, that is the cause."""
        if isinstance(error, StoreGone):
            return error
        try:
            lost = self._identity.find_loss()
        except OSError:
            lost = None
        if lost is not None:
            return _make_gone(lost)
        return StoreFailed(_describe_failure(error))


def _make_gone(lost: Loss) -> StoreGone:
    return StoreGone(
        f"the log's files were deleted, moved or replaced while the daemon ran: {lost.words}; "
        "nothing is acknowledged any more, and the daemon ends. "
        "Put the files back, or go back to a backup with: wakeful restore BACKUP; then start the daemon again"
    )


_UNKNOWN = "unacknowledged records may or may not be on disk; the next start reads the log again"
# This error is made in advance. When it is needed, there is no memory for its text.
_NO_MEMORY = StoreFailed(
    f"the log could not be written: there was no memory for it; {_UNKNOWN}; "
    "give the daemon more memory (MemoryMax=, ulimit -v), then start it again"
)
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE})


def _describe_failure(error: Exception) -> str:
    """Describe a failure. A lack of file descriptors is not the disk's fault."""
    is_short = isinstance(error, apsw.CantOpenError) or (isinstance(error, OSError) and error.errno in _SHORTAGES)
    remedy = (
        f"it had no file descriptor left: raise its limit ({RAISE_DESCRIPTORS})"
        if is_short and not has_descriptor()
        else "look at the disk"
    )
    found = f"{type(error).__name__}: {error}"
    return f"the log could not be written: {found}; {_UNKNOWN}; {remedy}, then start the daemon again"


_MALFORMED = frozenset({apsw.SQLITE_CONSTRAINT_DATATYPE, apsw.SQLITE_CONSTRAINT_NOTNULL})


def _decide(group: Group, call: Call) -> Outcome:
    """Decide the answer to a call if its group becomes durable. An error refuses only this call."""
    try:
        match call:
            case AppendCall():
                return group.add(call.appends, call.at)
            case ImportCall():
                return group.add_records(call.session, call.records, is_whole=call.is_whole)
            case SnapshotCall():
                tip = group.tip(call.session)
                if tip is None or not 0 < call.seq <= tip.seq:
                    raise BadAppend(
                        f"session {call.session}: a snapshot at seq {call.seq}, but its log ends at "
                        f"{tip.seq if tip else 0}"
                    )
                return None
            case KeepCall():
                raise AssertionError("work on the store itself is done alone, in no group")
    except (Conflict, BadAppend, BadImport) as error:
        return error
    except (TypeError, ValueError, OverflowError) as error:  # a lone surrogate, a number beyond 64 bits, text for bytes
        return BadAppend(f"the append cannot be recorded: {error}")


def _answer(calls: Sequence[Call], outcomes: Sequence[Outcome]) -> None:
    """Answer the callers, those of one event loop with one wake-up."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, Outcome]]] = {}
    for call, outcome in zip(calls, outcomes, strict=True):
        waiter = call.waiter
        if isinstance(waiter, concurrent.futures.Future):
            _settle([(waiter, outcome)])
        else:
            by_loop.setdefault(waiter.get_loop(), []).append((waiter, outcome))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            # The loop was closed, so no caller waits on it any more. Its appends are durable.
            if not loop.is_closed():
                raise


def _settle(settled: Sequence[tuple[Waiter, Outcome]]) -> None:
    for waiter, outcome in settled:
        if waiter.done():  # its caller cancelled it
            continue
        if isinstance(outcome, Exception):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)
