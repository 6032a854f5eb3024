"""Rules 36 to 38: slots, clocks that are set, and commits one by one."""

import pytest
from msgspec.structs import replace

from core.simulated_world import START_US, World
from core.spec_builders import commits, cron, every, read, session
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.clock_slots import slot_us
from wakeful.core.deciding.loop_guard import COMMANDS
from wakeful.core.record.observations import LookResult, TargetLooked
from wakeful.core.spec.session import Confinement, Settings, Window


def at_rest(*specs, **keys) -> World:
    world = World(*specs, **keys)
    world.rest(1.0)
    return world


def slots(world: World, key: str) -> list[str]:
    return [event.versions[key] for event in world.events("s", "run_started")]


def test_a_slot_that_falls_due_runs_once() -> None:
    """A clock wakes its session once at each slot. The alarm is set for the next one."""
    world = at_rest(session("s", cron("0 * * * *")))
    for hour in range(1, 4):
        assert world.next_alarm() is not None
        world.advance(3600.0)
        world.rest(1.0)
        assert world.starts("s") == hour
    assert slots(world, "cron 0 * * * * UTC") == [f"2026-03-01T0{hour}:00:00Z" for hour in range(1, 4)]


def test_rule_36_catch_up_once_runs_once_for_all_missed_slots() -> None:
    """Rule 36: with the default `once`, all missed slots cause one run, for the latest slot."""
    world = at_rest(session("s", cron("0 * * * *")))
    world.advance(5 * 3600.0)
    world.rest(1.0)
    assert slots(world, "cron 0 * * * * UTC") == ["2026-03-01T05:00:00Z"]


def test_rule_36_catch_up_all_takes_one_slot_a_run() -> None:
    """Rule 36: `all` runs every missed slot in order, also across a crash."""
    world = at_rest(session("s", cron("0 * * * *", catch_up="all")))
    world.advance(4 * 3600.0)
    world.end("s")
    world.crash()
    world.rest(1.0)
    key = "cron 0 * * * * UTC"
    assert [event.causes[0].new for event in world.events("s", "wake_requested")] == [
        f"2026-03-01T0{hour}:00:00Z" for hour in range(1, 5)
    ]
    assert world.session("s").marks.seen[key] == "2026-03-01T04:00:00Z"


def test_rule_36_catch_up_none_skips_all_but_the_newest_with_a_record() -> None:
    """Rule 36: `none` runs the newest slot and records that the others were skipped."""
    world = at_rest(session("s", cron("0 * * * *", catch_up="none")))
    world.advance(5 * 3600.0)
    world.rest(1.0)
    assert slots(world, "cron 0 * * * * UTC") == ["2026-03-01T05:00:00Z"]
    (skipped,) = world.events("s", "slot_skipped")
    assert (skipped.slot, skipped.count, skipped.reason) == ("2026-03-01T04:00:00Z", 4, "catch_up: none")


def test_rule_36_catch_up_none_accounts_for_what_came_during_a_run() -> None:
    """Rule 36: older slots that came during a run are skipped when the run has ended."""
    world = at_rest(session("s", cron("0 * * * *", catch_up="none")))
    world.advance(3600.0)
    world.advance(3 * 3600.0)
    assert world.events("s", "slot_skipped") == []
    world.rest(1.0)
    (skipped,) = world.events("s", "slot_skipped")
    assert (skipped.slot, skipped.count) == ("2026-03-01T03:00:00Z", 2)
    assert world.starts("s") == 2


@pytest.mark.parametrize("catch_up", ["once", "none", "all"])
def test_rule_36_slots_older_than_the_window_are_skipped_with_a_record(catch_up: str) -> None:
    """Rule 36: every slot is accounted for. It runs, is merged into a later one, or its skip is recorded."""
    world = at_rest(session("s", cron("0 0 * * *", catch_up=catch_up, catch_up_window_seconds=3600.0)))
    world.advance(2.5 * 86_400.0)
    world.rest(1.0)
    assert world.starts("s") == 0
    (skipped,) = world.events("s", "slot_skipped")
    assert (skipped.slot, skipped.count, skipped.reason) == ("2026-03-03T00:00:00Z", 2, "older than catch_up_window")


