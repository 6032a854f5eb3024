"""Rules 14 to 19: seen and good, what moves them, and what a wake tells the run."""

import pytest

from core.simulated_world import World
from core.spec_builders import commits, cron, probe, read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.spec.session import Settings

IN = "file in content"


def at_rest(*specs, **keys) -> World:
    world = World(*specs, **keys)
    world.rest()
    return world


def change(world: World, text: str, path: str = "in") -> str:
    """Write, look, and return the new version."""
    world.write(path, text)
    world.look()
    return world.version_there(world.session("s").spec, read(path))


def test_rule_14_a_run_sees_what_was_there_when_it_started() -> None:
    """Rule 14: an edit during a run is not seen by it. It causes one follow-up run."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    first = change(world, "2")
    world.write("in", "3")
    world.look()
    world.end("s")
    assert world.session("s").marks.good[IN] == first
    world.rest()
    assert world.starts("s") == 3
    assert world.session("s").marks.seen[IN] == world.version_there(world.session("s").spec, read("in"))


def test_rule_14_a_wake_tells_everything_since_the_last_success() -> None:
    """Rule 14: `old` and the changed paths start from good, not from the versions of a failed run."""
    world = at_rest(session("s", read("in*", name="in")), files={"in1": "1", "in2": "1"})
    good = world.session("s").marks.good["file in* content"]
    world.write("in1", "2")
    world.look()
    world.end("s", 1)
    world.write("in2", "2")
    world.look()
    (cause,) = world.session("s").run.causes
    assert cause.old == good
    assert [(path.path, path.change) for path in cause.paths] == [("in1", "modified"), ("in2", "modified")]
    assert cause.delta == "known"


@pytest.mark.parametrize(
    ("stop", "exit_code", "outcome", "moves_good"),
    [
        (None, 0, "succeeded", True),
        (None, 1, "failed", False),
        (calls.Cancel(name="s"), None, "cancelled", False),
        (calls.Interrupt(name="s"), None, "interrupted", False),
        (calls.Suspend(name="s"), 1, "interrupted", False),
        (calls.Suspend(name="s"), 0, "succeeded", True),
    ],
)
def test_rule_15_an_end_for_good_moves_seen_and_only_success_moves_good(
    stop: calls.Call | None, exit_code: int | None, outcome: str, moves_good: bool
) -> None:
    """Rule 15: after an end for good the same versions start no run again. Newer versions wake the session."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    old = world.session("s").marks.good[IN]
    new = change(world, "2")
    if stop is not None:
        world.call(stop)
    world.end("s", exit_code, signal=15 if exit_code is None else None)
    world.rest()
    assert world.outcomes("s")[1:] == [outcome]
    assert world.session("s").marks.seen[IN] == new
    assert world.session("s").marks.good[IN] == (new if moves_good else old)
    world.crash()
    world.rest()
    assert world.starts("s") == 2
    change(world, "3")
    assert world.starts("s") == 3


def test_rule_15_a_retry_a_replacement_and_a_loss_move_neither_mark() -> None:
    """Rule 15: versions that are tried again are not seen yet. Their wake stays open under its id."""
    world = at_rest(session("s", read("in"), retries=1), files={"in": "1"})
    seen = world.session("s").marks.seen
    change(world, "2")
    wake = world.session("s").wake.wake
    world.end("s", 1)
    assert world.session("s").marks.seen == seen
    assert world.session("s").wake.wake == wake
    world.advance(2.0)
    assert world.is_running("s")
    world.crash()
    world.answer_all()
    world.recover()
    assert world.session("s").marks.seen == seen
    assert world.session("s").run.wake == wake
    assert world.outcomes("s")[-2:] == ["failed", "lost"]


