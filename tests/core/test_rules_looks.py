"""Rules 10 to 13: hints, looks and quiet."""

import pytest

from core.simulated_world import World
from core.spec_builders import after, cron, read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted


def at_rest(*specs, **keys) -> World:
    world = World(*specs, **keys)
    world.rest()
    return world


def result(world: World, name: str, generation: int, version: str, **found: object) -> TargetLooked:
    """Return a look at the first file binding of a session, as a source would report it."""
    (key,) = [bound.target for bound in world.core.looked.bounds[world.session(name).id] if bound.kind == "file"]
    return TargetLooked(LookResult(target=key, generation=generation, version=version, stamp=version, **found))


def look_of(world: World, name: str):
    (look,) = [
        world.core.looked.target(b) for b in world.core.looked.bounds[world.session(name).id] if b.kind == "file"
    ]
    return look


def test_rule_10_a_hint_dirties_every_binding_that_matches_in_one_step() -> None:
    """Rule 10: after a hint no session starts on half of a change that another session has seen in full."""
    world = at_rest(
        session("a", read("in"), write("a.out")),
        session("b", read("in"), write("b.out")),
        session("c", read("a.out"), read("b.out")),
        files={"in": "1"},
    )
    world.write("in", "2")
    world.rest()
    starts = [event.versions for event in world.events("c", "run_started")]
    assert len(starts) == 2
    assert world.starts("a") == world.starts("b") == 2


def test_rule_10_a_look_that_finds_a_change_dirties_the_others() -> None:
    """Rule 10: without a hint, a change found by one look makes all matching bindings dirty in the same observation."""
    world = at_rest(
        session("a", read("in"), write("a.out")), session("b", read("in"), write("b.out")), files={"in": "1"}
    )
    world.write("in", "2", hint=False)
    (key, other) = [world.core.looked.bounds[world.session(name).id][1].target for name in "ab"]
    assert key != other
    world.hint(key)
    world.advance(1.0)
    world.answer()
    assert world.core.looked.targets[other].is_dirty
    world.rest()
    assert world.starts("b") == 2


def test_rule_11_a_result_older_than_the_applied_is_dropped() -> None:
    """Rule 11: looks may answer out of order. An older result is dropped."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    generation = look_of(world, "s").generation
    world.observe(result(world, "s", generation, "new"))
    world.observe(result(world, "s", generation - 1, "old"))
    assert look_of(world, "s").version == "new"


def test_rule_11_a_hint_after_the_look_began_leaves_the_binding_dirty() -> None:
    """Rule 11: a binding that changed during a look is looked at again."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.write("in", "2")
    world.deliver_hints()
    world.advance(0.2)
    assert len(world.looks) == 1
    world.write("in", "3")
    world.deliver_hints()
    world.answer()
    assert look_of(world, "s").is_dirty
    world.rest()
    assert world.session("s").last_run.causes[0].new == look_of(world, "s").version
    assert world.session("s").marks.seen["file in content"] == world.version_there(world.session("s").spec, read("in"))