def test_rule_36_catch_up_all_runs_those_inside_the_window() -> None:
    """Rule 36: after a long absence `all` runs the slots inside the window. Older ones are skipped, with a record."""
    world = at_rest(session("s", cron("0 * * * *", catch_up="all", catch_up_window_seconds=2 * 3600.0)))
    world.advance(5.5 * 3600.0)
    world.rest(1.0)
    assert slots(world, "cron 0 * * * * UTC") == ["2026-03-01T04:00:00Z", "2026-03-01T05:00:00Z"]
    (skipped,) = world.events("s", "slot_skipped")
    assert (skipped.slot, skipped.count) == ("2026-03-01T03:00:00Z", 3)


def test_rule_36_overlap_queue_one_runs_once_more() -> None:
    """Rule 36: all slots during a run cause one follow-up run."""
    world = at_rest(session("s", cron("0 * * * *")))
    world.advance(3600.0)
    for _ in range(3):
        world.advance(3600.0)
    world.rest(1.0)
    assert slots(world, "cron 0 * * * * UTC") == ["2026-03-01T01:00:00Z", "2026-03-01T04:00:00Z"]


def test_rule_36_overlap_skip_records_and_moves_seen() -> None:
    """Rule 36: `skip` gives up the slots that come during a run, with one record each."""
    world = at_rest(session("s", cron("0 * * * *", overlap="skip")))
    for _ in range(3):
        world.advance(3600.0)
    assert [event.slot for event in world.events("s", "slot_skipped")] == [
        "2026-03-01T02:00:00Z",
        "2026-03-01T03:00:00Z",
    ]
    world.rest(1.0)
    assert world.starts("s") == 1
    assert world.session("s").marks.seen["cron 0 * * * * UTC"] == "2026-03-01T03:00:00Z"


def test_rule_36_overlap_replace_stops_the_run_and_keeps_its_wake() -> None:
    """Rule 36: `replace` stops the run when a slot came due after its start. The wake keeps all its causes."""
    world = at_rest(session("s", cron("0 * * * *", overlap="replace"), read("in")), files={"in": "1"})
    world.write("in", "2")
    world.look()
    wake = world.session("s").run.wake
    world.advance(3600.0)
    assert world.process_of("s").stops == ["terminate"]
    world.end("s", None, signal=15)
    assert world.session("s").run.wake == wake
    assert {cause.kind for cause in world.session("s").run.causes} == {"file", "cron"}
    assert world.outcomes("s")[-1] == "interrupted"
    assert not world.events("s", "run_finished")[-1].is_final


def test_rule_36_a_run_that_succeeded_before_it_was_replaced_has_succeeded() -> None:
    """Rule 36: if the process ends before the stop signal, its own outcome counts."""
    world = at_rest(session("s", cron("0 * * * *", overlap="replace")))
    world.advance(3600.0)
    world.advance(3600.0)
    world.end("s", 0)
    assert world.outcomes("s") == ["succeeded"]
    assert world.is_running("s")


def test_rule_37_a_clock_set_back_reruns_no_slot() -> None:
    """Rule 37: slots at or before seen never run again."""
    world = at_rest(session("s", cron("0 * * * *"), read("in")), files={"in": "1"})
    world.advance(3 * 3600.0)
    world.rest(1.0)
    assert world.starts("s") == 2
    world.jump(-2.5 * 3600.0)
    world.rest(1.0)
    world.advance(3600.0)
    world.rest(1.0)
    assert world.starts("s") == 2
    world.write("in", "2")
    world.rest(1.0)
    assert world.events("s", "run_started")[-1].versions["cron 0 * * * * UTC"] == "2026-03-01T03:00:00Z"
    world.advance(3 * 3600.0)
    world.rest(1.0)
    assert world.session("s").marks.seen["cron 0 * * * * UTC"] == "2026-03-01T04:00:00Z"


def test_rule_37_a_clock_set_back_by_more_than_a_day_is_rebased() -> None:
    """Rule 37: seen moves to the current slot, with a record.

    Otherwise the session would not run until the clock passed seen.
    """
    world = at_rest(session("s", cron("0 0 * * *")))
    world.advance(10 * 86_400.0)
    world.rest(1.0)
    world.jump(-9 * 86_400.0)
    (rebased,) = world.events("s", "clock_rebased")
    assert (rebased.old, rebased.new) == ("2026-03-11T00:00:00Z", "2026-03-02T00:00:00Z")
    world.advance(86_400.0)
    world.rest(1.0)
    assert world.starts("s") == 2