def test_rule_16_an_ordered_occurrence_in_a_run_that_failed_for_good_is_accounted_for() -> None:
    """Rule 16: a slot or message whose run failed is not run again. The next run is told only what is new."""
    world = at_rest(session("s", cron("* * * * *")))
    world.advance(60.0)
    world.call(calls.Send(name="s", text="hello"))
    world.end("s", 1)
    world.rest(1.0, exit_code=lambda _: 1)
    starts = world.starts("s")
    world.crash()
    world.rest(1.0)
    assert world.starts("s") == starts
    world.call(calls.Send(name="s", text="again"))
    world.rest(1.0)
    assert [(cause.old, cause.new) for cause in world.session("s").last_run.causes] == [("1", "2")]


def test_rule_17_an_input_touched_during_the_run_gives_one_follow_up() -> None:
    """Rule 17: the run may have read content that came and went meanwhile. One follow-up run says so."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.write("in", "3")
    world.write("in", "2")
    world.rest()
    assert world.starts("s") == 3
    assert [cause.reason for cause in world.session("s").last_run.causes] == ["touched during run"]
    assert world.session("s").marks.touched == ()


def test_rule_17_a_doubt_gives_one_follow_up_and_no_other_for_the_same_reason() -> None:
    """Rule 17: if only stats are known, a file touched during every run causes one follow-up run, and then none."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    while world.process_of("s") is not None and world.starts("s") < 10:
        world.doubt("in")
        world.end("s")
        world.answer_all()
    world.rest()
    assert world.starts("s") == 3
    assert [cause.reason for cause in world.session("s").last_run.causes] == ["touched during run"]
    change(world, "3")
    world.doubt("in")
    world.rest()
    assert world.starts("s") == 5


def test_rule_17_a_write_is_followed_up_whatever_the_last_run_was() -> None:
    """Rule 17: content written during a follow-up may have differed when it was read, even if it is equal later."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.touch("in")
    world.end("s")
    world.answer_all()
    world.touch("in")
    world.rest()
    assert world.starts("s") == 4


def test_rule_17_an_input_that_is_still_being_written_counts_as_touched() -> None:
    """Rules 12 and 17: a file that is being written at the end of a run causes one follow-up run, once it is closed."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.held = "in is being written"
    world.write("in", "half")
    world.end("s")
    world.answer_all()
    assert world.outcomes("s") == ["succeeded", "succeeded"]
    world.advance(10.0)
    assert world.starts("s") == 2
    world.held = None
    world.write("in", "whole")
    world.rest()
    assert world.starts("s") == 3


def test_rule_17_a_touch_between_runs_wakes_nobody() -> None:
    """Rule 17: only a write during a run clears seen."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.touch("in")
    world.rest()
    assert world.starts("s") == 1


def test_rule_17_what_differs_at_the_end_may_not_be_undone_unseen() -> None:
    """Rule 17: an input differs when the run ends, and is undone before the follow-up starts.

    The follow-up still runs.
    """
    world = at_rest(session("s", read("in"), pace_seconds=10.0), files={"in": "1"})
    world.advance(20.0)
    change(world, "2")
    world.write("in", "3")
    world.end("s")
    world.answer_all()
    assert world.session("s").run is None
    world.write("in", "2")
    world.rest()
    assert world.starts("s") == 3


def test_rule_17_what_cannot_be_judged_counts_as_touched() -> None:
    """Rule 17: during a rebase an input cannot be looked at.

    If it is dirty at the end of a run, a follow-up comes after the rebase.
    """
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.held = "git rebase"
    world.touch("in")
    world.end("s")
    world.answer_all()
    assert world.outcomes("s") == ["succeeded", "succeeded"]
    world.held = None
    world.hint(*world.followed)
    world.rest()
    assert world.starts("s") == 3


def test_rule_17_what_cannot_be_seen_at_the_end_counts_as_touched() -> None:
    """Rules 5 and 17: an input that became unreadable during the run may have differed when it was read."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.write("in", "3")
    world.hide("in")
    world.end("s")
    world.answer_all()
    world.write("in", "2")
    world.show("in")
    world.rest()
    assert world.starts("s") == 3


