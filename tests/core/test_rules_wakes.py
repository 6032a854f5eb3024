"""Rules 20 to 26: wakes, runs, stops, first sight, and specs that change meanwhile."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from core.simulated_world import World, declare
from core.spec_builders import after, commits, cron, every, read, service, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.events import SessionTerminated
from wakeful.core.record.observations import DaemonStopping, SpecsRead
from wakeful.core.spec.session import Confinement, SessionSpec, Settings, Window, digest_noticed


def at_rest(*specs, **keys) -> World:
    world = World(*specs, **keys)
    world.rest()
    return world


def change(world: World, text: str, path: str = "in") -> None:
    world.write(path, text)
    world.look()


def test_rule_20_later_causes_extend_the_open_wake() -> None:
    """Rule 20: a session has one open wake. Later causes extend it under the same id."""
    world = at_rest(session("s", read("a"), read("b"), pace_seconds=60.0), files={"a": "1", "b": "1"})
    change(world, "2", "a")
    change(world, "2", "b")
    wake = world.session("s").wake
    assert [cause.binding for cause in wake.causes] == ["a", "b"]
    assert (wake.wake, world.session("s").tally.wakes) == (2, 2)
    world.rest(120.0)
    assert world.starts("s") == 2


def test_rule_20_a_cause_that_was_undone_leaves_the_wake() -> None:
    """Rule 20: a run is not told of a change that was undone before it starts."""
    world = at_rest(session("s", read("a"), read("b"), pace_seconds=60.0), files={"a": "1", "b": "1"})
    change(world, "2", "a")
    change(world, "2", "b")
    change(world, "1", "a")
    assert [cause.binding for cause in world.session("s").wake.causes] == ["b"]


@pytest.mark.parametrize(
    ("spec", "prepare"),
    [
        (session("s", read("in"), pace_seconds=600.0), None),
        (session("s", read("in")), calls.Sleep(name="s")),
        (session("s", read("in"), window=Window(600, 660, "UTC")), None),
        (session("s", read("in"), service("tcp://db")), "down"),
        (session("s", read("in", missing="wait")), "missing"),
    ],
)
def test_rule_20_activate_skips_settle_pace_holds_and_windows(spec, prepare) -> None:
    """Rule 20: an activation starts the run now, whatever holds or delays the session."""
    world = World(spec, files={"in": "1"})
    if prepare == "down":
        world.services["tcp://db"] = "down"
        world.hint(*world.followed)
    if prepare == "missing":
        world.delete("in")
    world.rest()
    if isinstance(prepare, calls.Sleep):
        world.call(prepare)
    before = world.starts("s")
    if prepare != "missing":
        change(world, "2")
    world.call(calls.Activate(name="s", note="because"))
    assert world.starts("s") == before + 1
    assert world.session("s").run.causes[0].reason == "because"
    assert world.session("s").run.causes[0].kind == "activation"


def test_rule_20_activate_skips_settle() -> None:
    """Rule 20: a dirty binding that has not settled does not delay an activation."""
    world = at_rest(session("s", read("in", settle_seconds=5.0, settle_max_seconds=60.0)), files={"in": "1"})
    world.write("in", "2")
    world.deliver_hints()
    world.call(calls.Activate(name="s"))
    assert world.is_running("s")


def test_rule_20_activate_does_not_skip_slots() -> None:
    """Rule 20: an activation waits for a slot as other wakes do."""
    world = at_rest(session("busy", read("x")), session("s", read("in")), settings=Settings(concurrency=1))
    change(world, "2", "x")
    world.call(calls.Activate(name="s"))
    assert world.queued("s") == "a slot"
    world.end("busy")
    assert world.is_running("s")


def test_rule_20_activate_skips_backing_off_and_lifts_failed() -> None:
    """Rule 20: an activation ends the back-off, and the hold after a failure."""
    world = at_rest(session("s", read("in"), retries=1), files={"in": "1"})
    change(world, "2")
    world.end("s", 1)
    assert world.hold("s").startswith("backing off")
    world.call(calls.Activate(name="s"))
    assert world.is_running("s")
    world.rest(60.0, exit_code=lambda _: 1)
    assert world.hold("s").startswith("failed")
    world.call(calls.Activate(name="s"))
    assert world.is_running("s")
    assert world.hold("s") is None


def test_rule_20_an_activated_run_that_fails_backs_off() -> None:
    """Rule 20: an activation ends the back-off that exists, not the one that its own failure causes."""
    world = at_rest(session("s", read("in"), retries=2), files={"in": "1"})
    world.call(calls.Activate(name="s"))
    world.end("s", 1)
    assert not world.is_running("s")
    assert world.hold("s").startswith("backing off")
    world.advance(2.0)
    world.tick()
    assert world.session("s").run.attempt == 1


def test_rule_20_activations_while_running_give_one_follow_up() -> None:
    """Rule 20: any number of activations during a run cause one follow-up run."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    for _ in range(3):
        world.call(calls.Activate(name="s"))
    world.rest()
    assert world.starts("s") == 3


