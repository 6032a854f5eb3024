"""Rules 30 to 35: the recompute graph, its holds, fairness, the loop guard, and the order of starts."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import after, cron, every, read, service, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.graph import Graph
from wakeful.core.record.observations import AgentsRead
from wakeful.core.spec.agent import AgentSpec, ModelSpec
from wakeful.core.spec.session import PromptRun, Settings


def at_rest(*specs, **keys) -> World:
    world = World(*specs, **keys)
    world.rest()
    return world


def change(world: World, text: str, path: str = "in") -> None:
    world.write(path, text)
    world.look()


def diamond(**keys: object) -> World:
    """Make the graph in -> a, b -> c."""
    return at_rest(
        session("a", read("in"), write("a.out")),
        session("b", read("in"), write("b.out")),
        session("c", read("a.out"), read("b.out")),
        files={"in": "1"},
        **keys,
    )


def pair(*more, **keys: object) -> World:
    """Make the graph in -> up -> out -> down, where down also reads own."""
    return at_rest(
        session("up", read("in"), write("out"), **keys),
        session("down", read("out"), read("own"), *more),
        files={"in": "1", "own": "1"},
    )


def test_rule_30_each_session_of_a_wave_runs_once_in_order() -> None:
    """Rule 30: in a diamond the last session runs once, after both of its upstreams."""
    world = diamond()
    world.write("in", "2")
    world.rest()
    assert [world.starts(name) for name in "abc"] == [2, 2, 2]
    order = [entry.session for entry in world.log if entry.kind == "run_started"]
    assert order[-1] == world.session("c").id


def test_rule_30_a_long_chain_runs_in_order() -> None:
    """Rule 30: an indirect upstream holds too. The reason shown names the root cause."""
    names = [f"n{index}" for index in range(5)]
    specs = [
        session(name, read(f"p{index}"), *([read("own")] if name == "n4" else []), write(f"p{index + 1}"))
        for index, name in enumerate(names)
    ]
    world = at_rest(*specs, files={"p0": "1", "own": "1"})
    change(world, "2", "own")
    world.rest()
    change(world, "2", "p0")
    change(world, "3", "own")
    assert world.queued("n4") == "upstream n0 is running"
    world.rest()
    assert [world.starts(name) for name in names] == [2, 2, 2, 2, 3]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("dirty", "upstream up is changing (in)"),
        ("running", "upstream up is running"),
        ("unknown", "upstream up cannot see in"),
        ("owed", "upstream up has changes to take in"),
        ("failed", "upstream up failed"),
        ("unfinished", "upstream up was interrupted"),
    ],
)
def test_rule_30_a_reader_waits_while_an_upstream_is_busy(trouble: str, words: str) -> None:
    """Rule 30: dirty, unknown, owed, running, failed and unfinished upstreams hold their readers.

    The reason says which.
    """
    world = pair(pace_seconds=3600.0 if trouble == "owed" else 0.0)
    match trouble:
        case "dirty":
            world.write("own", "2")
            world.look()
            world.rest()
            world.write("own", "3")
            world.write("in", "2")
            world.deliver_hints()
            world.advance(0.15)
            world.answer(next(i for i, p in enumerate(world.looks) if p.look.target in world.keys_of("own")))
        case "running":
            change(world, "2")
            change(world, "2", "own")
        case "unknown":
            world.hide("in")
            world.look()
            change(world, "2", "own")
        case "owed":
            change(world, "2")
            change(world, "2", "own")
        case "failed":
            change(world, "2")
            world.end("up", 1)
            change(world, "2", "own")
        case "unfinished":
            change(world, "2")
            world.call(calls.Interrupt(name="up"))
            world.end("up", None, signal=2)
            change(world, "2", "own")
    assert not world.is_running("down")
    assert world.queued("down") == words


def test_rule_30_first_sight_of_an_upstream_holds_its_readers() -> None:
    """Rule 30: an upstream with its first sight ahead holds its readers.

    One that only a clock wakes has no first sight.
    """
    world = World(
        session("up", read("in"), write("out")),
        session("monthly", cron("0 0 1 * *"), write("report")),
        session("down", read("out"), read("report")),
        files={"in": "1"},
    )
    world.rest()
    order = [entry.session for entry in world.log if entry.kind == "run_started"]
    assert order == [world.session("up").id, world.session("down").id]


def test_rule_30_patterns_that_meet_make_an_edge() -> None:
    """Rule 30: a write pattern that intersects a read pattern or a program makes an edge."""
    graph = Graph()
    writer = session("w", write("data/*.csv"), write("tools/run.py"))
    reader = session("r", read("data/**"))
    runner = session("p", program="tools/run.py")
    other = session("o", read("data/x.json"))
    assert graph.admit([writer, reader, runner, other], []) == {}
    assert graph.readers["w"] == {"r", "p"}
    assert graph.all_upstreams("o") == set()
    graph.remove("w")
    assert graph.upstreams["r"] == {}
    graph.place(writer)
    assert graph.readers["w"] == {"r", "p"}


def test_rule_30_a_session_binding_makes_an_edge_also_to_one_that_comes_later() -> None:
    """Rule 30: the named session may be declared after its reader."""
    world = at_rest(session("down", after("up")))
    world.declare(session("up", read("in")))
    world.rest()
    assert world.starts("down") == 2
    change(world, "2")
    world.call(calls.Send(name="down", text="hello"))
    assert world.queued("down") == "upstream up is running"


def test_rule_31_a_failed_upstream_holds_until_it_succeeds() -> None:
    """Rule 31: the next success of the upstream releases its readers."""
    world = pair()
    change(world, "2")
    world.end("up", 1)
    change(world, "2", "own")
    world.rest()
    assert world.starts("down") == 1
    change(world, "3")
    world.rest()
    assert world.starts("down") == 2


def test_rule_31_a_failed_upstream_holds_until_it_is_cancelled() -> None:
    """Rule 31: cancel gives up the failed work, also of an upstream at rest."""
    world = pair()
    change(world, "2")
    world.end("up", 1)
    change(world, "2", "own")
    world.rest()
    assert world.call(calls.Cancel(name="up")).startswith("cancelled")
    world.rest()
    assert world.starts("down") == 2
    assert world.hold("up") is None


def test_rule_31_a_run_that_is_cancelled_does_not_hold() -> None:
    """Rule 31: readers do not wait for a cancelled run."""
    world = pair()
    change(world, "2")
    change(world, "2", "own")
    world.call(calls.Cancel(name="up"))
    world.end("up", None, signal=15)
    world.rest()
    assert world.starts("down") == 2


def test_rule_31_suspending_a_queued_retry_keeps_its_readers_held() -> None:
    """Rule 31: suspend parks the failed try and does not give it up. Half-written outputs still hold."""
    world = pair(retries=3)
    change(world, "2")
    world.end("up", 1)
    change(world, "2", "own")
    world.call(calls.Suspend(name="up"))
    world.rest()
    assert world.starts("down") == 1
    assert world.queued("down") == "upstream up failed"


def test_rule_31_activating_the_reader_overrides_the_hold() -> None:
    """Rule 31: a person may run a reader on the present files."""
    world = pair()
    change(world, "2")
    world.end("up", 1)
    world.call(calls.Activate(name="down"))
    assert world.is_running("down")


@pytest.mark.parametrize("asleep", ["snoozed", "disabled", "service"])
def test_rule_31_a_sleeping_upstream_holds_only_if_it_is_owed(asleep: str) -> None:
    """Rule 31: an upstream that sleeps and is owed holds. One that sleeps and is not owed does not."""
    spec = session("up", read("in"), write("out"), service("tcp://db"))
    world = at_rest(spec, session("down", read("out"), read("own")), files={"in": "1", "own": "1"})
    match asleep:
        case "snoozed":
            world.call(calls.Sleep(name="up"))
        case "disabled":
            world.declare(replace(spec, enabled=False))
        case "service":
            world.services["tcp://db"] = "down"
            world.hint(*world.followed)
    world.rest()
    world.write("own", "2")
    world.rest()
    assert world.starts("down") == 2
    world.write("in", "2")
    world.rest()
    world.write("own", "3")
    world.rest()
    assert world.starts("down") == 2
    assert world.queued("down") == "upstream up sleeps with changes"


def test_rule_31_stale_allow_opts_out_of_a_failure() -> None:
    """Rule 31: with `stale: allow` a failed upstream does not hold, but a running one does."""
    world = at_rest(
        session("up", read("in"), write("out")),
        session("down", read("out", stale_allowed=True), read("own")),
        files={"in": "1", "own": "1"},
    )
    change(world, "2")
    change(world, "2", "own")
    assert world.queued("down") == "upstream up is running"
    world.end("up", 1)
    world.rest()
    assert world.starts("down") == 2


def test_rule_31_stale_allow_reaches_past_those_between() -> None:
    """Rule 31: `stale: allow` also opts out if the upstream itself is held by a failure further up."""
    world = at_rest(
        session("root", read("in"), write("x")),
        session("between", read("x"), read("side"), write("y")),
        session("down", read("y", stale_allowed=True), read("own")),
        files={"in": "1", "own": "1", "side": "1"},
    )
    change(world, "2", "side")
    world.rest()
    change(world, "2")
    change(world, "3", "side")
    change(world, "2", "own")
    assert not world.is_running("down")
    world.end("root", 1)
    world.rest()
    assert world.queued("between") == "upstream root failed"
    assert world.starts("down") == 3


def heard(*more, on: str = "failed", retries: int = 0) -> World:
    """Make `up`, which succeeds or fails, and `watcher`, which the ends of its runs wake."""
    return at_rest(
        session("up", read("in"), write("out"), retries=retries),
        session("watcher", after("up", on=on), *more),
        files={"in": "1", "own": "1"},
    )


def end_seen(world: World, name: str, exit_code: int) -> None:
    """End the process, and look at its outputs."""
    world.end(name, exit_code)
    world.answer_all()


def test_rule_4_a_failure_wakes_those_that_mind_it_and_a_success_does_not() -> None:
    """Rule 4: `on: failed` counts failures of the other session. Those before its own declaration do not count."""
    world = heard()
    assert world.starts("up") == 1 and world.starts("watcher") == 0
    change(world, "2")
    end_seen(world, "up", 0)
    world.rest()
    assert world.starts("watcher") == 0
    change(world, "3")
    end_seen(world, "up", 1)
    assert world.is_running("watcher")
    (cause,) = world.session("watcher").run.causes
    assert (cause.binding, cause.kind, cause.new) == ("after_up_failed", "session", "1")
    assert cause.reason == "run 3 failed: exit code 1"
    world.rest()
    assert world.starts("watcher") == 1


def test_rule_4_a_failure_counts_when_no_retry_follows() -> None:
    """Rule 4: failed tries that are retried do not count. The last one counts once."""
    world = heard(retries=1)
    change(world, "2")
    end_seen(world, "up", 1)
    assert world.session("up").wake is not None
    assert not world.is_running("watcher")
    world.advance(5.0)
    end_seen(world, "up", 1)
    assert world.is_running("watcher")
    world.rest()
    assert world.starts("watcher") == 1


@pytest.mark.parametrize("code", [0, 1])
def test_rule_4_finished_counts_both(code: int) -> None:
    """Rule 4: `on: finished` wakes after a success and after a failure, but not after a cancelled run."""
    world = heard(on="finished")
    # The first run of `up` was the first end after the declaration.
    assert world.starts("watcher") == 1
    change(world, "2")
    end_seen(world, "up", code)
    world.rest()
    assert world.starts("watcher") == 2
    change(world, "3")
    world.call(calls.Cancel(name="up"))
    world.end("up", None, signal=15)
    world.rest()
    assert world.starts("watcher") == 2


def test_rule_8_failures_before_the_declaration_are_no_news() -> None:
    """Rule 8: a binding `on: failed` counts runs that end after its declaration, also after a second declaration."""
    world = at_rest(session("up", read("in"), write("out")), files={"in": "1"})
    for text in ("2", "3"):
        change(world, text)
        end_seen(world, "up", 1)
    spec = session("watcher", after("up", on="failed"))
    world.declare(spec)
    world.rest()
    assert world.starts("watcher") == 0
    world.declare(session("watcher"))
    change(world, "4")
    end_seen(world, "up", 1)
    world.declare(spec)
    world.rest()
    # The edits of the spec are causes of their own.
    assert [cause.kind for cause in world.session("watcher").last_run.causes] == ["spec"]
    change(world, "5")
    end_seen(world, "up", 1)
    assert [cause.kind for cause in world.session("watcher").run.causes] == ["session"]


@pytest.mark.parametrize("on", ["failed", "finished"])
def test_rule_31_a_failure_does_not_hold_the_session_that_it_wakes(on: str) -> None:
    """Rule 31: this also holds if the woken session reads an output of the failed one."""
    world = heard(read("out"), read("own"), on=on)
    before = world.starts("watcher")
    change(world, "2")
    end_seen(world, "up", 1)
    world.rest()
    assert world.starts("watcher") == before + 1
    change(world, "2", "own")
    world.rest()
    assert world.starts("watcher") == before + 2
    assert world.hold("up") is not None


def test_rule_31_readers_of_a_session_that_minds_a_failure_are_not_held_by_it() -> None:
    """Rule 31: the hold ends at the session that the failure wakes. Readers of the failed session itself are held."""
    world = at_rest(
        session("up", read("in"), write("out")),
        session("watcher", after("up", on="failed"), write("report")),
        session("reader", read("report")),
        session("held", read("out"), read("own")),
        files={"in": "1", "own": "1"},
    )
    change(world, "2")
    end_seen(world, "up", 1)
    change(world, "2", "own")
    world.rest()
    assert world.queued("held") == "upstream up failed"
    assert world.starts("watcher") == 1
    assert world.starts("reader") == 2


def test_rule_30_a_session_that_minds_failures_alone_waits_for_nothing() -> None:
    """Rule 30: `on: failed` makes no edge, `on: finished` makes one."""
    world = heard(read("own"))
    change(world, "2")
    change(world, "2", "own")
    assert world.is_running("up") and world.is_running("watcher")
    world = heard(read("own"), on="finished")
    change(world, "2")
    change(world, "2", "own")
    assert world.queued("watcher") == "upstream up is running"


def test_rule_32_a_session_that_minds_every_end_does_not_starve() -> None:
    """Rule 32: for a reader `on: finished`, three failures count as three successes do."""
    world = heard(on="finished")
    before = world.starts("watcher")
    change(world, "2")
    # The first end wakes the watcher. Three more follow while it is held.
    for round_ in range(4):
        assert world.is_running("up") and not world.is_running("watcher")
        # A message comes during the run, so the next run of `up` follows at once.
        world.call(calls.Send(name="up", text=str(round_)))
        end_seen(world, "up", 1)
    assert world.session("watcher").run.mixed
    assert world.starts("watcher") == before + 1


def test_rule_34_a_fixer_that_does_not_fix_is_stopped() -> None:
    """Rule 34: `on: failed` may lead back to the failed session. The chain of runs bounds this."""
    world = at_rest(
        session("up", read("in"), read("patch")),
        session("fixer", after("up", on="failed"), read("own", wake=False), write("patch"), first="adopt"),
        files={"in": "1", "own": "1"},
    )
    change(world, "2")
    for turn in range(20):
        world.write("own", str(turn))
        if world.is_running("up"):
            end_seen(world, "up", 1)
        elif world.is_running("fixer"):
            end_seen(world, "fixer", 0)
        else:
            world.advance(1.0)
            world.look()
    assert world.hold("up").startswith("loop: its own runs led to this wake")
    assert world.starts("up") == 4


def test_rule_29_readers_are_looked_at_in_the_step_that_ends_the_run() -> None:
    """Rule 29: `run_finished` makes every reader of a written path dirty, without settle.

    No reader starts before that look.
    """
    world = at_rest(
        session("up", read("in"), write("data/x")),
        session("down", read("data/*", settle_seconds=50.0, settle_max_seconds=60.0), read("own")),
        files={"in": "1", "own": "1"},
    )
    change(world, "2")
    change(world, "2", "own")
    world.end("up")
    world.answer_all()
    assert world.is_running("down")
    there = world.version_there(world.session("down").spec, read("data/*"))
    assert world.session("down").run.versions["file data/* content"] == there


def test_rule_33_unchanged_output_stops_the_wave() -> None:
    """Rule 33: a reader of an unchanged output does not run."""
    world = pair()
    world.program = lambda world, process: {"out": "always the same"} if process.run.spec.name == "up" else {}
    change(world, "2")
    world.rest()
    starts = world.starts("down")
    change(world, "3")
    world.rest()
    assert (world.starts("up"), world.starts("down")) == (3, starts)


def starved(concurrency: int = 4) -> World:
    """Make an upstream that is owed again after each run, and a reader with a change of its own."""
    world = at_rest(
        # The output is in another folder, so that changes of the input do not count as the run's own (rule 34).
        session("up", read("in", settle_seconds=0.0), write("made/out")),
        session("down", read("made/out"), read("own")),
        files={"in": "0", "own": "1"},
        settings=Settings(concurrency=concurrency),
    )
    world.write("in", "1")
    world.look()
    world.write("own", "2")
    world.look()
    return world


def go_round(world: World, text: str) -> None:
    """Change the upstream's input while it runs, so that it is owed again when its run ends."""
    world.write("in", text)
    world.deliver_hints()
    world.answer_all()
    world.end("up")
    world.answer_all()


