"""The files of the SQLite store: their paths, their permissions, and the functions that open them.

The other modules of the engine use it. Only SQLite may open the database or its shared index (`-shm`). If this process
closes any other descriptor of them, SQLite's locks are dropped, and the next reader deletes the live write-ahead log
(measured: 100 acknowledged, 0 survived). The write-ahead log itself is never locked, so `lay_out_wal` may open it to
make it longer. Exactly one connection writes, and it also does all checkpoints.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import apsw

from wakeful.eventlog.chain import NOTHING
from wakeful.eventlog.contract import StoreDamaged, StoreShort, StoreUnfinished, StoreUnsafe
from wakeful.eventlog.sqlite.anchor import Mark
from wakeful.eventlog.state_lock import refuse_remote
from wakeful.system.private_files import make_private, sync_folder

BUSY_MILLISECONDS = 10_000
_READER_CACHE_KIB = 512
# The tables that each version of the schema added. A store with an older schema can still be read, from a backup or
# next to the older daemon. A reading connection gets its missing tables as empty temporary ones.
_CAME_WITH = {
    2: """
    CREATE TEMP TABLE import (session, last_seq, head);
    CREATE TEMP TABLE inert (session);
    CREATE TEMP TABLE archived (session, first_seq, last_seq);
    CREATE TEMP TABLE payload_change (count);
    INSERT INTO payload_change VALUES (0);
    """,
    3: "CREATE TEMP TABLE imported (session, first_seq, last_seq)",
}
# With pages of 4 KiB, three records of 1 KiB fill a page and waste a quarter of it: a record takes 1,501 bytes. With 8
# KiB a record takes 1,312 bytes. Appends are equally fast.
_PAGE_BYTES = 8192
# The size to which a checkpoint truncates the write-ahead log. If it stays longer, a reader holds it, and it grows with
# every append.
WAL_KEPT_BYTES = 64 * 1024 * 1024
_WAL_HEADER_BYTES = 32
_STEP_BYTES = 64 * 1024
_FREE_TIMES = 100  # the multiple of the preallocated size that must be free


class StoreFiles:
    """The paths of a store inside a state folder.

    The log has its own folder, so that a restore can swap it in one step.
    """

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.folder = state_dir / "log"
        self.database = self.folder / "events.db"
        self.anchor = self.folder / "anchor"
        self.search = self.folder / "search.db"
        self.incoming = state_dir / "log.incoming"


def is_affected(version: tuple[int, int, int]) -> bool:
    """Can this SQLite corrupt a write-ahead log when two connections reset it at the same instant?

    The bug is as old as the write-ahead log (3.7.0). It is fixed in 3.51.3, 3.50.7 and 3.44.6; 3.52.0 was withdrawn."""
    match version:
        case (3, 52, 0):
            return True
        case (3, 44, patch):
            return patch < 6
        case (3, 50, patch):
            return patch < 7
    return version < (3, 51, 3)


def refuse_affected(version: str) -> None:
    """Raise StoreUnsafe for a SQLite that must not write."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    if is_affected((major, minor, patch)):
        raise StoreUnsafe(
            f"SQLite {version} can corrupt its write-ahead log (fixed in 3.51.3, 3.50.7 and 3.44.6); "
            "install a current apsw, which brings its own SQLite: pip install --upgrade apsw"
        )


def prepare_folder(files: StoreFiles) -> None:
    """Make the folders private, and refuse a file system whose locks and flushes cannot be trusted."""
    for folder in (files.state_dir, files.folder):
        make_private(folder)
        _keep_private(folder)
    sync_folder(files.state_dir)
    refuse_remote(files.folder)


def create_database(files: StoreFiles, migrate: Callable[[apsw.Connection], None]) -> None:
    """Make a database with its schema and no records.

    Only its owner can read it, with any umask. SQLite gives -wal and -shm the same mode. It is made under another name
    and renamed when it is complete and on disk, so that an interrupted start leaves nothing that looks like a log.
    """
    fresh = files.database.with_name(f"{files.database.name}.new")
    remove_database(fresh)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = connect_writer(fresh)
    try:
        migrate(connection)
    finally:
        connection.close()  # the last connection moves the write-ahead log into the file, flushes and removes it
    os.replace(fresh, files.database)
    sync_folder(files.folder)