def test_rule_20_a_snooze_outlives_an_activation() -> None:
    """Rule 20: an activation skips the snooze and does not end it."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.call(calls.Sleep(name="s"))
    world.call(calls.Activate(name="s"))
    world.rest()
    assert world.starts("s") == 2
    change(world, "2")
    assert world.queued("s") == "snoozed by alice"


def test_rule_21_attempts_belong_to_the_start_versions() -> None:
    """Rule 21: a retry on changed versions begins at attempt 0. The back-off goes on doubling."""
    world = at_rest(session("s", read("in"), retries=2), files={"in": "1"})
    change(world, "2")
    world.end("s", 1)
    first = world.session("s").wake.backoff_seconds
    world.advance(first)
    assert world.session("s").run.attempt == 1
    world.end("s", 1)
    second = world.session("s").wake.backoff_seconds
    assert 1.0 <= first <= 1.25 and 2.0 <= second <= 2.5
    world.write("in", "3")
    world.deliver_hints()
    world.advance(0.2)
    world.answer_all()
    world.advance(second)
    assert world.session("s").run.attempt == 0
    world.end("s", 1)
    assert 4.0 <= world.session("s").wake.backoff_seconds <= 5.0
    world.rest(60.0, exit_code=lambda _: 1)
    assert world.hold("s") == "failed: exit code 1"


FAILING: dict[str, tuple[SessionSpec, Callable[[World, int], None], int]] = {
    "nothing else": (session("s", read("in"), retries=2), lambda world, number: None, 3),
    "its output is half written": (session("s", read("in"), write("out"), retries=2), lambda world, number: world.write("out", "half"), 3),
    "its output differs by the try": (session("s", read("in"), write("out"), retries=2), lambda world, number: world.write("out", f"half {number}"), 3),
    "its output wakes it by others' hands": (
        session("s", read("in"), write("out", wake=True), retries=2), lambda world, number: world.write("out", f"half {number}"), 3
    ),
    # The last try may have read the content in between: one more run follows, and no new series of tries.
    "its input is touched": (session("s", read("in"), retries=2), lambda world, number: world.touch("in") if number < 4 else None, 4),
    "its input is touched always": (session("s", read("in"), retries=2), lambda world, number: world.touch("in") if number < 8 else None, 8),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILING)
def test_rule_21_so_many_tries_on_the_same_versions_and_no_more(what: str) -> None:
    """Rule 21: the outputs of a failing run are not newer input."""
    spec, leave, tries = FAILING[what]
    world = at_rest(spec, files={"in": "1"})
    change(world, "2")
    ended = 0
    for _ in range(60):
        if world.is_running("s"):
            ended += 1
            leave(world, ended)
            world.end("s", 1)
        world.look()
    assert ended == tries
    assert world.hold("s") == "failed: exit code 1"
    change(world, "3")
    assert world.session("s").run.attempt == 0


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_rule_21_retries_are_tries_after_the_first(retries: int) -> None:
    """Rule 21: `retries: 2` gives three runs, numbered 0 to 2. Then the session sleeps."""
    world = at_rest(session("s", read("in"), retries=retries), files={"in": "1"})
    change(world, "2")
    world.rest(600.0, exit_code=lambda _: 1)
    tried = [event.attempt for event in world.events("s", "run_started")][1:]
    assert tried == list(range(retries + 1))
    assert world.hold("s") == "failed: exit code 1"


def test_rule_21_what_others_make_of_an_output_that_wakes_is_newer_input() -> None:
    """Rule 21: a try on such a change is attempt 0, whatever the earlier tries left in the output."""
    world = at_rest(session("s", read("in"), write("out", wake=True), retries=2), files={"in": "1"})
    change(world, "2")
    world.write("out", "half, by the first try")
    world.end("s", 1)
    world.answer_all()
    world.advance(world.session("s").wake.backoff_seconds)
    assert world.session("s").run.attempt == 1
    world.end("s", 1)
    world.answer_all()
    world.write("out", "by other hands")
    world.deliver_hints()
    world.advance(0.2)
    world.answer_all()
    world.advance(world.session("s").wake.backoff_seconds)
    assert world.session("s").run.attempt == 0


def test_rule_21_newer_versions_do_not_shorten_the_back_off() -> None:
    """Rule 21: a change during the back-off waits for the retry and starts no run of its own."""
    world = at_rest(session("s", read("in"), retries=2), files={"in": "1"})
    change(world, "2")
    world.end("s", 1)
    world.advance(1.3)
    world.end("s", 1)
    world.write("in", "3")
    world.deliver_hints()
    world.advance(0.3)
    world.answer_all()
    assert not world.is_running("s")
    world.advance(2.5)
    assert world.is_running("s")


@pytest.mark.parametrize("release", ["newer version", "new spec", "resume", "activate"])
def test_rule_21_what_ends_a_failure(release: str) -> None:
    """Rule 21: a session that failed for good sleeps until a newer version, a new spec, resume or activate."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    change(world, "2")
    world.end("s", 1)
    world.rest()
    assert world.hold("s") == "failed: exit code 1"
    match release:
        case "newer version":
            change(world, "3")
            assert world.is_running("s")
        case "new spec":
            world.declare(replace(spec, objective="other"))
            assert world.is_running("s")
        case "resume":
            world.call(calls.Resume(name="s"))
            assert not world.is_running("s")
        case "activate":
            world.call(calls.Activate(name="s"))
            assert world.is_running("s")
    assert world.hold("s") is None


