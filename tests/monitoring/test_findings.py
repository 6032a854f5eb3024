"""The survey of sessions: its findings are current, and its cache makes a repeated survey cheap."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import after, read, session
from wakeful.core.calls import call_types as calls
from wakeful.core.decide import decide
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.events import Hold
from wakeful.core.record.observations import DaemonStarted, Declaration, Moment, SpecsRead
from wakeful.core.spec.budget import Amounts, Budget
from wakeful.core.spec.session import Settings
from wakeful.monitoring.findings import SESSIONS_AT_ONCE, SessionSurvey, Survey

MANY = 10_000


def survey(found: SessionSurvey, world: World) -> Survey:
    seen = found.survey(world.core, world.moment)
    assert seen is not None
    return seen


def tell(found: SessionSurvey, world: World) -> list[tuple[str, str]]:
    return [(one.what, one.words) for one in survey(found, world).findings]


def test_what_is_kept_is_dropped_with_what_it_was_found_from() -> None:
    """A cached finding is dropped when its session changes, its hold ends, its budget's day ends, or a brake is set."""
    world = World(
        session("payroll", read("in"), budget=Budget(day=Amounts(runs=5))),
        session("other", read("in")),
        files={"in": "1"},
    )
    world.rest()
    found = SessionSurvey()
    assert tell(found, world) == [] and survey(found, world).states == {"suspended": 2}
    for number in range(2, 5):
        world.write("in", str(number))
        world.rest()
    assert tell(found, world) == [("budget", "payroll: 4 of 5 runs of the day are spent")]
    world.call(calls.Sleep(name="other", seconds=20.0))
    assert survey(found, world).states == {"suspended": 1, "sleeping": 1}
    world.advance(30.0)
    assert survey(found, world).states == {"suspended": 2}
    world.advance(86_400.0)
    assert tell(found, world) == []
    world.write("in", "bad")
    world.look()
    world.end("other", 1)
    assert tell(found, world)[0] == ("failed", "other failed: exit code 1")
    world.call(calls.SleepAll())
    assert [what for what, _ in tell(found, world)] == ["held"]


def test_readers_of_a_failed_session_are_one_finding() -> None:
    """The finding names three readers and counts the others. The failed session itself is reported separately."""
    world = World(
        session("up", read("in")),
        *(session(f"reader{n}", read("own"), after("up")) for n in range(5)),
        files={"in": "1", "own": "1"},
    )
    world.rest()
    world.write("in", "2")
    world.look()
    world.end("up", 1)
    world.write("own", "2")
    world.look()
    world.rest()
    world.advance(90.0)
    found = survey(SessionSurvey(), world)
    held = [one for one in found.findings if one.what == "held"]
    assert [(one.level, one.words) for one in held] == [
        ("note", "reader0, reader1, reader2 and 2 more wait: upstream up failed")
    ]
    assert found.failed == 1 and found.queued["command"] == 5


def test_a_session_that_lacks_a_secret_is_told_once() -> None:
    """Its wake waits for the same reason for which the session sleeps.
    The finding appears once, however long it lasts."""
    world = World(session("docs", read("in"), secrets=("KEY",)), files={"in": "1"})
    world.rest()
    world.advance(90.0)
    found = survey(SessionSurvey(), world)
    assert found.queued["command"] == 1
    assert [(one.what, one.words) for one in found.findings] == [
        ("sleeps", "docs sleeps: needs a secret: KEY (wakeful secret set KEY)")
    ]


@pytest.mark.long
def test_ten_thousand_sessions_are_looked_at_in_pieces_and_then_cost_little() -> None:
    """No piece blocks the loop for long. A second survey compares idle sessions with the cache."""
    core = Core()
    clock = [1_700_000_000_000_000]

    def now() -> Moment:
        clock[0] += 1000
        return Moment(clock[0], clock[0] / 1e6, clock[0] / 1e6)

    decide(core, DaemonStarted(incarnation="x", settings=Settings()), now())
    declared = tuple(Declaration(session(f"s{n}", read(f"in{n}"), first="adopt"), "d") for n in range(MANY))
    decide(core, SpecsRead(declared=declared, refused={}, removed=()), now())
    for one in list(core.state)[: MANY // 2]:
        core.state.put(replace(one, hold=Hold(kind="failed", words="failed: exit code 1")))
    found, pieces = SessionSurvey(), 0
    while (seen := found.survey(core, now())) is None:
        pieces += 1
    assert pieces == MANY // SESSIONS_AT_ONCE - 1
    assert seen.failed == MANY // 2 and len(seen.findings) <= 100
    began = time.process_time()
    assert found.survey(core, now()) is not None
    # Measured: 15 ms. The bound allows for a machine that is ten times as slow.
    assert time.process_time() - began < 0.2
