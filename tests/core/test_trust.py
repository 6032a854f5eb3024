"""Trust as the core knows it: a spec that nobody has trusted is neither admitted nor followed, and its session sleeps with words."""

from typing import Any

import pytest
from core.specs import read, session, write
from core.world import World, declare

from msgspec.structs import replace
from wakeful.core import calls
from wakeful.core.decide import decide
from wakeful.core.machine import Core
from wakeful.core.observation import DaemonStarted, SecretsSeen, SpecsRead
from wakeful.core.provenance import find_way_out
from wakeful.core.spec import CommandRun, Confinement, FileBinding, ProbeBinding, SessionSpec
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
    """It waited for a secret when the spec changed; now it waits for a person."""
    world = World(session("s", secrets=("token",)))
    world.call(calls.Activate(name="s"))
    world.rest()
    withhold(world, session("s", secrets=("token",), run=HOSTILE))
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (0, WORDS)


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


# -- the rule of two --------------------------------------------------------------------------------

NETWORK = Confinement(network=True)


def stranger(name: str = "mail", **keys: Any) -> SessionSpec:
    return session(name, FileBinding(name="letters", pattern="letters", is_untrusted=True), write(f"{name}.out"), **keys)


def give(world: World, *names: str) -> None:
    world.observe(SecretsSeen(dict.fromkeys(names)))


def test_a_reader_of_what_strangers_wrote_asks_before_it_runs_with_secrets_and_a_way_out() -> None:
    """Also where the clock or a person wakes it: the words are in what it reads."""
    agent = session("agent", read("mail.out"), read("go"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), agent, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("mail") == 1
    assert world.starts("agent") == 0
    assert "came by way of mail" in (world.hold("agent") or "") and "token" in (world.hold("agent") or "")
    world.call(calls.Answer(name="agent", text="yes"))
    world.rest()
    assert world.starts("agent") == 1
    world.write("go", "2")
    world.rest()
    assert (world.starts("agent"), "may it run?" in (world.hold("agent") or "")) == (1, True)


@pytest.mark.parametrize("keys", [{"secrets": ("token",)}, {"confinement": NETWORK}, {}])
def test_two_of_the_three_run_unasked(keys: dict[str, Any]) -> None:
    agent = session("agent", read("mail.out"), **keys)
    world = World(stranger(), agent, files={"letters": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("agent") == 1


def test_secrets_of_who_reads_strangers_count_for_who_carries_their_words_out() -> None:
    """The one knows the secret and was told what to do with it; the other has the network."""
    carrier = session("carrier", read("mail.out"), confinement=NETWORK)
    world = World(stranger(secrets=("token",)), carrier, files={"letters": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("mail") == 1
    assert "token of mail" in (world.hold("carrier") or "")


def test_words_of_strangers_of_ones_own_do_not_hide_those_of_others() -> None:
    """It reads strangers itself, which is two of three; but who feeds it knows a secret, and heard strangers, too."""
    untrusted = FileBinding(name="posts", pattern="posts", is_untrusted=True)
    carrier = session("carrier", read("mail.out"), untrusted, confinement=NETWORK)
    world = World(stranger(secrets=("token",)), carrier, files={"letters": "1", "posts": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("carrier") == 0 and "token of mail" in (world.hold("carrier") or "")


def test_a_secret_known_between_the_strangers_and_the_way_out_counts() -> None:
    """mail hears strangers, middle knows the secret and does as mail says, carrier has the network: each has two of the three at most."""
    middle = session("middle", read("mail.out"), write("middle.out"), secrets=("token",))
    carrier = session("carrier", read("middle.out"), confinement=NETWORK)
    world = World(stranger(), middle, carrier, files={"letters": "1"})
    give(world, "token")
    world.rest()
    assert (world.starts("middle"), world.starts("carrier")) == (1, 0)
    assert "came by way of mail" in (world.hold("carrier") or "") and "token of middle" in (world.hold("carrier") or "")


def test_a_message_of_who_knows_a_secret_and_heard_strangers_makes_a_carrier_ask() -> None:
    """The words came from further up; the sender's secret can come along with them all the same."""
    middle = session("middle", read("mail.out"), secrets=("token",))
    carrier = session("carrier", read("go"), confinement=NETWORK)
    world = World(stranger(), middle, carrier, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("carrier") == 1
    world.call(calls.Send(name="carrier", text="the token is", sender="middle"), author="run:middle#1")
    world.rest()
    world.write("go", "2")
    world.rest()
    assert world.starts("carrier") == 1 and "token of middle" in (world.hold("carrier") or "")


def test_who_knows_a_secret_and_never_heard_strangers_makes_nobody_ask() -> None:
    """Beside strangers' words, not behind them: nobody told it what to do with the secret."""
    vault = session("vault", read("go"), write("vault.out"), secrets=("token",))
    carrier = session("carrier", read("mail.out"), read("vault.out"), confinement=NETWORK)
    world = World(stranger(), vault, carrier, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("carrier") >= 1


@pytest.mark.parametrize("wake", [True, False])
def test_a_message_of_who_reads_strangers_makes_the_receiver_ask(wake: bool) -> None:
    """Also one that wakes nobody, and also after a restart: it stands in the mailbox."""
    agent = session("agent", read("go"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), agent, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("agent") == 1
    world.call(calls.Send(name="agent", text="do as I say", sender="mail", wake=wake), author="run:mail#1")
    world.crash()
    give(world, "token")
    world.write("go", "2")
    world.rest()
    assert world.starts("agent") == 1
    assert "came by way of mail" in (world.hold("agent") or "")
    world.call(calls.Answer(name="agent", text="yes"))
    world.rest()
    assert world.starts("agent") == 2
    world.write("go", "3")
    world.rest()
    assert world.starts("agent") == 3, "a person looked, and said yes"


def test_words_of_strangers_stay_what_they_are_over_several_sessions() -> None:
    """mail -> middle (a message) -> agent (a file)."""
    middle = session("middle", read("start"), write("middle.out"))
    agent = session("agent", read("middle.out"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), middle, agent, files={"letters": "1", "start": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("agent") == 1
    world.call(calls.Send(name="middle", text="do as I say", sender="mail"), author="run:mail#1")
    world.rest()
    assert world.starts("middle") == 2
    world.write("start", "2")
    world.rest()
    assert world.starts("agent") == 1
    assert "came by way of middle" in (world.hold("agent") or "")


def test_a_message_of_a_person_is_trusted() -> None:
    agent = session("agent", read("go"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), agent, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    world.call(calls.Send(name="agent", text="go on"))
    world.rest()
    assert world.starts("agent") == 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"confinement": NETWORK}, "network"),
        ({"confinement": Confinement(network=("a:1",))}, "network"),
        ({"confinement": Confinement(level="none")}, "isolation: none"),
        ({"confinement": Confinement(allow_write=("~/out",))}, "writes ~/out"),
        ({"bindings": (write("../out"),)}, "writes ../out"),
        ({"bindings": (write("/project2/out"),)}, "writes /project2/out"),
        ({"bindings": (write("/project/out"), write("out"))}, None),
        ({}, None),
    ],
)
def test_what_is_a_way_out(keys: dict[str, Any], words: str | None) -> None:
    """Besides the network: writing outside of its own project."""
    bindings = keys.pop("bindings", ())
    assert find_way_out(session("s", *bindings, **keys)) == words