def test_rule_21_something_newer_during_the_run_is_tried_at_once() -> None:
    """Rule 21: a failure on versions that are already old does not put the session to sleep."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    change(world, "3")
    world.end("s", 1)
    world.answer_all()
    assert world.is_running("s")
    assert "session_slept" not in world.kinds("s")


def test_rule_22_lost_runs_have_their_own_count() -> None:
    """Rule 22: after three runs lost in crashes the session sleeps. They use up no retries."""
    world = at_rest(session("s", read("in"), retries=1), files={"in": "1"})
    change(world, "2")
    for lost in range(1, 4):
        world.crash()
        world.answer_all()
        world.recover()
        assert world.is_running("s") == (lost < 3)
        assert lost == 3 or world.session("s").run.attempt == 0
    assert world.hold("s").startswith("crashing")
    assert world.outcomes("s")[1:] == ["lost"] * 3
    world.call(calls.Resume(name="s"))
    assert world.session("s").run.attempt == 0
    world.end("s", 1)
    assert world.session("s").wake is not None


def test_rule_22_an_activated_run_that_takes_the_daemon_down_is_held_too() -> None:
    """Rule 22: an activation that is still owed does not make a crash loop. Another activation releases the hold."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.call(calls.Activate(name="s"))
    for lost in range(1, 4):
        world.crash()
        world.answer_all()
        world.recover()
        assert world.is_running("s") == (lost < 3)
    assert world.hold("s").startswith("crashing")
    world.call(calls.Activate(name="s"))
    assert world.is_running("s")


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (calls.Suspend, calls.Interrupt, "interrupt"),
        (calls.Interrupt, calls.Cancel, "cancel"),
        (calls.Cancel, calls.Terminate, "terminate"),
        (calls.Interrupt, calls.Suspend, "interrupt"),
        (calls.Cancel, calls.Interrupt, "cancel"),
        (calls.Terminate, calls.Cancel, "terminate"),
    ],
)
def test_rule_23_the_stronger_stop_replaces_the_weaker(first, second, left: str) -> None:
    """Rule 23: terminate > cancel > interrupt > suspend, in any order."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.call(first(name="s"))
    world.call(second(name="s"), author="bob")
    assert world.session("s").run.stop.why == left


@pytest.mark.parametrize(
    ("stop", "outcome", "is_final"),
    [
        ("cancel", "cancelled", True),
        ("interrupt", "interrupted", True),
        ("suspend", "interrupted", True),
        ("shutdown", "interrupted", False),
    ],
)
def test_rule_23_a_crash_after_a_stop_ends_the_run_with_that_outcome(stop: str, outcome: str, is_final: bool) -> None:
    """Rule 23: the stop is logged before the signal, so a crash does not turn it into a loss."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    if stop == "shutdown":
        world.observe(DaemonStopping(is_forced=True))
    else:
        world.call({"cancel": calls.Cancel, "interrupt": calls.Interrupt, "suspend": calls.Suspend}[stop](name="s"))
    world.crash()
    world.answer_all()
    world.recover()
    finished = world.events("s", "run_finished")[-1]
    assert (finished.outcome, finished.is_final) == (outcome, is_final)
    assert world.starts("s") == (2 if is_final else 3)


