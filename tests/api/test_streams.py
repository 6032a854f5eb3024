"""Streams as server-sent events: snapshot and position, changes, resuming, and the cost of a slow reader."""

import http.client
import json
import time
from typing import Any

import pytest

from api.conftest import SocketConnection, Speaker
from api.event_reader import Event, read_event, read_until
from api.small_daemon import RunningDaemon, declare, reads
from wakeful.api import live_feed
from wakeful.api.live_answers import Said


def open_stream(daemon: RunningDaemon, target: str, **headers: str) -> http.client.HTTPResponse:
    connection = SocketConnection(daemon.socket)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", target, headers={"Accept": "text/event-stream", **named})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    return answer


def rows_of(*events: Event) -> dict[str, Any]:
    """Return the rows that a page would have after these events."""
    rows: dict[str, Any] = {}
    for one in events:
        rows |= {row["name"]: row for row in one.data.get("sessions", one.data.get("rows", []))}
    return rows


def read_rows_until(answer: http.client.HTTPResponse, name: str, **wanted: Any) -> list[Event]:
    """Read events until the row of a session has all wanted values."""
    events: list[Event] = []
    while True:
        events.append(read_event(answer))
        row = rows_of(events[-1]).get(name)
        if row is not None and all(row[key] == value for key, value in wanted.items()):
            return events


@pytest.fixture
def one(daemon: RunningDaemon) -> RunningDaemon:
    daemon.do(lambda small: small.declare(declare("hr/payroll", reads("input", "a.csv"), tags=("money",))))
    daemon.do(lambda small: small.finish("hr/payroll"))
    return daemon


def test_a_page_gets_a_snapshot_and_then_what_changes(one: RunningDaemon, speaker: Speaker) -> None:
    """The snapshot has the full rows. After it come brief records and the rows that they changed."""
    answer = open_stream(one, "/live")
    snapshot = read_event(answer)
    assert snapshot.event == "snapshot" and snapshot.data["people"] == []
    assert snapshot.data["position"] == int(speaker.get("/sessions").headers["wakeful-position"])
    (row,) = snapshot.data["sessions"]
    assert row == speaker.get("/sessions").json[0]
    assert (row["folder"], row["template"], row["command"], row["tags"]) == ("hr", None, "true", ["money"])
    assert row["today"]["runs"] == 1 and row["needs"] is None and row["gone"] is None
    one.do(lambda small: small.change("a.csv", "b" * 32))
    *_, last = events = read_rows_until(answer, "hr/payroll", state="running")
    records = [record for event in events for record in event.data["records"]]
    assert [record["kind"] for record in records] == ["wake_requested", "run_started"]
    assert all(record["session"] == "hr/payroll" and "payload" not in record for record in records)
    assert records[0]["words"].startswith("wakes: ") and records[1]["parent"] == f"{row['id']}:{records[0]['seq']}"
    assert last.data["position"] > snapshot.data["position"]
    assert rows_of(last)["hr/payroll"]["run"]["run"] == 2


@pytest.mark.parametrize("is_header", [True, False])
def test_a_stream_that_broke_goes_on_where_it_was(one: RunningDaemon, is_header: bool) -> None:
    """A resumed stream continues after the id of its last event, without a snapshot and without a repeated record."""
    answer = open_stream(one, "/live")
    snapshot = read_event(answer)
    one.do(lambda small: small.change("a.csv", "b" * 32))
    last = read_rows_until(answer, "hr/payroll", state="running")[-1]
    answer.close()
    one.do(lambda small: small.finish("hr/payroll"))
    assert last.id is not None
    again = (
        open_stream(one, "/live", Last_Event_ID=last.id) if is_header else open_stream(one, f"/live?after={last.id}")
    )
    events = read_rows_until(again, "hr/payroll", state="suspended")
    assert {event.event for event in events} == {"changes"}
    assert [record["kind"] for event in events for record in event.data["records"]][0] == "run_finished"
    # The position of an answer works as well. Nothing between the answer and the stream is missed.
    position = last.data["position"]
    assert position > snapshot.data["position"]
    from_position = read_rows_until(open_stream(one, f"/live?after={position}"), "hr/payroll", state="suspended")
    assert {event.event for event in from_position} == {"changes"}


@pytest.mark.parametrize("after", ["0", "99999999", "elsewhere-3", "x", "1.5", "-", "9" * 40])
def test_an_unknown_position_gives_a_snapshot(one: RunningDaemon, after: str) -> None:
    """The position is older than the feed, belongs to another log, or is not a position."""
    assert read_event(open_stream(one, f"/live?after={after}")).event == "snapshot"


