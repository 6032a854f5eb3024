"""The files of the SQLite store: their access rights, growth, migration, backup and restore."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from eventlog.engines import append, draft, texts
from wait_conditions import eventually
from wakeful.eventlog.contract import (
    Append,
    NewerSchema,
    RestoreRefused,
    StateInUse,
    StoreDamaged,
    StoreFailed,
    StoreUnsafe,
)
from wakeful.eventlog.sqlite import SqliteLog, open_log, open_reader, writer
from wakeful.eventlog.sqlite.anchor import AnchorFile, Mark
from wakeful.eventlog.sqlite.backup import finish_restore, restore
from wakeful.eventlog.sqlite.file_identity import FileIdentity
from wakeful.eventlog.sqlite.files import StoreFiles, connect_writer, read_mark
from wakeful.eventlog.sqlite.schema import Migration, load_migrations, migrate, read_version
from wakeful.eventlog.state_lock import lock_state

APPENDER = Path(__file__).with_name("append_process.py")


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.rglob("*"))}


# Access


def test_two_daemons_on_one_state_folder_the_second_names_the_first(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(APPENDER), str(tmp_path), "1000000"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StateInUse, match=f"in use by pid {process.pid}"):
            open_log(tmp_path)
    finally:
        process.kill()
        process.communicate()
    open_log(tmp_path).close()


def test_the_lock_of_one_process_excludes_itself_too_and_says_since_when(tmp_path: Path) -> None:
    lock = lock_state(tmp_path, "2026-01-01T00:00:00Z")
    with pytest.raises(StateInUse, match=f"pid {os.getpid()} since 2026-01-01T00:00:00Z"):
        lock_state(tmp_path)
    lock.release()
    lock.release()
    lock_state(tmp_path).release()


FORKING_HOLDER = """
import os, sys, time
from pathlib import Path
from wakeful.eventlog.state_lock import lock_state

lock = lock_state(Path(sys.argv[1]))
if os.fork() == 0:
    # Until it executes a program, a child holds what its parent had open.
    time.sleep(0.5)
    os.execvp("true", ["true"])
