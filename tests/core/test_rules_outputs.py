"""Rules 23 and 27: staged outputs are put in place once, between the success of a run and its end.

A crash in between changes nothing.
"""

import pytest

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.observations import (
    DaemonStopping,
    KeptOutput,
    LandingEnded,
    ProcessEnded,
    StagedOutput,
    StrictnessSeen,
)
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import Confinement

IN, OUT = "file in content", "output out content"
STRICT = Confinement(level="strict")
BOTH = FileBinding(name="list", pattern="list", access="both")


def started(*bindings: FileBinding) -> World:
    world = World(session("s", *bindings, confinement=STRICT), files={"in": "1", "out": "old", "list": "b a"})
    world.look()
    return world


def end(world: World, *paths: str, exit_code: int = 0) -> None:
    """End the process, with these outputs in its private area."""
    process = world.process_of("s")
    assert process is not None
    del world.processes[process.run.run_id]
    staged = tuple(StagedOutput(path=path, base="old", new="new", place=f"0/{path}") for path in paths)
    world.observe(ProcessEnded(session=process.session, run_id=process.run.run_id, exit_code=exit_code, staged=staged))


def land(world: World, *kept: str) -> None:
    """Put all outputs in place, except those that others changed."""
    [(run_id, action)] = world.landings.items()
    assert action.run.staged is not None
    for output in action.run.staged.outputs:
        if output.path not in kept:
            world.write(output.path, "new")
    aside = tuple(KeptOutput(path=path, words="others changed it", kept=f"/aside/{path}") for path in kept)
    world.observe(LandingEnded(session=action.session, run_id=run_id, kept=aside))
    world.look()
    # The plan names the landing at every step until the run is over.
    world.landings.clear()


def kinds(world: World) -> list[str]:
    return [entry.kind for entry in world.log if entry.kind in ("outputs_staged", "outputs_landed", "run_finished")]


def finished(world: World):
    return [entry.event for entry in world.log if entry.kind == "run_finished"][-1]


def test_rule_27_a_run_is_running_until_its_outputs_are_in_place() -> None:
    """Rule 27: the order is staged, landed, finished. The written paths are recorded as certain, not assumed."""
    world = started(read("in"), write("out"))
    end(world, "out")
    assert world.session("s").run is not None and kinds(world) == ["outputs_staged"]
    land(world)
    assert kinds(world) == ["outputs_staged", "outputs_landed", "run_finished"]
    event = finished(world)
    assert (event.outcome, event.assumed) == ("succeeded", False)
    assert event.written == {"out": world.version_there(world.session("s").spec, write("out"))}
    assert world.session("s").marks.seen[OUT] == event.written["out"] and world.session("s").marks.is_suspect is False


def test_rule_27_a_run_that_failed_lands_nothing() -> None:
    """Rule 27: none of the outputs of a failed run is put in place."""
    world = started(read("in"), write("out"))
    end(world, "out", exit_code=1)
    world.look()
    assert kinds(world) == ["run_finished"] and not world.landings


@pytest.mark.parametrize("call", [calls.Cancel(name="s"), calls.Interrupt(name="s"), calls.Terminate(name="s")])
def test_rule_27_a_run_that_was_stopped_lands_nothing(call: calls.Call) -> None:
    """Rule 27: this also holds if the process exits with 0 after the stop."""
    world = started(read("in"), write("out"))
    world.call(call)
    end(world, "out")
    world.look()
    assert not world.landings and finished(world).outcome in ("cancelled", "interrupted")


def test_rule_27_a_run_that_changed_nothing_has_nothing_to_land() -> None:
    """Rule 27: such a run adds no staging records."""
    world = started(read("in"), write("out"))
    end(world)
    world.look()
    assert kinds(world) == ["run_finished"] and finished(world).assumed is False