@pytest.mark.parametrize("days", [1.5, 9.0])
def test_rule_37_a_clock_set_back_during_a_run_costs_no_slot(days: float) -> None:
    """Rule 37: the slot of the open run is rebased too, so every later slot runs."""
    world = at_rest(session("s", cron("0 0 * * *")))
    world.advance(10 * 86_400.0)
    assert world.is_running("s")
    world.jump(-days * 86_400.0)
    world.advance(3600.0)
    world.end("s")
    world.answer_all()
    world.rest(1.0)
    (rebased,) = world.events("s", "clock_rebased")
    assert rebased.new < rebased.old == "2026-03-11T00:00:00Z"
    starts = world.starts("s")
    for count in range(1, 4):
        world.advance(86_400.0)
        world.rest(1.0)
        assert world.starts("s") == starts + count


def test_rule_37_a_slot_that_comes_due_during_a_run_after_the_clock_was_set_back_runs() -> None:
    """Rule 37: the slot lies after the rebased slot, although it lies before the old slot of the run."""
    world = at_rest(session("s", cron("0 0 * * *")))
    world.advance(10 * 86_400.0)
    assert world.is_running("s")
    world.jump(-9 * 86_400.0)
    world.advance(86_400.0)
    world.end("s")
    world.answer_all()
    assert world.events("s", "run_started")[-1].versions["cron 0 0 * * * UTC"] == "2026-03-03T00:00:00Z"


def live(world: World, seconds: int) -> list[float]:
    """Advance second by second. Return the moments at which runs began."""
    began = []
    for _ in range(seconds):
        count = world.starts("s")
        world.advance(1.0)
        if world.starts("s") > count:
            began.append(world.boot)
            world.end("s")
    return began


# Steps to the first hour of 1970, and past the end of 32-bit seconds in 2038.
TO_1970, TO_2038 = 1000.0 - START_US / 1e6, 2.0**31 + 1000.0 - START_US / 1e6


@pytest.mark.parametrize(
    "step", [-7200.0, -86_400.0 * 400, -13.0, -7203.0, 7200.0, 86_400.0 * 400, 3.0, TO_1970, TO_2038]
)
@pytest.mark.parametrize("catch_up", ["once", "none", "all"])
def test_rule_37_every_follows_time_that_passed_when_the_clock_is_set(step: float, catch_up: str) -> None:
    """Rule 37: `every` is an interval. Setting the clock adds no run, loses none and moves none."""
    world = at_rest(session("s", every(10.0, catch_up=catch_up)))
    (first, *_) = live(world, 24)
    world.jump(step)
    assert [moment - first for moment in live(world, 40)] == [20.0, 30.0, 40.0, 50.0]
    (rebased,) = world.events("s", "clock_rebased")
    assert slot_us(rebased.new) - slot_us(rebased.old) == step * 1e6
    assert world.events("s", "slot_skipped") == []
    slot = world.session("s").marks.seen["every 10s"]
    assert 0 <= world.wall - slot_us(slot) < 10_000_000, "slots are moments of the clock that people see"


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_rule_37_every_keeps_its_time_over_a_restart_after_the_clock_was_set(step: float) -> None:
    """Rule 37: the moved slots are on record, so the next daemon goes on with them."""
    world = at_rest(session("s", every(10.0)))
    live(world, 24)
    world.jump(step)
    live(world, 10)
    world.crash()
    world.rest(1.0)
    assert len(live(world, 30)) == 3
    assert len(world.events("s", "clock_rebased")) == 1


@pytest.mark.parametrize("ahead", [7200.0, 86_400.0 * 400])
def test_rule_37_every_goes_on_when_the_clock_was_set_back_while_no_daemon_ran(ahead: float) -> None:
    """Rule 37: the time that passed is unknown. The next run comes after one to two periods."""
    world = at_rest(session("s", every(10.0)))
    live(world, 24)
    world.wall -= round(ahead * 1e6)
    world.crash()
    world.answer_all()
    restarted = world.boot
    began = live(world, 60)
    assert 10.0 <= began[0] - restarted <= 20.0
    assert [later - earlier for earlier, later in zip(began, began[1:], strict=False)] == [10.0] * (len(began) - 1)