def test_rule_32_a_reader_goes_ahead_after_three_successes() -> None:
    """Rule 32: an upstream that is owed again and again holds its reader for three successes.

    The start is marked `mixed`.
    """
    world = starved()
    for round_ in range(2, 4):
        go_round(world, str(round_))
        assert world.is_running("up")
        assert not world.is_running("down")
    go_round(world, "4")
    assert world.session("down").run.mixed
    # The upstream goes on right after the start of the reader, not before.
    assert order_of(world)[-2:] == ["down", "up"]


def test_rule_32_upstreams_give_way_and_then_go_on() -> None:
    """Rule 32: the upstream waits until the reader has run, because there is one slot. Then it goes on."""
    world = starved(concurrency=1)
    for round_ in range(2, 5):
        go_round(world, str(round_))
    assert world.is_running("down")
    world.end("down")
    world.answer_all()
    assert world.is_running("up")
    world.rest()
    assert world.session("down").wake is None


def test_rule_32_nobody_gives_way_to_a_reader_that_something_else_holds() -> None:
    """Rule 32: an upstream does not yield to a sleeping reader, which would not run."""
    world = starved()
    world.call(calls.Sleep(name="down"))
    for round_ in range(2, 7):
        go_round(world, str(round_))
        assert world.is_running("up")
    world.call(calls.Resume(name="down"))
    world.rest()
    assert world.starts("down") >= 2