def remove_database(database: Path) -> None:
    """Remove a database without acknowledged records.

    SQLite's files next to it are removed first, because they are useless without it.
    """
    for end in ("-journal", "-wal", "-shm", ""):
        database.with_name(database.name + end).unlink(missing_ok=True)


def is_blank(database: Path) -> bool:
    """Is there no database, or one without a schema? Called under the lock.

    In earlier releases an interrupted first start left such a file, perhaps with a rollback journal. A finished store
    has no rollback journal.
    """
    if not database.exists():
        return True
    try:
        connection = _roll_back(database) if _has_rollback_journal(database) else connect_reader(database)
    except StoreUnfinished:
        return True
    try:
        return count_tables(connection) == 0
    finally:
        connection.close()


def read_code(error: apsw.Error) -> int:
    """Return the extended result code of SQLite, which the type stubs of apsw lack."""
    code: int = getattr(error, "extendedresult", 0)
    return code


def count_tables(connection: apsw.Connection) -> int:
    tables: int = connection.execute("SELECT count(*) FROM main.sqlite_schema").get
    return tables


def _has_rollback_journal(database: Path) -> bool:
    journal = database.with_name(f"{database.name}-journal")
    return journal.exists() and journal.stat().st_size > 0


def _roll_back(database: Path) -> apsw.Connection:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    return connection


def connect_writer(database: Path) -> apsw.Connection:
    """Open the one connection that writes.

    Every commit is durable: synchronous=NORMAL lost 40 of 40 in a simulated power cut."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    for pragma in (
        f"page_size = {_PAGE_BYTES}",  # for a new file; an existing one keeps its own
        "journal_mode = WAL",
        "synchronous = FULL",
        "wal_autocheckpoint = 0",  # the writer decides when, so that no append waits for a checkpoint
        f"journal_size_limit = {WAL_KEPT_BYTES}",
        "foreign_keys = ON",
        "secure_delete = ON",  # the bytes of an erased payload must leave the pages, too
        "cell_size_check = ON",
        "cache_size = -8192",  # a busy log fills this cache
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def lay_out_wal(path: Path, size: int) -> None:
    """Preallocate the write-ahead log: write and flush zeros up to `size` bytes.

    Its one writer calls this between two commits. A commit then overwrites existing blocks, and its flush has no new
    length to record: 0.20 ms instead of 0.36 for a growing log. To a reader, zeros end the log, as the torn frame of a
    crash does. Bytes that SQLite wrote are not touched. On a nearly full disk nothing is preallocated, because the only
    purpose is to make commits quicker.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        # Commits continue without the preallocation, on the open descriptors.
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return
    try:
        disk, written = os.fstatvfs(file), os.fstat(file).st_size
        if disk.f_bavail * disk.f_frsize < size * _FREE_TIMES:
            return
        try:
            for start in range(written, size, _STEP_BYTES):
                os.pwrite(file, bytes(min(_STEP_BYTES, size - start)), start)
            os.fdatasync(file)
        except OSError as error:
            os.ftruncate(file, written)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
    finally:
        os.close(file)


RAISE_DESCRIPTORS = "LimitNOFILE=, ulimit -n"


