"""Secrets in the core, which knows only their names.

A session without its secret sleeps with a reason, and wakes when it is there.
"""

from core.simulated_world import World
from core.spec_builders import after, read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.observations import SecretsSeen

MISSING = "needs a secret: token (wakeful secret set token)"


def test_a_session_sleeps_until_its_secret_is_there_and_the_others_go_on() -> None:
    """The change is recorded and waits. One run follows when the secret is there."""
    world = World(session("s", read("in"), secrets=("token",)), session("other", read("in")), files={"in": "1"})
    world.rest()
    assert (world.starts("s"), world.hold("s"), world.starts("other")) == (0, MISSING, 1)
    world.observe(SecretsSeen({"token": "/secrets/token is open to others; chmod 600"}))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (0, "/secrets/token is open to others; chmod 600")
    world.observe(SecretsSeen({"token": None, "unused": None}))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (1, None)


def test_one_of_several_that_is_missing_is_enough_and_named() -> None:
    world = World(session("s", read("in"), secrets=("first", "token")), files={"in": "1"})
    world.observe(SecretsSeen({"first": None}))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (0, MISSING)


def test_a_secret_that_goes_holds_the_next_run_and_no_other() -> None:
    world = World(session("s", read("in"), secrets=("token",)), files={"in": "1"})
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    world.observe(SecretsSeen({}))
    world.write("in", "2")
    world.rest()
    assert (world.starts("s"), world.outcomes("s"), world.hold("s")) == (1, ["succeeded"], MISSING)
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    assert world.starts("s") == 2


def test_an_activation_waits_for_the_secret_as_any_other_wake_does() -> None:
    """An activation cannot replace a missing secret: a run without it could only fail."""
    world = World(session("s", secrets=("token",)))
    world.call(calls.Activate(name="s"))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (0, MISSING)
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    assert world.starts("s") == 1


def test_one_that_lacks_a_secret_holds_its_readers_as_any_sleeper_with_changes_does() -> None:
    """Rule 31: it holds its readers until it succeeds. `stale: allow` opts out."""
    up = session("up", read("in"), write("out"), secrets=("token",))
    down = session("down", read("side"), read("out"))
    careless = session("careless", read("side"), read("out", stale_allowed=True))
    world = World(up, down, careless, files={"in": "1", "side": "1", "out": "0"})
    world.rest()
    assert (world.starts("down"), world.starts("careless")) == (0, 1)
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    assert world.starts("up") == 1 and world.starts("down") > 0


def test_a_secret_is_no_cause() -> None:
    """A new secret wakes no session that owes nothing."""
    world = World(session("s", read("in"), secrets=("token",)), session("t", after("s")), files={"in": "1"})
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    world.observe(SecretsSeen({}))
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    assert world.starts("s") == 1