def test_rule_32_a_failed_upstream_is_not_overtaken() -> None:
    """Rule 32: three successes of one upstream do not let the reader run past the failure of another."""
    world = at_rest(
        session("up", read("in", settle_seconds=0.0), write("made/out")),
        session("bad", read("b"), write("b.out")),
        session("down", read("made/out"), read("b.out"), read("own")),
        files={"in": "0", "own": "1", "b": "1"},
    )
    change(world, "2", "b")
    world.end("bad", 1)
    world.answer_all()
    world.write("in", "1")
    world.look()
    change(world, "2", "own")
    for round_ in range(2, 8):
        go_round(world, str(round_))
        assert world.is_running("up")
    world.set(Settings(concurrency=0))
    go_round(world, "8")
    change(world, "3", "own")
    assert not world.processes
    assert world.queued("down").startswith("upstream")


def test_rule_34_a_loop_through_messages_is_held() -> None:
    """Rule 34: a wake whose chain has the session three times is held. It stays open."""
    world = at_rest(session("s"), session("t"))

    def pass_on(name: str, to: str) -> None:
        world.call(calls.Send(name=to, text="ping", sender=name), author=name)
        world.end(name)

    world.call(calls.Send(name="s", text="start"))
    rounds = 0
    while world.is_running("s") or world.is_running("t"):
        pass_on(*(("s", "t") if world.is_running("s") else ("t", "s")))
        rounds += 1
        assert rounds < 20
    assert world.hold("s") == "loop: its own runs led to this wake 3 times"
    assert world.session("s").wake is not None
    assert world.starts("s") == 3
    world.call(calls.Resume(name="s"))
    assert world.is_running("s")


