"""The promises of every engine about records from elsewhere (contract.RecordImports).

No test here knows which engine it runs on.
"""

import threading
from collections.abc import Callable

import msgspec
import pytest

from eventlog.engines import append, carry, draft, look_twice
from wakeful.eventlog.contract import (
    Append,
    BadImport,
    Conflict,
    DaemonLog,
    Draft,
    Head,
    Record,
)
from wakeful.eventlog.memory_engine import MemoryLog

Open = Callable[[], DaemonLog]

NEEDS = (
    "RecordImports",
    "PayloadStore",
    "LogVerification",
)


@pytest.fixture
def source() -> MemoryLog:
    """Another log, with ten records of `a` over a clock that was set back."""
    other = MemoryLog()
    for number, at in enumerate([10, 20, 30, 15, 25, 35, 5, 5, 40, 41]):
        drafts = (
            Draft(
                "note_added",
                f'"{number}"'.encode(),
                f"person {number}",
                run=number,
                parent="b:1",
                rationale=f"because {number}",
            ),
        )
        other.append_blocking([Append("a", number, drafts)], at)
    return other


def test_an_imported_session_has_the_same_records_and_the_same_head(log: DaemonLog, source: DaemonLog) -> None:
    append(log, "mine", "before")
    carry(source, log, "a")
    assert list(log.read("a")) == list(source.read("a"))
    assert log.heads() == {"mine": log.head("mine"), "a": source.head("a")}
    assert [r.seq for r in log.read("a", since=15, until=30)] == [r.seq for r in source.read("a", since=15, until=30)]
    append(log, "a", "goes on here")
    assert log.verify().is_sound


def test_an_import_that_is_not_finished_is_hidden_takes_no_appends_and_is_listed(
    open_again: Open, source: DaemonLog
) -> None:
    log, head, records = open_again(), source.head("a"), list(source.read("a"))
    assert log.begin_import("a", 10, head.hash) == 1
    assert log.import_records("a", records[:4]) == Head(4, records[3].hash)
    for opened in look_twice(log, open_again):
        assert (opened.heads(), list(opened.tails())) == ({}, [])
        assert [(begun.session, begun.seq, begun.last_seq, begun.head) for begun in opened.imports()] == [
            ("a", 4, 10, head.hash)
        ]
        with pytest.raises(Conflict, match="import is not finished"):
            opened.append_blocking([Append("a", 4, (draft("early"),))], at=1)
        with pytest.raises(BadImport, match="seq 4 of 10"):
            opened.finish_import("a")
        assert (opened.verify().is_sound, opened.verify().unfinished) == (True, 1)


def test_a_session_that_is_here_stays_as_it_was_until_its_import_is_finished(
    open_again: Open, source: DaemonLog
) -> None:
    """Heads, tails and search end where the session ended before. After the import they include the rest."""
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 4, records[3].hash)
    log.import_records("a", records[:4])
    log.finish_import("a")
    assert log.begin_import("a", 10, records[9].hash, extend=True) == 5
    log.import_records("a", records[4:])
    for opened in look_twice(log, open_again):
        assert opened.heads() == {"a": Head(4, records[3].hash)}
        assert [(session, tail) for session, _, tail in opened.tails()] == [("a", records[:4])]
        with pytest.raises(Conflict, match="import is not finished"):
            opened.append_blocking([Append("a", 4, (draft("early"),))], at=1)
    opened.finish_import("a")
    assert opened.heads() == {"a": source.head("a")}
    assert [tail for _, _, tail in opened.tails()] == [records]


def test_an_append_that_says_so_finishes_the_import_it_follows(open_again: Open, source: DaemonLog) -> None:
    """Both happen in one step, and only once all records have come."""
    log, records = open_again(), list(source.read("a"))
    arrival = (draft("arrived"),)
    log.begin_import("a", 10, records[9].hash)
    log.import_records("a", records[:7])
    with pytest.raises(Conflict, match="import is not finished"):
        log.append_blocking([Append("a", 7, arrival, finishes_import=True)], at=1)
    log.import_records("a", records[7:])
    with pytest.raises(Conflict, match="import is not finished"):
        log.append_blocking([Append("a", 10, arrival)], at=1)
    log.append_blocking([Append("a", 10, arrival, finishes_import=True)], at=1)
    for opened in look_twice(log, open_again):
        assert opened.imports() == () and opened.heads()["a"].seq == 11
    append(opened, "a", "goes on")
    assert opened.verify().is_sound


