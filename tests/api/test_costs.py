"""`costs` over the wire: sums of the costs of runs. Each run is counted once, whatever the grouping."""

from collections import Counter
from itertools import permutations

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads
from wakeful.core.calls.call_types import Activate

FIGURES = {
    "runs",
    "failed",
    "cpu_seconds",
    "wall_seconds",
    "tokens",
    "usd",
    "read_bytes",
    "written_bytes",
    "output_bytes",
    "estimated_tokens",
}


@pytest.fixture
def ran(daemon: RunningDaemon) -> RunningDaemon:
    """Let session a run three times, once with a failure, and session b once. Each run takes 1.5 s and 0.5 s of CPU."""

    async def live(small: SmallDaemon) -> None:
        await small.declare(declare("a", reads("in", "a.csv"), agent="hr"), declare("b", reads("in", "b.csv")))
        await small.finish("a")
        await small.finish("b")
        await small.change("a.csv", "b" * 32)
        await small.finish("a", exit_code=1)
        await small.call(Activate(name="a"), author="person:ada", key=None, run=None)
        await small.finish("a")

    daemon.do(live)
    return daemon


def test_runs_are_summed_by_session(ran: RunningDaemon, speaker: Speaker) -> None:
    """The row with the longest time comes first, and the total is separate."""
    found = speaker.get("/costs").json
    assert [(row["session"], row["runs"], row["failed"], row["wall_seconds"], row["cpu_seconds"]) for row in found["rows"]] == [
        ("a", 3, 1, 4.5, 1.5), ("b", 1, 0, 1.5, 0.5),
    ]  # fmt: skip
    assert found["total"]["runs"] == 4 and found["total"]["wall_seconds"] == 6.0 and set(found["total"]) == FIGURES


def test_runs_are_summed_by_agent_cause_and_day(ran: RunningDaemon, speaker: Speaker) -> None:
    """A run counts for the agent and causes it had at that time, and for the day (UTC) on which it ended."""
    assert {row["agent"]: row["runs"] for row in speaker.get("/costs?by=agent").json["rows"]} == {"hr": 3, None: 1}
    causes = Counter({row["cause"]: row["runs"] for row in speaker.get("/costs?by=cause").json["rows"]})
    assert causes["first"] == 2 and causes["in (file)"] == 1 and sum(causes.values()) == 4
    ended = speaker.get("/sessions/b/log?kind=run_finished").lines[0]["at"]
    (row,) = speaker.get("/costs?by=session,day&since=1h").json["rows"][-1:]
    assert row["day"] == ended[:10] and list(row)[:2] == ["session", "day"]


def test_every_run_is_counted_once_whatever_it_is_grouped_by(ran: RunningDaemon, speaker: Speaker) -> None:
    """All 64 ways to group give the same total."""
    for length in range(1, 5):
        for keys in permutations(("session", "agent", "cause", "day"), length):
            found = speaker.get(f"/costs?by={','.join(keys)}").json
            assert found["total"]["runs"] == 4 == sum(row["runs"] for row in found["rows"])


def test_later_runs_are_added_to_what_was_counted(ran: RunningDaemon, speaker: Speaker) -> None:
    """The daemon continues its sums where it ended. A repeated question counts no run twice."""
    assert speaker.get("/costs").json == speaker.get("/costs").json
    ran.do(lambda d: d.change("b.csv", "b" * 32))
    ran.do(lambda d: d.finish("b"))
    assert speaker.get("/costs").json["total"]["runs"] == 5


def test_costs_since_a_moment_leave_out_what_ended_before(ran: RunningDaemon, speaker: Speaker) -> None:
    """The bound is inclusive and exact to the microsecond."""
    ends = [line["at"] for line in speaker.get("/sessions/a/log?kind=run_finished").lines]
    assert speaker.get(f"/costs?since={ends[1]}").json["total"]["runs"] == 2
    nothing = speaker.get("/costs?since=2999-01-01T00:00:00Z").json
    assert nothing["rows"] == [] and nothing["total"]["runs"] == 0 and set(nothing["total"]) == FIGURES


@pytest.mark.parametrize(
    ("query", "words"),
    [("by=month", "'month'"), ("by=", "expected one"), ("by=day,day", "twice"), ("since=x", "RFC 3339")],
)
def test_keys_that_are_none_are_refused_in_words(ran: RunningDaemon, speaker: Speaker, query: str, words: str) -> None:
    """The error says what was found and what was expected."""
    reply = speaker.get(f"/costs?{query}")
    assert reply.status == 400 and words in reply.error
