"""Rules 1 to 3 and 39 to 42: the two values, transactions, ids, and the state after a crash."""

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from core.simulated_world import World
from core.spec_builders import every, read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.decide import decide
from wakeful.core.deciding.plan import RecoverRun, StartProcess, StopProcess
from wakeful.core.deciding.working_state import Core
from wakeful.core.record import fold as reducer
from wakeful.core.record.events import MessageAdded, MessageSent
from wakeful.core.record.flat_state import decode_flat, flatten
from wakeful.core.record.observations import ClockTicked, Moment, ProcessEnded, RunAttached, RunRecovered
from wakeful.core.spec.session import Settings
from wakeful.errors import CallerError


def at_rest(*specs, **keys) -> World:
    world = World(*specs, **keys)
    world.rest()
    return world


def change(world: World, text: str, path: str = "in") -> None:
    world.write(path, text)
    world.look()


def rich_world() -> World:
    """Make a world whose log has most kinds of events."""
    world = at_rest(
        session("up", read("in"), write("out"), retries=1),
        session("down", read("out"), every(60.0, catch_up="none")),
        files={"in": "1"},
    )
    change(world, "2")
    world.end("up", 1)
    world.call(calls.Sleep(name="down", seconds=30.0))
    world.call(calls.Send(name="down", text="hello"))
    world.call(calls.Remember(name="down", key="k", value="v"))
    world.call(calls.Forget(name="down", key="k"))
    world.call(calls.Note(name="down", text="next: all"))
    world.rest(200.0)
    change(world, "3")
    world.call(calls.Interrupt(name="up"))
    world.end("up", None, signal=2)
    world.call(calls.Activate(name="up", note="again"))
    world.rest(200.0)
    world.remove("down")
    world.call(calls.Terminate(name="up"))
    return world


def test_rule_1_state_is_the_fold_of_the_log_from_any_snapshot() -> None:
    """Rule 1: replay gives the live state, from the whole log and from a snapshot after any event."""
    world = rich_world()
    for snapshot_at in (None, *range(0, len(world.log), 3)):
        world.oracle.judge_replay(snapshot_at)


def test_rule_1_looked_is_rebuilt_by_looking() -> None:
    """Rule 1: `looked` is lost in a crash and rebuilt by looking. This starts no run."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    world.crash()
    (look,) = world.core.looked.targets.values()
    assert (look.is_looked, look.version) == (False, None)
    world.rest()
    assert look.version is not None
    assert world.starts("s") == 1


def test_rule_1_the_reducer_looks_at_nothing_else() -> None:
    """Rule 1: fold has an event and a session. It neither looks nor decides."""
    parts = {path.stem: path.read_text() for path in Path(inspect.getfile(reducer)).parent.glob("fold*.py")}
    assert parts.keys() >= {"fold", "fold_runs", "fold_history"}
    own = r"wakeful\.core\.(record|agents|spec)\b"
    for name, source in parts.items():
        imported = re.findall(r"^\s*(?:from (?=\S+ import)|import )(\S+)", source, re.MULTILINE)
        assert "msgspec.structs" in imported, f"the imports of {name} are not found"
        strangers = [one for one in imported if not re.match(own, one)]
        assert set(strangers) <= {"__future__", "collections.abc", "msgspec.structs", "typing"}, name


def test_rule_2_dispatch_is_level_triggered() -> None:
    """Rule 2: dispatch again at the same moment adds nothing."""
    world = at_rest(session("s", read("in"), retries=1), session("t", read("in"), pace_seconds=60.0), files={"in": "1"})
    change(world, "2")
    world.end("s", 1)
    before = len(world.log)
    for _ in range(3):
        world.observe(ClockTicked())
    assert len(world.log) == before


def test_rule_2_plan_compares_state_with_processes() -> None:
    """Rule 2: the plan starts a run without a process and stops a run with a stop. Repeated, it is the same."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    session_id, run_id = world.session("s").id, world.session("s").run.run_id
    (start,) = world.core.plan(session_id, set())
    assert isinstance(start, StartProcess) and world.core.plan(session_id, set()) == [start]
    assert world.core.plan(session_id, {run_id}) == []
    world.call(calls.Cancel(name="s"))
    (stop,) = world.core.plan(session_id, {run_id})
    assert isinstance(stop, StopProcess) and stop.how == "terminate"