def test_rule_24_a_session_is_terminated_after_its_run_in_the_same_transaction() -> None:
    """Rule 24: `run_finished` and `session_terminated` are one transaction.

    Readers are released, and targets are forgotten.
    """
    world = at_rest(
        session("s", read("in"), write("out")), session("down", read("out"), read("own")), files={"in": "1", "own": "1"}
    )
    change(world, "2")
    change(world, "2", "own")
    assert world.queued("down") == "upstream s is running"
    world.call(calls.Terminate(name="s"))
    world.end("s", None, signal=15)
    world.answer_all()
    last = [entry for entry in world.log if entry.session == world.session("s").id][-2:]
    assert [entry.kind for entry in last] == ["run_finished", "session_terminated"]
    assert last[0].transaction == last[1].transaction
    assert world.outcomes("s")[-1] == "cancelled"
    assert world.keys_of("in") == []
    world.rest()
    assert world.starts("down") == 2
    change(world, "3")
    assert isinstance(world.events("s")[-1], SessionTerminated)


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("reason", ["the year is closed", None])
def test_rule_24_why_a_session_was_terminated_during_its_run_is_kept(reason: str | None, is_crashed: bool) -> None:
    """Rule 24: the reason is kept with the stop, also for the next daemon.

    Without a reason, the record names the caller.
    """
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.call(calls.Cancel(name="s"), author="bob")
    world.call(calls.Terminate(name="s", reason=reason), author="person:ada")
    if is_crashed:
        world.crash()
        world.answer_all()
        world.recover()
    else:
        world.end("s", None, signal=15)
    world.answer_all()
    [terminated] = [entry for entry in world.log if entry.kind == "session_terminated"]
    assert terminated.author == "person:ada"
    assert terminated.event.reason == (reason or "terminated by person:ada while it ran")


