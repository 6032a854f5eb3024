"""The core as a state machine: hypothesis searches for a sequence of moves that breaks a promise, and shrinks it."""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from core.random_history import PATHS, TEXTS
from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.spec.session import Settings
from wakeful.errors import CallerError

NAMES = ("a", "b", "c")
SPECS = {
    "a": session("a", read("s0"), read("s1"), write("oa"), retries=1),
    "b": session("b", read("s1"), read("s2", settle_seconds=0.0), write("ob")),
    "c": session("c", read("oa"), read("ob"), write("oc")),
}
CALLS = (calls.Activate, calls.Resume, calls.Suspend, calls.Sleep, calls.Interrupt, calls.Cancel)


class CoreMachine(RuleBasedStateMachine):
    """A diamond of three sessions. Each rule is one thing that can happen to it."""

    @initialize(concurrency=st.integers(1, 3))
    def begin(self, concurrency: int) -> None:
        self.world = World(
            *SPECS.values(), settings=Settings(concurrency=concurrency), files=dict.fromkeys(PATHS, "red")
        )

    @rule(path=st.sampled_from(PATHS), text=st.sampled_from(TEXTS))
    def write(self, path: str, text: str) -> None:
        self.world.write(path, text)

    @rule()
    def hear(self) -> None:
        self.world.deliver_hints()

    @precondition(lambda self: self.world.looks)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.world.answer(data.draw(st.integers(0, len(self.world.looks) - 1)))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data(), exit_code=st.sampled_from((0, 0, 1)))
    def end(self, data: st.DataObject, exit_code: int) -> None:
        process = data.draw(
            st.sampled_from(sorted(self.world.processes.values(), key=lambda process: process.run.run_id))
        )
        self.world.end(
            process.run.spec.name, None if process.stops else exit_code, signal=15 if process.stops else None
        )

    @rule(seconds=st.sampled_from((0.1, 1.0, 30.0)))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(name=st.sampled_from(NAMES), call=st.sampled_from(CALLS))
    def call(self, name: str, call: type) -> None:
        try:
            self.world.call(call(name=name))
        except CallerError as refusal:
            assert name in str(refusal)

    @rule(name=st.sampled_from(NAMES), objective=st.sampled_from(("x", "y")))
    def edit(self, name: str, objective: str) -> None:
        self.world.declare(replace(SPECS[name], objective=objective))

    @rule(when=st.sampled_from((None, "decided", "committed")))
    def crash(self, when: str | None) -> None:
        if when is None:
            self.world.crash()
        else:
            self.world.crash_when = when

    @precondition(lambda self: self.world.recoveries)
    @rule(wrote=st.booleans())
    def recover(self, wrote: bool) -> None:
        self.world.recover(wrote=wrote)

    @invariant()
    def plan_is_repeatable(self) -> None:
        if hasattr(self, "world"):
            self.world.oracle.judge_plan()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.crash_when = None
        self.world.rest(400.0)
        for name in NAMES:
            self.world.call(calls.Resume(name=name))
        self.world.rest(400.0)
        self.world.oracle.judge_rest()
        self.world.oracle.judge_replay()


TestCore = CoreMachine.TestCase
TestCore.settings = settings(
    max_examples=int(os.environ.get("WAKEFUL_TEST_EXAMPLES", "100")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
