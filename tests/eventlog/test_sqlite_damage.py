"""No damage to files is silent: the log names it, and takes no appends if acknowledged records are missing.

Files are damaged in copies of a store that was killed, never in an open one.
"""

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from eventlog.engines import append, draft, texts
from wakeful.errors import WakefulError
from wakeful.eventlog.contract import Append, Report, StoreBehindAnchor, StoreDamaged, StoreReadOnly
from wakeful.eventlog.sqlite import SqliteLog, judge_state, open_log, open_reader
from wakeful.eventlog.sqlite.backup import restore
from wakeful.eventlog.sqlite.files import StoreFiles
from wakeful.eventlog.sqlite.repair import mend_store
from wakeful.eventlog.sqlite.verification import verify_store

APPENDER = Path(__file__).with_name("append_process.py")
RECORDS = 60


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of a process that was killed after its acknowledgements.

    Its records are in the write-ahead log alone.
    """
    state_dir = tmp_path_factory.mktemp("killed") / "state"
    process = subprocess.Popen(
        [sys.executable, str(APPENDER), str(state_dir), "1000000"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(RECORDS):
        process.stdout.readline()
    process.kill()
    process.communicate()
    assert (state_dir / "log" / "events.db-wal").stat().st_size > 100_000
    return state_dir


@pytest.fixture
def files(killed: Path, tmp_path: Path) -> StoreFiles:
    shutil.copytree(killed, tmp_path / "state")
    return StoreFiles(tmp_path / "state")


def wal(files: StoreFiles) -> Path:
    return files.database.with_name("events.db-wal")


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0x10
    path.write_bytes(content)


def truncate(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def zero_header(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[:32] = bytes(32)
    path.write_bytes(content)


LOG_DAMAGES: dict[str, Callable[[StoreFiles], None]] = {
    "a bit flipped at 1 %": lambda files: flip(wal(files), 0.01),
    "a bit flipped at 50 %": lambda files: flip(wal(files), 0.5),
    "a bit flipped near its end": lambda files: flip(wal(files), 0.97),
    "truncated to 70 %": lambda files: truncate(wal(files), 0.7),
    "truncated to nothing": lambda files: truncate(wal(files), 0),
    "its header zeroed": lambda files: zero_header(wal(files)),
    "deleted": lambda files: wal(files).unlink(),
    "deleted with its index": lambda files: (
        wal(files).unlink(),
        files.database.with_name("events.db-shm").unlink(missing_ok=True),
    ),
}


def test_a_killed_store_opens_and_goes_on(files: StoreFiles) -> None:
    log = open_log(files.state_dir)
    assert log.read_only is None
    append(log, "more", "one")
    assert log.verify().is_sound
    log.close()


@pytest.mark.parametrize("damage", LOG_DAMAGES.values(), ids=LOG_DAMAGES.keys())
def test_a_write_ahead_log_that_lost_records_opens_for_reading_alone(
    files: StoreFiles, damage: Callable[[StoreFiles], None]
) -> None:
    damage(files)
    before = wal(files).read_bytes() if wal(files).exists() else b""
    log = open_log(files.state_dir)
    try:
        assert log.read_only is not None
        assert "are missing" in log.read_only
        with pytest.raises(StoreBehindAnchor, match="wakeful doctor.*wakeful restore"):
            log.append_blocking([Append("s0", log.head("s0").seq, (draft("x"),))], at=1)
        assert [finding.where for finding in log.verify().findings] == ["anchor"]
    finally:
        log.close()
    # Data that may still be rescued from the log is left as it was.
    assert wal(files).read_bytes() == before


def test_a_store_without_a_database_does_not_start_empty(files: StoreFiles) -> None:
    for path in files.folder.glob("events.db*"):
        path.unlink()
    with pytest.raises(StoreBehindAnchor, match="empty or gone, but acknowledged: .* records"):
        open_log(files.state_dir)
    assert not files.database.exists()


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


FILE_DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: os.truncate(path, 0),
    "cut in half": lambda path: truncate(path, 0.5),
    "zeroed": zero,
    "noise": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
}


@pytest.mark.parametrize("damage", FILE_DAMAGES)
@pytest.mark.parametrize("name", ["events.db", "events.db-wal", "events.db-shm", "anchor"])
def test_no_damage_to_a_file_starts_empty_or_short_and_each_is_told_in_words(
    files: StoreFiles, killed: Path, name: str, damage: str
) -> None:
    """Either nothing was lost, or nothing is written and every tool reports the damage."""
    truth = read_heads(killed)
    rest = {path.name: path.read_bytes() for path in files.folder.iterdir() if path.name not in (name, "events.db-shm")}
    FILE_DAMAGES[damage](files.folder / name)
    assert (files.folder / name).exists() == (damage != "deleted"), "the fault did not fire"
    for look in (
        judge_state,
        lambda state: open_reader(state).verify(),
        mend_store,
        lambda state: open_reader(state).backup(state / "copy"),
    ):
        with contextlib.suppress(WakefulError):
            look(files.state_dir)
    try:
        log = open_log(files.state_dir)
    except WakefulError as refused:
        assert re.search("wakeful (doctor|restore)", str(refused))
    else:
        if log.read_only is None:
            assert {session: head.seq for session, head in log.heads().items()} == truth
            assert log.verify().is_sound
        log.close()
        if log.read_only is None:
            return
    left = {path.name: path.read_bytes() for path in files.folder.iterdir() if path.name in rest}
    assert left == rest, "what might still be rescued was changed"


def read_heads(state_dir: Path) -> dict[str, int]:
    copy = state_dir.with_name("truth")
    if not copy.exists():
        shutil.copytree(state_dir, copy)
    log = open_reader(copy)
    try:
        return {session: head.seq for session, head in log.heads().items()}
    finally:
        log.close()


def test_an_emptied_database_does_not_start_empty(files: StoreFiles) -> None:
    for path in files.folder.glob("events.db-*"):
        path.unlink()
    os.truncate(files.database, 0)
    with pytest.raises(StoreBehindAnchor, match="empty or gone"):
        open_log(files.state_dir)


def test_a_file_that_is_no_database_is_named(files: StoreFiles) -> None:
    for path in files.folder.glob("events.db-*"):
        path.unlink()
    files.database.write_bytes(b"not a database at all" * 500)
    with pytest.raises(StoreDamaged, match=r"events\.db cannot be read"):
        open_log(files.state_dir)


def make_store(state_dir: Path, *sessions: str) -> StoreFiles:
    log = open_log(state_dir)
    for session in sessions:
        append(log, session, *(f"{session} {number} " + "x" * 300 for number in range(20)))
    log.close()
    return StoreFiles(state_dir)


def test_an_older_copy_of_the_database_is_noticed(tmp_path: Path) -> None:
    files = make_store(tmp_path / "state", "a")
    older = files.database.read_bytes()
    make_store(tmp_path / "state", "b")
    files.database.write_bytes(older)
    log = open_log(files.state_dir)
    assert log.read_only == "it ends at record 20 of 40 acknowledged ones: 20 are missing"
    assert len(texts(log, "a")) == 20
    log.close()


def test_an_older_copy_that_was_written_to_is_noticed(tmp_path: Path) -> None:
    """The number of records is the same and the history is another. Only the roll shows the difference."""
    files = make_store(tmp_path / "state", "a")
    older = tmp_path / "older"
    shutil.copytree(files.state_dir, older)
    make_store(older, "c", "d")
    make_store(files.state_dir, "b")
    shutil.copy(older / "log" / "events.db", files.database)
    log = open_log(files.state_dir)
    assert log.read_only == "its history up to record 40 is not the one that was acknowledged"
    log.close()


def test_the_database_of_another_store_is_noticed(tmp_path: Path) -> None:
    files, other = make_store(tmp_path / "state", "a"), make_store(tmp_path / "other", "a", "b")
    shutil.copy(other.database, files.database)
    log = open_log(files.state_dir)
    assert "belongs to another store" in (log.read_only or "")
    log.close()


@pytest.mark.parametrize("content", [None, b"", b"\x00" * 8192, b"junk" * 100])
def test_a_store_without_its_anchor_is_read_only_until_a_person_accepts_it(
    tmp_path: Path, content: bytes | None
) -> None:
    """A person accepts the remaining records by restoring a backup of them.

    Nothing is lost by that either, because the old folder is kept.
    """
    files = make_store(tmp_path / "state", "a")
    if content is None:
        files.anchor.unlink()
    else:
        files.anchor.write_bytes(content)
    log = open_log(files.state_dir)
    assert "missing or unreadable" in (log.read_only or "")
    log.backup(tmp_path / "what-is-left")
    log.close()
    assert restore(tmp_path / "what-is-left", files.state_dir, even_if_newer=True) is not None
    log = open_log(files.state_dir)
    append(log, "a", "more")
    assert log.verify().is_sound
    log.close()


def test_a_store_ahead_of_its_anchor_is_sound_and_repairs_it(tmp_path: Path) -> None:
    """A crash came between the commit and the anchor."""
    files = make_store(tmp_path / "state", "a")
    anchor = files.anchor.read_bytes()
    make_store(tmp_path / "state", "b")
    assert files.anchor.read_bytes() != anchor
    files.anchor.write_bytes(anchor)
    log = open_log(files.state_dir)
    assert log.read_only is None
    log.close()
    assert files.anchor.read_bytes() != anchor
    assert open_reader(files.state_dir).verify().is_sound


def change(files: StoreFiles, sql: str) -> Report:
    """Change a closed store as only damage or an intruder would, and verify it."""
    connection = apsw.Connection(str(files.database))
    connection.execute(sql)
    connection.close()
    return verify_store(files.database, files.anchor)


@pytest.mark.parametrize(
    ("sql", "where", "what"),
    [
        ("UPDATE payload SET body = x'00' WHERE event = 25", "session b, seq 5", "its payload is not the one"),
        ("DELETE FROM payload WHERE event = 25", "session b, seq 5", "its payload is gone, and not by erasure"),
        ("UPDATE event SET author = 'mallory' WHERE id = 25", "session b, seq 5", "its hash does not follow"),
        (
            "UPDATE event SET author = CAST(x'f062' AS TEXT) WHERE id = 25",
            "session b, seq 5",
            "its author is not text: b'\\xf0b'",
        ),
        (
            "INSERT INTO idempotency VALUES (2, CAST(x'f062' AS TEXT), 19, 21, NULL)",
            "session b, keys",
            "cannot be read to its end",
        ),
        (
            "UPDATE session SET id = CAST(x'f062' AS TEXT) WHERE id = 'b'",
            "store",
            "the table of sessions cannot be read",
        ),
        ("UPDATE event SET hash = randomblob(32) WHERE id = 25", "session b, seq 5", "its hash does not follow"),
        ("UPDATE event SET seq = 77 WHERE id = 40", "session b, seq 77", "missing between them: 57 records"),
        ("DELETE FROM event WHERE id = 40", "flush 2", "record 40 of all sessions is missing"),
        (
            "UPDATE session SET id = 'z' WHERE id = 'b'",
            "session z, seq 1 to 20",
            "each of the 20: its hash does not follow",
        ),
        ("UPDATE flush SET roll = randomblob(32) WHERE number = 1", "flush 1", "do not match its hash"),
        ("DELETE FROM flush WHERE number = 2", "flushes", "records after the last flush"),
        (
            "INSERT INTO idempotency VALUES (1, 'k', 19, 21, NULL)",
            "session a, key 'k'",
            "which the session does not have",
        ),
        ("INSERT INTO clock_step VALUES (1, 3)", "session a, seq 3", "records wrongly"),
        ("INSERT INTO session VALUES (9, 'ghost')", "session ghost", "has no records"),
        ("INSERT INTO payload VALUES (999, x'00')", "store", "refers to a row of event that does not exist"),
        (
            "INSERT INTO snapshot VALUES (1, 3, x'00', x'00')",
            "session a, snapshot at seq 3",
            "not the one that was saved",
        ),
    ],
)
def test_verify_names_the_place_of_the_damage(tmp_path: Path, sql: str, where: str, what: str) -> None:
    report = change(make_store(tmp_path / "state", "a", "b"), sql)
    assert any(finding.where == where and what in finding.what for finding in report.findings), report.findings


def test_an_erased_payload_leaves_the_chain_whole(tmp_path: Path) -> None:
    files = make_store(tmp_path / "state", "a")
    report = change(files, "UPDATE payload SET body = NULL WHERE event = 5")
    assert (report.findings, report.erased) == ((), 1)
    log = open_reader(files.state_dir)
    assert [record.seq for record in log.read("a") if record.payload is None] == [5]
    log.close()


def test_a_bit_flipped_in_a_payload_is_named(tmp_path: Path) -> None:
    files = make_store(tmp_path / "state", "a", "b")
    content = bytearray(files.database.read_bytes())
    content[content.index(b'"b 7 xxx') + 100] ^= 1
    files.database.write_bytes(content)
    (finding,) = verify_store(files.database, files.anchor).findings
    assert (finding.where, finding.what) == ("session b, seq 8", "its payload is not the one that was recorded")


def test_no_flipped_bit_changes_what_is_read_unnoticed(tmp_path: Path) -> None:
    """Each of 90 random bits is either found, or changes nothing that can be read because it hit unused bytes."""
    files = make_store(tmp_path / "state", *"abcdef")
    whole = files.database.read_bytes()
    truth = read_everything(files.state_dir)
    chance = random.Random(7)
    found = 0
    for _ in range(90):
        content = bytearray(whole)
        content[chance.randrange(100, len(content))] ^= 1 << chance.randrange(8)
        files.database.write_bytes(content)
        try:
            is_found = not verify_store(files.database, files.anchor).is_sound
        except StoreDamaged:
            is_found = True
        if not is_found:
            assert read_everything(files.state_dir) == truth
        found += is_found
    assert found > 10


def read_everything(state_dir: Path) -> object:
    log = open_reader(state_dir)
    try:
        return log.read_after(0, 1_000), log.heads()
    finally:
        log.close()


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    log = open_log(tmp_path / "state")
    append(log, "a", *"12345")
    log.save_snapshot_blocking("a", 2, b"good")
    log.save_snapshot_blocking("a", 4, b"bad")
    log.close()
    change(StoreFiles(tmp_path / "state"), "UPDATE snapshot SET state = x'00' WHERE seq = 4")
    log = open_log(tmp_path / "state")
    snapshot = log.snapshot("a")
    assert snapshot is not None
    assert (snapshot.seq, snapshot.state) == (2, b"good")
    ((_, from_tails, records),) = log.tails()
    assert from_tails == snapshot
    assert [record.seq for record in records] == [3, 4, 5]
    log.close()


def test_every_snapshot_may_vanish_without_harm(tmp_path: Path) -> None:
    log = open_log(tmp_path / "state")
    append(log, "a", *"12345")
    log.save_snapshot_blocking("a", 4, b"state")
    log.close()
    assert change(StoreFiles(tmp_path / "state"), "DELETE FROM snapshot").is_sound
    log = open_log(tmp_path / "state")
    ((_, snapshot, records),) = log.tails()
    assert (snapshot, len(records)) == (None, 5)
    log.close()


def test_a_log_opened_for_reading_takes_no_appends(tmp_path: Path) -> None:
    make_store(tmp_path / "state", "a")
    log: SqliteLog = open_reader(tmp_path / "state")
    with pytest.raises(StoreReadOnly, match="opened for reading"):
        log.append_blocking([Append("a", 20, (draft("x"),))], at=1)
    log.close()
    with pytest.raises(StoreDamaged, match="does not exist"):
        open_reader(tmp_path / "nowhere")