def test_rule_24_suspend_lets_a_command_come_to_its_end() -> None:
    """Rule 24: the only safe point of a command is its end, so suspend sends no signal."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.call(calls.Suspend(name="s"))
    assert world.process_of("s").stops == []
    world.call(calls.Interrupt(name="s"))
    assert world.process_of("s").stops == ["interrupt"]
    world.call(calls.Cancel(name="s"))
    assert world.process_of("s").stops == ["interrupt", "terminate"]


def test_rule_25_first_run_is_one_wake_with_the_cause_first() -> None:
    """Rule 25: first sight is one run with the cause `first`, for all bindings."""
    world = at_rest(session("s", read("a"), read("b"), commits("src")), files={"a": "1"})
    (wake,) = world.events("s", "wake_requested")
    assert [cause.kind for cause in wake.causes] == ["first"]
    assert world.starts("s") == 1
    assert world.session("s").marks.is_first_taken


def test_rule_25_adopt_takes_what_is_there_as_seen_and_good() -> None:
    """Rule 25: adopt starts no run. The next change is told relative to the adopted version."""
    world = at_rest(session("s", read("in"), first="adopt"), files={"in": "1"})
    assert world.starts("s") == 0
    there = world.session("s").marks.good["file in content"]
    change(world, "2")
    (cause,) = world.session("s").run.causes
    assert (cause.kind, cause.old) == ("file", there)


def test_rule_25_adopt_waits_until_everything_was_seen() -> None:
    """Rule 25: adopt waits for a binding that is still unknown. A message wakes the session meanwhile."""
    world = World(session("s", read("a"), read("b"), first="adopt"), files={"a": "1", "b": "1"})
    world.hide("a")
    world.rest()
    assert world.starts("s") == 0
    assert world.session("s").wake is None
    world.call(calls.Send(name="s", text="hello"))
    assert world.session("s").wake is not None
    world.show("a")
    world.rest()
    assert [cause.kind for cause in world.session("s").last_run.causes] == ["message"]


@pytest.mark.parametrize("first", [None, "run", "adopt"])
def test_rule_25_clocks_start_at_their_declaration_and_mailboxes_at_the_first_message(first) -> None:
    """Rule 25: slots from before the declaration are not owed, and messages are. An empty mailbox starts no run."""
    world = at_rest(session("s", cron("0 0 * * *"), first=first))
    assert world.starts("s") == (1 if first == "run" else 0)
    world.advance(86_400.0)
    world.rest(1.0)
    assert world.starts("s") == (2 if first == "run" else 1)
    world = at_rest(session("s", run=None))
    world.call(calls.Send(name="s", text="early"))
    assert world.starts("s") == 0
    world.declare(session("s", first=first))
    world.rest()
    (started,) = world.events("s", "run_started")
    assert [cause.new for cause in started.causes if cause.kind == "message"] == ["1"]
    world = at_rest(session("s", first=first))
    assert world.starts("s") == (1 if first == "run" else 0), "an empty mailbox causes no first run"


def test_rule_26_a_run_keeps_the_spec_it_started_under() -> None:
    """Rule 26: edits of the spec during a run cause one follow-up run under the new spec."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    change(world, "2")
    world.declare(replace(spec, objective="one"))
    world.declare(replace(spec, objective="two"))
    assert world.session("s").run.spec == spec
    world.rest()
    assert world.starts("s") == 3
    assert [cause.kind for cause in world.session("s").last_run.causes] == ["spec"]


def test_rule_26_a_removed_session_ends_its_run_and_is_then_undeclared() -> None:
    """Rule 26: the run ends under its spec, with its written paths. Then wake, back-off and edges are removed."""
    world = at_rest(session("s", read("in"), write("out"), retries=3), session("down", read("out")), files={"in": "1"})
    change(world, "2")
    world.remove("s")
    assert world.is_running("s")
    change(world, "by hand", "out")
    assert world.queued("down") == "upstream s is running"
    world.end("s", 1)
    world.rest()
    assert world.hold("s") == "undeclared: its file is gone from sessions.d"
    assert world.session("s").wake is None
    assert not world.events("s", "run_finished")[-1].retry_at
    assert world.starts("down") == 2


def test_rule_26_a_removed_writer_makes_room_at_once() -> None:
    """Rule 26: a spec moved to another name takes over the output, although the old session still runs."""
    world = at_rest(session("old", read("in"), write("out")), files={"in": "1"})
    change(world, "2")
    spec = session("new", read("in"), write("out"))
    del world.specs["old"]
    world.specs["new"] = spec
    world.observe(SpecsRead(declared=(declare(spec),), removed=("old",)))
    assert world.core.looked.refused == {}
    world.rest()
    assert world.starts("new") == 1


def test_rule_26_a_removed_upstream_sets_its_readers_free() -> None:
    """Rule 26: the edges of a removed session are removed too."""
    world = at_rest(
        session("up", read("in"), write("out")),
        session("down", read("out"), read("own")),
        files={"in": "1", "own": "1"},
    )
    change(world, "2")
    world.end("up", 1)
    change(world, "2", "own")
    assert world.queued("down") == "upstream up failed"
    world.remove("up")
    world.rest()
    assert world.starts("down") == 2


def test_rule_26_the_same_name_declared_again_is_the_same_session() -> None:
    """Rule 26: it keeps its seen, and changes made meanwhile are owed."""
    spec = session("s", read("in"), cron("0 0 * * *"))
    world = at_rest(spec, files={"in": "1"})
    identity = world.session("s").id
    world.remove("s")
    world.declare(spec)
    world.rest()
    assert (world.session("s").id, world.starts("s")) == (identity, 1)
    world.remove("s")
    world.write("in", "2", hint=False)
    world.advance(90_000.0)
    world.declare(spec)
    world.rest(5.0)
    assert world.starts("s") == 2
    assert {cause.kind for cause in world.session("s").last_run.causes} == {"file", "cron"}