print("held", flush=True)
time.sleep(60)
"""


def test_a_child_of_a_killed_daemon_delays_the_next_and_keeps_it_out_no_longer(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", FORKING_HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.kill()
    process.wait()
    lock_state(tmp_path).release()
    process.stdout.close()


def test_a_stale_text_in_the_lock_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("pid 1 since for ever")
    lock_state(tmp_path).release()


def test_a_given_lock_stays_with_its_owner(tmp_path: Path) -> None:
    lock = lock_state(tmp_path)
    open_log(tmp_path, lock=lock).close()
    with pytest.raises(StateInUse):
        lock_state(tmp_path)
    lock.release()


def test_a_failed_open_lets_go_of_the_lock(tmp_path: Path) -> None:
    files = StoreFiles(tmp_path)
    files.folder.mkdir(parents=True)
    files.database.write_bytes(b"junk" * 1_000)
    for _ in range(2):
        with pytest.raises(StoreDamaged):
            open_log(tmp_path)


def test_only_we_can_read_the_store_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = open_log(tmp_path / "state")
        append(log, "a", "one")
        log.backup(tmp_path / "copy")
        found = modes(tmp_path)
        log.close()
    finally:
        os.umask(before)
    assert "state/log/events.db-wal" in found
    assert {name for name, mode in found.items() if mode not in (0o600, 0o700)} == set()


def test_a_state_folder_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    open_log(tmp_path / "state").close()
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnsafe, match=r"file/state cannot be used as state folder"):
        open_log(tmp_path / "file" / "state")
    (tmp_path / "log").write_text("in the way")
    with pytest.raises(StoreFailed, match="cannot be opened for writing"):
        open_log(tmp_path)
    (tmp_path / "log").unlink()
    open_log(tmp_path).close()


def test_connections_of_readers_that_ended_are_closed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", "one")

    def count() -> int:
        return sum(
            os.path.exists(one) and os.readlink(one).endswith("events.db") for one in Path("/proc/self/fd").iterdir()
        )

    before = count()
    for _ in range(20):
        reader = threading.Thread(target=lambda: list(log.read("a")))
        reader.start()
        reader.join()
    assert count() <= before + 1
    log.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: A FOLDER OF ANOTHER USER WAS NOT TRIED")
def test_the_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state" / "log").mkdir(parents=True)
    os.chown(tmp_path / "state" / "log", 12_345, 12_345)
    with pytest.raises(StoreUnsafe, match="belongs to user 12345"):
        open_log(tmp_path / "state")


def test_exactly_one_connection_can_write(tmp_path: Path) -> None:
    """Count by the kernel: of all our descriptors of the database, one is open for writing."""
    log = open_log(tmp_path)
    append(log, "a", "one")
    readers = [threading.Thread(target=lambda: list(log.read("a"))) for _ in range(4)]
    for reader in readers:
        reader.start()
        reader.join()
    list(log.tails())
    log.verify()
    writing = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            is_ours = os.readlink(descriptor) == str(tmp_path / "log" / "events.db")
        except FileNotFoundError:
            continue
        if is_ours:
            flags = int((Path("/proc/self/fdinfo") / descriptor.name).read_text().split("flags:")[1].split()[0], 8)
            writing.append(flags & os.O_ACCMODE)
    assert writing.count(os.O_RDWR) == 1
    assert len(writing) > 1
    log.close()


# Failures and growth


class BrokenAnchor(AnchorFile):
    """A disk that fails after some flushes of the anchor."""

    left = 3

    def flush(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "Input/output error")
        super().flush()


@pytest.mark.asyncio
async def test_after_a_failed_anchor_every_append_fails_and_the_owner_is_told_once(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    files = StoreFiles(tmp_path)
    told: list[StoreFailed] = []
    broken = BrokenAnchor(files.anchor, open_mark(files))
    log = open_with(files, broken, told)
    # The fourth record is durable in the log when it is acknowledged. The flush of its note in the anchor fails.
    for number in range(4):
        await log.append([Append("a", number, (draft(str(number)),))], at=1)
        eventually(lambda left=BrokenAnchor.left - number - 1: broken.left == left)

    async def attempt(number: int) -> object:
        return await log.append([Append("a", number, (draft(str(number)),))], at=1)

    answers = await asyncio.gather(*(attempt(number) for number in range(4, 10)), return_exceptions=True)
    assert all(isinstance(answer, StoreFailed) for answer in answers)
    with pytest.raises(StoreFailed, match="start the daemon again"):
        await log.append([Append("b", 0, (draft("late"),))], at=1)
    log.close()
    assert len(told) == 1


@pytest.mark.asyncio
async def test_an_anchor_that_fails_while_nobody_appends_is_told_all_the_same(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    files = StoreFiles(tmp_path)
    told: list[StoreFailed] = []
    broken = BrokenAnchor(files.anchor, open_mark(files))
    broken.left = 0
    log = open_with(files, broken, told)
    await log.append([Append("a", 0, (draft("last"),))], at=1)
    eventually(lambda: told)
    log.close()
    assert len(told) == 1


def open_with(files: StoreFiles, anchor: AnchorFile, told: list[StoreFailed]) -> SqliteLog:
    told_words: list[str] = []
    lock_state(files.state_dir).release()
    connection = connect_writer(files.database)
    read_mark(connection)
    return SqliteLog(
        files, writer.Writer(connection, anchor, told.append, FileIdentity(files, 8192), told_words.append), None
    )


def open_mark(files: StoreFiles) -> Mark:
    return Mark(open_store_id(files), 0, 0, bytes(32))


def open_store_id(files: StoreFiles) -> bytes:
    connection = apsw.Connection(str(files.database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute("SELECT id FROM store").get
    finally:
        connection.close()


def test_lone_appends_make_the_write_ahead_log_no_longer_once_it_is_laid_out(tmp_path: Path) -> None:
    """A flush then has no new file length to record."""
    wal = tmp_path / "log" / "events.db-wal"
    log = open_log(tmp_path)
    eventually(lambda: wal.stat().st_size == writer.LAID_OUT_BYTES)
    for _ in range(50):
        append(log, "a", "x" * 1000)
    assert wal.stat().st_size == writer.LAID_OUT_BYTES
    log.erase("a", [1])
    eventually(lambda: wal.stat().st_size == writer.LAID_OUT_BYTES)
    append(log, "a", "more")
    assert wal.stat().st_size == writer.LAID_OUT_BYTES
    assert log.verify().is_sound
    log.close()


def test_the_write_ahead_log_stays_bounded_and_is_put_away_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOAD_PAGES", 200)
    monkeypatch.setattr(writer, "REST_PAGES", 20)
    monkeypatch.setattr(writer, "REST_SECONDS", 0.05)
    log = open_log(tmp_path)
    reading = log.read("a")
    for number in range(400):
        append(log, "a", "x" * 5_000)
        if number == 10:
            next(reading)
    assert (tmp_path / "log" / "events.db-wal").stat().st_size < 3 * 200 * 8192
    # At rest all records move into the main file, whose growth shows it.
    eventually(lambda: (tmp_path / "log" / "events.db").stat().st_size > 400 * 5_000)
    assert log.verify().is_sound
    log.close()


# Migration


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [step.number for step in load_migrations()] == list(range(1, len(load_migrations()) + 1))


def test_a_store_of_a_newer_release_is_refused_untouched(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", "one")
    log.close()
    files = StoreFiles(tmp_path)
    connection = apsw.Connection(str(files.database))
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = files.database.read_bytes()
    for opens in (open_log, open_reader):
        with pytest.raises(NewerSchema, match="schema 999, this release knows up to"):
            opens(tmp_path)
    assert files.database.read_bytes() == before


def test_a_copy_is_kept_before_each_step_and_a_broken_step_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, "a", "one")
    log.close()
    files = StoreFiles(tmp_path)
    steps = load_migrations()
    good = Migration(len(steps) + 1, "next", "CREATE TABLE extra (x INTEGER)")
    broken = Migration(len(steps) + 2, "broken", "CREATE TABLE half (x INTEGER); INSERT INTO nowhere VALUES (1)")
    connection = connect_writer(files.database)
    with pytest.raises(apsw.SQLError, match="nowhere"):
        migrate(connection, (*steps, good, broken), files.database)
    connection.close()
    connection = connect_writer(files.database)
    assert read_version(connection) == good.number
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('extra', 'half')").get == 1
    migrate(connection, (*steps, good), files.database)
    connection.close()
    copies = sorted(path.name for path in files.folder.glob("before-migration-*.db"))
    assert copies == [f"before-migration-{number:03}.db" for number in (good.number, broken.number)]
    kept = apsw.Connection(str(files.folder / copies[0]), flags=apsw.SQLITE_OPEN_READONLY)
    assert (read_version(kept), kept.execute("SELECT count(*) FROM event").get) == (len(steps), 1)
    kept.close()


# Backup and restore


@pytest.fixture
def backed_up(tmp_path: Path) -> Path:
    """A backup of a store with the records one and two. The store has since recorded three."""
    log = open_log(tmp_path / "state")
    append(log, "a", "one", "two", key="k")
    log.save_snapshot_blocking("a", 1, b"state")
    log.backup(tmp_path / "copy")
    append(log, "a", "three")
    log.close()
    return tmp_path / "copy"


def test_a_backup_is_one_file_that_restores_elsewhere(backed_up: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("copy")) == ["copy"]
    assert restore(backed_up, tmp_path / "elsewhere") is None
    log = open_log(tmp_path / "elsewhere")
    assert log.read_only is None
    assert texts(log, "a") == ["one", "two"]
    assert log.find_key("a", "k") is not None
    append(log, "a", "another three")
    assert log.verify().is_sound
    log.close()


def test_a_restore_over_a_newer_store_is_refused_unless_told_and_keeps_the_old_one(
    backed_up: Path, tmp_path: Path
) -> None:
    with pytest.raises(RestoreRefused, match=r"holds 3 records .*holds 2; .*--even-if-newer"):
        restore(backed_up, tmp_path / "state")
    aside = restore(backed_up, tmp_path / "state", even_if_newer=True)
    log = open_log(tmp_path / "state")
    assert (log.read_only, texts(log, "a")) == (None, ["one", "two"])
    log.close()
    assert aside is not None
    # The old folder is a complete store with its own anchor, once it has its name again.
    (tmp_path / "again").mkdir()
    aside.rename(tmp_path / "again" / "log")
    log = open_log(tmp_path / "again")
    assert (log.read_only, texts(log, "a")) == (None, ["one", "two", "three"])
    log.close()


@pytest.mark.parametrize("content", [None, b"", b"no database at all" * 500])
def test_a_restore_heals_a_store_whose_database_is_lost_and_counts_what_its_anchor_remembers(
    backed_up: Path, tmp_path: Path, content: bytes | None
) -> None:
    log = open_log(tmp_path / "state")
    log.backup(tmp_path / "whole")
    log.close()
    files = StoreFiles(tmp_path / "state")
    for path in files.folder.glob("events.db*"):
        path.unlink()
    if content is not None:
        files.database.write_bytes(content)
    with pytest.raises(
        RestoreRefused, match=r"cannot be read any more \(3 acknowledged\), .* holds 2; .*--even-if-newer"
    ):
        restore(backed_up, tmp_path / "state")
    restore(tmp_path / "whole", tmp_path / "state")
    log = open_log(tmp_path / "state")
    assert (log.read_only, texts(log, "a")) == (None, ["one", "two", "three"])
    log.close()


def test_a_restore_over_a_store_behind_its_anchor_is_refused_unless_told(backed_up: Path, tmp_path: Path) -> None:
    """The store has no more records than the backup. Records that were acknowledged and then lost count, too."""
    files = StoreFiles(tmp_path / "state")
    shutil.copy(backed_up, files.database)
    with pytest.raises(RestoreRefused, match=r"holds 2 records \(3 acknowledged\), .* holds 2; .*--even-if-newer"):
        restore(backed_up, tmp_path / "state")
    assert restore(backed_up, tmp_path / "state", even_if_newer=True) is not None


def test_a_restore_over_another_history_is_refused_though_it_is_shorter(backed_up: Path, tmp_path: Path) -> None:
    """The store was restored and then went on. An older and longer backup does not have its new records."""
    restore(backed_up, tmp_path / "state", even_if_newer=True)
    log = open_log(tmp_path / "state")
    append(log, "a", "another three")
    append(log, "a", "four")
    log.backup(tmp_path / "longer")
    log.close()
    restore(backed_up, tmp_path / "state", even_if_newer=True)
    log = open_log(tmp_path / "state")
    append(log, "a", "a third three")
    log.close()
    with pytest.raises(RestoreRefused, match="holds 3 records .* holds 4 of another history"):
        restore(tmp_path / "longer", tmp_path / "state")


def test_a_restore_over_a_store_without_records_needs_no_word(backed_up: Path, tmp_path: Path) -> None:
    """A new machine on which the daemon was started once has nothing to lose."""
    open_log(tmp_path / "fresh").close()
    restore(backed_up, tmp_path / "fresh")
    log = open_log(tmp_path / "fresh")
    assert (log.read_only, texts(log, "a")) == (None, ["one", "two"])
    log.close()


def test_a_restore_under_a_live_daemon_is_refused(backed_up: Path, tmp_path: Path) -> None:
    log = open_log(tmp_path / "state")
    with pytest.raises(StateInUse):
        restore(backed_up, tmp_path / "state", even_if_newer=True)
    assert len(texts(log, "a")) == 3
    log.close()


def test_a_damaged_or_missing_backup_is_refused_and_changes_nothing(backed_up: Path, tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match="is not a file"):
        restore(tmp_path / "nowhere", tmp_path / "state")
    content = bytearray(backed_up.read_bytes())
    content[content.index(b'"two"') + 2] ^= 1
    backed_up.write_bytes(content)
    with pytest.raises(RestoreRefused, match="session a, seq 2: its payload"):
        restore(backed_up, tmp_path / "state", even_if_newer=True)
    backed_up.write_bytes(b"junk")
    with pytest.raises(StoreDamaged):
        restore(backed_up, tmp_path / "state", even_if_newer=True)
    log = open_log(tmp_path / "state")
    assert len(texts(log, "a")) == 3
    log.close()


def test_a_restore_killed_between_its_renames_is_finished_by_the_next_open(backed_up: Path, tmp_path: Path) -> None:
    restore(backed_up, tmp_path / "other")
    (tmp_path / "other" / "log").rename(tmp_path / "state" / "log.incoming")
    # Killed before the old store was moved away: the old one still counts.
    finish_restore(StoreFiles(tmp_path / "state"))
    log = open_log(tmp_path / "state")
    assert len(texts(log, "a")) == 3
    log.close()
    # Killed after that.
    (tmp_path / "state" / "log").rename(tmp_path / "state" / "log.before-restore-1")
    log = open_log(tmp_path / "state")
    assert (log.read_only, texts(log, "a")) == (None, ["one", "two"])
    log.close()


@pytest.mark.asyncio
async def test_a_backup_under_load_is_a_whole_moment_of_the_store(tmp_path: Path) -> None:
    log = open_log(tmp_path / "state")
    await log.append([Append("a", 0, (draft("first"),))], at=0)
    backup = asyncio.create_task(asyncio.to_thread(log.backup, tmp_path / "copy"))
    seq = 1
    while not backup.done():
        await log.append([Append("a", seq, (draft("x" * 1_000),)), Append("b", seq - 1, (draft("y"),))], at=seq)
        seq += 1
    assert (await backup).is_sound
    log.close()
    restore(tmp_path / "copy", tmp_path / "restored")
    restored = open_log(tmp_path / "restored")
    assert restored.head("a").seq == restored.head("b").seq + 1
    restored.close()