def test_a_reader_that_fell_behind_gets_a_snapshot_and_costs_no_memory(
    one: RunningDaemon, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept batches are bounded, even if a reader has not read them."""
    monkeypatch.setattr(live_feed, "KEPT_BYTES", 2_000)
    answer = open_stream(one, "/live")
    first = read_event(answer)
    for number in range(6):
        speaker.call("note", name="hr/payroll", text=f"note {number} {'x' * 500}")
        time.sleep(live_feed.BATCH_SECONDS)
    again = open_stream(one, "/live", Last_Event_ID=first.id or "")
    assert read_event(again).event == "snapshot"


def test_too_large_a_gap_gives_everybody_a_snapshot(
    one: RunningDaemon, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot replaces thousands of single records."""
    answer = open_stream(one, "/live")
    assert read_event(answer).event == "snapshot"
    monkeypatch.setattr(live_feed, "LARGEST_GAP", 0)
    speaker.call("note", name="hr/payroll", text="one")
    event = read_until(answer, "snapshot")
    assert event.data["position"] == int(speaker.get("/sessions").headers["wakeful-position"])


def test_a_hundred_streams_cost_one_encoding(
    one: RunningDaemon, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is encoded once for all readers."""
    encoded: list[int] = []
    real = live_feed.view_brief
    monkeypatch.setattr(live_feed, "view_brief", lambda record, name: encoded.append(record.seq) or real(record, name))
    answers = [open_stream(one, "/live") for _ in range(100)]
    for answer in answers:
        assert read_event(answer).event == "snapshot"
    speaker.call("note", name="hr/payroll", text="for all")
    for answer in answers:
        assert [record["kind"] for record in read_until(answer, "changes").data["records"]] == ["note_added"]
    assert len(encoded) == 1


def test_a_stream_about_one_session_is_about_no_other(one: RunningDaemon, speaker: Speaker) -> None:
    """The snapshot and the later events name only that session."""
    one.do(lambda small: small.declare(declare("other", reads("input", "b.csv"))))
    answer = open_stream(one, "/live?name=hr%2Fpayroll")
    assert [row["name"] for row in read_event(answer).data["sessions"]] == ["hr/payroll"]
    speaker.call("note", name="other", text="not for it")
    speaker.call("note", name="hr/payroll", text="for it")
    assert {record["session"] for record in read_event(answer).data["records"]} == {"hr/payroll"}
    assert speaker.get("/live?name=nobody").status == 404


def test_words_of_an_answer_come_as_they_are_said(one: RunningDaemon) -> None:
    """Words that were said before the page was opened come first."""

    async def say(small: Any, text: str) -> None:
        small.live_words.add(small.core.state.by_name("hr/payroll").id, 2, [said(text)])

    def said(text: str) -> Said:
        return Said(turn=1, attempt=1, kind="text", text=text)

    one.do(lambda small: say(small, "Hello"))
    answer = open_stream(one, "/live")
    assert read_event(answer).event == "snapshot"
    before = read_until(answer, "words")
    one.do(lambda small: say(small, " world"))
    after = read_until(answer, "words")
    assert (before.data["text"], after.data["text"]) == ("Hello", " world")
    assert before.data["session"] == "hr/payroll" and (before.data["run"], before.data["turn"]) == (2, 1)


def test_silence_is_kept_alive_by_comments(one: RunningDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comments let both ends notice a dead connection."""
    monkeypatch.setattr("wakeful.api.event_stream.KEEP_ALIVE_SECONDS", 0.05)
    for target in ("/live", "/follow"):
        answer = open_stream(one, target)
        while not answer.readline().startswith(b": "):
            pass
        answer.close()


def test_the_feed_ends_when_nobody_reads(one: RunningDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle daemon has no cost for a closed page. A later page gets a snapshot."""
    monkeypatch.setattr(live_feed, "LINGER_SECONDS", 0.05)
    answer = open_stream(one, "/live")
    first = read_event(answer)
    answer.close()
    deadline = time.monotonic() + 60
    while one.small.listeners:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert read_event(open_stream(one, "/live", Last_Event_ID=first.id or "")).event == "snapshot"


def test_follow_goes_on_from_a_position(one: RunningDaemon, speaker: Speaker) -> None:
    """As events, the positions are the ids. As lines, the same records come for the command line."""
    position = int(speaker.get("/sessions").headers["wakeful-position"])
    speaker.call("note", name="hr/payroll", text="first")
    speaker.call("note", name="hr/payroll", text="second")
    answer = open_stream(one, f"/follow?after={position}")
    first, second = read_event(answer), read_event(answer)
    assert [one.data["payload"]["text"] for one in (first, second)] == ["first", "second"]
    assert (first.event, first.id, second.id) == ("record", str(position + 1), str(position + 2))
    assert read_event(open_stream(one, "/follow", Last_Event_ID=first.id or "")).data == second.data
    _, lines = speaker.stream(f"/follow?after={position}")
    assert json.loads(lines.readline()) == first.data
    refused = speaker.get("/follow?after=99999")
    assert refused.status == 400


def test_every_answer_says_its_position(one: RunningDaemon, speaker: Speaker) -> None:
    """A call's own record is at or before that position. Errors have the position, too."""
    before = int(speaker.get("/sessions").headers["wakeful-position"])
    called = speaker.call("note", name="hr/payroll", text="words")
    assert int(called.headers["wakeful-position"]) == before + 1
    assert speaker.get("/nothing").headers["wakeful-position"] == str(before + 1)