def test_rule_26_a_queued_wake_goes_with_its_spec() -> None:
    """Rule 26: the wake of a removed session is withdrawn. It is owed again when the session is declared again."""
    spec = session("s", read("in"), pace_seconds=60.0)
    world = at_rest(spec, files={"in": "1"})
    change(world, "2")
    world.remove("s")
    assert world.session("s").wake is None
    world.rest(120.0)
    assert world.starts("s") == 1
    world.declare(spec)
    world.rest(120.0)
    assert world.starts("s") == 2


def test_rule_26_a_batch_is_judged_as_one() -> None:
    """Rule 26: two specs that swap their outputs are admitted together, though each alone would be a second writer."""
    world = at_rest(session("a", read("in"), write("x")), session("b", read("in"), write("y")))
    world.declare(session("a", read("in"), write("y")), session("b", read("in"), write("x")))
    assert world.core.looked.refused == {}


def test_rule_26_of_a_bad_batch_files_are_admitted_in_name_order_last_good_first() -> None:
    """Rule 26: a second writer is refused with the path, and keeps its last good spec. The other sessions go on."""
    world = at_rest(session("z", read("in"), write("out")), files={"in": "1"})
    world.declare(session("a", read("in"), write("out")), session("m", read("in"), write("m.out")))
    assert "a and z both write out" in world.core.looked.refused["a"]
    assert "a" not in world.core.state.ids
    world.declare(session("m", read("in"), write("out")))
    assert world.session("m").spec.written_patterns == ("m.out",)
    world.crash()
    assert set(world.core.looked.refused) == {"a", "m"}
    world.rest()
    change(world, "2")
    world.rest()
    assert (world.starts("m"), world.starts("z")) == (2, 2)


def test_rule_26_a_cycle_is_refused_with_its_path() -> None:
    """Rule 26: the message names every session and path of the cycle."""
    world = World(session("a", read("z.out"), write("a.out")), session("z", read("a.out"), write("z.out")))
    assert set(world.core.looked.refused) == {"z"}
    words = world.core.looked.refused["z"]
    assert "a cycle: z -> a -> z" in words and "a reads z.out of z" in words and "z reads a.out of a" in words


def test_rule_26_a_file_that_cannot_be_read_keeps_its_last_good_spec() -> None:
    """Rule 26: this also holds across a restart."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    world.observe(SpecsRead(refused={"s": "s.yaml:1:1: unknown key"}))
    change(world, "2")
    assert world.is_running("s")
    world.rest()
    del world.specs["s"]
    world.sessions = world.fold_log()
    world.core = type(world.core)(world.sessions.values())
    world.followed.clear()
    world.observe(SpecsRead(refused={"s": "s.yaml:1:1: unknown key"}))
    world.rest()
    assert world.session("s").declaration.is_declared
    change(world, "3")
    assert world.is_running("s")


def test_rule_26_only_terminate_terminates() -> None:
    """Rule 26: a session whose spec is gone is `undeclared`. A terminated one does not come back with its file."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    world.call(calls.Terminate(name="s"))
    world.declare(replace(spec, objective="new"))
    change(world, "2")
    assert world.kinds("s")[-1] == "session_terminated"
    assert world.followed == {}
    world.call(calls.Open(name="s", again=True))
    world.declare(replace(spec, objective="new"))
    world.rest()
    assert world.starts("s") == 2


def test_a_reopened_session_is_bound_again_though_its_spec_is_equal() -> None:
    """A reopened session goes on where it was when its file is read again. It is neither held nor run at once."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    world.call(calls.Sleep(name="s"))
    world.call(calls.Terminate(name="s"))
    world.call(calls.Open(name="s", again=True))
    world.declare(spec)
    world.rest()
    assert world.starts("s") == 1 and world.hold("s") is None
    change(world, "2")
    assert world.starts("s") == 2
    world.call(calls.Activate(name="s"))
    world.call(calls.Terminate(name="s"))
    world.rest()
    world.call(calls.Open(name="s", again=True))
    world.declare(spec)
    world.rest()
    assert world.starts("s") == 2, "termination used up the activation"
    change(world, "3")
    assert world.starts("s") == 3


def test_a_renamed_session_goes_on_under_its_new_name() -> None:
    """Rename keeps id, history and seen. The session does not run until its file is read under the new name."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    identity = world.session("s").id
    world.call(calls.Rename(name="s", new="t"))
    del world.specs["s"]
    world.call(calls.Send(name="t", text="hello"))
    assert not world.is_running("t")
    world.declare(replace(spec, name="t"))
    world.rest()
    assert (world.session("t").id, world.starts("t")) == (identity, 2)
    assert [cause.kind for cause in world.session("t").last_run.causes] == ["message"]


