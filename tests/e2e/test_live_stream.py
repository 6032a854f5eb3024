"""The live stream of a real daemon: an edit is in it at once, and after a restart it begins with a snapshot."""

from __future__ import annotations

import http.client

from api.conftest import SocketConnection
from api.event_reader import Event, read_event
from e2e.box import Box

SPEC = "objective: count\nbindings: {input: {file: in.csv, settle: 50ms}}\nrun: {command: [sh, -c, 'cat in.csv']}\n"


def open_live(box: Box, after: str | None = None) -> http.client.HTTPResponse:
    connection = SocketConnection(box.socket)
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after is not None else {})}
    connection.request("GET", "/live", headers=headers)
    return connection.getresponse()


def read_until_ended(answer: http.client.HTTPResponse) -> list[Event]:
    """Return the events up to the record of the run's end.

    A row may be a flush ahead of the records, so this record comes last.
    """
    events = []
    while True:
        events.append(read_event(answer))
        if any(record["kind"] == "run_finished" for record in events[-1].data["records"]):
            return events


def test_an_edit_is_told_with_its_records_and_the_row_and_a_restart_begins_anew(box: Box) -> None:
    """Wake, start and end come in their order, and the cost of the day counts on.

    The next daemon does not know the event id.
    """
    box.write("in.csv", "1")
    box.spec("payroll", SPEC)
    box.start()
    box.wait_at_rest("payroll", runs=1)
    answer = open_live(box)
    first = read_event(answer)
    assert first.event == "snapshot" and first.data["sessions"] == box.rows()
    box.save("in.csv", "2")
    events = read_until_ended(answer)
    kinds = [record["kind"] for event in events for record in event.data["records"]]
    assert [kind for kind in kinds if kind in ("wake_requested", "run_started", "run_finished")] == [
        "wake_requested", "run_started", "run_finished",
    ]  # fmt: skip
    told = {row["name"]: row for event in events for row in event.data["rows"]}
    assert told["payroll"] == box.rows()[0] and told["payroll"]["today"]["runs"] == 2
    assert box.stop() == 0
    box.start()
    again = read_event(open_live(box, events[-1].id))
    assert again.event == "snapshot" and again.data["sessions"] == box.rows()
    assert again.data["position"] >= events[-1].data["position"]
