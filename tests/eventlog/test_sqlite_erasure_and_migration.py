"""Promises that only the files can show.

Erased bytes are in no file, old stores are migrated, the search survives the loss of its index, and imports survive
kills.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from eventlog.engines import append, carry, texts
from wait_conditions import eventually, eventually_async
from wakeful.eventlog.contract import Append, Conflict, Draft, StoreDamaged
from wakeful.eventlog.memory_engine import MemoryLog
from wakeful.eventlog.sqlite import SqliteLog, open_log, open_reader, payload_check, payload_store
from wakeful.eventlog.sqlite.backup import restore
from wakeful.eventlog.sqlite.files import StoreFiles, connect_reader, create_database, prepare_folder
from wakeful.eventlog.sqlite.schema import load_migrations, migrate
from wakeful.eventlog.sqlite.writer import Writer

CANARY = "canary-5f0c9d1e"
IMPORTER = Path(__file__).with_name("import_process.py")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    log = open_log(tmp_path / "state")
    yield log
    log.close()


def find_canary(folder: Path) -> list[str]:
    """Search by another process: a descriptor on the store that this process closes would drop its locks."""
    found = subprocess.run(["grep", "-rla", CANARY, str(folder)], capture_output=True, text=True, check=False)
    return sorted(Path(line).name for line in found.stdout.splitlines())


def make_first_store(state_dir: Path, *sessions: str) -> StoreFiles:
    """Make a store as the first release did: one migration, ten records per session."""
    files = StoreFiles(state_dir)
    prepare_folder(files)
    create_database(files, lambda fresh: migrate(fresh, load_migrations()[:1], files.database))
    later = state_dir.with_name("later")
    log = open_log(later)
    for session in sessions:
        append(log, session, *(f"{session} {CANARY} {number}" for number in range(10)), key="k")
        log.save_snapshot_blocking(session, 5, CANARY.encode())
    log.close()
    old = apsw.Connection(str(files.database))
    old.execute("ATTACH ? AS later", (str(StoreFiles(later).database),))
    for table in ("session", "event", "payload", "idempotency", "snapshot", "clock_step", "flush"):
        columns = ", ".join(name for (name,) in old.execute("SELECT name FROM pragma_table_info(?)", (table,)))
        old.execute(f"INSERT INTO {table} SELECT {columns} FROM later.{table}")
    old.execute("UPDATE store SET id = (SELECT id FROM later.store)")
    old.close()
    StoreFiles(later).anchor.rename(files.anchor)
    return files


# Erasing


@pytest.mark.parametrize("size", [1, 10_000, 400_000], ids=["in the page", "over two pages", "over many pages"])
def test_erased_bytes_are_in_no_file_of_the_state_folder(log: SqliteLog, tmp_path: Path, size: int) -> None:
    append(log, "a", *(f"{CANARY} {'x' * size}" if number % 3 == 0 else "kept" for number in range(30)))
    log.save_snapshot_blocking("a", 20, f"a fold with {CANARY}".encode())
    assert log.search(CANARY)
    assert find_canary(tmp_path / "state")
    log.erase("a", range(1, 31, 3))
    assert find_canary(tmp_path / "state") == []
    append(log, "a", "goes on")
    assert texts(log, "a") == ["kept"] * 20 + ["goes on"]
    assert log.search(CANARY) == []
    assert log.verify().is_sound


def test_erased_words_leave_the_search_though_only_a_part_is_erased(log: SqliteLog, tmp_path: Path) -> None:
    """The index stores words, so it is searched for words and not for the text."""
    append(log, "a", "canaryword", "kept")
    log.search("canaryword")
    assert (
        subprocess.run(["grep", "-qa", "canaryword", str(tmp_path / "state/log/search.db")], check=False).returncode
        == 0
    )
    log.erase("a", [1])
    assert subprocess.run(["grep", "-rqa", "canaryword", str(tmp_path / "state")], check=False).returncode == 1
    assert [record.seq for record in log.search("kept")] == [2]


def test_an_erasure_waits_for_a_reader_that_holds_the_old_bytes_while_appends_go_on(
    log: SqliteLog, tmp_path: Path
) -> None:
    append(log, "a", CANARY, "kept")
    reader = connect_reader(tmp_path / "state/log/events.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM event").fetchall()
    append(log, "a", "after the reader began")
    erasing = threading.Thread(target=log.erase, args=("a", [1]))
    erasing.start()
    assert eventually(lambda: next(log.read("a")).payload is None)
    append(log, "a", "while it waits")
    assert erasing.is_alive()
    reader.close()
    erasing.join(60)
    assert not erasing.is_alive()
    assert find_canary(tmp_path / "state") == []


def test_a_start_removes_what_a_crash_left_of_an_erasure(log: SqliteLog, tmp_path: Path) -> None:
    """The kill comes between the commit and the emptying.

    The bytes are in the write-ahead log, and the index still has the words.
    """
    append(log, "a", CANARY, "kept")
    log.search(CANARY)
    log.close()
    code = (
        "import os, sys; from pathlib import Path; from wakeful.eventlog.sqlite import payload_store, files\n"
        "connection = files.connect_writer(files.StoreFiles(Path(sys.argv[1])).database)\n"
        "connection.execute('BEGIN IMMEDIATE'); payload_store.erase(connection, 'a', [1]); connection.execute('COMMIT'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "state")], check=False).returncode == 9
    assert find_canary(tmp_path / "state") != []
    opened = open_log(tmp_path / "state")
    try:
        assert eventually(lambda: find_canary(tmp_path / "state") == [])
        assert opened.search(CANARY) == []
    finally:
        opened.close()


def test_erased_bytes_leave_the_copies_the_store_made_of_itself(tmp_path: Path) -> None:
    make_first_store(tmp_path / "state", "a", "b")
    log = open_log(tmp_path / "state")
    log.backup(tmp_path / "copy")
    log.close()
    restore(tmp_path / "copy", tmp_path / "state", even_if_newer=True)
    log = open_log(tmp_path / "state")
    assert find_canary(tmp_path / "state") == [
        "before-migration-002.db",
        "before-migration-003.db",
        "before-migration-004.db",
        "events.db",
        "events.db",
    ]
    for session in "ab":
        log.erase(session, range(1, 11))
    assert find_canary(tmp_path / "state") == []
    aside = apsw.Connection(
        str(tmp_path / "state/log.before-restore-1/before-migration-002.db"), flags=apsw.SQLITE_OPEN_READONLY
    )
    assert aside.execute("SELECT count(*) FROM event").get == 20
    aside.close()
    log.close()


def test_an_old_copy_that_cannot_be_read_is_named_and_the_log_is_erased_all_the_same(
    log: SqliteLog, tmp_path: Path
) -> None:
    append(log, "a", "one")
    (tmp_path / "state/log.before-restore-1").mkdir()
    (tmp_path / "state/log.before-restore-1/events.db").write_bytes(b"junk" * 2_000)
    with pytest.raises(StoreDamaged, match=r"log.before-restore-1/events.db .* delete it"):
        log.erase("a", [1])
    assert [record.payload for record in log.read("a")] == [None]


def test_archived_bytes_leave_the_store(log: SqliteLog, tmp_path: Path) -> None:
    append(log, "a", *(CANARY for _ in range(50)))
    log.archive("a", 50)
    log.close()
    assert find_canary(tmp_path / "state") == []


# Migration of older stores


def test_a_store_of_the_first_release_is_taken_over_with_a_copy_kept(tmp_path: Path) -> None:
    files = make_first_store(tmp_path / "state", "a", "b")
    reader = open_reader(tmp_path / "state")
    before = {session: list(reader.read(session)) for session in "ab"}
    heads = reader.heads()
    assert (reader.verify().is_sound, reader.imports(), reader.archived("a")) == (True, (), None)
    assert len(list(reader.tails())) == 2
    reader.close()
    log = open_log(tmp_path / "state")
    assert log.read_only is None
    assert {session: list(log.read(session)) for session in "ab"} == before
    assert log.heads() == heads
    found = log.find_key("a", "k")
    assert found is not None and found.digest is None
    append(log, "a", "goes on")
    log.archive("a", 5)
    assert log.verify().is_sound
    log.close()
    kept = apsw.Connection(str(files.folder / "before-migration-002.db"), flags=apsw.SQLITE_OPEN_READONLY)
    assert (kept.execute("PRAGMA user_version").get, kept.execute("SELECT count(*) FROM event").get) == (1, 20)
    kept.close()


def test_a_backup_of_the_first_release_is_restored_and_taken_over(tmp_path: Path) -> None:
    files = make_first_store(tmp_path / "state", "a")
    assert restore(files.database, tmp_path / "fresh") is None
    log = open_log(tmp_path / "fresh")
    assert log.head("a").seq == 10
    assert log.verify().is_sound
    log.close()


# Searching


@pytest.mark.parametrize("damage", ["removed", "emptied", "junk", "cut", "flipped"])
def test_a_damaged_or_missing_index_is_made_anew(log: SqliteLog, tmp_path: Path, damage: str) -> None:
    append(log, "a", *(f"word{number} common" for number in range(500)))
    assert len(log.search("common", limit=1_000)) == 500
    index = tmp_path / "state/log/search.db"
    content = index.read_bytes()
    match damage:
        case "removed":
            index.unlink()
        case "emptied":
            index.write_bytes(b"")
        case "junk":
            index.write_bytes(b"junk" * 5_000)
        case "cut":
            index.write_bytes(content[: len(content) // 2])
        case "flipped":
            index.write_bytes(content[:100] + bytes(4_000) + content[4_100:])
    assert len(log.search("common", limit=1_000)) == 500
    assert [record.seq for record in log.search("word77")] == [78]


def test_the_index_of_another_store_is_not_believed(log: SqliteLog, tmp_path: Path) -> None:
    append(log, "a", "mine", "mine")
    log.search("mine")
    other = open_log(tmp_path / "other")
    append(other, "b", "theirs")
    (tmp_path / "state/log/search.db").rename(tmp_path / "other/log/search.db")
    assert other.search("mine") == []
    assert [record.session for record in other.search("theirs")] == ["b"]
    other.close()


def test_the_search_costs_nothing_before_somebody_searches(log: SqliteLog, tmp_path: Path) -> None:
    append(log, "a", "word")
    assert not (tmp_path / "state/log/search.db").exists()
    log.search("word")
    assert os.stat(tmp_path / "state/log/search.db").st_mode & 0o077 == 0


def test_a_reader_beside_the_daemon_may_search_too(log: SqliteLog, tmp_path: Path) -> None:
    append(log, "a", "word")
    reader = open_reader(tmp_path / "state")
    assert len(reader.search("word")) == 1
    append(log, "a", "word")
    assert (len(log.search("word")), len(reader.search("word"))) == (2, 2)
    reader.close()


# Importing


@pytest.mark.parametrize("after", [1, 3, 7])
def test_an_import_killed_at_any_batch_goes_on_and_ends_at_the_same_head(tmp_path: Path, after: int) -> None:
    source = open_log(tmp_path / "source")
    append(source, "a", *(str(number) for number in range(2_000)))
    head = source.head("a")
    source.close()
    process = subprocess.Popen(
        [sys.executable, str(IMPORTER), str(tmp_path / "source"), str(tmp_path / "target"), "a"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    source, target = open_reader(tmp_path / "source"), open_log(tmp_path / "target")
    assert target.read_only is None
    if target.imports():
        assert (target.heads(), list(target.tails())) == ({}, [])
    carry(source, target, "a", batch=100)
    assert target.heads() == {"a": head}
    assert target.verify().is_sound
    source.close()
    target.close()


def test_a_full_queue_of_appends_around_an_import_keeps_its_order(log: SqliteLog, tmp_path: Path) -> None:
    source = open_log(tmp_path / "source")
    append(source, "b", *"12345")
    importing = threading.Thread(target=carry, args=(source, log, "b"), kwargs={"batch": 1})
    importing.start()
    for number in range(200):
        log.append_blocking([Append("a", number, (Draft("kind", b"1", "x"),))], at=1)
    importing.join()
    source.close()
    assert (log.head("a").seq, log.head("b").seq) == (200, 5)
    assert log.verify().is_sound


@pytest.mark.asyncio
async def test_an_import_queued_behind_an_append_of_its_session_is_refused_and_the_log_goes_on(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were planned from the same earlier state of the store.

    Two records at one seq ended the process.
    """
    source = MemoryLog()
    append(source, "a", "1", "2")
    first, second = source.read("a")
    log.import_next("a", first)
    is_free, queued, put = threading.Event(), [], Writer.put
    monkeypatch.setattr(Writer, "put", lambda writer, call: (queued.append(call), put(writer, call)))
    is_held = threading.Event()
    monkeypatch.setattr(payload_store, "restore", lambda *_: (is_held.set(), is_free.wait(60)))
    holding = threading.Thread(target=log.restore_payloads, args=("a", []))
    holding.start()
    await eventually_async(is_held.is_set, what="the writer at work")
    appended = log.append([Append("a", 1, (Draft("kind", b"1", "x"),))], at=1)
    importing = asyncio.create_task(asyncio.to_thread(log.import_next, "a", second))
    await eventually_async(lambda: len(queued) == 3, what="both calls in the queue")
    is_free.set()
    assert [one.first_seq for one in await appended] == [2]
    with pytest.raises(Conflict, match="there is already another record here"):
        await importing
    holding.join()
    append(log, "a", "goes on")
    assert log.verify().is_sound and log.head("a").seq == 3


# Verifying


def test_a_large_store_is_verified_by_two_processes_that_find_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "state")
    for session in "ab":
        append(log, session, *(str(number) for number in range(300)))
    log.erase("a", [5])
    log.archive("b", 10)
    log.close()
    connection = apsw.Connection(str(tmp_path / "state/log/events.db"))
    connection.execute(
        "UPDATE payload SET body = x'00' WHERE event IN (7, 8, 9, 450); UPDATE event SET author = 'mallory' WHERE id IN (8, 20)"
    )
    connection.close()
    reader = open_reader(tmp_path / "state")
    alone = reader.verify()
    monkeypatch.setattr(payload_check, "WORTH_RECORDS", 1)
    together = reader.verify()
    # A second process that does not start, or is ended, is not needed.
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert reader.verify() == alone
    reader.close()
    assert together == alone
    assert (alone.erased, alone.archived) == (1, 10)
    assert [finding.where for finding in alone.findings if finding.where.startswith("session")] == [
        "session a, seq 7 to 9", "session a, seq 8", "session a, seq 20", "session b, seq 150",
    ]  # fmt: skip