def test_when_all_waits_for_every_waking_binding() -> None:
    """With `when: all` the session runs when all waking bindings are new. A message wakes it alone."""
    world = at_rest(session("s", read("a"), read("b"), when="all"), files={"a": "1", "b": "1"})
    change(world, "2", "a")
    assert world.starts("s") == 1
    change(world, "2", "b")
    assert world.starts("s") == 2
    world.rest()
    world.call(calls.Send(name="s", text="hello"))
    assert world.starts("s") == 3


def test_when_changed_lets_the_clock_wake_only_if_something_else_is_new() -> None:
    """With `when: changed` a slot without a change is skipped with a record.

    A change that does not wake waits for the slot.
    """
    world = at_rest(session("s", read("in", wake=False), cron("* * * * *"), when="changed"), files={"in": "1"})
    world.advance(60.0)
    world.rest(1.0)
    assert world.starts("s") == 0
    assert [event.reason for event in world.events("s", "slot_skipped")] == ["nothing changed"]
    change(world, "2")
    assert world.starts("s") == 0
    world.advance(60.0)
    assert world.starts("s") == 1


def test_when_changed_does_not_skip_a_slot_on_what_it_cannot_see() -> None:
    """With `when: changed` an unknown binding does not count as unchanged (rule 5)."""
    world = at_rest(session("s", read("in", wake=False), cron("* * * * *"), when="changed"), files={"in": "1"})
    world.hide("in")
    world.rest(1.0)
    world.advance(60.0)
    assert world.events("s", "slot_skipped") == []
    world.write("in", "2")
    world.show("in")
    world.rest(5.0)
    assert world.starts("s") == 1


def test_pace_collects_what_comes_meanwhile() -> None:
    """With `pace` at most one run starts in this time. Changes collect."""
    world = at_rest(session("s", read("in"), pace_seconds=10.0), files={"in": "1"})
    for text in "234":
        change(world, text)
    assert world.starts("s") == 1
    world.rest(20.0)
    assert world.starts("s") == 2


def test_a_service_that_is_down_puts_the_session_to_sleep() -> None:
    """A service is a condition. While it is down the session sleeps and says so. When it is up, the session runs."""
    world = at_rest(session("s", read("in"), service("tcp://db")), files={"in": "1"}, services={"tcp://db": "down"})
    assert world.starts("s") == 0
    assert world.hold("s") == "service service is down: connection refused"
    world.services["tcp://db"] = "up"
    world.hint(*world.followed)
    world.rest()
    assert world.starts("s") == 1


def test_a_session_without_bindings_runs_only_when_activated() -> None:
    """A session with a run and no bindings has no first run."""
    world = at_rest(session("s"))
    assert world.starts("s") == 0
    world.call(calls.Activate(name="s"))
    world.rest()
    assert world.starts("s") == 1


def test_a_container_never_runs() -> None:
    """A session without `run` takes messages and is never woken."""
    world = at_rest(session("s", read("in"), run=None), files={"in": "1"})
    world.call(calls.Send(name="s", text="hello"))
    world.rest()
    assert world.kinds("s") == ["session_opened", "spec_declared", "message_added"]


def test_a_disabled_session_remembers_and_runs_when_enabled() -> None:
    """With `enabled: false` the session sleeps. No change is lost."""
    spec = session("s", read("in"))
    world = at_rest(spec, files={"in": "1"})
    world.declare(replace(spec, enabled=False))
    change(world, "2")
    assert world.hold("s") == "disabled in its spec"
    assert world.starts("s") == 1
    world.declare(spec)
    world.rest()
    assert world.starts("s") == 2


