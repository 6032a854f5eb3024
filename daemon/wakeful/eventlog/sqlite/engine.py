"""Opens the SQLite log, and implements the open log.

`service/startup.py` calls `open_log` once. Commands that read the store next to a running daemon call `open_reader`. A
store is first checked through a reading connection, because a writing connection could overwrite data that can still be
rescued from a damaged store. Writes go to the writer's queue; reads happen here, on the caller's thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import shlex
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from wakeful.eventlog import chain
from wakeful.eventlog.contract import (
    Append,
    Appended,
    Durable,
    Head,
    Import,
    NewerSchema,
    Progress,
    Record,
    Report,
    Snapshot,
    Span,
    StoreBehindAnchor,
    StoreClosed,
    StoreDamaged,
    StoreFailed,
    StoreGone,
    StoreReadOnly,
    StoreUnfinished,
)
from wakeful.eventlog.search_text import Query
from wakeful.eventlog.sqlite import (
    backup,
    import_store,
    payload_check,
    payload_store,
    queries,
    search_index,
    verification,
)
from wakeful.eventlog.sqlite.anchor import AnchorFile, judge_store, read_anchor
from wakeful.eventlog.sqlite.file_identity import FileIdentity
from wakeful.eventlog.sqlite.files import (
    RAISE_DESCRIPTORS,
    StoreFiles,
    connect_reader,
    connect_writer,
    count_tables,
    create_database,
    has_descriptor,
    is_blank,
    prepare_folder,
    read_mark,
    read_roll,
    refuse_affected,
    remove_database,
    say_unfinished,
)
from wakeful.eventlog.sqlite.schema import load_migrations, migrate, read_version, refuse_newer
from wakeful.eventlog.sqlite.writer import AppendCall, Call, ImportCall, KeepCall, SnapshotCall, Writer
from wakeful.eventlog.state_lock import StateLock, lock_state
from wakeful.text.display import count

Kept = TypeVar("Kept")

# Parts of the state folder that hold only the results of recorded runs and calls. Without a log they prove a loss.
_REMAINS = ("blobs", "archive", "scratch", "workspaces")
_WHAT_TO_DO = "look at it with: wakeful doctor; go back to a backup with: wakeful restore BACKUP"


def exit_process(failed: StoreFailed) -> None:
    """Print the message and end at once, without any clean-up that might write.

    This is the default reaction to a failed write.
    """
    try:
        print(f"wakeful: {failed}", file=sys.stderr, flush=True)
    finally:
        # The process ends even if there is no memory for the message, or if stderr is closed.
        os._exit(1)


def open_log(
    state_dir: Path,
    *,
    lock: StateLock | None = None,
    on_fatal: Callable[[StoreFailed], None] = exit_process,
    tell: Callable[[str], None] = lambda words: None,
) -> SqliteLog:
    """Open the store of a state folder for appending. Create or migrate it first if needed.

    Without a `lock`, the log takes its own lock and releases it when it is closed. `on_fatal` (a failed write) and
    `tell` (messages for the operator) are called on the writer's thread.
    """
    refuse_affected(apsw.sqlite_lib_version())
    files = StoreFiles(state_dir)
    held = lock or lock_state(state_dir)
    try:
        prepare_folder(files)
        return _open_locked(files, on_fatal, tell, None if lock else held)
    except BaseException as error:
        if lock is None:
            held.release()
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
            raise StoreDamaged(f"{files.database} cannot be read: {error}; {_WHAT_TO_DO}") from error
        if isinstance(error, (OSError, apsw.Error)):
            remedy = (
                "look at its disk and permissions"
                if has_descriptor()
                else f"no file descriptor is left: raise the limit ({RAISE_DESCRIPTORS})"
            )
            raise StoreFailed(f"{files.folder} cannot be opened for writing: {error}; {remedy}") from error
        raise


def open_reader(state_dir: Path) -> SqliteLog:
    """Open for reading only, with or without a running daemon. Takes no lock and changes nothing."""
    files = StoreFiles(state_dir)
    if not files.database.exists():
        raise StoreDamaged(f"{files.database} does not exist; is {state_dir} the state folder of a daemon that ran?")
    connection = connect_reader(files.database)
    try:
        refuse_newer(connection, load_migrations(), files.database)
        if count_tables(connection) == 0:
            raise say_unfinished(files.database)
    finally:
        connection.close()
    return SqliteLog(files, None, "it was opened for reading")


def judge_state(state_dir: Path) -> str | None:
    """Return why a daemon would not write to the store of this folder.

    None if it would write, or if there is no store yet. Only compares the end of the store with its anchor. Quick;
    takes no lock and changes nothing.
    """
    files = StoreFiles(state_dir)
    try:
        if not files.database.exists():
            _refuse_empty_start(files)
            return None
        connection = connect_reader(files.database)
        try:
            return _judge_present(files, connection)
        finally:
            connection.close()
    except StoreUnfinished:
        return _judge_unfinished(files)
    except (StoreBehindAnchor, StoreDamaged, NewerSchema) as refusal:
        return str(refusal)


def _judge_unfinished(files: StoreFiles) -> str | None:
    try:
        _refuse_empty_start(files)
    except StoreBehindAnchor as refusal:
        return str(refusal)
    return None


def _open_locked(
    files: StoreFiles, on_fatal: Callable[[StoreFailed], None], tell: Callable[[str], None], lock: StateLock | None
) -> SqliteLog:
    backup.finish_restore(files)
    migrations = load_migrations()
    if is_blank(files.database):
        # An interrupted first start left this file. No record in it was ever acknowledged, so it is replaced.
        _refuse_empty_start(files)
        remove_database(files.database)
        create_database(files, lambda fresh: migrate(fresh, migrations, files.database))
    looking = connect_reader(files.database)
    try:
        wrong = _judge_present(files, looking)
    finally:
        looking.close()
    if wrong is not None:
        return SqliteLog(files, None, wrong, lock)
    connection = connect_writer(files.database)
    try:
        migrate(connection, migrations, files.database)
        anchor = AnchorFile(files.anchor, read_mark(connection))
        search_index.forget_outdated(
            files, connection
        )  # a crash may have come between an erasure and the cleaning of the index
        identity = FileIdentity(files, connection.execute("PRAGMA page_size").get)
        return SqliteLog(files, Writer(connection, anchor, on_fatal, identity, tell), None, lock)
    except BaseException:
        connection.close()
        raise


def _judge_present(files: StoreFiles, connection: apsw.Connection) -> str | None:
    """Return why nothing may be written to an existing database. None if it may be written.

    Raises if the database cannot even be read as a log.
    """
    refuse_newer(connection, load_migrations(), files.database)
    if read_version(connection) == 0:
        if count_tables(connection) == 0:
            raise say_unfinished(files.database)
        raise StoreDamaged(
            f"{files.database} is a database, but not of wakeful; move it away and use: wakeful restore BACKUP"
        )
    wrong = _judge(files, connection)
    if wrong is None and read_mark(connection).flush == 0:
        _refuse_empty_start(files)
    return wrong


def _refuse_empty_start(files: StoreFiles) -> None:
    """Refuse an empty store if its anchor proves records, or if runs of an earlier log left files.

    An empty start would hide the loss.
    """
    anchor = read_anchor(files.anchor)
    if anchor is not None and anchor.flush > 0:
        raise StoreBehindAnchor(
            f"{files.database} is empty or gone, but acknowledged: {count(anchor.position, 'record')}; {_WHAT_TO_DO}"
        )
    remains = [name for name in _REMAINS if _holds_files(files.state_dir / name)]
    if remains:
        raise StoreBehindAnchor(
            f"{files.state_dir} has no log, but has files of its runs ({', '.join(remains)}): "
            "its log was deleted or moved away. "
            "Put it back, or go back to a backup with: wakeful restore BACKUP. "
            "To start with an empty log, move the folder away: "
            f"mv {shlex.quote(str(files.state_dir))} {shlex.quote(f'{files.state_dir}.old')}"
        )


def _holds_files(folder: Path) -> bool:
    return any(names for _, _, names in os.walk(folder))


def _judge(files: StoreFiles, connection: apsw.Connection) -> str | None:
    try:
        anchor = read_anchor(files.anchor)
        newest = read_mark(connection)
        queries.try_opening(connection)
        return judge_store(anchor, newest, read_roll(connection, anchor.flush) if anchor else None)
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.IOError) as error:
        return f"it cannot be read: {error}"


class SqliteLog:
    """An open log. Implements every port of the contract."""

    def __init__(
        self, files: StoreFiles, writer: Writer | None, read_only: str | None, lock: StateLock | None = None
    ) -> None:
        self._files = files
        self._writer = writer
        self._read_only = read_only
        self._lock = lock
        self._is_closed = False
        self._own = threading.local()
        # The references are weak, so that the connection of an ended thread is collected with it.
        self._readers: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()

    @functools.cached_property
    def store(self) -> str:
        store: bytes = self._reader().execute("SELECT id FROM store").get
        return store.hex()

    @property
    def read_only(self) -> str | None:
        return self._read_only

    def append(self, appends: Sequence[Append], at: int) -> Durable:
        waiter = Durable(loop=asyncio.get_running_loop())
        self._put(AppendCall(appends, at, waiter))
        return waiter

    def append_blocking(self, appends: Sequence[Append], at: int) -> tuple[Appended, ...]:
        waiter: concurrent.futures.Future[tuple[Appended, ...]] = concurrent.futures.Future()
        self._put(AppendCall(appends, at, waiter))
        return waiter.result()

    def save_snapshot(self, session: str, seq: int, state: bytes) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(SnapshotCall(session, seq, state, waiter))
        return waiter

    def save_snapshot_blocking(self, session: str, seq: int, state: bytes) -> None:
        waiter: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._put(SnapshotCall(session, seq, state, waiter))
        waiter.result()

    def _put(self, call: Call) -> None:
        if self._is_closed:
            raise StoreClosed(f"{self._files.database}: the log is closed; open it again to append")
        if self._writer is None and self._lock is None:
            raise StoreReadOnly(
                f"{self._files.database} takes no appends: {self._read_only}; appends go through the daemon"
            )
        if self._writer is None:
            raise StoreBehindAnchor(f"{self._files.database} takes no appends: {self._read_only}; {_WHAT_TO_DO}")
        if self._writer.failed is not None:
            raise self._writer.failed
        self._writer.put(call)

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
        wanted = queries.Slice(from_seq, to_seq, kinds, run, author, newest_first)
        with self._explaining_damage(f"session {session}"):
            yield from queries.read_slice(self._reader(), session, wanted, since, until, limit)

    def head(self, session: str) -> Head:
        return import_store.read_head(self._reader(), session)

    def heads(self) -> dict[str, Head]:
        return queries.read_heads(self._reader())

    def find_key(self, session: str, key: str) -> Appended | None:
        row = (
            self._reader()
            .execute(
                "SELECT i.first_seq, i.last_seq, i.digest FROM session s JOIN idempotency i ON i.session = s.key "
                "WHERE s.id = ? AND i.key = ?",
                (session, key),
            )
            .fetchone()
        )
        return Appended(session, row[0], row[1], digest=row[2]) if row is not None else None

    def find_keys(self, key: str) -> list[Appended]:
        # One seek per session, because an index by key alone would slow down every append with a key.
        rows = self._reader().execute(
            "SELECT s.id, i.first_seq, i.last_seq, i.digest FROM session s CROSS JOIN idempotency i "
            "ON i.session = s.key AND i.key = ? ORDER BY s.key",
            (key,),
        )
        return [Appended(session, first, last, digest=digest) for session, first, last, digest in rows]

    def snapshot(self, session: str, at_or_before: int | None = None) -> Snapshot | None:
        bound = at_or_before if at_or_before is not None else 2**63 - 1
        while True:
            row = self._read_snapshot(session, bound)
            if row is None:
                return None
            # A damaged snapshot is skipped: an older one and a longer tail give the same state.
            if chain.hash_bytes(row[1]) == row[2]:
                return Snapshot(*row)
            bound = row[0] - 1

    def _read_snapshot(self, session: str, bound: int) -> tuple[int, bytes, bytes] | None:
        with self._explaining_damage(f"session {session}, its snapshots"):
            return (
                self._reader()
                .execute(
                    "SELECT n.seq, CAST(n.state AS BLOB), CAST(n.state_hash AS BLOB) FROM session s JOIN snapshot n "
                    "ON n.session = s.key "
                    "WHERE s.id = ? AND n.seq <= ? ORDER BY n.seq DESC LIMIT 1",
                    (session, bound),
                )
                .fetchone()
            )

    def tails(self) -> Iterator[tuple[str, Snapshot | None, list[Record] | StoreDamaged]]:
        connection = connect_reader(self._files.database)
        yielded: set[str] = set()
        try:
            for session, snapshot, records in queries.read_tails(connection):
                yielded.add(session)
                if snapshot is None or chain.hash_bytes(snapshot.state) == snapshot.state_hash:
                    yield session, snapshot, records
                else:
                    yield self._read_tail(session)
        except payload_check.UNREADABLE:
            # Damaged pages of one session stopped the pass over all sessions. The remaining ones are read one by one.
            with self._explaining_damage("the table of sessions"):
                left = [session for session in queries.read_sessions(self._reader()) if session not in yielded]
            for session in left:
                yield self._read_tail(session)
        finally:
            connection.close()

    def _read_tail(self, session: str) -> tuple[str, Snapshot | None, list[Record] | StoreDamaged]:
        try:
            snapshot = self.snapshot(session)
            end = queries.read_ends(self._reader()).get(session)
            return session, snapshot, list(self.read(session, from_seq=snapshot.seq + 1 if snapshot else 1, to_seq=end))
        except StoreDamaged as damaged:
            return session, None, damaged

    def position(self) -> int:
        newest: int = self._reader().execute("SELECT coalesce(max(id), 0) FROM event").get
        return newest

    def read_after(
        self,
        position: int,
        limit: int,
        kinds: Sequence[str] | None = None,
        *,
        imported: bool = False,
        most_bytes: int | None = None,
    ) -> tuple[int, list[Record]]:
        with self._explaining_damage(f"the records after {position}"):
            return queries.read_after(self._reader(), position, limit, kinds, imported=imported, most_bytes=most_bytes)

    def begin_import(self, session: str, last_seq: int, head: bytes, *, extend: bool = False) -> int:
        return self._keep(lambda connection: import_store.begin(connection, session, last_seq, head, extend))

    def import_records(self, session: str, records: Sequence[Record]) -> Head:
        waiter: concurrent.futures.Future[Head] = concurrent.futures.Future()
        self._put(ImportCall(session, records, waiter))
        return waiter.result()

    def import_next(self, session: str, record: Record) -> Head:
        waiter: concurrent.futures.Future[Head] = concurrent.futures.Future()
        self._put(ImportCall(session, [record], waiter, is_whole=True))
        return waiter.result()

    def finish_import(self, session: str, *, is_inert: bool = False) -> Head:
        return self._keep(lambda connection: import_store.finish(connection, session, is_inert))

    def sizes(self) -> dict[str, int]:
        return queries.read_sizes(self._reader())

    def imports(self) -> tuple[Import, ...]:
        return import_store.read_imports(self._reader())

    def erase(self, session: str, seqs: Iterable[int]) -> int:
        wanted = sorted(set(seqs))
        erased = self._keep(lambda connection: payload_store.erase(connection, session, wanted), is_erasing=True)
        search_index.forget_outdated(self._files, self._reader())
        payload_store.erase_in_copies(self._files, session, wanted)
        return erased

    def archive(self, session: str, through_seq: int) -> int:
        moved = 0
        for first in range(1, through_seq + 1, payload_store.BATCH):
            last = min(first + payload_store.BATCH - 1, through_seq)
            moved += self._keep(functools.partial(payload_store.archive, session=session, first=first, last=last))
        return moved

    def restore_payloads(self, session: str, records: Sequence[Record]) -> int:
        return self._keep(lambda connection: payload_store.restore(connection, session, records))

    def archived(self, session: str) -> Span | None:
        return payload_store.read_archived(self._reader(), session)

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
        return search_index.search(
            self._files, self._reader(), Query(text, session, since, until, kinds, author, limit)
        )

    def _keep(self, work: Callable[[apsw.Connection], Kept], *, is_erasing: bool = False) -> Kept:
        """Let the writer do this work in a transaction, and wait for it. Blocking."""
        waiter: concurrent.futures.Future[Kept] = concurrent.futures.Future()
        self._put(KeepCall(work, waiter, is_erasing))
        return waiter.result()

    def verify(self, session: str | None = None, progress: Progress | None = None) -> Report:
        is_tool = self._writer is None and self._lock is None
        return verification.verify_store(
            self._files.database, self._files.anchor, session, progress, may_use_process=is_tool
        )

    def backup(self, path: Path, progress: Progress | None = None) -> Report:
        return backup.back_up(self._files, path, progress)

    def find_loss(self) -> StoreGone | None:
        return self._writer.find_loss() if self._writer is not None else None

    def read_anchored(self) -> int | None:
        try:
            mark = read_anchor(self._files.anchor)
        except OSError:
            return None
        return mark.position if mark is not None else None

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for connection in list(self._readers):
            connection.close()
        if self._writer is not None:
            self._writer.stop()
        if self._lock is not None:
            self._lock.release()

    @contextlib.contextmanager
    def _explaining_damage(self, what: str) -> Iterator[None]:
        """Turn unreadable pages into StoreDamaged."""
        try:
            yield
        except payload_check.UNREADABLE as error:
            raise StoreDamaged(f"{self._files.database}: {what} cannot be read: {error}; {_WHAT_TO_DO}") from error

    def _reader(self) -> apsw.Connection:
        """Return the reading connection of this thread, because two threads must not use one connection at once."""
        if self._is_closed:
            raise StoreClosed(f"{self._files.database}: the log is closed; open it again to read")
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = connect_reader(self._files.database)
            self._readers.add(connection)
        return connection