def test_rule_37_every_does_not_run_again_when_the_clock_went_back_a_little_while_no_daemon_ran() -> None:
    """Rule 37: a slot that ran does not run again because the clock now shows a time seconds before it."""
    world = at_rest(session("s", every(86_400.0)))
    world.advance(86_400.0)
    world.end("s")
    world.wall -= 5_000_000
    world.crash()
    world.rest(1.0)
    world.advance(60.0)
    assert world.starts("s") == 1
    world.advance(86_400.0)
    assert world.starts("s") == 2


def test_rule_37_the_slot_of_a_run_under_way_moves_with_the_clock() -> None:
    """Rule 37: slots that wait behind a run still run one by one. The run lost in a crash is owed again."""
    world = at_rest(session("s", every(10.0, catch_up="all")))
    world.advance(30.0)
    world.jump(-7200.0)
    world.crash()
    world.rest(1.0)
    assert world.starts("s") == 4, "three slots, and one try that was lost"


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_rule_37_a_run_that_ends_after_the_clock_was_set_has_dealt_with_its_slot(step: float) -> None:
    """Rule 37: the slot is not owed again under its new time."""
    world = at_rest(session("s", every(10.0)))
    world.advance(10.0)
    world.jump(step)
    world.end("s")
    assert len(live(world, 18)) == 1
    assert world.starts("s") == 2


def test_rule_37_a_suspended_machine_missed_its_slots() -> None:
    """Rule 37: time passes for `every` during a suspend. It misses slots, as it does while the daemon is down."""
    world = at_rest(session("s", every(3600.0)), session("r", cron("0 * * * *")))
    world.suspend(10 * 3600.0)
    world.rest(1.0)
    assert (world.starts("s"), world.starts("r")) == (1, 1)
    assert world.events("s", "clock_rebased") == []


def test_rule_37_every_has_an_alarm_on_the_clock_that_nobody_sets() -> None:
    """Rule 37: no alarm rings when the wall clock is set back. The monotonic alarm keeps the next slot on time."""
    world = at_rest(session("s", every(10.0)))
    world.wall -= 7_200_000_000
    due = world.core.mono.next
    assert due is not None and due <= world.mono + 10.0
    world.mono = world.boot = due
    world.wall += 10_000_000
    world.tick()
    assert world.starts("s") == 1


def test_rule_37_readings_that_are_not_of_one_moment_are_no_set_clock() -> None:
    """Rule 37: on a busy machine the two clocks are read at different moments. Small steps add up until they count."""
    world = at_rest(session("s", every(10.0)))
    for _ in range(3):
        world.wall -= 900_000
        world.tick()
    (rebased,) = world.events("s", "clock_rebased")
    assert slot_us(rebased.new) - slot_us(rebased.old) == -3_000_000


def test_rule_37_a_cron_that_was_set_back_waits_for_the_slot_after_its_last() -> None:
    """Rule 37: the next slot is the first one that did not run yet. The alarm is set for it."""
    world = at_rest(session("s", cron("*/5 * * * *")))
    world.advance(3 * 3600.0)
    world.rest(1.0)
    world.jump(-2 * 3600.0)
    (clock,) = world.core.looked.clocks.values()
    assert clock.is_set_back
    assert clock.next_due == START_US + (3 * 3600 + 300) * 1_000_000
    world.advance(2 * 3600.0 + 300.0)
    world.rest(1.0)
    assert world.starts("s") == 2
    assert not clock.is_set_back


@pytest.mark.parametrize("step", [TO_1970, TO_2038, 86_400.0, -3600.0])
def test_rule_37_a_clock_that_is_set_during_a_run_stops_no_cron_and_runs_no_slot_twice(step: float) -> None:
    """Rule 37: the clock may be set to any time, also to 1970 or past 2038.

    At most one run follows at once, then one for each slot. The log keeps its order.
    """
    world = at_rest(session("s", cron("0 * * * *")))
    world.advance(3600.0)
    assert world.is_running("s")
    world.jump(step)
    world.end("s")
    world.rest(1.0)
    assert world.starts("s") <= 2
    starts = world.starts("s")
    for _ in range(5):
        world.advance(3600.0)
        world.rest(1.0)
    assert 4 <= world.starts("s") - starts <= 5
    assert [entry.seq for entry in world.log] == sorted(entry.seq for entry in world.log)


