"""A damaged record affects only its own session.

At the start the session is folded up to the damage and becomes read-only. Every other session is folded as usual.
"""

from pathlib import Path

import apsw
import pytest

from wakeful.core.calls.call_types import Activate, Called, Note, Open, Rename, Send, SleepAll, Terminate
from wakeful.core.decide import decide
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.events import Event, NoteAdded, SessionOpened, SpecDeclared
from wakeful.core.record.observations import Moment, SpecsRead
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import CallerError, InternalError
from wakeful.eventlog.codec import encode, encode_state
from wakeful.eventlog.contract import Append, Draft, EventLog
from wakeful.eventlog.sqlite import open_log
from wakeful.history.positions import fold_at
from wakeful.history.stored_sessions import load_sessions

RECORDS = 6


def record(log: EventLog, session: str, *events: Event) -> None:
    drafts = tuple(Draft(*encode(event), "wakeful") for event in events)
    log.append_blocking([Append(session, log.head(session).seq, drafts)], 7)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    log = open_log(tmp_path / "state")
    for name in ("a", "b", "c"):
        record(
            log,
            f"{name}{name}",
            SessionOpened(id=f"{name}{name}", name=name),
            SpecDeclared(spec=SessionSpec(name=name, root="/", objective="x"), version="v", text_digest="d"),
        )
        record(log, f"{name}{name}", *(NoteAdded(text=f"{name} {number} {'x' * 200}") for number in range(RECORDS - 2)))
    log.close()
    return tmp_path / "state"


def damage(state: Path, sql: str) -> None:
    """Change the database with SQL. As with flipped bits, the types of the columns do not prevent it."""
    path = str(state / "log" / "events.db")
    for change in ("replace(sql, ') STRICT', ')')", "sql || ' STRICT'"):
        connection = apsw.Connection(path)
        if change.startswith("sql"):
            connection.execute(sql)
        connection.execute(
            f"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = {change} WHERE name IN ('snapshot', 'payload')"
        )
        connection.close()


def load(state: Path) -> dict[str, Session]:
    log = open_log(state)
    try:
        assert log.read_only is None
        return {session.name: session for session in load_sessions(log)[0]}
    finally:
        log.close()


# Damages to session b, whose records have the ids 7 to 12: the SQL, the words of the error, the last seq read, and its
# name.
DAMAGES = {
    "a payload that is no JSON": (
        "UPDATE payload SET body = x'00' WHERE event = 10",
        "seq 4: its payload is not the one that was recorded",
        3,
        "b",
    ),
    "a payload that could be read": (
        'UPDATE payload SET body = CAST(\'{"text":"y"}\' AS BLOB) WHERE event = 10',
        "seq 4: its payload is not the one",
        3,
        "b",
    ),
    "a payload that became a text": (
        "UPDATE payload SET body = CAST(x'f062' AS TEXT) WHERE event = 10",
        "seq 4: its payload is not the one",
        3,
        "b",
    ),
    "a payload that is gone": (
        "DELETE FROM payload WHERE event = 10",
        "seq 4: its payload is gone, and not by erasure",
        3,
        "b",
    ),
    "its first payload": (
        "UPDATE payload SET body = x'00' WHERE event = 7",
        "seq 1: its payload is not the one",
        0,
        "b",
    ),
    "its first two payloads": (
        "UPDATE payload SET body = x'00' WHERE event IN (7, 8)",
        "seq 1 to 2: each of the 2: its payload",
        0,
        "damaged-bb",
    ),
    "a kind that nobody knows": (
        "UPDATE event SET kind = 'notx_added' WHERE id = 10",
        "seq 4: its hash does not follow",
        3,
        "b",
    ),
    "an author that is no text": (
        "UPDATE event SET author = CAST(x'f062' AS TEXT) WHERE id = 10",
        "its author is not text",
        0,
        "b",
    ),
}


@pytest.mark.parametrize(("sql", "words", "seq", "name"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_session_with_a_damaged_record_is_read_only_and_the_others_are_whole(
    state: Path, sql: str, words: str, seq: int, name: str
) -> None:
    whole = load(state)
    damage(state, sql)
    found = load(state)
    session = found.pop(name)
    assert isinstance(session, DamagedSession)
    assert words in session.damage
    assert (session.seq, session.run, session.wake) == (seq, None, None)
    assert session.is_shut
    assert not session.is_live
    assert found == {other: whole[other] for other in ("a", "c")}


def test_a_damaged_snapshot_is_passed_over_whatever_became_of_its_row(state: Path) -> None:
    whole = load(state)
    for sql in (
        "UPDATE snapshot SET state = x'00'",
        "UPDATE snapshot SET state = CAST(x'f062' AS TEXT)",
        "UPDATE snapshot SET state_hash = 5",
        "UPDATE snapshot SET seq = 400",
        "UPDATE snapshot SET session = 1",
    ):
        log = open_log(state)
        log.save_snapshot_blocking("bb", 4, encode_state(fold_at(log, "bb", 4)))
        log.close()
        damage(state, sql)
        assert load(state) == whole, sql
        damage(state, "DELETE FROM snapshot")


def test_a_damaged_payload_is_served_to_nobody(state: Path) -> None:
    damage(state, 'UPDATE payload SET body = CAST(\'{"text":"forged"}\' AS BLOB) WHERE event = 10')
    log = open_log(state)
    ways = (log.read("bb"), log.read_after(0, 100)[1], log.search("forged"), log.search("b"))
    for records in ways:
        for one in records:
            assert one.payload is None or b"forged" not in one.payload
            assert one.is_damaged == (one.session == "bb" and one.seq == 4)
    log.close()


def test_a_damaged_session_takes_no_call_and_no_record(state: Path) -> None:
    damage(state, "UPDATE payload SET body = x'00' WHERE event = 10")
    core = Core(load(state).values())
    moment = Moment(8, 8.0, 8.0)
    for call in (
        Note(name="b", text="x"),
        Open(name="b"),
        Rename(name="b", new="z"),
        Send(name="b", text="x"),
        Terminate(name="b"),
        Activate(name="b"),
    ):
        with pytest.raises(CallerError, match=r"b is read-only: seq 4: .*`wakeful doctor`.*`wakeful restore BACKUP`"):
            decide(core, Called(call=call, author="person:x"), moment)
    told = decide(core, Called(call=SleepAll(), author="person:x"), moment)
    assert {entry.session for entry in told.entries} == {"aa", "cc"}
    removed = decide(core, SpecsRead(declared=(), removed=(), refused={}), moment)
    assert {entry.session for entry in removed.entries} == {"aa", "cc"}
    with pytest.raises(InternalError, match="which is read-only"):
        core.emit(Decision(moment), "bb", NoteAdded(text="x"))


def test_an_error_that_is_no_damage_is_raised(state: Path) -> None:
    """The record comes from a newer release and its hashes are right. It must not be called damaged."""
    log = open_log(state)
    log.append_blocking([Append("bb", RECORDS, (Draft("something_newer", b"{}", "wakeful"),))], 7)
    with pytest.raises(InternalError, match="newer wakeful"):
        load_sessions(log)
    log.close()