def test_rule_34_a_chain_longer_than_loop_depth_is_held() -> None:
    """Rule 34: a wake carries the chain of runs that led to it, also through files.

    A chain longer than `loop_depth` is a loop.
    """
    specs = [session(f"n{index}", read(f"p{index}"), write(f"p{index + 1}")) for index in range(4)]
    world = at_rest(*specs, files={"p0": "1"}, settings=Settings(concurrency=4, loop_depth=2))
    world.write("p0", "2")
    world.rest()
    assert [world.starts(f"n{index}") for index in range(4)] == [2, 2, 2, 1]
    assert world.hold("n3") == "loop: a chain of 3 runs led to this wake (loop_depth 2)"
    ids = tuple(world.session(f"n{index}").id for index in range(3))
    assert world.session("n3").wake.chain == ids
    world.call(calls.Activate(name="n3"))
    world.rest()
    assert world.starts("n3") == 2


def test_rule_34_the_chain_survives_a_crash() -> None:
    """Rule 34: the chain of a wake follows from the log, not from earlier looks."""
    specs = [session(f"n{index}", read(f"p{index}"), write(f"p{index + 1}")) for index in range(2)]
    world = at_rest(*specs, files={"p0": "1"})
    change(world, "2", "p0")
    world.end("n0")
    world.answer(0)
    world.crash()
    world.answer_all()
    assert world.session("n1").run.chain == (world.session("n0").id,)


