"""`doctor` over a damaged state folder: each damage is a line with its remedy, and `--mend` restores derived data."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from cli.conftest import run_wakeful
from wakeful.eventlog.contract import Append, Draft, EventLog
from wakeful.eventlog.sqlite import open_log
from wakeful.system.blobs import Blobs


def record(log: EventLog, session: str, kind: str, payload: Any, at: int = 1) -> None:
    draft = Draft(kind, json.dumps(payload).encode(), "person")
    log.append_blocking([Append(session, log.head(session).seq, (draft,))], at)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Make a log with a run that has output, an archived session and an interrupted load."""
    state = tmp_path / "state"
    log = open_log(state)
    address = Blobs(str(state / "blobs")).put(b"printed")
    record(log, "payroll", "note_added", {"text": "a"}, at=9)
    record(
        log,
        "payroll",
        "run_finished",
        {"run": 1, "outcome": "succeeded", "is_final": True, "output": {"head": address}},
        at=5,
    )
    record(log, "old", "note_added", {"text": "b"})
    record(log, "old", "session_archived", {"bundle": "old-1.bundle", "digest": "", "state": {}})
    log.archive("old", 1)
    log.begin_import("half", 12, b"h" * 32)
    log.save_snapshot_blocking("payroll", 1, b"{}")
    log.search("printed")
    log.close()
    return state


def ask(state: Path, *words: str) -> tuple[int, Any]:
    done = run_wakeful("doctor", *words, "--json", "--state", str(state), "--socket", str(state / "none"))
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def lines(state: Path, name: str) -> list[tuple[str, str, str]]:
    return [(check["verdict"], check["words"], check["mend"]) for check in ask(state)[1] if check["name"] == name]


def change(state: Path, *statements: str) -> None:
    connection = apsw.Connection(str(state / "log" / "events.db"))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_each_damage_is_named_with_what_mends_it(state: Path) -> None:
    """`doctor` names the missing bundle, the interrupted load and damaged derived data.
    For records that only a backup has, it names their seqs."""
    checks = {check["name"]: check for check in ask(state)[1]}
    assert checks["log"]["verdict"] == "good" and "every hash recomputed" in checks["log"]["words"]
    assert (
        checks["archive"]["verdict"] == "bad"
        and "old-1.bundle" in checks["archive"]["words"]
        and "backup" in checks["archive"]["mend"]
    )
    assert (
        checks["load"]["verdict"] == "warn"
        and "record 0 of 12" in checks["load"]["words"]
        and "wakeful load FILE" in checks["load"]["mend"]
    )
    assert "blobs" not in checks and "search" not in checks
    change(
        state,
        "DELETE FROM clock_step",
        "UPDATE snapshot SET state = x'00'",
        "UPDATE payload SET body = x'22' WHERE event = 1",
    )
    (state / "log" / "search.db").write_bytes(b"noise" * 2000)
    for blob in (state / "blobs").glob("??/*"):
        blob.unlink()
    (state / "archive").mkdir()
    (state / "archive" / "old-1.bundle").write_bytes(b"no bundle")
    (state / "archive" / "outputs").mkdir()
    (state / "archive" / "outputs" / "2026-01-31-1.zip").write_bytes(b"no zip")
    mend, restore = f"wakeful doctor --mend --state {state}", f"wakeful restore BACKUP --state {state}"
    found = {words.split(":")[0]: (verdict, mending) for verdict, words, mending in lines(state, "log")}
    assert found == {
        "session payroll, seq 1": ("bad", restore),
        "session payroll, seq 2": ("bad", mend),
        "session payroll, snapshot at seq 1": ("bad", mend),
    }
    checks = {check["name"]: check for check in ask(state)[1]}
    assert checks["search"]["mend"] == mend and checks["archive"]["verdict"] == "bad"
    assert [words.split(":")[0] for _, words, _ in lines(state, "archive")] == [
        f"session old is archived in {state / 'archive' / 'old-1.bundle'}, which is damaged",
        "the outputs of old runs",
    ]
    assert "1 of 1 blob" in checks["blobs"]["words"] and str(state / "blobs") in checks["blobs"]["mend"]