def test_rule_17_commits_are_not_touched() -> None:
    """Rule 17: a branch that moves during a run has a newer version and is never touched.

    Otherwise `each_commit` would skip commits.
    """
    world = World(session("s", commits("src", each_commit=True)))
    first = world.commit("src", "1")
    world.rest()
    assert world.session("s").marks.seen["commits . HEAD:src each"] == first
    second = world.commit("src", "2")
    world.look()
    third = world.commit("src", "3")
    world.rest()
    assert [event.causes[-1].new for event in world.events("s", "run_started")[1:]] == [first, second, third]


def test_rule_18_a_return_to_good_after_a_failure_still_runs() -> None:
    """Rule 18: a failed run may have left half an output, so a return to the last good input runs."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    good = world.session("s").marks.good[IN]
    change(world, "2")
    world.end("s", 1)
    assert change(world, "1") == good
    assert world.is_running("s")


def test_rule_18_a_return_to_seen_before_the_start_withdraws_the_wake() -> None:
    """Rule 18: a change that is undone before the start causes no run. The log says so."""
    world = at_rest(session("s", read("in"), pace_seconds=60.0), files={"in": "1"})
    change(world, "2")
    assert world.session("s").wake is not None
    change(world, "1")
    assert world.session("s").wake is None
    assert world.events("s", "wake_withdrawn")[-1].reason == "undone"
    world.rest(120.0)
    assert world.starts("s") == 1


def test_rule_18_a_tried_wake_is_not_withdrawn() -> None:
    """Rule 18: a change that is undone during the back-off still runs."""
    world = at_rest(session("s", read("in"), retries=1), files={"in": "1"})
    change(world, "2")
    world.end("s", 1)
    world.write("in", "1")
    world.rest()
    assert world.outcomes("s") == ["succeeded", "failed", "succeeded"]
    assert "wake_withdrawn" not in world.kinds("s")


def test_rule_18_ordered_causes_and_activations_are_never_withdrawn() -> None:
    """Rule 18: a slot, a message or an activation keeps the wake open when the change of a file is undone."""
    world = at_rest(session("s", read("in"), cron("* * * * *"), pace_seconds=600.0), files={"in": "1"})
    change(world, "2")
    world.advance(60.0)
    world.call(calls.Send(name="s", text="hello"))
    change(world, "1")
    assert {cause.kind for cause in world.session("s").wake.causes} == {"cron", "message"}
    world.call(calls.Activate(name="s"))
    assert {cause.kind for cause in world.session("s").run.causes} == {"cron", "message", "activation"}


def test_rule_19_a_cancelled_wake_counts_as_seen() -> None:
    """Rule 19: cancelling a queued wake counts its versions, its first sight and its activations as dealt with."""
    world = World(session("s", read("in"), pace_seconds=60.0), files={"in": "1"})
    world.call(calls.Sleep(name="s"))
    world.rest()
    assert world.session("s").wake is not None
    world.call(calls.Cancel(name="s"))
    world.call(calls.Resume(name="s"))
    world.rest(120.0)
    assert world.starts("s") == 0
    assert world.session("s").marks.is_first_taken
    assert world.session("s").marks.seen[IN] == world.version_there(world.session("s").spec, read("in"))
    assert IN not in world.session("s").marks.good
    world.write("in", "2")
    world.rest(120.0)
    assert world.starts("s") == 1


def test_rule_19_a_cancelled_wake_uses_up_its_activations() -> None:
    """Rule 19: an activation that waits for a slot is used up when its wake is cancelled."""
    world = at_rest(
        session("busy", read("x")), session("s", read("in")), settings=Settings(concurrency=1), files={"x": "1"}
    )
    world.write("x", "2")
    world.look()
    world.call(calls.Activate(name="s"))
    assert world.queued("s") == "a slot"
    world.call(calls.Cancel(name="s"))
    world.rest()
    assert world.starts("s") == 1


def test_rule_19_what_a_wake_told_before_a_crash_is_cancelled_with_it() -> None:
    """Rule 19: the versions in the wake count, also those that were not looked at again yet."""
    world = at_rest(session("s", read("in"), pace_seconds=60.0), files={"in": "1"})
    change(world, "2")
    world.crash()
    world.call(calls.Cancel(name="s"))
    world.rest(120.0)
    assert world.starts("s") == 1


def test_rule_28_a_run_tells_what_it_left() -> None:
    """Rule 28: `run_finished` has the digests found at exit, marked as assumed.

    A failure leaves the outputs suspect.
    """
    world = at_rest(session("s", read("in"), write("out")), files={"in": "1"})
    (finished,) = world.events("s", "run_finished")
    assert finished.written == {"out": world.version_there(world.session("s").spec, write("out"))}
    assert finished.assumed
    change(world, "2")
    world.write("out", "half")
    world.end("s", 1)
    world.answer_all()
    assert world.session("s").marks.is_suspect
    failed = world.events("s", "run_finished")[1]
    assert failed.written == {"out": world.version_there(world.session("s").spec, write("out"))} != finished.written
    assert failed.assumed


def test_rule_29_a_run_is_closed_only_after_a_look_that_began_after_its_end() -> None:
    """Rule 29: a look that began before the end of the process does not count as the look at its outputs."""
    world = at_rest(session("s", read("in"), write("out")), files={"in": "1"})
    change(world, "2")
    world.hint(*world.keys_of("out"))
    world.advance(0.2)
    assert len(world.looks) == 1
    world.end("s")
    assert world.is_running("s")
    world.answer()
    assert world.is_running("s")
    world.answer_all()
    assert not world.is_running("s")
    assert world.session("s").last_run.written["out"] == world.version_there(world.session("s").spec, write("out"))


def test_rule_29_a_look_that_never_answers_does_not_keep_a_run_open() -> None:
    """Rule 29: with a hanging file system the run is closed without its written versions."""
    world = at_rest(session("s", read("in"), write("out")), files={"in": "1"})
    change(world, "2")
    world.end("s")
    world.looks.clear()
    world.advance(31.0)
    assert world.outcomes("s") == ["succeeded", "succeeded"]
    assert world.session("s").last_run.written == {}


def test_an_input_that_could_not_be_seen_at_the_start_is_looked_at_again() -> None:
    """Rules 5, 17: an activation starts the run although an input is unknown.

    The content that the run found is unknown, so a return to the version parked earlier still causes a run.
    """
    world = World(session("payroll", read("rates"), write("out")), files={"rates": "1"})
    world.look()
    world.call(calls.Cancel(name="payroll"))
    world.rest()
    assert world.outcomes("payroll") == ["cancelled"]
    world.write("rates", "2")
    world.hide("rates")
    world.look()
    world.call(calls.Activate(name="payroll"))
    world.end("payroll")
    world.write("rates", "1")
    world.show("rates")
    world.rest()
    assert world.outcomes("payroll") == ["cancelled", "succeeded", "succeeded"]
    world.oracle.judge_outputs()


def test_a_probe_that_failed_at_the_start_is_news_when_it_answers() -> None:
    """The same for a probe, which has no stat to compare.

    The version parked by a cancel does not count as seen by the later run.
    """
    world = World(session("payroll", probe("fx")), probes={("fx",): "1"})
    world.look()
    world.call(calls.Cancel(name="payroll"))
    world.rest()
    world.probes[("fx",)] = None
    world.hint_kind(ProbeTarget)
    world.look()
    world.call(calls.Activate(name="payroll"))
    world.end("payroll")
    world.probes[("fx",)] = "1"
    world.hint_kind(ProbeTarget)
    world.rest()
    assert world.outcomes("payroll") == ["cancelled", "succeeded", "succeeded"]