def test_rule_34_a_change_by_hand_carries_no_chain() -> None:
    """Rule 34: an output that is edited long after its writer's run carries no chain."""
    world = pair()
    world.advance(5.0)
    change(world, "2", "own")
    world.rest()
    world.advance(5.0)
    change(world, "by hand", "out")
    assert world.session("down").run.chain == ()


def change_and_rest(world: World, text: str, seconds: float, path: str = "in", exit_code: int = 0) -> None:
    """Make a change of unknown origin, then let time pass, with all runs that start in it."""
    until = world.mono + seconds
    world.write(path, text)
    world.rest(seconds, exit_code=lambda _: exit_code)
    world.advance(max(until - world.mono, 0.0))


def test_rule_34_thirty_changes_a_second_apart_all_run() -> None:
    """Rule 34: speed alone stops no session. Thirty changes, one a second, are thirty runs."""
    world = at_rest(session("s", read("in", settle_seconds=0.0)), files={"in": "0"})
    for round_ in range(1, 31):
        change_and_rest(world, str(round_), 1.0)
    assert world.starts("s") == 31
    assert world.hold("s") is None


@pytest.mark.parametrize("exit_code", [0, 1])
def test_rule_34_c_a_command_that_starts_too_fast_is_paced(exit_code: int) -> None:
    """Rule 34 c: beyond 120 starts a minute the next start waits 1 s, doubling to 10 s. Failed runs count too."""
    world = at_rest(session("s", read("in", settle_seconds=0.0)), files={"in": "0"})
    for round_ in range(1, 121):
        change_and_rest(world, str(round_), 0.25, exit_code=exit_code)
    assert world.starts("s") == 120
    assert world.hold("s") is None
    assert world.queued("s").startswith("paced, 120 starts in the last minute; next start in ")
    for round_ in range(200, 480):
        change_and_rest(world, str(round_), 0.25, exit_code=exit_code)
    started = [entry.at for entry in world.log if entry.kind == "run_started"]
    waits = [round((after - before) / 1e6) for before, after in pairwise(started[119:])]
    assert waits[:6] == [1, 2, 4, 8, 10, 10]
    # No person is needed, and the newest version runs.
    world.rest(20.0, exit_code=lambda _: exit_code)
    assert world.session("s").wake is None
    assert (
        world.events("s", "run_started")[-1].causes[0].new
        == world.events("s", "run_started")[-1].versions["file in content"]
    )