def test_rule_37_a_clock_set_forward_runs_what_fell_due() -> None:
    """Rule 37: slots passed by a jump forward are missed slots, as after a suspend."""
    world = at_rest(session("s", cron("0 * * * *")))
    world.jump(5 * 3600.0)
    world.rest(1.0)
    assert world.starts("s") == 1


def test_rule_37_a_clock_set_back_does_not_stretch_a_hold() -> None:
    """Rule 37: a durable deadline is min(stored, now + its length), also after a restart."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.call(calls.Sleep(name="s", seconds=60.0))
    world.write("in", "2")
    world.look()
    world.jump(-7200.0)
    world.advance(60.0)
    assert world.is_running("s")
    world.rest(1.0)
    world.call(calls.Sleep(name="s", seconds=60.0))
    world.write("in", "3")
    world.look()
    world.jump(-7200.0)
    world.crash()
    world.answer_all()
    world.advance(59.0)
    assert not world.is_running("s")
    world.advance(2.0)
    assert world.is_running("s")


def test_rule_37_settle_is_monotonic() -> None:
    """Rule 37: quiet is measured on the monotonic clock."""
    world = at_rest(session("s", read("in", settle_seconds=5.0, settle_max_seconds=60.0)), files={"in": "1"})
    world.write("in", "2")
    world.deliver_hints()
    world.jump(86_400.0)
    assert not world.looks
    world.jump(-90_000.0)
    world.advance(5.1)
    assert len(world.looks) == 1


def test_a_snooze_ends_by_itself() -> None:
    """A hold with a moment ends at that moment. Owed changes run then."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.call(calls.Sleep(name="s", until=START_US + 100_000_000))
    world.write("in", "2")
    world.rest(50.0)
    assert world.starts("s") == 1
    world.rest(100.0)
    assert world.starts("s") == 2
    assert world.hold("s") is None


def test_jitter_is_stable_and_shifts_the_slot() -> None:
    """The shift of a session's slots is the same before and after a crash."""
    world = at_rest(session("s", every(3600.0, jitter_seconds=1800.0)))
    due = world.core.wall.next
    assert 0 < due - START_US < 1_800_000_000, "the slot at the declaration, shifted"
    world.crash()
    assert world.core.wall.next == due
    world.advance((due - world.wall) / 1e6)
    assert world.is_running("s")
    assert slot_us(world.session("s").run.versions["every 3600s"]) == START_US
    world.end("s")
    assert world.core.wall.next == due + 3_600_000_000, "the next slot has the same shift"


def test_a_window_collects_changes_until_it_opens() -> None:
    """Outside `window` changes collect. They cause a run when it opens."""
    world = World(session("s", read("in"), window=Window(8 * 60, 20 * 60, "UTC")), files={"in": "1"})
    world.rest(1.0)
    assert world.queued("s") == "outside its window; next start in 8 h 0 min"
    world.advance(8 * 3600.0 + 1)
    assert world.is_running("s")


def test_rule_38_one_commit_a_run_in_order() -> None:
    """Rule 38: each commit is one run. After a run that failed for good, the next commit follows."""
    world = World(session("s", commits("src", each_commit=True)))
    world.rest(5.0)
    ids = [world.commit("src", str(number), hint=False) for number in range(4)]
    world.hint(*world.followed)
    world.rest(60.0, exit_code=lambda process: int(process.run.causes[-1].new == ids[1]))
    runs = [event.causes[-1] for event in world.events("s", "run_started")[1:]]
    assert [cause.new for cause in runs] == ids
    assert [cause.old for cause in runs] == ["absent", *ids[:-1]]
    assert world.outcomes("s")[1:] == ["succeeded", "failed", "succeeded", "succeeded"]


def test_rule_38_a_long_push_is_not_a_loop() -> None:
    """Rules 34 and 38: each commit of one push is a run without a wait, also beyond the starts allowed in a minute."""
    commits_pushed = COMMANDS.starts_a_minute + 20
    world = World(session("s", commits("src", each_commit=True)))
    world.rest(5.0)
    for number in range(commits_pushed):
        world.commit("src", str(number), hint=False)
    world.hint(*world.followed)
    world.rest(20.0)
    assert world.starts("s") == commits_pushed + 1