def has_descriptor() -> bool:
    """Can this process open a file now? SQLite's error for a lack of descriptors is only "cannot open"."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def connect_reader(database: Path) -> apsw.Connection:
    """Open a connection that cannot write.

    It reads the schema at once, so that a file that is not a database is refused with a message.
    """
    _refuse_empty_store(database)
    try:
        return _connect_to_read(str(database), apsw.SQLITE_OPEN_READONLY)
    except apsw.CantOpenError as error:
        if not has_descriptor():
            raise StoreShort(
                f"{database} cannot be opened now: no file descriptor is left; "
                f"call again later, or raise the limit ({RAISE_DESCRIPTORS})"
            ) from error
        if database.is_file() and _is_mounted_read_only(database.parent):
            return _connect_beside_no_writer(database)
        raise StoreUnsafe(
            f"{database} cannot be opened: {error}; this does not mean that the log is damaged: "
            "check who may read it and write to its folder"
        ) from error
    except apsw.ReadOnlyError as error:
        if read_code(error) == apsw.SQLITE_READONLY_ROLLBACK:
            raise say_unfinished(database) from error
        raise StoreUnsafe(
            f"{database} cannot be read: {error}; this does not mean that the log is damaged: "
            "check who may write to its folder"
        ) from error
    except (apsw.NotADBError, apsw.CorruptError, apsw.IOError) as error:
        raise StoreDamaged(
            f"{database} cannot be read: {error}; move it away and use: wakeful restore BACKUP"
        ) from error


def _refuse_empty_store(database: Path) -> None:
    """Refuse an empty file before SQLite opens it.

    SQLite would delete the write-ahead log next to it, which may contain every record.
    """
    if not database.is_file() or database.stat().st_size:
        return
    wal = database.with_name(f"{database.name}-wal")
    if wal.exists() and _holds_frames(wal):
        raise StoreDamaged(
            f"{database} is empty, but {wal.name} next to it has records; keep a copy of both, then use: "
            "wakeful restore BACKUP"
        )
    raise say_unfinished(database)


def say_unfinished(database: Path) -> StoreUnfinished:
    return StoreUnfinished(
        f"{database} is empty, because its creation was interrupted; the next start of the daemon creates it again"
    )


def _connect_to_read(name: str, flags: int) -> apsw.Connection:
    connection = apsw.Connection(name, flags=flags)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    # Every thread of the daemon has its own connection. With SQLite's default of 2 MB their caches held 20 MB.
    connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
    version = connection.execute("PRAGMA user_version").get
    for number, tables in _CAME_WITH.items():
        if 0 < version < number:
            connection.execute(tables)
    return connection


def _connect_beside_no_writer(database: Path) -> apsw.Connection:
    """Open a store on a read-only mount, where SQLite cannot make the index of a write-ahead log.

    A properly closed store has no such log.
    """
    wal = database.with_name(f"{database.name}-wal")
    if wal.exists() and _holds_frames(wal):
        raise StoreUnsafe(
            f"{database.parent} is mounted read-only, and its newest records still lie in {wal.name}, which cannot be "
            "read there; the log is not damaged by that: "
            "copy the whole state folder to a place that can be written, and name that one with --state"
        )
    return _connect_to_read(
        f"file:{quote(str(database))}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )


def measure_wal(state_dir: Path) -> int:
    """Measure the write-ahead log of a state folder in bytes. 0 if there is none."""
    try:
        return os.stat(f"{StoreFiles(state_dir).database}-wal").st_size
    except FileNotFoundError:
        return 0


def _holds_frames(wal: Path) -> bool:
    """Does the write-ahead log contain records? A log that was only preallocated has no header yet."""
    with wal.open("rb") as file:
        return any(file.read(_WAL_HEADER_BYTES))


def _is_mounted_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def read_mark(connection: apsw.Connection) -> Mark:
    """Read the store's newest mark, to compare it with its anchor."""
    store = connection.execute("SELECT id FROM store").get
    row = connection.execute("SELECT number, last_event, roll FROM flush ORDER BY number DESC LIMIT 1").get
    flush, position, roll = row if row is not None else (0, 0, NOTHING)
    return Mark(store, flush, position, roll)


def read_roll(connection: apsw.Connection, flush: int) -> bytes | None:
    """Read the roll that the store has for one flush. None if it has no such flush."""
    if flush == 0:
        return NOTHING
    roll: bytes | None = connection.execute("SELECT roll FROM flush WHERE number = ?", (flush,)).get
    return roll


def _keep_private(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise StoreUnsafe(
            f"{folder} belongs to user {found.st_uid}, we run as {os.geteuid()}; "
            "choose a folder of our own with --state"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