def test_rule_11_the_last_look_of_a_forgotten_target_does_not_answer_for_its_successor() -> None:
    """Rule 11: a target that is forgotten and followed again ignores a look from before."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    late = result(world, "s", look_of(world, "s").generation, "from before")
    spec = world.specs["s"]
    world.remove("s")
    world.declare(spec)
    world.observe(late)
    assert not look_of(world, "s").is_looked


def test_rule_12_a_look_waits_for_quiet() -> None:
    """Rule 12: a dirty binding is looked at when it was quiet for `settle`. Each hint begins the wait again."""
    world = at_rest(session("s", read("in", settle_seconds=1.0, settle_max_seconds=60.0)), files={"in": "1"})
    for text in "234":
        world.write("in", text)
        world.deliver_hints()
        world.advance(0.9)
        assert not world.looks
    world.advance(0.2)
    assert len(world.looks) == 1
    world.rest()
    assert world.starts("s") == 2


def test_rule_12_a_look_waits_no_longer_than_settle_max() -> None:
    """Rule 12: a file that changes all the time is looked at `settle_max` after it became dirty."""
    world = at_rest(session("s", read("in", settle_seconds=1.0, settle_max_seconds=2.0)), files={"in": "1"})
    for text in "23456":
        world.write("in", text)
        world.deliver_hints()
        world.advance(0.5)
    assert len(world.looks) == 1


def test_rule_12_settle_adapts_to_a_writer_who_keeps_adding() -> None:
    """Rule 12: a growing file is looked at after twice the pause between its pieces, within `settle_max`.

    This begins with the third piece.
    """
    world = at_rest(session("s", read("in", settle_seconds=0.1, settle_max_seconds=2.0)), files={"in": ""})
    world.growing.add("in")
    for piece in range(16):
        world.write("in", f"{piece} pieces")
        world.rest(0.5)
    world.rest()
    # Eight seconds: one look for each of the first two pieces, then one every two seconds.
    assert 1 + 2 + 3 <= world.starts("s") <= 1 + 2 + 5
    assert world.session("s").marks.seen["file in content"] == world.version_there(world.session("s").spec, read("in"))


def test_rule_12_settle_is_as_short_as_ever_for_saves() -> None:
    """Rule 12: a file that is replaced again and again does not count as growing."""
    world = at_rest(session("s", read("in", settle_seconds=0.1, settle_max_seconds=2.0)), files={"in": ""})
    for save in range(6):
        world.write("in", f"{save}")
        world.rest(0.5)
        assert world.starts("s") == 2 + save


def test_rule_12_a_file_that_moves_while_it_is_read_counts_only_after_settle_max() -> None:
    """Rule 12: an unstable read is repeated until `settle_max`.

    Then the content read counts, and the binding stays dirty.
    """
    world = at_rest(session("s", read("in", settle_seconds=0.1, settle_max_seconds=2.0)), files={"in": "1"})
    world.unstable.add("in")
    world.write("in", "2")
    world.deliver_hints()
    world.advance(0.2)
    world.answer()
    assert not world.looks
    assert world.starts("s") == 1
    for _ in range(20):
        world.advance(0.11)
        if world.looks:
            world.answer()
    assert world.session("s").tally.runs == 2
    assert look_of(world, "s").is_dirty
    assert len(world.looks) == 0
    world.unstable.clear()
    world.rest()
    assert not look_of(world, "s").is_dirty


def test_rule_12_one_save_of_several_files_is_one_wake() -> None:
    """Rule 12: the request of a wake waits for the session's other dirty bindings."""
    world = at_rest(
        session("s", read("fast", settle_seconds=0.0), read("slow", settle_seconds=0.5)),
        files={"fast": "1", "slow": "1"},
    )
    world.write("fast", "2")
    world.write("slow", "2")
    world.rest()
    assert world.starts("s") == 2
    assert {cause.binding for cause in world.session("s").last_run.causes} == {"fast", "slow"}


def test_rule_12_the_request_waits_no_longer_than_settle_max_for_the_others() -> None:
    """Rule 12: a look that hangs does not hold back a change that another binding found."""
    world = at_rest(
        session("s", read("fast", settle_seconds=0.0), read("slow", settle_seconds=0.0)),
        files={"fast": "1", "slow": "1"},
    )
    world.write("fast", "2")
    world.write("slow", "2")
    world.deliver_hints()
    world.answer()
    assert world.session("s").wake is None
    world.advance(2.1)
    assert world.starts("s") == 2


def test_rule_12_a_queued_wake_is_not_put_off_by_new_dirt() -> None:
    """Rule 12: settle delays the request only. A queued wake starts on its last looked versions."""
    world = at_rest(session("s", read("in"), pace_seconds=10.0), files={"in": "1"})
    world.write("in", "2")
    world.look()
    assert world.queued("s") == "pace: at most one run every 10s; next start in 7 s"
    looked = look_of(world, "s").version
    world.advance(6.0)
    world.write("in", "3")
    world.deliver_hints()
    world.advance(0.05)
    world.jump(5.0)
    assert look_of(world, "s").is_dirty
    assert world.events("s", "run_started")[-1].versions["file in content"] == looked


