"""The promises of every engine about searches (contract.RecordSearch).

No test here knows which engine it runs on.
"""

from collections.abc import Callable

import msgspec
import pytest

from wakeful.eventlog.contract import (
    Append,
    BadSearch,
    DaemonLog,
    Draft,
)
from wakeful.eventlog.memory_engine import MemoryLog

Open = Callable[[], DaemonLog]

NEEDS = (
    "RecordSearch",
    "PayloadStore",
    "RecordImports",
)


def found(log: DaemonLog, text: str, **bounds: object) -> list[tuple[str, int]]:
    return [(record.session, record.seq) for record in log.search(text, **bounds)]  # type: ignore[arg-type]


def note(
    log: DaemonLog,
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


def test_a_search_finds_the_records_with_all_words_the_newest_first(log: DaemonLog) -> None:
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
    log: DaemonLog, bounds: dict[str, object], expected: list[tuple[str, int]]
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
def test_any_text_can_be_searched_for(log: DaemonLog, text: str) -> None:
    note(log, "a", f"before {text.lower()} after, naïve")
    assert found(log, text) == [("a", 1)]


@pytest.mark.parametrize("text", ["", "   ", '"', "*", "...", '""'])
def test_a_search_for_nothing_says_so(log: DaemonLog, text: str) -> None:
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


def test_what_was_erased_or_archived_is_not_found_and_what_was_restored_is(log: DaemonLog) -> None:
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


def test_an_import_is_found_once_it_is_finished(log: DaemonLog) -> None:
    other = MemoryLog()
    note(other, "a", "word")
    note(other, "a", "word")
    records = list(other.read("a"))
    log.begin_import("a", 2, records[1].hash)
    log.import_records("a", records)
    assert found(log, "word") == []
    log.finish_import("a")
    assert found(log, "word") == [("a", 2), ("a", 1)]


def test_an_inert_session_is_found(log: DaemonLog) -> None:
    """The past of a loaded fork is never opened, but people still search for its words."""
    other = MemoryLog()
    note(other, "a", "word")
    (record,) = other.read("a")
    log.begin_import("a", 1, record.hash)
    log.import_records("a", [record])
    log.finish_import("a", is_inert=True)
    assert (found(log, "word"), log.heads()) == ([("a", 1)], {})


def test_a_payload_that_is_no_json_is_searched_as_text(log: DaemonLog) -> None:
    log.append_blocking([Append("a", 0, (Draft("kind", b"\xff not json word", "x"), Draft("kind", b"", "x")))], at=1)
    assert found(log, "word") == [("a", 1)]