def test_rule_34_c_an_agent_is_paced_sooner_and_for_longer() -> None:
    """Rule 34 c: an agent may start 12 times a minute. Then the next start waits 10 s, doubling to 5 minutes."""
    world = World(
        session("s", read("in", settle_seconds=0.0), agent="a", run=PromptRun(prompt="Go.", retries=0)),
        files={"in": "0"},
    )
    model = ModelSpec(provider="openai-compatible", model="small", base_url="http://localhost:1/v1")
    world.observe(AgentsRead(agents={"a": AgentSpec(name="a", models=(model,))}))
    for round_ in range(1, 1200):
        change_and_rest(world, str(round_), 1.0)
    waits = [round((after - before) / 1e6) for before, after in pairwise(world.session("s").tally.starts)]
    # The first run was the first sight.
    assert waits[1:11] == [1] * 10
    assert waits[11:16] == [10, 20, 40, 80, 160]
    assert set(waits[16:]) == {300}


def test_rule_34_c_a_quiet_minute_ends_the_pace() -> None:
    """Rule 34 c: after a minute without a change the next start does not wait, and the count begins again."""
    world = at_rest(session("s", read("in", settle_seconds=0.0)), files={"in": "0"})
    for round_ in range(1, 140):
        change_and_rest(world, str(round_), 0.25)
    world.rest(20.0)
    assert world.session("s").tally.paced > 0
    change_and_rest(world, "soon", 0.25)
    assert world.queued("s").startswith("paced")
    world.rest(80.0)
    world.advance(80.0)
    change_and_rest(world, "late", 0.25)
    assert world.queued("s") is None
    assert world.session("s").tally.paced == 0


def test_rule_34_c_causes_of_a_paced_wake_are_coalesced() -> None:
    """Rule 34 c: changes during the wait add no record each.

    The causes are computed at the start, and the newest version runs.
    """
    world = at_rest(session("s", read("in", settle_seconds=0.0)), files={"in": "0"})
    for round_ in range(1, 500):
        change_and_rest(world, str(round_), 0.25)
    world.rest(20.0)
    starts = world.events("s", "run_started")
    assert len(world.events("s", "wake_extended")) <= len([start for start in starts if start.paced])
    assert starts[-1].causes[0].new in starts[-1].versions.values()


def test_rule_34_c_pacing_survives_a_crash() -> None:
    """Rule 34 c: the rate of starts follows from the log."""
    world = at_rest(session("s", read("in", settle_seconds=0.0)), files={"in": "0"})
    for round_ in range(1, 160):
        change_and_rest(world, str(round_), 0.25)
    paced = world.session("s").tally.paced
    world.crash()
    change_and_rest(world, "after", 0.1)
    assert world.session("s").tally.paced == paced > 0
    assert world.queued("s").startswith("paced")


def test_rule_34_c_activate_is_not_paced() -> None:
    """Rules 20 and 34 c: an activation waits for nothing but a slot."""
    world = at_rest(session("s", read("in", settle_seconds=0.0)), files={"in": "0"})
    for round_ in range(1, 140):
        change_and_rest(world, str(round_), 0.25)
    change_and_rest(world, "new", 0.1)
    assert world.queued("s").startswith("paced")
    world.call(calls.Activate(name="s"))
    assert world.is_running("s")


def feed_itself(world: World, path: str, text: str, between: str | None = None) -> None:
    """Change the input during one run. With `between`, change it again right after the run."""
    world.start_soon("s")
    world.write(path, text)
    world.look()
    world.end("s")
    world.answer_all()
    if between is not None:
        world.write(path, between)
        world.look()