def test_rule_12_dirt_on_what_an_upstream_feeds_puts_a_start_off() -> None:
    """Rule 12: if an upstream writes a dirty input, the reader does not start before the look at it."""
    world = at_rest(
        session("up", read("in"), write("out")),
        session("down", read("out"), read("own"), pace_seconds=10.0),
        files={"in": "1", "own": "1"},
    )
    world.write("own", "2")
    world.look()
    world.hint(*world.keys_of("out"))
    world.jump(20.0)
    assert not world.is_running("down")
    assert world.queued("down") == "looking at out"
    world.rest()
    assert world.starts("down") == 2


def test_rule_13_nothing_runs_before_everything_was_looked_at() -> None:
    """Rule 13: after a daemon start, a session and all its upstreams are looked at first."""
    world = World(
        session("up", read("in"), write("out")),
        session("down", read("out"), cron("* * * * *")),
        files={"in": "1", "out": "0"},
    )
    world.answer(
        next(index for index, pending in enumerate(world.looks) if pending.look.target in world.keys_of("out"))
    )
    world.advance(65.0)
    assert world.starts("down") == 0
    world.rest(1.0)
    assert world.starts("down") == 1
    world.crash()
    world.call(calls.Activate(name="down"))
    assert not world.is_running("down")
    world.answer_all()
    assert world.is_running("down")


def test_rule_13_an_upstream_without_a_look_holds_readers_that_need_none() -> None:
    """Rule 13: a reader that has only a session binding does not start before the look at its upstream.

    The order of declaration does not matter.
    """
    world = World(session("z", read("in")), session("a", after("z"), first="run"), files={"in": "1"})
    assert world.starts("a") == 0
    world.rest()
    assert (world.starts("z"), world.starts("a")) == (1, 1)


def test_rule_13_no_wake_is_withdrawn_before_it_was_looked_at_again() -> None:
    """Rule 13: a wake that was open at a crash stays open under its id until its binding was looked at."""
    world = at_rest(session("s", read("in"), pace_seconds=60.0), files={"in": "1"})
    world.write("in", "2")
    world.look()
    wake = world.session("s").wake
    world.crash()
    assert world.session("s").wake == wake
    world.answer_all()
    assert world.session("s").wake == wake
    world.advance(60.0)
    assert world.session("s").run.wake == wake.wake
    assert "wake_withdrawn" not in world.kinds("s")


def test_a_git_operation_holds_file_wakes_until_it_is_over() -> None:
    """A held look gives its reason. The wake waits with it, and is judged when the hold is over."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.held = "git rebase"
    world.write("in", "2")
    world.look()
    assert world.queued("s") == "git rebase"
    assert world.starts("s") == 1
    world.held = None
    world.hint(*world.followed)
    world.rest()
    assert world.starts("s") == 2


def test_a_hold_that_ended_before_its_look_was_answered_does_not_last() -> None:
    """Rule 11: the hint that ends a hold may overtake the look that found it. The binding is looked at again."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.held = "git rebase"
    world.write("in", "2")
    world.deliver_hints()
    world.advance(1.0)
    world.held = None
    world.hint(*world.followed)
    world.rest()
    assert world.starts("s") == 2


def test_hints_for_unknown_targets_are_nothing() -> None:
    """A late hint or look for a target that is not followed any more is dropped."""
    world = at_rest(session("s", read("in")))
    before = len(world.log)
    world.observe(TargetsHinted(("gone",)))
    world.observe(TargetLooked(LookResult(target="gone", generation=1, version="x")))
    assert len(world.log) == before


@pytest.mark.parametrize("missing", ["run", "wait"])
def test_missing_says_what_a_path_that_is_not_there_means(missing: str) -> None:
    """With `missing: wait` the session queues until the path exists. With `missing: run` absence is a version."""
    world = at_rest(session("s", read("in", missing=missing)))
    assert world.starts("s") == (1 if missing == "run" else 0)
    if missing == "wait":
        assert world.queued("s") == "in is not there yet"
    world.write("in", "1")
    world.rest()
    assert world.starts("s") == (2 if missing == "run" else 1)
