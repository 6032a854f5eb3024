"""Traced runs in the core: one request traces one run.

A trace bypasses no hold and no rule of the confinement.
"""

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.observations import SecretsSeen
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import Confinement, SessionSpec, Settings
from wakeful.errors import CallerError

FREE = Settings(allow_unisolated=True)


def make(*specs: SessionSpec, settings: Settings = Settings()) -> World:
    world = World(*specs, settings=settings, files={"in": "1"})
    world.rest()
    return world


def traces(world: World) -> list[str | None]:
    return [event.trace for event in world.events("s", "run_started")]


def test_the_next_run_is_traced_and_no_other() -> None:
    """Two requests before the run starts give one traced run. The run after it is not traced."""
    world = make(session("s", read("in"), write("out")))
    world.call(calls.Trace(name="s"))
    world.rest()
    world.call(calls.Activate(name="s"))
    world.rest()
    assert traces(world) == [None, "declared", None]
    assert world.events("s", "activation_requested")[0].note == "traced"


def test_a_traced_run_that_fails_is_not_tried_again() -> None:
    """A failed traced run is not retried, although the spec has two retries. A person looks at the trace first."""
    world = make(session("s", read("in"), retries=2))
    world.call(calls.Trace(name="s"))
    world.rest(exit_code=lambda _: 1)
    assert (traces(world), world.outcomes("s")) == ([None, "declared"], ["succeeded", "failed"])
    assert str(world.hold("s")).startswith("failed")


def test_a_trace_that_was_given_up_does_not_come_back() -> None:
    """A trace is cancelled while it waits for a slot. The next run of the session is not traced."""
    world = make(session("s", read("in")), session("other", read("in")), settings=Settings(concurrency=1))
    world.call(calls.Activate(name="other"))
    world.call(calls.Trace(name="s"))
    world.call(calls.Cancel(name="s"))
    world.rest()
    world.call(calls.Activate(name="s"))
    world.rest()
    assert traces(world) == [None, None]


def test_only_the_operator_lets_a_trace_deny_nothing() -> None:
    """A trace with `observe` needs `allow_unisolated`. The operator can withdraw that setting until the run starts."""
    spec = session("s", read("in"))
    world = make(spec)
    with pytest.raises(CallerError, match="allow_unisolated"):
        world.call(calls.Trace(name="s", observe=True))
    world = make(spec, settings=FREE)
    world.call(calls.Trace(name="s", observe=True))
    assert (
        world.session("s").run.spec.confinement.level == "observe"
        and world.session("s").spec.confinement.level == "standard"
    )
    world.rest()
    world = make(spec, session("other", read("in")), settings=replace(FREE, concurrency=1))
    world.call(calls.Activate(name="other"))
    world.call(calls.Trace(name="s", observe=True))
    world.set(Settings(concurrency=1))
    world.rest()
    assert traces(world) == [None, "declared"]


def test_no_trace_puts_secrets_strangers_words_and_a_way_out_together() -> None:
    """An `observe` trace is refused for a session with a secret and untrusted input.

    Confined, the run has two of the three dangers. Observed, it would also have network access.
    """
    spec = session("s", read("in", is_untrusted=True), secrets=("key",))
    world = World(spec, settings=FREE, files={"in": "1"})
    world.observe(SecretsSeen({"key": None}))
    world.rest()
    with pytest.raises(CallerError, match="untrusted text, private data and a way to send data out"):
        world.call(calls.Trace(name="s", observe=True))
    world.call(calls.Trace(name="s"))
    world.rest()
    assert traces(world) == [None, "declared"]


def test_what_is_read_and_written_is_not_observed() -> None:
    """An `observe` trace of a session with a `both` binding is refused.

    Its own writes would count as writes of others.
    """
    spec = session("s", FileBinding(name="list", pattern="in", access="both"), confinement=Confinement(level="strict"))
    world = make(spec, settings=FREE)
    with pytest.raises(CallerError, match="strict"):
        world.call(calls.Trace(name="s", observe=True))


@pytest.mark.parametrize("level", ["none", "observe"])
def test_what_denies_nothing_needs_the_operator(level: str) -> None:
    """Confinement level `observe` is as weak as `none`. Both need `allow_unisolated`."""
    spec = session("s", read("in"), confinement=Confinement(level=level))
    world = make(spec)
    assert (world.starts("s"), world.hold("s")) == (
        0,
        f"isolation: {level} is not allowed here; remove it from the spec, or set allow_unisolated: true in wakeful.yaml",
    )
    assert make(spec, settings=FREE).outcomes("s") == ["succeeded"]


def test_what_cannot_be_activated_cannot_be_traced() -> None:
    """A disabled session and a session without a `run` cannot be traced."""
    for spec in (session("s", read("in"), enabled=False), session("s", read("in"), run=None)):
        with pytest.raises(CallerError):
            make(spec).call(calls.Trace(name="s"))