def test_an_unisolated_session_sleeps_until_the_operator_allows_it() -> None:
    """Only the operator can allow `isolation: none`.

    Before that, neither a change nor an activation runs, and no change is lost.
    """
    spec = session("s", read("in"), confinement=Confinement(level="none"))
    world = at_rest(spec, files={"in": "1"})
    assert world.hold("s").startswith("isolation: none is not allowed here")
    world.call(calls.Activate(name="s"))
    world.rest()
    assert world.starts("s") == 0
    world.set(Settings(concurrency=4, allow_unisolated=True))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, None)


def test_only_the_network_of_a_confinement_is_noticed_by_a_run() -> None:
    """Rule 9 and specs.md: a changed network wakes, a changed `allow` or level does not."""
    spec = session("s", read("in"))
    assert digest_noticed(replace(spec, confinement=Confinement(level="none", allow_read=("/a",)))) == digest_noticed(
        spec
    )
    assert digest_noticed(replace(spec, confinement=Confinement(network=True))) != digest_noticed(spec)


def test_a_restarting_daemon_interrupts_only_what_nobody_goes_on_with() -> None:
    """A forced stop interrupts only the runs that end with the daemon. A spared run goes on."""
    world = at_rest(
        session("s", read("in")), session("t", read("in")), files={"in": "1"}, settings=Settings(concurrency=2)
    )
    change(world, "2")
    kept = world.session("s").run
    assert kept is not None and world.is_running("t")
    world.observe(DaemonStopping())
    world.observe(DaemonStopping(is_forced=True, spared=frozenset((kept.run_id,))))
    assert (world.process_of("s").stops, world.process_of("t").stops) == ([], ["interrupt"])
    world.end("t", None, signal=2)
    world.end("s", 0)
    assert (world.outcomes("s")[-1], world.outcomes("t")[-1]) == ("succeeded", "interrupted")


def test_a_stopping_daemon_starts_nothing_and_owes_what_it_interrupts() -> None:
    """After SIGTERM no run starts. Interrupted runs are owed again by the next daemon and do not count as lost."""
    world = at_rest(
        session("s", read("in")), session("t", read("in")), files={"in": "1"}, settings=Settings(concurrency=1)
    )
    change(world, "2")
    running = "s" if world.is_running("s") else "t"
    world.observe(DaemonStopping())
    assert world.process_of(running).stops == []
    world.observe(DaemonStopping(is_forced=True))
    assert world.process_of(running).stops == ["interrupt"]
    world.end(running, None, signal=2)
    assert world.processes == {}
    world.crash()
    world.rest()
    assert (world.outcomes(running), world.session(running).last_run.outcome) == (
        ["succeeded", "interrupted", "succeeded"],
        "succeeded",
    )
    assert world.starts("s") + world.starts("t") == 5


def test_a_session_binding_wakes_without_cutoff() -> None:
    """Rule 33: `session` has no cutoff. Every success of the upstream is one occurrence."""
    world = at_rest(session("up", every(60.0)), session("s", after("up")))
    for round_ in range(2, 4):
        world.advance(60.0)
        world.rest(1.0)
        assert world.starts("s") == round_


@pytest.mark.parametrize("is_restarted", [False, True])
def test_rule_26_a_session_that_comes_back_does_not_take_its_path_from_its_new_writer(is_restarted: bool) -> None:
    """While one session is frozen for a move, another session takes over its output path. The move is then given up.

    One path has one writer, so one of the two is refused.
    """
    world = World(session("b", read("in"), write("out")), files={"in": "1"})
    world.rest()
    world.call(calls.Freeze(name="b", move="m1", to="laptop"))
    world.declare(session("c", read("in"), write("out")))
    world.rest()
    assert "b" not in world.core.looked.refused and world.session("c").tally.runs == 1
    world.call(calls.Thaw(name="b"))
    world.declare(world.specs["b"])
    if is_restarted:
        world.crash()
    world.write("in", "2")
    world.rest()
    refused = {"b", "c"} & world.core.looked.refused.keys()
    assert len(refused) == 1 and "both write out" in world.core.looked.refused[refused.pop()]
    runs = sorted((world.session("b").tally.runs, world.session("c").tally.runs))
    assert runs == [1, 2], "one of them goes on alone, and neither wakes the other"