def test_rule_34_b_a_session_that_feeds_itself_sleeps() -> None:
    """Rule 34 b: an input within the run's reach changes during five runs in a row, and never between them.

    The session then sleeps as a loop, and the hold names the input.
    """
    world = at_rest(
        session("s", read("data/in", "rates", settle_seconds=0.0), write("data/out")), files={"data/in": "0"}
    )
    world.write("data/in", "1")
    for round_ in range(5):
        assert world.hold("s") is None
        feed_itself(world, "data/in", f"own {round_}")
    world.rest(10.0)
    assert world.hold("s") == "loop: its input rates changed during each of its last 5 runs, and never between them"
    assert world.session("s").wake is not None
    assert world.starts("s") == 6
    world.call(calls.Resume(name="s"))
    assert world.is_running("s")


def test_rule_34_b_an_edit_between_two_runs_is_somebody_elses() -> None:
    """Rule 34 b: an input that also changes between runs has another writer. Fifty such edits are not a loop."""
    world = at_rest(session("s", read("data/in", settle_seconds=0.0), write("data/out")), files={"data/in": "0"})
    world.write("data/in", "1")
    for round_ in range(50):
        feed_itself(world, "data/in", f"during {round_}", f"between {round_}")
    world.rest(60.0)
    assert world.hold("s") is None
    assert world.session("s").wake is None


def test_rule_34_b_what_the_run_cannot_write_is_no_evidence() -> None:
    """Rule 34 b: an input that the run cannot write was changed by another writer, however often."""
    world = at_rest(session("s", read("in", settle_seconds=0.0), write("made/out")), files={"in": "0"})
    world.write("in", "1")
    for round_ in range(20):
        feed_itself(world, "in", f"edit {round_}")
    world.rest(60.0)
    assert world.hold("s") is None
    assert world.session("s").wake is None


def test_rule_34_b_a_pause_is_several_runs_long() -> None:
    """Rule 34 b: after the second such run the next start waits four times as long as the run took. It says why."""
    world = at_rest(
        session("s", read("data/in", "rates", settle_seconds=0.0), write("data/out")), files={"data/in": "0"}
    )
    world.write("data/in", "1")
    for round_ in range(2):
        world.start_soon("s")
        world.advance(10.0)
        feed_itself(world, "data/in", f"own {round_}")
    last = world.session("s").last_run
    pause = 4 * (last.finished_at - last.started_at) / 1e6
    assert world.queued("s") == f"paced, its input rates changed during its last 2 runs; next start in {round(pause)} s"
    world.advance(pause - 1)
    assert not world.is_running("s")
    world.advance(1.1)
    assert world.is_running("s")


def test_rule_34_retries_do_not_count() -> None:
    """Rule 34: a retry does not count as another start."""
    world = at_rest(session("s", read("in"), retries=3), files={"in": "0"})
    change(world, "1")
    world.rest(60.0, exit_code=lambda _: 1)
    assert world.starts("s") == 5
    assert len(world.session("s").tally.starts) == 2


def test_rule_34_catching_up_is_not_a_loop() -> None:
    """Rule 34: two hundred missed slots run one after the other, without pacing."""
    world = at_rest(session("s", every(60.0, catch_up="all")))
    world.advance(12_000.0)
    world.rest(1.0)
    assert world.starts("s") == 200
    assert world.session("s").tally.starts == ()


@pytest.mark.parametrize("release", ["activate", "resume", "new spec"])
def test_rule_34_what_releases_a_loop(release: str) -> None:
    """Rule 34: activate, resume and a new spec release a loop. A newer version does not."""
    spec = session("s", read("data/in", settle_seconds=0.0), write("data/out"))
    world = at_rest(spec, files={"data/in": "0"})
    world.write("data/in", "1")
    for round_ in range(5):
        feed_itself(world, "data/in", f"own {round_}")
    world.rest(10.0)
    assert world.hold("s").startswith("loop")
    world.advance(61.0)
    world.write("data/in", "newer")
    world.rest(0.5)
    assert world.starts("s") == 6
    match release:
        case "activate":
            world.call(calls.Activate(name="s"))
        case "resume":
            world.call(calls.Resume(name="s"))
        case "new spec":
            world.declare(replace(spec, priority=9))
    assert world.is_running("s")


def queue_for(world: World, *names: str) -> None:
    """Take the only slot, then wake these sessions in this order."""
    change(world, "2", "busy")
    for name in names:
        change(world, "2", f"{name}.in")


def order_of(world: World) -> list[str]:
    ids = {one.id: one.name for one in world.core.state}
    return [ids[entry.session] for entry in world.log if entry.kind == "run_started"]