def test_rule_3_a_run_of_another_incarnation_is_recovered_never_started() -> None:
    """Rule 3: after a crash the open run is recovered first. Then its wake is tried again by this daemon."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.crash()
    (action,) = world.core.plan(world.session("s").id, set())
    assert isinstance(action, RecoverRun)
    world.answer_all()
    assert world.processes == {}
    world.recover()
    assert world.session("s").run.incarnation == "i2"
    world.rest()
    assert world.outcomes("s") == ["succeeded", "lost", "succeeded"]


def test_rule_3_a_run_that_was_kept_goes_on_and_ends_as_any_other() -> None:
    """Rule 3: a re-adopted run is neither started again nor lost. A change meanwhile wakes its session once more."""
    world = at_rest(session("s", read("in"), write("out")), files={"in": "1"})
    change(world, "2")
    world.crash()
    world.answer_all()
    world.readopt()
    run = world.session("s").run
    assert (run.incarnation, run.daemons) == ("i2", 2) and world.core.plan(world.session("s").id, world.attached) == []
    world.write("in", "3")
    world.rest()
    assert world.outcomes("s") == ["succeeded", "succeeded", "succeeded"]
    assert [entry.kind for entry in world.log].count("run_started") == 3
    world.oracle.judge_rest()
    world.oracle.judge_replay()


def test_rule_3_a_run_that_was_kept_twice_and_ended_in_between_is_recorded_once() -> None:
    """Rules 3, 40: a second report that the run was re-adopted is dropped, also after the run is closed."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    session_id, run_id = world.session("s").id, world.session("s").run.run_id
    for _ in range(2):
        world.crash()
        world.answer_all()
        world.readopt()
    world.observe(RunAttached(session=session_id, run_id=run_id))
    world.end("s")
    world.rest()
    world.observe(RunAttached(session=session_id, run_id=run_id))
    kinds = [entry.kind for entry in world.log]
    assert (kinds.count("run_readopted"), world.session("s").last_run.daemons) == (2, 3)
    assert world.outcomes("s") == ["succeeded", "succeeded"]


@pytest.mark.parametrize("call, how", [(calls.Cancel(name="s"), "terminate"), (calls.Interrupt(name="s"), "interrupt")])
def test_rule_23_what_was_asked_of_a_run_before_a_crash_is_asked_again_of_one_that_was_kept(
    call: calls.Call, how: str
) -> None:
    """Rule 23: the signal may be lost with the daemon.

    The request is in the log, so the next daemon sends the signal again.
    """
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    world.call(call)
    world.crash()
    world.answer_all()
    world.readopt()
    assert world.process_of("s").stops[-1] == how
    world.rest()
    assert world.outcomes("s")[-1] == ("cancelled" if how == "terminate" else "interrupted")


@pytest.mark.parametrize("when", ["decided", "committed"])
def test_rule_3_a_crash_before_or_after_the_commit_loses_no_change(when: str) -> None:
    """Rule 3: after a crash at any step, owed runs are derived again from the log and the world."""
    for index in range(12):
        world = at_rest(session("up", read("in"), write("out")), session("down", read("out")), files={"in": "1"})
        world.write("in", "2")
        observed = 0
        observe = world.observe

        def crash_at(observation, world=world, index=index, observe=observe):
            nonlocal observed
            observed += 1
            if observed == index:
                world.crash_when = when
            return observe(observation)

        world.observe = crash_at
        world.rest(60.0)
        world.observe = observe
        world.oracle.judge_rest()
        world.oracle.judge_outputs()
        world.oracle.judge_replay()


def test_rule_39_a_wake_and_its_start_are_one_transaction() -> None:
    """Rule 39: with a free slot, `wake_requested` and `run_started` are one flush."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    last = world.log[-2:]
    assert [entry.kind for entry in last] == ["wake_requested", "run_started"]
    assert last[0].transaction == last[1].transaction


def test_rule_39_an_end_and_what_follows_are_one_transaction() -> None:
    """Rule 39: `run_finished` and the start of the session that takes the freed slot are one flush."""
    world = at_rest(
        session("a", read("a")), session("b", read("b")), files={"a": "1", "b": "1"}, settings=Settings(concurrency=1)
    )
    change(world, "2", "a")
    change(world, "2", "b")
    world.end("a")
    last = [entry for entry in world.log if entry.transaction == world.transactions]
    assert [entry.kind for entry in last] == ["run_finished", "run_started", "session_suspended"]


def test_rule_39_a_message_and_its_wake_are_one_transaction() -> None:
    """Rule 39: received, sent, wake and start are one transaction."""
    world = at_rest(session("s"), session("t"))
    world.call(calls.Send(name="s", text="hello", sender="t"))
    last = [entry.kind for entry in world.log if entry.transaction == world.transactions]
    assert last == ["message_added", "message_sent", "wake_requested", "run_started"]


def test_rule_39_a_message_has_the_number_of_the_run_that_sent_it_in_the_senders_log_only() -> None:
    """Rule 39: the number of a run belongs to one session. In the receiver's log it would name another run."""
    world = at_rest(session("s", read("in")), session("t"), files={"in": "1"})
    change(world, "2")
    run = world.session("s").run.run
    message = calls.Send(name="t", text="hello", sender="s", wake=False)
    entries = world.observe(calls.Called(call=message, author="run:s#2", run=run)).entries
    assert {type(entry.event): entry.run for entry in entries} == {MessageAdded: None, MessageSent: run}


