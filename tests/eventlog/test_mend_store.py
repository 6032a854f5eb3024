"""Mending rebuilds derived data from the records, never writes to the records, and names their damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from eventlog.engines import append, texts
from wakeful.eventlog.contract import StateInUse, StoreBehindAnchor
from wakeful.eventlog.sqlite import open_log, open_reader
from wakeful.eventlog.sqlite.files import StoreFiles
from wakeful.eventlog.sqlite.repair import find_search_damage, mend_store
from wakeful.eventlog.sqlite.verification import verify_store

RECORDS = 400


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed in good order: two sessions, a clock that was set back, a key, a snapshot, a search
    index.
    """
    state = tmp_path_factory.mktemp("whole") / "state"
    log = open_log(state)
    append(log, "payroll", "word0", at=1, key="once")
    append(log, "payroll", *(f"word{number}" for number in range(1, 200)), at=1000)
    append(log, "payroll", *(f"word{number}" for number in range(200, RECORDS)), at=500)
    append(log, "other", "alone")
    log.save_snapshot_blocking("payroll", 100, b"a state")
    assert log.search("word7")
    log.close()
    return state


@pytest.fixture
def files(whole: Path, tmp_path: Path) -> StoreFiles:
    shutil.copytree(whole, tmp_path / "state")
    return StoreFiles(tmp_path / "state")


def change(files: StoreFiles, *statements: str) -> None:
    connection = apsw.Connection(str(files.database))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def lose_index_entries(files: StoreFiles) -> None:
    """Replace an index by one that lacks ten records but claims to be complete."""
    connection = apsw.Connection(str(files.database))
    sql = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'event_by_seq'").get
    connection.execute("DROP INDEX event_by_seq")
    connection.execute(f"{sql} WHERE id NOT BETWEEN 50 AND 59")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'event_by_seq'", (sql,))
    connection.execute("PRAGMA writable_schema = RESET")
    connection.close()


def spoil_index_pages(files: StoreFiles) -> None:
    connection = apsw.Connection(str(files.database))
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'event_by_seq'").get
    size = connection.execute("PRAGMA page_size").get
    connection.close()
    with files.database.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)


DERIVED: dict[str, Callable[[StoreFiles], None]] = {
    "entries are missing from an index": lose_index_entries,
    "a page of an index is noise": spoil_index_pages,
    "a step of the clock is forgotten": lambda files: change(files, "DELETE FROM clock_step"),
    "a step of the clock is made up": lambda files: change(files, "INSERT INTO clock_step VALUES (1, 12)"),
    "a snapshot is damaged": lambda files: change(files, "UPDATE snapshot SET state = x'00'"),
    "a key names records that are not there": lambda files: change(
        files, "UPDATE idempotency SET first_seq = 9000, last_seq = 9000"
    ),
}


def read_truth(files: StoreFiles) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(files.database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(
            "SELECT * FROM event NOT INDEXED LEFT JOIN payload ON payload.event = event.id ORDER BY event.id"
        ).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("spoil", DERIVED.values(), ids=DERIVED.keys())
def test_what_is_derived_is_found_told_again_and_then_sound(
    files: StoreFiles, spoil: Callable[[StoreFiles], None]
) -> None:
    """The mending keeps a copy of the earlier store, and the records stay byte for byte the same.

    A second mending has nothing to do.
    """
    truth = read_truth(files)
    spoil(files)
    assert any(finding.is_derived for finding in verify_store(files.database, files.anchor).findings)
    mended = mend_store(files.state_dir)
    assert mended.report.is_sound, mended
    assert mended.done and mended.copy is not None and mended.copy.stat().st_mode & 0o077 == 0
    assert read_truth(files) == truth
    again = mend_store(files.state_dir)
    assert (again.done, again.copy, again.report.is_sound) == ((), None, True)
    log = open_log(files.state_dir)
    try:
        assert log.read_only is None and texts(log, "payroll") == [f"word{number}" for number in range(RECORDS)]
        assert [record.seq for record in log.read("payroll", since=600)] == list(range(2, 201))
        append(log, "payroll", "more", key="once")
        assert log.head("payroll").seq >= RECORDS
    finally:
        log.close()


def test_a_damaged_search_index_is_removed_and_made_anew(files: StoreFiles) -> None:
    """The search index is a separate file, so the store is not copied."""
    files.search.write_bytes(b"noise" * 5000)
    assert find_search_damage(files.state_dir) is not None
    mended = mend_store(files.state_dir)
    assert len(mended.done) == 1 and "search" in mended.done[0] and mended.copy is None and not files.search.exists()
    reader = open_reader(files.state_dir)
    try:
        assert [record.seq for record in reader.search("word7")] == [8]
    finally:
        reader.close()


def test_damage_in_the_records_is_named_and_left_alone(files: StoreFiles) -> None:
    """The finding has the exact seqs. Nothing is written, so that damaged records may still be rescued.

    Derived data beside them is mended.
    """
    change(files, "UPDATE payload SET body = x'22' WHERE event IN (21, 22, 23)")
    before = files.database.read_bytes()
    mended = mend_store(files.state_dir)
    assert mended.done == () and mended.copy is None and files.database.read_bytes() == before
    (finding,) = mended.report.findings
    assert finding.where == "session payroll, seq 21 to 23" and not finding.is_derived
    change(files, "DELETE FROM clock_step")
    mended = mend_store(files.state_dir)
    assert len(mended.done) == 1 and mended.copy is not None
    assert [found.where for found in mended.report.findings] == ["session payroll, seq 21 to 23"]


def test_the_copy_forgets_what_is_erased_later(files: StoreFiles) -> None:
    change(files, "DELETE FROM clock_step")
    copy = mend_store(files.state_dir).copy
    assert copy is not None and b"word33" in copy.read_bytes()
    log = open_log(files.state_dir)
    log.erase("payroll", [34])
    log.close()
    assert b'word33"' not in copy.read_bytes()


def test_a_living_store_and_one_behind_its_anchor_are_not_mended(files: StoreFiles) -> None:
    """The lock of the daemon prevents mending. Lost records are not a matter of indexes."""
    log = open_log(files.state_dir)
    with pytest.raises(StateInUse):
        mend_store(files.state_dir)
    log.close()
    change(
        files,
        "DELETE FROM clock_step",
        "DELETE FROM payload WHERE event > 400",
        "DELETE FROM event WHERE id > 400",
        "DELETE FROM flush WHERE last_event > 400",
    )
    with pytest.raises(StoreBehindAnchor, match="cannot be mended.*wakeful restore"):
        mend_store(files.state_dir)
    assert not list(files.folder.glob("before-mend-*"))