def test_mend_says_what_it_did_and_what_no_mending_brings_back(state: Path) -> None:
    """`--mend` exits with 0 when all is good again, and with 1 while records are lost. A second call does nothing."""
    change(state, "DELETE FROM clock_step", "UPDATE snapshot SET state = x'00'")
    code, answer = ask(state, "--mend")
    assert code == 0 and len(answer["done"]) == 2 and answer["left"] == [] and Path(answer["copy"]).is_file()
    assert lines(state, "log")[0][0] == "good"
    change(state, "UPDATE payload SET body = x'22' WHERE event = 1")
    code, answer = ask(state, "--mend")
    assert code == 1 and answer["done"] == [] and answer["copy"] is None
    assert "session payroll, seq 1" in answer["left"][0]["words"] and "wakeful restore" in answer["left"][0]["mend"]


def test_mend_is_refused_while_a_daemon_has_the_folder(state: Path) -> None:
    log = open_log(state)
    try:
        code, said = ask(state, "--mend")
        assert code == 1 and "stop it first" in said
    finally:
        log.close()


def test_a_page_that_is_noise_is_words(state: Path) -> None:
    """Noise in any page gives a line with a command, not a traceback."""
    database = state / "log" / "events.db"
    whole = database.read_bytes()
    for page in (1, len(whole) // 4096 // 2):
        database.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        code, checks = ask(state)
        assert code == 1 and any(
            check["name"] == "log" and check["verdict"] == "bad" and check["mend"] for check in checks
        ), page


def test_a_blob_whose_content_is_another_is_named(state: Path) -> None:
    (blob,) = (state / "blobs").glob("??/*")
    blob.write_bytes(b"prinTed")
    ((verdict, words, mend),) = lines(state, "blobs")
    assert verdict == "bad"
    assert words.startswith(f"blake2b-{blob.parent.name}{blob.name}: its content does not match its name")
    assert f"a backup of {state / 'blobs'}" in mend
    blob.unlink()
    ((verdict, words, _),) = lines(state, "blobs")
    assert (verdict, "1 of 1 blob are gone" in words) == ("warn", True)


@pytest.mark.faults
def test_a_write_ahead_log_that_a_reader_holds_open_is_told(tmp_path: Path) -> None:
    """The log says so once, beyond 64 MB. `doctor` says so as long as it lasts."""
    state, told = tmp_path / "state", []
    log = open_log(state, tell=told.append)
    record(log, "a", "note_added", {"text": "first"})
    reader = apsw.Connection(str(state / "log" / "events.db"), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT count(*) FROM event").fetchall()
    for number in range(72):
        record(log, "a", "note_added", {"text": f"{number}" + "x" * 1_000_000})
        assert not told or number > 60
    assert len(told) == 1
    assert "because a process keeps a read of the log open" in told[0]
    held = [(verdict, mend) for verdict, words, mend in lines(state, "log") if "write-ahead log has 7" in words]
    assert held == [
        ("warn", f"fuser -v {state / 'log' / 'events.db-wal'}        # end the process that is not the daemon")
    ]
    reader.close()
    for _ in range(40):
        record(log, "a", "note_added", {"text": "x" * 1_000_000})
    assert len(told) == 1
    assert not any("write-ahead log has" in words for _, words, _ in lines(state, "log"))
    log.close()


def make_unfinished(folder: Path) -> None:
    """Make a database as left by an earlier release that was killed in its first start: with a hot rollback journal."""
    folder.mkdir(parents=True)
    made = folder / "making"
    connection = apsw.Connection(str(made))
    connection.execute("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; CREATE TABLE a (b); BEGIN IMMEDIATE")
    for _ in range(50):
        connection.execute("INSERT INTO a VALUES (randomblob(5000))")
    for end in ("", "-journal"):
        (folder / f"events.db{end}").write_bytes(made.with_name(made.name + end).read_bytes())
    connection.close()
    made.unlink()


@pytest.mark.parametrize("words", [("verify",), ("doctor",), ("doctor", "--mend"), ("backup", "copy")])
def test_a_log_whose_making_was_cut_short_is_told_in_words(tmp_path: Path, words: tuple[str, ...]) -> None:
    make_unfinished(tmp_path / "state" / "log")
    done = run_wakeful(*words, "--state", str(tmp_path / "state"), "--socket", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    told = " ".join((done.stdout + done.stderr).split())
    assert "is empty, because its creation was interrupted; the next start of the daemon creates it again" in told