def test_one_record_from_elsewhere_is_imported_in_one_step(open_again: Open, source: DaemonLog) -> None:
    """A crash cannot leave an announced import open. Followers of this log are not told of the record."""
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 9, records[8].hash)
    log.import_records("a", records[:9])
    with pytest.raises(Conflict, match="not finished"):
        log.import_next("a", records[9])
    log.finish_import("a")
    with pytest.raises(BadImport):
        log.import_next("a", msgspec.structs.replace(records[9], payload=b"another"))
    for _ in range(2):
        assert log.import_next("a", records[9]) == source.head("a")
    for opened in look_twice(log, open_again):
        assert opened.imports() == () and opened.heads() == {"a": source.head("a")}
        assert opened.read_after(0, 100)[1] == []
    assert opened.verify().is_sound


def test_a_longer_history_takes_the_place_of_an_import_that_was_never_finished(
    open_again: Open, source: DaemonLog
) -> None:
    """The records from before are compared with it, and another history is a conflict."""
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 6, records[5].hash)
    log.import_records("a", records[:6])
    assert log.begin_import("a", 10, records[9].hash) == 1
    with pytest.raises(Conflict, match="another import"):
        log.begin_import("a", 6, records[5].hash)
    log.import_records("a", records)
    assert log.finish_import("a") == source.head("a")
    assert log.read_after(0, 100)[1] == []


def test_an_import_goes_on_after_a_restart_where_it_was_left(open_again: Open, source: DaemonLog) -> None:
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 10, records[-1].hash)
    log.import_records("a", records[:7])
    log = open_again()
    assert log.begin_import("a", 10, records[-1].hash) == 8
    log.import_records("a", records[7:])
    assert log.finish_import("a") == source.head("a")
    assert log.imports() == ()
    assert list(log.read("a")) == records
    assert [session for session, _, _ in log.tails()] == ["a"]


def test_an_inert_session_is_read_by_its_id_and_opened_by_nobody_until_it_is_brought_in_for_good(
    open_again: Open, source: DaemonLog
) -> None:
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 10, records[-1].hash)
    log.import_records("a", records)
    log.finish_import("a", is_inert=True)
    for opened in look_twice(log, open_again):
        assert (opened.heads(), list(opened.tails()), opened.imports()) == ({}, [], ())
        assert list(opened.read("a")) == records and opened.head("a") == source.head("a")
        assert opened.verify().is_sound
    assert opened.begin_import("a", 10, records[-1].hash) == 11
    opened.finish_import("a")
    for again in look_twice(opened, open_again):
        assert again.heads() == {"a": source.head("a")}
        assert [session for session, _, _ in again.tails()] == ["a"]


def test_records_that_are_here_and_equal_are_passed_over(log: DaemonLog, source: DaemonLog) -> None:
    records = list(source.read("a"))
    log.begin_import("a", 10, records[-1].hash)
    for first, last in ((0, 4), (0, 4), (2, 7), (1, 10)):
        log.import_records("a", records[first:last])
    log.finish_import("a")
    assert list(log.read("a")) == records
    assert log.begin_import("a", 10, records[-1].hash) == 11
    assert log.begin_import("a", 4, records[3].hash) == 5
    assert log.imports() == ()
    assert log.position() == 10


def test_an_empty_announcement_ends_without_a_trace(log: DaemonLog) -> None:
    with pytest.raises(BadImport):
        log.begin_import("a", 0, bytes(32))
    with pytest.raises(BadImport):
        log.begin_import("a", 3, b"short")
    assert log.imports() == ()


def test_another_history_of_the_same_session_is_a_conflict(log: DaemonLog, source: DaemonLog) -> None:
    append(log, "a", *"0123456789")
    head = source.head("a")
    with pytest.raises(Conflict, match="two histories"):
        log.begin_import("a", 10, head.hash)
    with pytest.raises(Conflict, match="two histories"):
        log.begin_import("a", 5, list(source.read("a"))[4].hash)
    append(log, "b", "1")
    append(source, "b", "2", "3")
    assert log.begin_import("b", 2, source.head("b").hash, extend=True) == 2
    with pytest.raises(Conflict, match="there is already another record here"):
        log.import_records("b", list(source.read("b")))
    with pytest.raises(BadImport, match="does not follow"):
        log.import_records("b", list(source.read("b"))[1:])
    assert log.head("b").seq == 1


def test_a_shorter_session_is_extended_only_when_that_is_said(log: DaemonLog, source: DaemonLog) -> None:
    carry(source, log, "a")
    append(source, "a", "grown elsewhere")
    head = source.head("a")
    with pytest.raises(Conflict, match="the bundle has newer records of it"):
        log.begin_import("a", head.seq, head.hash)
    assert log.heads()["a"].seq == 10
    carry(source, log, "a", extend=True)
    assert log.head("a") == head
    assert log.verify().is_sound


