"""The causal chain of a run: through sessions, messages and people to its origin. A damaged log does not break it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads, writes
from wakeful.api.operations.causal_chain import MOST_LINKS, Walk
from wakeful.core.calls.call_types import Activate, Send
from wakeful.core.deciding.working_state import Core
from wakeful.core.record import events as ev
from wakeful.core.record.observations import PathChange
from wakeful.core.spec.bindings import MessageBinding
from wakeful.eventlog.codec import encode
from wakeful.eventlog.contract import Append, Draft, EventLog
from wakeful.eventlog.memory_engine import MemoryLog


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    opened = MemoryLog()
    yield opened
    opened.close()


def record_run(log: EventLog, session: str, run: int, parent: str | None) -> None:
    """Append a wake with this parent, its run, and the end of the run."""
    seq = log.head(session).seq
    cause = ev.Cause(binding="in", kind="file", key="file in")
    wake = Draft(*encode(ev.WakeRequested(wake=run, causes=(cause,))), "wakeful", parent=parent)
    started = ev.RunStarted(run=run, run_id="x", wake=run, attempt=0, incarnation="i", versions={}, causes=(cause,))
    start = Draft(*encode(started), "wakeful", run, f"{session}:{seq + 1}")
    end = Draft(
        *encode(ev.RunFinished(run=run, outcome="succeeded", is_final=True)), "wakeful", run, f"{session}:{seq + 2}"
    )
    log.append_blocking([Append(session, seq, (wake, start, end))], 1)


def walk(log: EventLog, session: str, run: int) -> list[tuple[str, list[str]]]:
    service: Any = SimpleNamespace(log=log, core=Core())
    return [(link.label, [origin.words or "" for origin in link.origins]) for link in Walk(service).links(session, run)]


def test_a_chain_is_walked_through_the_logs_of_other_sessions(log: EventLog) -> None:
    """The chain goes from the last run to the first, by the record that each wake names as its parent."""
    record_run(log, "a", 1, None)
    record_run(log, "b", 1, "a:3")
    record_run(log, "c", 1, "b:2")
    assert [label for label, _ in walk(log, "c", 1)] == ["c#1", "b#1", "a#1"]


def test_a_run_that_led_to_a_wake_in_two_ways_is_one_link(log: EventLog) -> None:
    """The run led to the wake and to its extension. The chain names it once."""
    record_run(log, "a", 1, None)
    cause = ev.Cause(binding="in", kind="file", key="file in")
    wake = Draft(*encode(ev.WakeRequested(wake=1, causes=(cause,))), "wakeful", parent="a:3")
    more = Draft(*encode(ev.WakeExtended(wake=1, causes=(cause,))), "wakeful", parent="a:3")
    start = Draft(
        *encode(ev.RunStarted(run=1, run_id="x", wake=1, attempt=0, incarnation="i", versions={}, causes=(cause,))),
        "wakeful",
        1,
        "b:1",
    )
    log.append_blocking([Append("b", 0, (wake, more, start))], 1)
    assert [label for label, _ in walk(log, "b", 1)] == ["b#1", "a#1"]


def test_a_circle_ends_where_it_closes(log: EventLog) -> None:
    """An imported or damaged log can contain a cycle."""
    record_run(log, "a", 1, "b:3")
    record_run(log, "b", 1, "a:3")
    assert [label for label, _ in walk(log, "a", 1)] == ["a#1", "b#1"]
    record_run(log, "c", 1, "c:3")
    assert [label for label, _ in walk(log, "c", 1)] == ["c#1"]


@pytest.mark.parametrize("parent", ["nobody:7", "a:99", "a:", "a:x", "", "a:" + "9" * 40])
def test_a_parent_that_is_not_there_is_told(log: EventLog, parent: str) -> None:
    """The last link says that the parent is not in this log. The walk does not fail."""
    record_run(log, "a", 1, parent)
    ((label, (words,)),) = walk(log, "a", 1)
    assert label == "a#1" and "not in this log" in words


def test_a_run_that_is_not_there_is_told(log: EventLog) -> None:
    """A run of a session that was never imported has a link without a start or origins."""
    record_run(log, "a", 1, None)
    service: Any = SimpleNamespace(log=log, core=Core())
    (link,) = Walk(service).links("a", 7)
    assert link.start is None and link.origins == ()


def test_an_erased_start_does_not_end_the_chain(log: MemoryLog) -> None:
    """The parent is in the envelope of a record, which erasing keeps."""
    record_run(log, "a", 1, None)
    record_run(log, "b", 1, "a:3")
    for session in "ab":
        log.erase(session, [record.seq for record in log.read(session)])
    assert [label for label, _ in walk(log, "b", 1)] == ["b#1", "a#1"]


def test_a_chain_longer_than_anyone_reads_is_bounded(log: EventLog) -> None:
    """A long chain is cut at MOST_LINKS. The oldest links are left out."""
    for run in range(1, MOST_LINKS + 20):
        record_run(log, "a", run, f"a:{run * 3 - 3}" if run > 1 else None)
    newest = MOST_LINKS + 19
    assert [label for label, _ in walk(log, "a", newest)] == [f"a#{newest - number}" for number in range(MOST_LINKS)]


def test_a_run_is_explained_by_its_number(daemon: RunningDaemon, speaker: Speaker) -> None:
    """`NAME#RUN` and `run=N` mean the same.
    The answer names the person who activated the run and the sender of a message."""

    async def live(small: SmallDaemon) -> None:
        await small.declare(
            declare("a", reads("in", "a.csv")), declare("b", reads("in", "b.csv"), MessageBinding(name="message"))
        )
        await small.finish("a")
        await small.finish("b")
        await small.call(Activate(name="a", note="month end"), author="person:ada", key=None, run=None)
        await small.call(Send(name="b", text="ready", sender="a"), author="run:a#2", key=None, run=2)
        await small.finish("a")
        await small.finish("b")

    daemon.do(live)
    found = speaker.get("/why?x=b%232").json
    assert found == speaker.get("/why?x=b&run=2").json and found["about"] == "run"
    assert [(link["session"], link["run"]) for link in found["links"]] == [("b", 2), ("a", 2)]
    assert found["links"][0]["words"][1:] == ["woken by message (message): 0 -> 1", "which was caused by a#2"]
    (asked,) = found["links"][1]["led_by"]
    assert asked["author"] == "person:ada" and asked["kind"] == "activation_requested" and asked["run"] is None
    assert speaker.get("/why?x=b").json["links"] == found["links"]
    for query in ("x=b%239", "x=b%23", "x=b%23x", "x=b&run=0", "x=b&run=" + "9" * 30):
        reply = speaker.get(f"/why?{query}")
        assert reply.status == 400 and "its runs are 1 to 2" in reply.error, query


def test_a_wake_that_came_of_two_runs_names_both(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A record has only one parent. The other writer is found by the versions in the causes."""
    sides = [declare(side, reads("in", "top.csv"), writes("out", f"{side}.csv")) for side in ("left", "right")]
    bottom = declare("bottom", reads("left", "left.csv"), reads("right", "right.csv"))

    async def live(small: SmallDaemon) -> None:
        await small.declare(*sides, bottom)
        for name in ("left", "right", "bottom"):
            await small.finish(name)
        for side in ("left", "right"):
            small.versions[f"{side}.csv"] = side * 8
            small.changes[f"{side}.csv"] = (PathChange(f"{side}.csv", "x", "y"),)
        await small.change("top.csv", "b" * 32)
        await small.finish("left")
        await small.finish("right")
        await small.finish("bottom")

    daemon.do(live)
    links = speaker.get("/why?x=bottom%232").json["links"]
    assert {(link["session"], link["run"]) for link in links} == {("bottom", 2), ("left", 2), ("right", 2)}
    assert {origin["session"] for origin in links[0]["led_by"]} == {"left", "right"}
