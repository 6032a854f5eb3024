"""What every engine promises of histories that move: imported, erased, archived, searched. Nothing here knows which engine it is."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from eventlog.engines import ENGINES, append, carry, draft, texts
from wakeful.eventlog.contract import (
    Append,
    BadImport,
    BadSearch,
    Conflict,
    Draft,
    EventLog,
    Head,
    Record,
    Span,
)

Open = Callable[[], EventLog]


@pytest.fixture(params=ENGINES)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    """A second log, elsewhere."""
    log = ENGINES[request.param](tmp_path / "elsewhere")
    yield log
    log.close()


@pytest.fixture
def source(other: EventLog) -> EventLog:
    """Elsewhere, with ten records of `a` over a clock that was set back."""
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


def look_twice(log: EventLog, open_again: Open) -> Iterator[EventLog]:
    """As it is, and after a restart."""
    yield log
    yield open_again()


# Importing


def test_an_imported_session_has_the_same_records_and_the_same_head(log: EventLog, source: EventLog) -> None:
    append(log, "mine", "before")
    carry(source, log, "a")
    assert list(log.read("a")) == list(source.read("a"))
    assert log.heads() == {"mine": log.head("mine"), "a": source.head("a")}
    assert [r.seq for r in log.read("a", since=15, until=30)] == [r.seq for r in source.read("a", since=15, until=30)]
    append(log, "a", "goes on here")
    assert log.verify().is_sound


def test_an_import_that_is_not_finished_is_hidden_takes_no_appends_and_is_listed(
    open_again: Open, source: EventLog
) -> None:
    log, head, records = open_again(), source.head("a"), list(source.read("a"))
    assert log.begin_import("a", 10, head.hash) == 1
    assert log.import_records("a", records[:4]) == Head(4, records[3].hash)
    for log in look_twice(log, open_again):
        assert (log.heads(), list(log.tails())) == ({}, [])
        assert [(begun.session, begun.seq, begun.last_seq, begun.head) for begun in log.imports()] == [
            ("a", 4, 10, head.hash)
        ]
        with pytest.raises(Conflict, match="import is not finished"):
            log.append_blocking([Append("a", 4, (draft("early"),))], at=1)
        with pytest.raises(BadImport, match="seq 4 of 10"):
            log.finish_import("a")
        assert (log.verify().is_sound, log.verify().unfinished) == (True, 1)


def test_a_session_that_is_here_stays_as_it_was_until_its_import_is_finished(
    open_again: Open, source: EventLog
) -> None:
    """Heads, tails and search end where it ended; then the rest counts, too."""
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 4, records[3].hash)
    log.import_records("a", records[:4])
    log.finish_import("a")
    assert log.begin_import("a", 10, records[9].hash, extend=True) == 5
    log.import_records("a", records[4:])
    for log in look_twice(log, open_again):
        assert log.heads() == {"a": Head(4, records[3].hash)}
        assert [(session, tail) for session, _, tail in log.tails()] == [("a", records[:4])]
        with pytest.raises(Conflict, match="import is not finished"):
            log.append_blocking([Append("a", 4, (draft("early"),))], at=1)
    log.finish_import("a")
    assert log.heads() == {"a": source.head("a")}
    assert [tail for _, _, tail in log.tails()] == [records]


def test_an_append_that_says_so_finishes_the_import_it_follows(open_again: Open, source: EventLog) -> None:
    """In one step, and only once all records have come."""
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
    for log in look_twice(log, open_again):
        assert log.imports() == () and log.heads()["a"].seq == 11
    append(log, "a", "goes on")
    assert log.verify().is_sound


def test_one_record_from_elsewhere_is_imported_in_one_step(open_again: Open, source: EventLog) -> None:
    """Nothing is announced that a crash could leave open, and nobody who follows this log is told of it."""
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
    for log in look_twice(log, open_again):
        assert log.imports() == () and log.heads() == {"a": source.head("a")}
        assert log.read_after(0, 100)[1] == []
    assert log.verify().is_sound


def test_a_longer_history_takes_the_place_of_an_import_that_was_never_finished(
    open_again: Open, source: EventLog
) -> None:
    """What came before is compared with it; another history is a conflict."""
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 6, records[5].hash)
    log.import_records("a", records[:6])
    assert log.begin_import("a", 10, records[9].hash) == 1
    with pytest.raises(Conflict, match="another import"):
        log.begin_import("a", 6, records[5].hash)
    log.import_records("a", records)
    assert log.finish_import("a") == source.head("a")
    assert log.read_after(0, 100)[1] == []


def test_an_import_goes_on_after_a_restart_where_it_was_left(open_again: Open, source: EventLog) -> None:
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
    open_again: Open, source: EventLog
) -> None:
    log, records = open_again(), list(source.read("a"))
    log.begin_import("a", 10, records[-1].hash)
    log.import_records("a", records)
    log.finish_import("a", is_inert=True)
    for log in look_twice(log, open_again):
        assert (log.heads(), list(log.tails()), log.imports()) == ({}, [], ())
        assert list(log.read("a")) == records and log.head("a") == source.head("a")
        assert log.verify().is_sound
    assert log.begin_import("a", 10, records[-1].hash) == 11
    log.finish_import("a")
    for log in look_twice(log, open_again):
        assert log.heads() == {"a": source.head("a")}
        assert [session for session, _, _ in log.tails()] == ["a"]


def test_records_that_are_here_and_equal_are_passed_over(log: EventLog, source: EventLog) -> None:
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


def test_an_empty_announcement_ends_without_a_trace(log: EventLog) -> None:
    with pytest.raises(BadImport):
        log.begin_import("a", 0, bytes(32))
    with pytest.raises(BadImport):
        log.begin_import("a", 3, b"short")
    assert log.imports() == ()


def test_another_history_of_the_same_session_is_a_conflict(log: EventLog, source: EventLog) -> None:
    append(log, "a", *"0123456789")
    head = source.head("a")
    with pytest.raises(Conflict, match="two histories"):
        log.begin_import("a", 10, head.hash)
    with pytest.raises(Conflict, match="two histories"):
        log.begin_import("a", 5, list(source.read("a"))[4].hash)
    append(log, "b", "1")
    append(source, "b", "2", "3")
    assert log.begin_import("b", 2, source.head("b").hash, extend=True) == 2
    with pytest.raises(Conflict, match="another record stands here"):
        log.import_records("b", list(source.read("b")))
    with pytest.raises(BadImport, match="does not follow"):
        log.import_records("b", list(source.read("b"))[1:])
    assert log.head("b").seq == 1


def test_a_shorter_session_is_extended_only_when_that_is_said(log: EventLog, source: EventLog) -> None:
    carry(source, log, "a")
    append(source, "a", "grown elsewhere")
    head = source.head("a")
    with pytest.raises(Conflict, match="a later past of the same session"):
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
    log: EventLog, source: EventLog, damage: dict[str, object], words: str
) -> None:
    records = list(source.read("a"))
    log.begin_import("a", 10, records[-1].hash)
    log.import_records("a", records[:2])
    with pytest.raises(BadImport, match=words):
        log.import_records("a", [records[2], change(records[3], **damage), *records[4:]])
    assert log.imports()[0].seq == 2
    assert log.import_records("a", records[2:]) == source.head("a")


@pytest.mark.parametrize("first", [-1, 0, 2, 99])
def test_a_batch_that_leaves_a_gap_is_refused(log: EventLog, source: EventLog, first: int) -> None:
    log.begin_import("a", 10, source.head("a").hash)
    (record,) = source.read("a", limit=1)
    with pytest.raises(BadImport):
        log.import_records("a", [change(record, seq=first)])
    with pytest.raises(BadImport):
        log.import_records("a", [])


def test_records_nobody_announced_are_refused(log: EventLog, source: EventLog) -> None:
    with pytest.raises(BadImport, match="no import was begun"):
        log.import_records("a", list(source.read("a")))
    log.begin_import("a", 3, list(source.read("a"))[2].hash)
    with pytest.raises(BadImport):
        log.import_records("a", list(source.read("a")))


def test_another_import_of_a_session_waits_for_the_first(log: EventLog, source: EventLog) -> None:
    records = list(source.read("a"))
    log.begin_import("a", 10, records[9].hash)
    with pytest.raises(Conflict, match="another import"):
        log.begin_import("a", 9, records[8].hash)


def test_what_was_erased_elsewhere_comes_in_as_erased(log: EventLog, source: EventLog) -> None:
    source.erase("a", [2])
    carry(source, log, "a")
    assert [record.payload for record in log.read("a", to_seq=3)] == [b'"0"', None, b'"2"']
    assert (log.verify().is_sound, log.verify().erased) == (True, 1)


def test_whoever_follows_the_log_is_not_told_of_imported_records(log: EventLog, source: EventLog) -> None:
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
    # Who wants all of them asks for that, and may ask for some kinds only.
    whole = log.read_after(0, 100, imported=True)[1]
    assert len(whole) == log.position() and {record.session for record in whole} == set(log.heads())
    assert log.read_after(0, 100, ("nothing",), imported=True) == (log.position(), [])
    assert (
        log.read_after(0, 2, (whole[0].kind,), imported=True)[1]
        == [record for record in whole if record.kind == whole[0].kind][:2]
    )


def test_an_import_goes_on_while_others_append(log: EventLog, source: EventLog) -> None:
    append(source, "long", *(str(number) for number in range(3_000)))
    importing = threading.Thread(target=carry, args=(source, log, "long"), kwargs={"batch": 100})
    importing.start()
    for number in range(50):
        append(log, "mine", str(number))
    importing.join()
    assert log.head("long") == source.head("long")
    assert log.verify().is_sound


# Erasing


def test_an_erased_payload_is_gone_and_the_chain_is_whole(open_again: Open) -> None:
    log = open_again()
    append(log, "a", "one", "secret", "three")
    before = list(log.read("a"))
    assert log.erase("a", [2]) == 1
    assert log.erase("a", [2]) == 0
    for log in look_twice(log, open_again):
        assert list(log.read("a")) == [before[0], change(before[1], payload=None), before[2]]
        report = log.verify()
        assert (report.is_sound, report.erased) == (True, 1)
    append(log, "a", "four")
    assert texts(log, "a") == ["one", "three", "four"]


def test_snapshots_that_could_hold_an_erased_payload_go_and_older_ones_stay(log: EventLog) -> None:
    append(log, "a", *"12345")
    append(log, "b", *"12345")
    for session in "ab":
        for seq in (1, 3, 5):
            log.save_snapshot_blocking(session, seq, b"state")
    log.erase("a", [3])
    newest = log.snapshot("a")
    assert newest is not None
    assert newest.seq == 1
    assert log.verify().snapshots == 4


def test_erasing_what_was_never_recorded_is_refused_whole(log: EventLog) -> None:
    append(log, "a", "one", "two")
    with pytest.raises(BadImport, match="no record at seq 3"):
        log.erase("a", [1, 3])
    assert texts(log, "a") == ["one", "two"]
    assert log.erase("nowhere", [1]) == 0
    assert log.erase("a", []) == 0


# Archiving


def test_archived_payloads_leave_and_come_back_exactly(open_again: Open) -> None:
    log = open_again()
    append(log, "a", *(str(number) for number in range(5_000)))
    append(log, "b", "stays")
    before = list(log.read("a"))
    assert log.archive("a", 4_500) == 4_500
    for log in look_twice(log, open_again):
        assert log.archived("a") == Span(1, 4_500)
        assert [record.payload is None for record in log.read("a", 4_499, 4_502)] == [True, True, False, False]
        report = log.verify()
        assert (report.is_sound, report.archived, report.erased) == (True, 4_500, 0)
    append(log, "a", "goes on")
    for start in range(0, 4_500, 1_000):
        log.restore_payloads("a", before[start : start + 1_000])
    assert list(log.read("a", to_seq=5_000)) == before
    assert log.archived("a") is None
    assert (log.verify().is_sound, log.verify().archived) == (True, 0)


def test_a_restore_that_stopped_goes_on_and_repeats_are_harmless(open_again: Open) -> None:
    log = open_again()
    append(log, "a", *"123456")
    before = list(log.read("a"))
    log.archive("a", 5)
    assert log.restore_payloads("a", before[:2]) == 2
    log = open_again()
    assert log.archived("a") == Span(3, 5)
    assert log.verify().archived == 3
    assert log.restore_payloads("a", before[:4]) == 2
    assert log.restore_payloads("a", before) == 1
    assert log.restore_payloads("a", before) == 0
    assert list(log.read("a")) == before


def test_an_archive_again_takes_what_was_restored_and_what_came_since(log: EventLog) -> None:
    append(log, "a", *"123456")
    before = list(log.read("a"))
    log.archive("a", 4)
    log.restore_payloads("a", before[:2])
    assert log.archive("a", 3) == 2
    assert log.archived("a") == Span(1, 4)
    assert log.archive("a", 6) == 2
    assert log.verify().is_sound
    log.restore_payloads("a", before)
    assert list(log.read("a")) == before


@pytest.mark.parametrize("record", [{"payload": b'"other"'}, {"payload": None, "payload_hash": bytes(32)}])
def test_a_wrong_payload_is_not_restored(log: EventLog, record: dict[str, object]) -> None:
    append(log, "a", *"123")
    before = list(log.read("a"))
    log.archive("a", 3)
    with pytest.raises(BadImport, match="seq 2: its payload is not the one"):
        log.restore_payloads("a", [before[0], change(before[1], **record), before[2]])
    with pytest.raises(Conflict, match="begin at seq 1"):
        log.restore_payloads("a", before[1:])
    assert log.archived("a") == Span(1, 3)


def test_what_was_erased_does_not_come_back_from_an_archive(log: EventLog) -> None:
    append(log, "a", *"123")
    before = list(log.read("a"))
    log.erase("a", [1])
    log.archive("a", 3)
    report = log.verify()
    assert (report.is_sound, report.erased, report.archived) == (True, 1, 2)
    assert log.erase("a", [2]) == 0
    log.restore_payloads("a", before)
    assert [record.payload for record in log.read("a")] == [None, None, b'"3"']
    assert (log.verify().is_sound, log.verify().erased) == (True, 2)


def test_an_archive_beyond_the_head_is_refused(log: EventLog) -> None:
    append(log, "a", *"123")
    for session, seq in (("a", 4), ("nowhere", 1)):
        with pytest.raises(BadImport, match="ends at"):
            log.archive(session, seq)
    assert log.archived("a") is None


# Searching


def found(log: EventLog, text: str, **bounds: object) -> list[tuple[str, int]]:
    return [(record.session, record.seq) for record in log.search(text, **bounds)]  # type: ignore[arg-type]


def note(
    log: EventLog,
    session: str,
    text: str,
    *,
    at: int = 1,
    kind: str = "note_added",
    author: str = "person",
    rationale: str | None = None,
) -> None:
    payload = msgspec.json.encode({"text": text})
    log.append_blocking(
        [Append(session, log.head(session).seq, (Draft(kind, payload, author, rationale=rationale),))], at
    )


def test_a_search_finds_the_records_with_all_words_the_newest_first(log: EventLog) -> None:
    note(log, "a", "the rates of March changed")
    note(log, "b", "Rates: see inputs/rates.csv")
    note(log, "a", "nothing here", rationale="because of the RATES")
    assert found(log, "rates") == [("a", 2), ("b", 1), ("a", 1)]
    assert found(log, "rates march") == [("a", 1)]
    assert found(log, "march nothing") == []
    assert found(log, '"of march"') == [("a", 1)]
    assert found(log, '"march of"') == []
    assert found(log, "inputs/rates.csv") == [("b", 1)]
    assert found(log, "chan*") == [("a", 1)]
    assert found(log, "chan") == []
    assert found(log, "text") == [], "the names of fields are not content"


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"session": "a"}, [("a", 2), ("a", 1)]),
        ({"session": "nowhere"}, []),
        ({"since": 2}, [("a", 2), ("b", 1)]),
        ({"until": 1}, [("a", 1)]),
        ({"kinds": ["fact_set"]}, [("b", 1)]),
        ({"kinds": []}, []),
        ({"author": "me"}, [("a", 2)]),
        ({"limit": 1}, [("a", 2)]),
        ({"limit": 0}, []),
    ],
)
def test_a_search_stays_within_its_bounds(
    log: EventLog, bounds: dict[str, object], expected: list[tuple[str, int]]
) -> None:
    note(log, "a", "word", at=1)
    note(log, "b", "word", at=2, kind="fact_set")
    note(log, "a", "word", at=3, author="me")
    assert found(log, "word", **bounds) == expected


@pytest.mark.parametrize(
    "text",
    [
        "naïve",
        "NAIVE",
        "日本語",
        "Müller-Lüdenscheidt",
        "x'; DROP TABLE",
        'say "',
        "a AND b",
        "NEAR(a b)",
        "text:word",
        "-5",
    ],
)
def test_any_text_can_be_searched_for(log: EventLog, text: str) -> None:
    note(log, "a", f"before {text.lower()} after, naïve")
    assert found(log, text) == [("a", 1)]


@pytest.mark.parametrize("text", ["", "   ", '"', "*", "...", '""'])
def test_a_search_for_nothing_says_so(log: EventLog, text: str) -> None:
    with pytest.raises(BadSearch):
        log.search(text)


def test_a_search_sees_what_was_recorded_since_the_last_one_and_after_a_restart(open_again: Open) -> None:
    log = open_again()
    assert found(log, "word") == []
    for number in range(3):
        note(log, "a", f"word {number}")
        assert len(found(log, "word")) == number + 1
    log = open_again()
    assert len(found(log, "word")) == 3


def test_what_was_erased_or_archived_is_not_found_and_what_was_restored_is(log: EventLog) -> None:
    for text in ("canary", "keeper", "keeper"):
        note(log, "a", text)
    before = list(log.read("a"))
    assert found(log, "canary") == [("a", 1)]
    log.erase("a", [1])
    assert found(log, "canary") == []
    log.archive("a", 2)
    assert found(log, "keeper") == [("a", 3)]
    log.restore_payloads("a", before)
    assert found(log, "keeper") == [("a", 3), ("a", 2)]
    assert found(log, "canary") == []


def test_an_import_is_found_once_it_is_finished(log: EventLog, other: EventLog) -> None:
    note(other, "a", "word")
    note(other, "a", "word")
    records = list(other.read("a"))
    log.begin_import("a", 2, records[1].hash)
    log.import_records("a", records)
    assert found(log, "word") == []
    log.finish_import("a")
    assert found(log, "word") == [("a", 2), ("a", 1)]


def test_a_payload_that_is_no_json_is_searched_as_text(log: EventLog) -> None:
    log.append_blocking([Append("a", 0, (Draft("kind", b"\xff not json word", "x"), Draft("kind", b"", "x")))], at=1)
    assert found(log, "word") == [("a", 1)]


# Verifying


def test_verification_tells_how_far_it_is(log: EventLog) -> None:
    append(log, "a", *(str(number) for number in range(100)))
    told: list[tuple[int, int]] = []
    log.verify(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (100, 100)