def test_rule_35_higher_priority_goes_first() -> None:
    """Rule 35: a free slot goes to the highest priority, also if that session was woken last."""
    world = at_rest(
        session("busy", read("busy")),
        session("low", read("low.in"), priority=10),
        session("high", read("high.in"), priority=90),
        files={"busy": "1", "low.in": "1", "high.in": "1"},
        settings=Settings(concurrency=1),
    )
    queue_for(world, "low", "high")
    world.rest()
    assert order_of(world)[-2:] == ["high", "low"]


def test_rule_35_among_equals_the_oldest_goes_first() -> None:
    """Rule 35: equal priorities start in the order of their wakes."""
    world = at_rest(
        session("busy", read("busy")),
        *(session(name, read(f"{name}.in")) for name in ("b", "c", "a")),
        files={"busy": "1", "a.in": "1", "b.in": "1", "c.in": "1"},
        settings=Settings(concurrency=1),
    )
    queue_for(world, "c", "a", "b")
    world.rest()
    assert order_of(world)[-3:] == ["c", "a", "b"]


def test_rule_35_waiting_raises_the_priority() -> None:
    """Rule 35: waiting adds one point every two seconds, so that no session starves."""
    world = at_rest(
        session("busy", read("busy")),
        session("low", read("low.in"), priority=10),
        session("high", read("high.in"), priority=20),
        files={"busy": "1", "low.in": "1", "high.in": "1"},
        settings=Settings(concurrency=1),
    )
    change(world, "2", "busy")
    change(world, "2", "low.in")
    world.advance(25.0)
    change(world, "2", "high.in")
    world.rest()
    assert order_of(world)[-2:] == ["low", "high"]


def test_rule_35_a_session_that_ends_does_not_jump_the_queue() -> None:
    """Rule 35: a follow-up run of the session that frees the slot waits behind sessions of higher rank."""
    world = at_rest(
        session("busy", read("busy"), priority=10),
        session("high", read("high.in"), priority=90),
        files={"busy": "1", "high.in": "1"},
        settings=Settings(concurrency=1),
    )
    queue_for(world, "high")
    change(world, "3", "busy")
    world.end("busy")
    assert world.is_running("high")


def test_rule_35_one_look_that_wakes_many_starts_the_highest() -> None:
    """Rule 35: sessions woken by the same observation are ranked among each other."""
    world = at_rest(
        session("low", read("in"), priority=10),
        session("high", read("in"), priority=90),
        files={"in": "1"},
        settings=Settings(concurrency=1),
    )
    world.write("in", "2")
    world.rest()
    assert order_of(world)[-2:] == ["high", "low"]


def test_rule_35_an_upstream_takes_the_priority_of_those_it_holds() -> None:
    """Rule 35: an upstream of an urgent reader is urgent too."""
    world = at_rest(
        session("busy", read("busy")),
        session("up", read("up.in"), write("out"), priority=10),
        session("other", read("other.in"), priority=50),
        session("urgent", read("out"), read("own"), priority=95),
        files={"busy": "1", "up.in": "1", "other.in": "1", "own": "1"},
        settings=Settings(concurrency=1),
    )
    queue_for(world, "other", "up")
    change(world, "2", "own")
    assert world.queued("urgent").startswith("upstream up")
    world.end("busy")
    assert world.is_running("up")


def test_rule_35_slots_are_freed_by_the_end_of_the_run_not_of_the_process() -> None:
    """Rule 35: the slot is taken until the outputs were looked at."""
    world = at_rest(
        session("a", read("a"), write("out")),
        session("b", read("b")),
        files={"a": "1", "b": "1"},
        settings=Settings(concurrency=1),
    )
    change(world, "2", "a")
    change(world, "2", "b")
    world.end("a")
    assert not world.is_running("b")
    world.answer_all()
    assert world.is_running("b")


def test_pools_have_slots_of_their_own() -> None:
    """A run in a pool takes a slot of the pool and a general one. A full pool does not block other sessions."""
    world = at_rest(
        session("g1", read("in"), pool="gpu", priority=90),
        session("g2", read("in"), pool="gpu", priority=80),
        session("c", read("in"), priority=10),
        files={"in": "1"},
        settings=Settings(concurrency=2, pools={"gpu": 1}),
    )
    change(world, "2")
    assert [world.is_running(name) for name in ("g1", "g2", "c")] == [True, False, True]
    assert world.queued("g2") == "a slot"
    world.end("c")
    assert world.queued("g2") == "a slot in pool gpu"
    world.end("g1")
    assert world.is_running("g2")


def test_more_slots_start_more_at_once() -> None:
    """A raised concurrency applies at once."""
    world = at_rest(
        session("a", read("in")), session("b", read("in")), files={"in": "1"}, settings=Settings(concurrency=1)
    )
    change(world, "2")
    assert len(world.processes) == 1
    world.set(Settings(concurrency=2))
    assert len(world.processes) == 2