@pytest.mark.parametrize("each_commit", [False, True])
def test_rule_38_a_session_that_commits_to_what_wakes_it_is_a_loop(each_commit: bool) -> None:
    """Rules 34 and 38: the run may write the repository, and a commit comes during five runs in a row."""
    world = World(session("s", commits("src", each_commit=each_commit), confinement=Confinement(allow_write=(".git",))))
    world.rest(5.0)
    world.commit("src", "by a person")
    for number in range(5):
        world.start_soon("s")
        world.commit("src", str(number))
        world.end("s")
        world.answer_all()
    world.rest(10.0)
    assert world.hold("s") == "loop: its input commits changed during each of its last 5 runs, and never between them"


@pytest.mark.parametrize("each_commit", [False, True])
def test_rule_38_commits_beside_runs_that_cannot_commit_are_no_loop(each_commit: bool) -> None:
    """Rules 34 and 38: commits of others during the runs keep the session busy, but never put it to sleep."""
    world = World(session("s", commits("src", each_commit=each_commit)))
    world.rest(5.0)
    world.commit("src", "first")
    for number in range(20):
        world.start_soon("s")
        world.commit("src", str(number))
        world.look()
        world.end("s")
        world.answer_all()
    world.rest(60.0)
    assert world.hold("s") is None
    assert world.starts("s") == 22


def test_rule_38_cancelling_a_queued_commit_goes_on_with_the_next() -> None:
    """Rules 19 and 38: cancel gives up one commit, not the branch."""
    world = World(session("s", commits("src", each_commit=True)))
    world.rest(5.0)
    world.call(calls.Sleep(name="s"))
    first = world.commit("src", "1", hint=False)
    second = world.commit("src", "2", hint=False)
    world.hint(*world.followed)
    world.rest(5.0)
    assert world.session("s").wake.causes[-1].new == first
    world.call(calls.Cancel(name="s"))
    world.rest(5.0)
    assert world.session("s").wake.causes[-1].new == second


def test_rule_38_a_rewritten_history_is_one_wake_for_the_new_head() -> None:
    """Rule 38: if seen is not an ancestor any more, there is one wake, with the reason `history-rewritten`."""
    world = World(session("s", commits("src", each_commit=True)))
    for text in "123":
        world.commit("src", text)
    world.rest(5.0)
    starts = world.starts("s")
    world.commits["src"].clear()
    world.commit("src", "other", hint=False)
    head = world.commit("src", "again")
    world.rest(5.0)
    assert world.starts("s") == starts + 1
    (cause,) = world.session("s").last_run.causes
    assert (cause.new, cause.reason) == (head, "history-rewritten")


def test_rule_11_a_relative_look_is_dropped_if_its_base_moved() -> None:
    """Rule 11: a look relative to an older commit does not tell what follows the newer one."""
    world = World(session("s", commits("src", each_commit=True)))
    world.rest(5.0)
    first = world.commit("src", "1")
    world.advance(1.0)
    world.answer_all()
    assert world.session("s").run.causes[-1].new == first
    world.commit("src", "2")
    world.advance(1.0)
    stale = len(world.looks)
    assert stale == 1
    world.end("s")
    world.answer(0)
    assert world.session("s").marks.seen["commits . HEAD:src each"] == first
    world.rest(5.0)
    assert world.starts("s") == 3
    (look,) = world.core.looked.targets.values()
    slow = LookResult(
        target=look.target.key, generation=look.generation, version="c2", base="absent", pending=(first, "c2")
    )
    world.observe(TargetLooked(slow))
    assert not world.is_running("s")


def test_clocks_of_a_disabled_daemon_do_not_pile_up() -> None:
    """With `catch_up: once`, thousands of missed slots cause one run, also when the session was disabled meanwhile."""
    spec = session("s", every(60.0))
    world = at_rest(spec, settings=Settings(concurrency=1))
    world.declare(replace(spec, enabled=False))
    for _ in range(5):
        world.advance(86_400.0)
        world.rest(1.0)
    assert world.starts("s") == 0 and world.events("s", "wake_requested") == []
    world.declare(spec)
    world.rest(1.0)
    assert world.starts("s") == 1
    world.advance(5 * 86_400.0)
    world.rest(1.0)
    assert world.starts("s") == 2
