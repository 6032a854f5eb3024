"""The promises of every engine about erased and archived payloads (contract.PayloadStore).

No test here knows which engine it runs on.
"""

from collections.abc import Callable

import msgspec
import pytest

from eventlog.engines import append, look_twice, texts
from wakeful.eventlog.contract import (
    BadImport,
    Conflict,
    DaemonLog,
    Record,
    Span,
)

Open = Callable[[], DaemonLog]

NEEDS = (
    "PayloadStore",
    "LogVerification",
)


def change(record: Record, **fields: object) -> Record:
    return msgspec.structs.replace(record, **fields)


# Erasing


def test_an_erased_payload_is_gone_and_the_chain_is_whole(open_again: Open) -> None:
    log = open_again()
    append(log, "a", "one", "secret", "three")
    before = list(log.read("a"))
    assert log.erase("a", [2]) == 1
    assert log.erase("a", [2]) == 0
    for opened in look_twice(log, open_again):
        assert list(opened.read("a")) == [before[0], change(before[1], payload=None), before[2]]
        report = opened.verify()
        assert (report.is_sound, report.erased) == (True, 1)
    append(opened, "a", "four")
    assert texts(opened, "a") == ["one", "three", "four"]


def test_snapshots_that_could_hold_an_erased_payload_go_and_older_ones_stay(log: DaemonLog) -> None:
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


def test_erasing_what_was_never_recorded_is_refused_whole(log: DaemonLog) -> None:
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
    for opened in look_twice(log, open_again):
        assert opened.archived("a") == Span(1, 4_500)
        assert [record.payload is None for record in opened.read("a", 4_499, 4_502)] == [True, True, False, False]
        report = opened.verify()
        assert (report.is_sound, report.archived, report.erased) == (True, 4_500, 0)
    append(opened, "a", "goes on")
    for start in range(0, 4_500, 1_000):
        opened.restore_payloads("a", before[start : start + 1_000])
    assert list(opened.read("a", to_seq=5_000)) == before
    assert opened.archived("a") is None
    assert (opened.verify().is_sound, opened.verify().archived) == (True, 0)


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


def test_an_archive_again_takes_what_was_restored_and_what_came_since(log: DaemonLog) -> None:
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
def test_a_wrong_payload_is_not_restored(log: DaemonLog, record: dict[str, object]) -> None:
    append(log, "a", *"123")
    before = list(log.read("a"))
    log.archive("a", 3)
    with pytest.raises(BadImport, match="seq 2: its payload is not the one"):
        log.restore_payloads("a", [before[0], change(before[1], **record), before[2]])
    with pytest.raises(Conflict, match="begin at seq 1"):
        log.restore_payloads("a", before[1:])
    assert log.archived("a") == Span(1, 3)


def test_what_was_erased_does_not_come_back_from_an_archive(log: DaemonLog) -> None:
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


def test_an_archive_beyond_the_head_is_refused(log: DaemonLog) -> None:
    append(log, "a", *"123")
    for session, seq in (("a", 4), ("nowhere", 1)):
        with pytest.raises(BadImport, match="ends at"):
            log.archive(session, seq)
    assert log.archived("a") is None
