"""Rule 26 for the sessions of a template.

They stay declared if the template cannot be read, and sleep if it is removed.
"""

from __future__ import annotations

from core.simulated_world import World, declare
from core.spec_builders import read, session
from wakeful.core.record.observations import SpecsRead

REFUSED = {"ticket@": "ticket@.yaml:1:1: unknown key"}


def two_tickets() -> World:
    world = World(session("ticket@a", read("a")), session("ticket@b", read("b")), files={"a": "1", "b": "1"})
    world.rest()
    return world


def restart(world: World, reading: SpecsRead) -> None:
    world.sessions = world.fold_log()
    world.core = type(world.core)(world.sessions.values())
    world.followed.clear()
    world.observe(reading)
    world.rest()


def test_a_template_that_cannot_be_read_at_a_start_undeclares_nobody() -> None:
    """Rule 26: the log has the last good spec of each session."""
    world = two_tickets()
    restart(world, SpecsRead(refused=REFUSED))
    assert [world.session(name).declaration.is_declared for name in ("ticket@a", "ticket@b")] == [True, True]
    assert world.core.looked.refused == REFUSED


def test_another_template_that_cannot_be_read_saves_nobody() -> None:
    """Rule 26: a session belongs to its own template. Another unreadable template does not keep it declared."""
    world = two_tickets()
    restart(world, SpecsRead(refused={"tick@": "tick@.yaml:1:1: unknown key"}))
    assert not world.session("ticket@a").declaration.is_declared and world.hold("ticket@a").startswith("undeclared")


def test_a_session_that_comes_back_owes_only_what_changed_meanwhile() -> None:
    """Rule 26: the session goes on where it was. Nothing changed, so it does not run."""
    world = two_tickets()
    runs = world.session("ticket@a").tally.runs
    again = declare(world.specs["ticket@a"])
    world.observe(SpecsRead(removed=("ticket@a",)))
    assert world.hold("ticket@a").startswith("undeclared")
    world.observe(SpecsRead(declared=(again,)))
    world.rest()
    assert world.session("ticket@a").declaration.is_declared and world.session("ticket@a").tally.runs == runs