@pytest.mark.parametrize("is_landed", [False, True])
def test_rule_27_a_crash_in_the_middle_is_finished_by_the_next_daemon(is_landed: bool) -> None:
    """Rule 27: before and after `outputs_landed`, the same plan is derived again. The run succeeds once."""
    world = started(read("in"), write("out"))
    end(world, "out")
    if is_landed:
        [(run_id, action)] = world.landings.items()
        world.write("out", "new", hint=False)
        world.observe(LandingEnded(session=action.session, run_id=run_id))
    world.crash()
    assert not world.recoveries
    land(world)
    assert kinds(world) == ["outputs_staged", "outputs_landed", "run_finished"]
    event = finished(world)
    assert (event.outcome, event.exit_code, event.assumed) == ("succeeded", 0, False)
    assert world.session("s").marks.seen[OUT] == world.version_there(world.session("s").spec, write("out"))
    world.rest()
    assert world.starts("s") == 1


def test_rule_23_after_staging_only_terminate_is_taken_and_follows_the_success() -> None:
    """Rule 23: weaker calls are answered and change nothing. Neither does a stop of the daemon."""
    world = started(read("in"), write("out"))
    end(world, "out")
    for call in (calls.Cancel(name="s"), calls.Interrupt(name="s"), calls.Suspend(name="s")):
        assert "being put in place" in (world.call(call) or "")
    world.observe(DaemonStopping(is_forced=True))
    assert world.session("s").run.stop is None
    world.call(calls.Terminate(name="s"))
    land(world)
    assert finished(world).outcome == "succeeded" and world.session("s").is_terminated


def test_rule_27_a_conflict_leaves_seen_where_the_run_began() -> None:
    """Rule 27: for a write binding the conflict is drift. It is shown, and wakes no session."""
    world = started(read("in"), write("out"))
    began = world.session("s").run.versions.get(OUT)
    world.write("out", "theirs")
    end(world, "out")
    land(world, "out")
    event = finished(world)
    assert (event.outcome, event.written, event.conflicts) == ("succeeded", {}, (OUT,))
    assert event.reason.startswith("conflict: out") and world.session("s").marks.seen.get(OUT) == began
    assert world.session("s").last_run.kept[0].kept == "/aside/out"
    world.rest()
    assert world.starts("s") == 1


def test_rule_27_a_conflict_on_what_is_read_and_written_wakes() -> None:
    """Rule 27: the version of the others is not seen yet. It wakes the session with the reason `conflict`."""
    world = started(BOTH)
    world.write("list", "theirs")
    end(world, "list")
    land(world, "list")
    world.look()
    assert [cause.reason for cause in world.session("s").run.causes] == ["conflict"]
    # The next run lands its output, and no further run follows.
    end(world, "list")
    land(world)
    world.rest()
    assert world.starts("s") == 2 and world.session("s").marks.conflicted == ()


def test_rule_7_both_wakes_on_every_version_but_the_one_its_own_run_left() -> None:
    """Rules 7 and 15: seen is the version that the run left. A change by others wakes the session."""
    world = started(BOTH)
    end(world, "list")
    land(world)
    world.rest()
    assert world.starts("s") == 1
    world.write("list", "theirs")
    world.look()
    assert world.starts("s") == 2


def test_rule_7_what_others_add_during_the_run_is_not_taken_for_its_own() -> None:
    """Rules 7 and 17: of two new paths one is the run's own. The other wakes the session."""
    world = started(FileBinding(name="all", pattern="all/*", access="both"))
    world.write("all/theirs", "1")
    end(world, "all/ours")
    land(world)
    world.look()
    assert world.starts("s") == 2


def test_rule_7_a_failed_run_of_both_is_not_tried_again_on_what_it_found() -> None:
    """Rule 15: no output landed, so seen is the version that the run found."""
    world = started(BOTH)
    end(world, "list", exit_code=1)
    world.rest()
    assert world.starts("s") == 1


def test_a_strict_session_sleeps_where_it_cannot_be_had_and_wakes_when_it_can() -> None:
    """The confinement is never weaker than the spec asks for. An activation waits too."""
    world = World(settings=None, files={"in": "1"})
    world.observe(StrictnessSeen("no bubblewrap"))
    world.declare(session("s", read("in"), confinement=STRICT), session("t", read("in")))
    world.look()
    world.call(calls.Activate(name="s"))
    assert (world.starts("s"), world.starts("t")) == (0, 1)
    assert world.hold("s") == "no bubblewrap"
    world.observe(StrictnessSeen(None))
    assert world.starts("s") == 1
