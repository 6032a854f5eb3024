"""Traces as the core knows them: asked for once, taken by one run, and never a way around what holds everybody else."""

import pytest
from msgspec.structs import replace

from core.specs import read, session, write
from core.world import World
from wakeful.core.calls import values as calls
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
    """Asked for twice before it starts, it is still one."""
    world = make(session("s", read("in"), write("out")))
    world.call(calls.Trace(name="s"))
    world.rest()
    world.call(calls.Activate(name="s"))
    world.rest()
    assert traces(world) == [None, "declared", None]
    assert world.events("s", "activation_requested")[0].note == "traced"


def test_a_traced_run_that_fails_is_not_tried_again() -> None:
    """A person looks at it; what comes later is tried as ever."""
    world = make(session("s", read("in"), retries=2))
    world.call(calls.Trace(name="s"))
    world.rest(exit_code=lambda _: 1)
    assert (traces(world), world.outcomes("s")) == ([None, "declared"], ["succeeded", "failed"])
    assert str(world.hold("s")).startswith("failed")


def test_a_trace_that_was_given_up_does_not_come_back() -> None:
    """Cancelled while it waits for a slot: the next run is none of it."""
    world = make(session("s", read("in")), session("other", read("in")), settings=Settings(concurrency=1))
    world.call(calls.Activate(name="other"))
    world.call(calls.Trace(name="s"))
    world.call(calls.Cancel(name="s"))
    world.rest()
    world.call(calls.Activate(name="s"))
    world.rest()
    assert traces(world) == [None, None]


def test_only_the_operator_lets_a_trace_deny_nothing() -> None:
    """And takes that back until the moment it starts."""
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
    """Confined, it had two of the three; observed, it would have all."""
    spec = session("s", read("in", is_untrusted=True), secrets=("key",))
    world = World(spec, settings=FREE, files={"in": "1"})
    world.observe(SecretsSeen({"key": None}))
    world.rest()
    with pytest.raises(CallerError, match="strangers' words"):
        world.call(calls.Trace(name="s", observe=True))
    world.call(calls.Trace(name="s"))
    world.rest()
    assert traces(world) == [None, "declared"]


def test_what_is_read_and_written_is_not_observed() -> None:
    """Its own writes would be taken for those of others."""
    spec = session("s", FileBinding(name="list", pattern="in", access="both"), confinement=Confinement(level="strict"))
    world = make(spec, settings=FREE)
    with pytest.raises(CallerError, match="strict"):
        world.call(calls.Trace(name="s", observe=True))


@pytest.mark.parametrize("level", ["none", "observe"])
def test_what_denies_nothing_needs_the_operator(level: str) -> None:
    """To observe is as weak as none."""
    spec = session("s", read("in"), confinement=Confinement(level=level))
    world = make(spec)
    assert (world.starts("s"), world.hold("s")) == (
        0,
        f"isolation: {level} is not allowed here; remove it from the spec, or set allow_unisolated: true in wakeful.yaml",
    )
    assert make(spec, settings=FREE).outcomes("s") == ["succeeded"]


def test_what_cannot_be_activated_cannot_be_traced() -> None:
    """Disabled, without a run, gone."""
    for spec in (session("s", read("in"), enabled=False), session("s", read("in"), run=None)):
        with pytest.raises(CallerError):
            make(spec).call(calls.Trace(name="s"))