def test_rule_40_what_is_said_of_another_run_is_dropped() -> None:
    """Rule 40: an end or a recovery of a run that is not the open one adds no record."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    change(world, "2")
    before = len(world.log)
    session_id = world.session("s").id
    world.observe(ProcessEnded(session=session_id, run_id=f"{session_id}.1", exit_code=0))
    world.observe(RunRecovered(session=session_id, run_id=f"{session_id}.1"))
    world.observe(ProcessEnded(session="nobody", run_id="nobody.1", exit_code=0))
    assert len(world.log) == before
    assert world.is_running("s")


def test_rule_40_an_end_that_is_reported_twice_counts_once() -> None:
    """Rule 40: a second report of the same end changes nothing, before and after the run is closed."""
    world = at_rest(session("s", read("in"), write("out")), files={"in": "1"})
    change(world, "2")
    end = ProcessEnded(session=world.session("s").id, run_id=world.session("s").run.run_id, exit_code=0)
    world.end("s")
    looks = len(world.looks)
    world.observe(ProcessEnded(session=end.session, run_id=end.run_id, exit_code=1))
    assert len(world.looks) == looks
    world.answer_all()
    world.observe(end)
    assert world.outcomes("s") == ["succeeded", "succeeded"]


def test_rule_40_a_call_carries_its_key_once() -> None:
    """Rule 40: the key is on the first event of the call, so that the log can refuse a repetition."""
    world = at_rest(session("s"))
    decision = world.observe(calls.Called(call=calls.Send(name="s", text="x", sender="s"), author="s", key="k1"))
    assert [entry.key for entry in decision.entries] == ["k1", None, None, None]
    assert [entry.author for entry in decision.entries] == ["s", "s", "wakeful", "wakeful"]


def test_rule_41_no_process_is_named_in_a_start() -> None:
    """Rule 41: `run_started` carries ids of ours and no pid, because no pid exists when it is durable."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    (started,) = world.events("s", "run_started")
    assert "pid" not in started.__struct_fields__
    assert started.run_id == f"{world.session('s').id}.1"


def test_rule_42_an_observation_touches_only_its_own_sessions() -> None:
    """Rule 42: one look among a hundred sessions changes one of them."""
    specs = [session(f"n{index}", read(f"in{index}")) for index in range(100)]
    world = at_rest(*specs, settings=Settings(concurrency=200))
    before = {one.id: one for one in world.core.state}
    change(world, "1", "in7")
    changed = [one.name for one in world.core.state if before[one.id] is not one]
    assert changed == ["n7"]


def test_rule_42_busy_marks_go_no_further_than_they_flip() -> None:
    """Rule 42: a session without readers has no busy mark. A session with readers loses its mark at rest."""
    world = at_rest(session("up", read("in"), write("out")), session("down", read("out")), files={"in": "1"})
    assert world.core.busy == {}
    change(world, "2")
    assert set(world.core.busy) == {"up"}
    world.rest()
    assert world.core.busy == {}


def test_every_record_names_the_one_that_led_to_it() -> None:
    """The parent of a start is its wake, and that of an end its start.

    The parent of a wake is the end of the run that wrote.
    """
    world = at_rest(session("up", read("in"), write("out")), session("down", read("out")), files={"in": "1"})
    change(world, "2")
    parents: dict[tuple[str, str], str | None] = {}
    observe = world.observe

    def keep(observation):
        decision = observe(observation)
        for entry in decision.entries:
            name = world.core.state.get(entry.session).name
            parents[(name, type(entry.event).__name__)] = entry.parent
        return decision

    world.observe = keep
    world.rest()
    up, down = world.session("up"), world.session("down")
    seqs = {(entry.session, entry.kind): f"{entry.session}:{entry.seq}" for entry in world.log}
    assert parents[("up", "RunFinished")] == seqs[(up.id, "run_started")]
    assert parents[("up", "SessionSuspended")] == seqs[(up.id, "run_finished")]
    assert parents[("down", "WakeRequested")] == seqs[(up.id, "run_finished")]
    assert parents[("down", "RunStarted")] == seqs[(down.id, "wake_requested")]
    world.call(calls.Activate(name="up"))
    assert parents[("up", "WakeRequested")] == f"{up.id}:{world.session('up').wake.seq - 1}"
    assert parents[("up", "ActivationRequested")] is None


def test_refused_calls_record_nothing() -> None:
    """A refused call raises and leaves state and log unchanged."""
    world = at_rest(session("s", read("in")), files={"in": "1"})
    before, state = len(world.log), dict(world.core.state.sessions)
    for call in (
        calls.Interrupt(name="s"),
        calls.Cancel(name="s"),
        calls.Activate(name="nobody"),
        calls.Sleep(name="s", until=5),
    ):
        with pytest.raises(CallerError):
            world.call(call)
    assert (len(world.log), world.core.state.sessions) == (before, state)


def test_a_session_survives_its_encoding() -> None:
    """A snapshot is msgspec JSON of a session. It decodes to an equal session."""
    world = rich_world()
    for one in world.core.state:
        assert decode_flat(msgspec.json.encode(flatten(one))) == one


def test_an_empty_core_takes_a_tick() -> None:
    """A daemon without sessions ticks."""
    assert decide(Core(), ClockTicked(), Moment(1, 1.0, 1.0)).entries == []