def change(record: Record, **fields: object) -> Record:
    return msgspec.structs.replace(record, **fields)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"payload": b'"x"'}, "payload is not the one"),
        ({"payload": b'"x"', "payload_hash": bytes(32)}, "payload is not the one"),
        ({"payload_hash": bytes(32), "payload": None}, "does not follow"),
        ({"at": 16}, "does not follow"),
        ({"author": "somebody else"}, "does not follow"),
        ({"rationale": None}, "does not follow"),
        ({"hash": bytes(32)}, "does not follow"),
        ({"seq": 5}, "without a gap"),
        ({"session": "b"}, "without a gap"),
    ],
)
def test_a_batch_with_a_record_that_does_not_verify_is_refused_whole(
    log: DaemonLog, source: DaemonLog, damage: dict[str, object], words: str
) -> None:
    records = list(source.read("a"))
    log.begin_import("a", 10, records[-1].hash)
    log.import_records("a", records[:2])
    with pytest.raises(BadImport, match=words):
        log.import_records("a", [records[2], change(records[3], **damage), *records[4:]])
    assert log.imports()[0].seq == 2
    assert log.import_records("a", records[2:]) == source.head("a")


@pytest.mark.parametrize("first", [-1, 0, 2, 99])
def test_a_batch_that_leaves_a_gap_is_refused(log: DaemonLog, source: DaemonLog, first: int) -> None:
    log.begin_import("a", 10, source.head("a").hash)
    (record,) = source.read("a", limit=1)
    with pytest.raises(BadImport):
        log.import_records("a", [change(record, seq=first)])
    with pytest.raises(BadImport):
        log.import_records("a", [])


def test_records_nobody_announced_are_refused(log: DaemonLog, source: DaemonLog) -> None:
    with pytest.raises(BadImport, match="no import was begun"):
        log.import_records("a", list(source.read("a")))
    log.begin_import("a", 3, list(source.read("a"))[2].hash)
    with pytest.raises(BadImport):
        log.import_records("a", list(source.read("a")))


def test_another_import_of_a_session_waits_for_the_first(log: DaemonLog, source: DaemonLog) -> None:
    records = list(source.read("a"))
    log.begin_import("a", 10, records[9].hash)
    with pytest.raises(Conflict, match="another import"):
        log.begin_import("a", 9, records[8].hash)


def test_what_was_erased_elsewhere_comes_in_as_erased(log: DaemonLog, source: DaemonLog) -> None:
    source.erase("a", [2])
    carry(source, log, "a")
    assert [record.payload for record in log.read("a", to_seq=3)] == [b'"0"', None, b'"2"']
    assert (log.verify().is_sound, log.verify().erased) == (True, 1)


def test_whoever_follows_the_log_is_not_told_of_imported_records(log: DaemonLog, source: DaemonLog) -> None:
    append(log, "mine", "before")
    seen, _ = log.read_after(0, 100)
    head, records = source.head("a"), list(source.read("a"))
    log.begin_import("a", head.seq, head.hash)
    log.import_records("a", records[:5])
    seen, told = log.read_after(seen, 100)
    assert (seen, told) == (log.position(), [])
    log.import_records("a", records[5:])
    log.finish_import("a")
    append(log, "mine", "between")
    append(log, "a", "here")
    assert [(record.session, record.seq) for record in log.read_after(seen, 1)[1]] == [("mine", 2)]
    seen, told = log.read_after(seen, 100)
    assert [(record.session, record.seq) for record in told] == [("mine", 2), ("a", 11)]
    assert log.read_after(seen, 100) == (log.position(), [])
    assert [record.seq for record in log.read_after(0, 100)[1]] == [1, 2, 11]
    # A reader of all records asks for imported ones, and may limit them to some kinds.
    whole = log.read_after(0, 100, imported=True)[1]
    assert len(whole) == log.position() and {record.session for record in whole} == set(log.heads())
    assert log.read_after(0, 100, ("nothing",), imported=True) == (log.position(), [])
    assert (
        log.read_after(0, 2, (whole[0].kind,), imported=True)[1]
        == [record for record in whole if record.kind == whole[0].kind][:2]
    )


def test_an_import_goes_on_while_others_append(log: DaemonLog, source: DaemonLog) -> None:
    append(source, "long", *(str(number) for number in range(3_000)))
    importing = threading.Thread(target=carry, args=(source, log, "long"), kwargs={"batch": 100})
    importing.start()
    for number in range(50):
        append(log, "mine", str(number))
    importing.join()
    assert log.head("long") == source.head("long")
    assert log.verify().is_sound
