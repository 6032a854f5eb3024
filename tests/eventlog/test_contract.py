"""The promises of every engine of the log (contract.EventLog). No test here knows which engine it runs on."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.engines import append, draft, is_sound, needs, texts
from wakeful.eventlog.contract import (
    Append,
    Appended,
    BackupRefused,
    BadAppend,
    Conflict,
    DaemonLog,
    Draft,
    EventLog,
    Head,
    LogBackup,
    StoreClosed,
)

Open = Callable[[], EventLog]


# Appending


def test_an_append_gives_back_where_it_landed_and_reads_back_whole(log: EventLog) -> None:
    written = Draft("run_started", b'{"a":1}', "payroll", run=7, parent="hr:3", rationale="the rates changed")
    assert log.append_blocking([Append("payroll", 0, (written,))], at=42) == (Appended("payroll", 1, 1),)
    (record,) = log.read("payroll")
    assert (record.session, record.seq, record.at, record.kind) == ("payroll", 1, 42, "run_started")
    assert (record.author, record.run, record.parent, record.rationale) == ("payroll", 7, "hr:3", "the rates changed")
    assert record.payload == b'{"a":1}'
    assert log.head("payroll") == Head(1, record.hash)


def test_seqs_are_gap_free_from_one_in_every_session(log: EventLog) -> None:
    for number in range(5):
        append(log, "a", f"{number}")
        append(log, "b", f"{number}", f"{number}'")
    assert [record.seq for record in log.read("a")] == [1, 2, 3, 4, 5]
    assert [record.seq for record in log.read("b")] == list(range(1, 11))


@pytest.mark.parametrize("expected", [0, 1, 3, 99])
def test_an_append_at_another_head_than_expected_conflicts_and_writes_nothing(log: EventLog, expected: int) -> None:
    append(log, "a", "one", "two")
    with pytest.raises(Conflict, match=f"expected head {expected}, the log is at 2"):
        log.append_blocking([Append("a", expected, (draft("three"),))], at=1)
    assert texts(log, "a") == ["one", "two"]


def test_an_append_over_several_sessions_is_all_or_nothing(log: EventLog) -> None:
    append(log, "old", "one")
    with pytest.raises(Conflict):
        log.append_blocking([Append("new", 0, (draft("x"),)), Append("old", 0, (draft("y"),))], at=1)
    assert set(log.heads()) == {"old"}
    landed = log.append_blocking([Append("new", 0, (draft("x"),)), Append("old", 1, (draft("y"),))], at=1)
    assert landed == (Appended("new", 1, 1), Appended("old", 2, 2))


def test_one_call_may_append_twice_to_one_session_and_is_undone_whole(log: EventLog) -> None:
    log.append_blocking([Append("a", 0, (draft("1"),)), Append("a", 1, (draft("2"),))], at=1)
    with pytest.raises(Conflict):
        log.append_blocking([Append("a", 2, (draft("3"),)), Append("a", 2, (draft("4"),))], at=1)
    append(log, "a", "5")
    assert texts(log, "a") == ["1", "2", "5"]


@pytest.mark.parametrize(
    "bad",
    [
        Append("a", 1, ()),
        Append("a", 1, (draft("fine"), Draft("lone \ud800", b"{}", "x"))),
        Append("lone \ud800", 0, (draft("fine"),)),
        Append("a", 1, (Draft("kind", b"{}", "x", run=2**70),)),
        Append("a", 1, (Draft("kind", b"{}", "x", run=2**63),)),
        Append("a", 1, (Draft("kind", None, "x"),)),  # type: ignore[arg-type]
        Append("a", 1, (Draft("kind", "text", "x"),)),  # type: ignore[arg-type]
        Append("a", 1, (Draft(None, b"{}", "x"),)),  # type: ignore[arg-type]
    ],
    ids=[
        "no drafts",
        "not Unicode",
        "session not Unicode",
        "huge",
        "beyond 64 bits",
        "no payload",
        "payload is text",
        "no kind",
    ],
)
@pytest.mark.asyncio
async def test_what_cannot_be_recorded_is_refused_alone(log: EventLog, bad: Append) -> None:
    """This holds also if the bad append is in one group with good ones."""
    await log.append([Append("a", 0, (draft("before"),))], at=1)
    calls = [log.append([Append(f"s{number}", 0, (draft("good"),))], at=1) for number in range(5)]
    calls.insert(2, log.append([bad], at=1))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers.pop(2), BadAppend)
    assert answers == [(Appended(f"s{number}", 1, 1),) for number in range(5)]
    assert texts(log, "a") == ["before"]
    assert is_sound(log)


@pytest.mark.asyncio
async def test_many_appends_at_once_are_all_recorded_in_the_order_of_their_calls(log: EventLog) -> None:
    calls = [log.append([Append("a", number, (draft(str(number)),))], at=number) for number in range(2_000)]
    answers = await asyncio.gather(*calls)
    assert [landed.first_seq for (landed,) in answers] == list(range(1, 2_001))
    assert texts(log, "a") == [str(number) for number in range(2_000)]


@pytest.mark.asyncio
async def test_of_two_appends_at_one_head_the_first_wins(log: EventLog) -> None:
    first = log.append([Append("a", 0, (draft("first"),))], at=1)
    second = log.append([Append("a", 0, (draft("second"),))], at=1)
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert answers[0] == (Appended("a", 1, 1),)
    assert isinstance(answers[1], Conflict)


@pytest.mark.asyncio
async def test_a_cancelled_wait_does_not_undo_or_disturb(log: EventLog) -> None:
    async def wait() -> None:
        await appended

    appended = log.append([Append("a", 0, (draft("one"),))], at=1)
    given_up = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    # An engine may be so quick that nothing is left to cancel.
    is_given_up = not appended.done()
    given_up.cancel()
    assert await appended == (Appended("a", 1, 1),)
    await log.append([Append("b", 0, (draft("two"),))], at=1)
    assert texts(log, "a") == ["one"]
    (outcome,) = await asyncio.gather(given_up, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError) is is_given_up


@pytest.mark.asyncio
async def test_an_append_cannot_be_cancelled_and_its_callbacks_come_in_the_order_they_were_added(log: EventLog) -> None:
    """This holds also if the append is refused."""
    for expected, error in ((0, None), (7, Conflict)):
        told: list[str] = []
        appended = log.append([Append("a", expected, (draft("one"),))], at=1)
        appended.add_done_callback(lambda _, told=told: told.append("first"))
        assert not appended.cancel()
        await asyncio.wait((appended,))
        told.append("then whoever waited")
        assert told == ["first", "then whoever waited"]
        assert appended.exception() is None if error is None else isinstance(appended.exception(), error)


@pytest.mark.parametrize("text", ["", "naïve ☃ 🌊", "a\x00b", "line\nbreak", "x" * 100_000])
def test_any_text_survives(log: EventLog, text: str) -> None:
    log.append_blocking(
        [Append(f"s{text[:50]}", 0, (Draft("kind", text.encode(), f"me{text[:50]}", rationale=text),))], at=-5
    )
    (record,) = log.read(f"s{text[:50]}")
    assert (record.payload, record.rationale, record.author, record.at) == (text.encode(), text, f"me{text[:50]}", -5)
    assert is_sound(log)


# Keys


def test_a_repeated_key_writes_nothing_and_gives_back_where_it_landed_first(log: EventLog) -> None:
    append(log, "a", "one", "two", key="k")
    append(log, "a", "three")
    again = log.append_blocking([Append("a", 0, (draft("one"), draft("two")), "k")], at=9)
    assert again == (Appended("a", 1, 2, duplicate=True),)
    assert texts(log, "a") == ["one", "two", "three"]
    assert log.find_key("a", "k") == Appended("a", 1, 2)
    assert log.find_key("a", "other") is None
    assert log.find_key("nowhere", "k") is None


def test_a_key_is_remembered_after_a_restart(open_again: Open) -> None:
    append(open_again(), "a", "one", key="k")
    log = open_again()
    assert log.append_blocking([Append("a", 0, (draft("one"),), "k")], at=1) == (Appended("a", 1, 1, duplicate=True),)


def test_the_digest_of_a_key_is_remembered_after_a_restart(open_again: Open) -> None:
    open_again().append_blocking([Append("a", 0, (draft("one"),), "k", digest=b"\0digest")], at=1)
    append(open_again(), "a", "two", key="plain")
    log = open_again()
    assert log.find_key("a", "k") == Appended("a", 1, 1, digest=b"\0digest")
    assert log.find_key("a", "plain") == Appended("a", 2, 2)
    assert log.find_keys("k") == [Appended("a", 1, 1, digest=b"\0digest")]


def test_the_same_key_in_another_session_is_another_key(log: EventLog) -> None:
    append(log, "a", "one", key="k")
    append(log, "b", "one", key="k")
    assert texts(log, "b") == ["one"]


def test_a_known_key_stops_the_whole_call(log: EventLog) -> None:
    append(log, "a", "one", key="k")
    landed = log.append_blocking([Append("b", 0, (draft("x"),)), Append("a", 1, (draft("one"),), "k")], at=1)
    assert landed == (Appended("b", 0, 0, duplicate=True), Appended("a", 1, 1, duplicate=True))
    assert log.head("b").seq == 0


@pytest.mark.asyncio
async def test_a_key_repeated_before_the_first_is_durable_lands_once(log: EventLog) -> None:
    calls = [log.append([Append("a", 0, (draft("one"),), "k")], at=1) for _ in range(10)]
    answers = [landed for (landed,) in await asyncio.gather(*calls)]
    assert [landed.duplicate for landed in answers] == [False] + [True] * 9
    assert {(landed.first_seq, landed.last_seq) for landed in answers} == {(1, 1)}
    assert texts(log, "a") == ["one"]


def test_a_key_twice_in_one_call_is_refused(log: EventLog) -> None:
    with pytest.raises(BadAppend, match="twice in one call"):
        log.append_blocking([Append("a", 0, (draft("x"),), "k"), Append("a", 1, (draft("y"),), "k")], at=1)
    assert log.heads() == {}
    append(log, "a", "one", key="k")
    assert texts(log, "a") == ["one"]


# Reading


@pytest.fixture
def long_log(log: EventLog) -> EventLog:
    """Record 2,500 records of `a`, ten per 100 microseconds, of two kinds, two authors and 25 runs, and `b` in
    between.
    """

    async def fill() -> None:
        calls = []
        for start in range(0, 2_500, 10):
            drafts = tuple(
                draft(str(n), kind="even" if n % 2 == 0 else "odd", author="x" if n % 3 else "y", run=start // 100)
                for n in range(start, start + 10)
            )
            calls.append(
                log.append([Append("a", start, drafts), Append("b", start // 10, (draft("between"),))], at=start * 10)
            )
        await asyncio.gather(*calls)

    asyncio.run(fill())
    return log


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, range(1, 2501)),
        ({"from_seq": 2400}, range(2400, 2501)),
        ({"from_seq": -5, "to_seq": 3}, range(1, 4)),
        ({"from_seq": 1200, "to_seq": 1299}, range(1200, 1300)),
        ({"from_seq": 10, "to_seq": 9}, []),
        ({"from_seq": 9000}, []),
        ({"limit": 0}, []),
        ({"limit": 5}, range(1, 6)),
        ({"limit": 1500}, range(1, 1501)),
        ({"limit": 5, "newest_first": True}, range(2500, 2495, -1)),
        ({"newest_first": True}, range(2500, 0, -1)),
        ({"from_seq": 3, "to_seq": 8, "newest_first": True}, range(8, 2, -1)),
        ({"since": 24900}, range(2491, 2501)),
        ({"since": 24891}, range(2491, 2501)),
        ({"since": 24901}, []),
        ({"until": 0}, range(1, 11)),
        ({"until": -1}, []),
        ({"since": 100, "until": 200}, range(11, 31)),
        ({"since": 100, "until": 200, "newest_first": True, "limit": 3}, range(30, 27, -1)),
        ({"since": 100, "until": 200, "from_seq": 15, "to_seq": 17}, range(15, 18)),
        ({"kinds": ["even"], "limit": 3}, [1, 3, 5]),
        ({"kinds": ["even", "odd"], "to_seq": 3}, [1, 2, 3]),
        ({"kinds": []}, []),
        ({"kinds": ["none"]}, []),
        ({"run": 24}, range(2401, 2501)),
        ({"run": 99}, []),
        ({"author": "y", "to_seq": 7}, [1, 4, 7]),
        ({"author": "y", "kinds": ["even"], "run": 1, "limit": 2}, [103, 109]),
        ({"kinds": ["odd"], "limit": 1200}, range(2, 2401, 2)),
    ],
)
def test_a_slice_holds_exactly_what_lies_within_its_bounds(
    long_log: EventLog, bounds: dict[str, object], expected: object
) -> None:
    assert [record.seq for record in long_log.read("a", **bounds)] == list(expected)  # type: ignore[arg-type, call-overload]


def test_a_session_that_was_never_opened_reads_as_empty(log: EventLog) -> None:
    assert list(log.read("nowhere")) == []
    assert log.head("nowhere") == Head(0, bytes(32))
    assert log.snapshot("nowhere") is None


def test_slices_by_time_are_right_when_the_clock_was_set_back(log: EventLog) -> None:
    moments = [10, 20, 30, 15, 25, 35, 5, 5, 40]
    for at in moments:
        append(log, "a", str(at), at=at)
    for since in (0, 5, 14, 15, 30, 41):
        for until in (4, 5, 20, 30, 100):
            expected = [seq for seq, at in enumerate(moments, 1) if since <= at <= until]
            assert [record.seq for record in log.read("a", since=since, until=until)] == expected
            assert [record.seq for record in log.read("a", since=since, until=until, newest_first=True)] == expected[
                ::-1
            ]
    assert is_sound(log)


def test_reading_goes_on_while_records_are_written(log: EventLog) -> None:
    """An open iterator neither blocks appends nor sees a gap."""
    append(log, "a", *(str(number) for number in range(1_500)))
    reading = log.read("a")
    seen = [next(reading).seq]
    for number in range(50):
        append(log, "a", str(number))
    seen += [record.seq for record in reading]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 1_500


def test_any_number_of_callers_may_read_at_once(log: EventLog) -> None:
    append(log, "a", *(str(number) for number in range(300)))
    counts: list[int] = []
    readers = [threading.Thread(target=lambda: counts.append(len(list(log.read("a"))))) for _ in range(8)]
    for reader in readers:
        reader.start()
    append(log, "b", "meanwhile")
    for reader in readers:
        reader.join()
    assert counts == [300] * 8


def test_the_order_of_all_sessions_can_be_followed(log: EventLog) -> None:
    assert log.position() == 0
    assert log.read_after(0, 10) == (0, [])
    for number in range(6):
        append(log, "ab"[number % 2], str(number))
    position, records = log.read_after(0, 4)
    assert [(record.session, record.payload) for record in records] == [
        ("a", b'"0"'),
        ("b", b'"1"'),
        ("a", b'"2"'),
        ("b", b'"3"'),
    ]
    end, rest = log.read_after(position, 100)
    assert [record.seq for record in rest] == [3, 3]
    assert end == log.position()
    assert log.read_after(end, 100) == (end, [])


# Snapshots and starting


@pytest.mark.asyncio
async def test_the_newest_snapshot_at_or_before_a_seq_is_found(log: EventLog) -> None:
    append(log, "a", *"123456789")
    for seq in (2, 5, 8):
        await log.save_snapshot("a", seq, f"state {seq}".encode())
    found = {bound: log.snapshot("a", bound) for bound in (1, 2, 4, 5, 9, None)}
    assert {bound: snapshot and snapshot.seq for bound, snapshot in found.items()} == {
        1: None,
        2: 2,
        4: 2,
        5: 5,
        9: 8,
        None: 8,
    }
    assert found[None] is not None
    assert found[None].state == b"state 8"


@needs("LogVerification")
@pytest.mark.asyncio
async def test_a_snapshot_saved_again_replaces_the_first(log: DaemonLog) -> None:
    append(log, "a", "1")
    await log.save_snapshot("a", 1, b"old")
    await log.save_snapshot("a", 1, b"new")
    snapshot = log.snapshot("a")
    assert snapshot is not None
    assert snapshot.state == b"new"
    assert log.verify().snapshots == 1


@needs("LogVerification")
@pytest.mark.parametrize(("session", "seq"), [("a", 0), ("a", 3), ("a", -1), ("nowhere", 1)])
@pytest.mark.asyncio
async def test_a_snapshot_of_what_was_not_recorded_is_refused(log: DaemonLog, session: str, seq: int) -> None:
    append(log, "a", "1", "2")
    with pytest.raises(BadAppend, match="its log ends at"):
        await log.save_snapshot(session, seq, b"state")
    assert log.verify().snapshots == 0


@needs("LogVerification")
@pytest.mark.asyncio
async def test_many_snapshots_are_thinned_and_the_newest_is_kept(log: DaemonLog) -> None:
    append(log, "a", *(str(number) for number in range(400)))
    for seq in range(1, 401):
        await log.save_snapshot("a", seq, b"state %d" % seq)
    assert log.verify().snapshots < 60
    newest = log.snapshot("a")
    assert newest is not None
    assert newest.seq == 400
    for seq in range(50, 401, 50):
        before = log.snapshot("a", seq)
        assert before is not None
        assert seq - before.seq <= (400 - seq) / 8 + 4


@pytest.mark.asyncio
async def test_a_start_gets_every_session_with_its_newest_snapshot_and_the_records_after_it(open_again: Open) -> None:
    log = open_again()
    append(log, "none", *"123")
    append(log, "middle", *"12345")
    append(log, "end", *"12")
    for session, seq in (("middle", 1), ("middle", 3), ("end", 2)):
        await log.save_snapshot(session, seq, f"{session} {seq}".encode())
    log = open_again()
    found = {
        session: (snapshot and snapshot.state, [record.seq for record in records])
        for session, snapshot, records in log.tails()
    }
    assert found == {"none": (None, [1, 2, 3]), "middle": (b"middle 3", [4, 5]), "end": (b"end 2", [])}


def test_heads_and_records_are_the_same_after_a_restart(open_again: Open) -> None:
    log = open_again()
    for number in range(30):
        append(log, f"s{number % 3}", str(number))
    heads, records = log.heads(), log.read_after(0, 100)
    log = open_again()
    assert (log.heads(), log.read_after(0, 100)) == (heads, records)
    append(log, "s0", "more")
    assert is_sound(log)


# Verification, loss, backup and closing


@needs("LogVerification")
def test_a_sound_log_verifies_and_says_what_it_looked_at(log: DaemonLog) -> None:
    append(log, "a", "1", "2")
    append(log, "b", "1")
    report = log.verify()
    assert (report.is_sound, report.sessions, report.records, report.erased) == (True, 2, 3, 0)
    assert (log.verify("a").sessions, log.verify("a").records) == (1, 2)


@needs("LogVerification")
def test_a_live_log_verifies_while_it_grows(log: DaemonLog) -> None:
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            append(log, "a", "more")

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        reports = [log.verify() for _ in range(20)]
    finally:
        stop.set()
        growing.join()
    assert [report.findings for report in reports] == [()] * 20


@needs("StoreHealth")
def test_an_untouched_log_has_lost_nothing(log: DaemonLog) -> None:
    append(log, "a", "1")
    assert log.find_loss() is None


@needs("LogBackup")
def test_a_backup_never_overwrites(log: LogBackup, tmp_path: Path) -> None:
    append(log, "a", "1")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(BackupRefused, match="never overwrites"):
        log.backup(tmp_path / "there")
    with pytest.raises(BackupRefused, match="is not a folder"):
        log.backup(tmp_path / "nowhere" / "copy")
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.asyncio
async def test_closing_finishes_what_was_taken_and_takes_no_more(open_again: Open) -> None:
    log = open_again()
    calls = [log.append([Append("a", number, (draft(str(number)),))], at=1) for number in range(100)]
    log.close()
    log.close()
    await asyncio.gather(*calls)
    with pytest.raises(StoreClosed):
        log.append([Append("a", 100, (draft("late"),))], at=1)
    assert open_again().head("a").seq == 100


@needs("LogVerification")
def test_verification_tells_how_far_it_is(log: DaemonLog) -> None:
    append(log, "a", *(str(number) for number in range(100)))
    told: list[tuple[int, int]] = []
    log.verify(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (100, 100)
