"""Trust in the core: an untrusted spec is neither admitted nor followed, and its session sleeps with a reason."""

from typing import Any

import pytest
from msgspec.structs import replace

from core.simulated_world import World, declare
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.decide import decide
from wakeful.core.deciding.holds import find_hold_words
from wakeful.core.deciding.rule_of_two import find_rule_of_two_breach, find_untrusted_source, find_way_out
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.observations import DaemonStarted, SecretsSeen, SpecsRead
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import FileBinding, ProbeBinding, SessionBinding
from wakeful.core.spec.session import CommandRun, Confinement, ScriptRun, SessionSpec
from wakeful.errors import CallerError

WORDS = "needs trust: its spec changed (wakeful trust s shows the difference)"
HOSTILE = CommandRun(argv=("curl", "evil.example"))


def withhold(world: World, spec: SessionSpec) -> None:
    world.observe(SpecsRead(declared=(replace(declare(spec), needs_trust=WORDS),)))


def test_a_new_spec_that_nobody_trusts_makes_a_session_that_shows_it_and_does_nothing() -> None:
    """Its probe does not run either, because a probe is a command too."""
    world = World(files={"in": "1"})
    withhold(world, session("s", read("in"), ProbeBinding(name="p", argv=("curl", "evil.example")), run=HOSTILE))
    world.rest()
    assert (world.starts("s"), world.hold("s"), world.followed) == (0, WORDS, {})
    assert [entry.kind for entry in world.log] == ["session_opened"]


def test_a_changed_spec_that_nobody_trusts_leaves_the_old_one_in_force_and_asleep() -> None:
    """The bindings of the old spec are still followed, so no change is lost meanwhile."""
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
    """The activation waits for a secret when the spec changes. Then it waits for trust."""
    world = World(session("s", secrets=("token",)))
    world.call(calls.Activate(name="s"))
    world.rest()
    withhold(world, session("s", secrets=("token",), run=HOSTILE))
    world.observe(SecretsSeen({"token": None}))
    world.rest()
    assert (world.starts("s"), world.hold("s")) == (0, WORDS)


def test_after_a_restart_the_last_good_spec_stands_and_sleeps() -> None:
    """The first reading of the specs is complete. A spec that it withholds does not count as removed."""
    spec = session("s", read("in"))
    world = World(spec, files={"in": "1"})
    world.rest()
    hostile = session("s", read("in"), run=HOSTILE)
    core = Core(world.fold_log().values())
    decide(core, DaemonStarted(incarnation="next", settings=world.settings), world.moment)
    decide(core, SpecsRead(declared=(replace(declare(hostile), needs_trust=WORDS),)), world.moment)
    found = core.state.by_name("s")
    assert (find_hold_words(core, found, world.moment), found.spec, found.declaration.is_declared) == (
        WORDS,
        spec,
        True,
    )
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


# -- what a bundle brought --------------------------------------------------------------------------

BUNDLED = "needs trust: its spec came in a bundle (wakeful trust {} shows it)"


def make_elsewhere() -> World:
    """Make a world for another host. Its session has a probe, and an output that sessions here read or write."""
    return World(
        session("s", read("in"), write("out"), ProbeBinding(name="p", argv=("curl", "evil.example")), run=HOSTILE),
        files={"in": "1"},
    )


def elsewhere() -> Session:
    return make_elsewhere().core.state.by_name("s")


def load(world: World, past: Session, new: str = "loaded") -> None:
    world.call(calls.Fork(name=past.name, new=new, past=past, root="/project", needs_trust="its spec came in a bundle"))


def test_nothing_of_a_bundle_is_followed_or_run_before_it_is_trusted() -> None:
    """It blocks no other session: writers and readers of the same path continue."""
    world = World(session("own", read("in"), write("out")), session("reader", read("out")), files={"in": "1"})
    world.rest()
    before = dict(world.followed)
    load(world, elsewhere())
    assert set(world.followed) == set(before)
    for call in (calls.Activate(name="loaded"), calls.Trace(name="loaded")):
        with pytest.raises(CallerError, match="its spec came in a bundle"):
            world.call(call)
    world.call(calls.Send(name="loaded", text="go on"))
    world.call(calls.Resume(name="loaded"))
    world.crash()
    world.write("in", "2")
    world.rest()
    assert (world.starts("loaded"), world.hold("loaded")) == (0, BUNDLED.format("loaded"))
    assert (world.starts("own"), world.starts("reader")) == (2, 2)
    assert set(world.followed) == set(before)


def test_what_a_bundle_brought_works_once_it_is_trusted() -> None:
    world = World(files={"in": "1"})
    load(world, elsewhere())
    world.call(calls.Trust(name="loaded", digest="d"))
    targets = [(type(one).__name__, getattr(one, "pattern", None)) for one in world.followed.values()]
    assert sorted(targets, key=str) == [("FileTarget", "in"), ("FileTarget", "out"), ("ProbeTarget", None)], "armed"
    world.call(calls.Activate(name="loaded"))
    world.rest()
    assert world.starts("loaded") == 1
    world.crash()
    world.write("in", "2")
    world.rest()
    assert world.hold("loaded") is None and world.core.state.by_name("loaded").wake is not None, "armed, and woken"
    world.probes["curl", "evil.example"] = "seen"
    world.hint(*world.followed)
    world.rest()
    assert world.starts("loaded") == 2, "it runs when its probe works"


def test_a_spec_that_cannot_be_admitted_is_not_trusted() -> None:
    world = World(session("own", write("out")), files={"in": "1"})
    load(world, elsewhere())
    with pytest.raises(CallerError, match="both write"):
        world.call(calls.Trust(name="loaded", digest="d"))
    assert world.hold("loaded") == BUNDLED.format("loaded")


def test_a_fork_of_what_nobody_trusts_is_not_trusted_either() -> None:
    world = World(files={"in": "1"})
    load(world, elsewhere())
    world.call(calls.Fork(name="loaded", new="copy", past=world.core.state.by_name("loaded")))
    world.call(calls.Trust(name="loaded", digest="d"))
    assert world.hold("copy") == BUNDLED.format("copy")


def test_a_file_of_ones_own_takes_the_place_of_what_a_bundle_said() -> None:
    world = World(files={"in": "1"})
    load(world, elsewhere(), "s")
    world.declare(session("s", read("in")))
    world.call(calls.Activate(name="s"))
    world.rest()
    assert world.starts("s") == 1 and world.core.state.by_name("s").declaration.needs_trust is None


def test_a_session_that_moves_in_is_trusted_first_and_so_is_a_fork_of_its_past() -> None:
    world, there = World(files={"in": "1"}), make_elsewhere()
    there.call(calls.Freeze(name="s", move="m", to="desk"))
    past = there.core.state.by_name("s")
    # Its records arrived first, unchanged.
    for entry in there.log:
        world.log.append(entry)
        world.oracle.take(entry)
    world.call(calls.Arrive(name="s", past=past, move="m", origin="laptop"))
    assert world.hold("s") == BUNDLED.format("s") and not world.followed
    world.call(calls.Fork(name="s", new="early", past=past))
    assert world.hold("early") == BUNDLED.format("early")
    world.crash()
    assert world.hold("s") == BUNDLED.format("s") and not world.followed
    world.call(calls.Trust(name="s", digest="d"))
    assert world.followed
    # A past spec that differs from the trusted one was reviewed by no person here.
    older = replace(past, spec=session("s", run=CommandRun(argv=("other",))))
    world.call(calls.Fork(name="s", new="older", past=older))
    assert world.hold("older") == BUNDLED.format("older")
    world.call(calls.Fork(name="s", new="same", past=past))
    assert "needs trust" not in (world.hold("same") or "")


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_session_that_comes_home_needs_trust_only_with_another_spec(is_changed: bool) -> None:
    spec = session("s", read("in"))
    world = World(spec, files={"in": "1"})
    world.rest()
    world.call(calls.Freeze(name="s", move="m", to="laptop"))
    past = world.core.state.by_name("s")
    back = replace(past, spec=session("s", read("in"), run=HOSTILE)) if is_changed else past
    world.call(calls.Arrive(name="s", past=back, move="m", origin="laptop"))
    assert (world.core.state.by_name("s").declaration.needs_trust is not None) is is_changed


# -- the rule of two --------------------------------------------------------------------------------

NETWORK = Confinement(network=True)


def stranger(name: str = "mail", **keys: Any) -> SessionSpec:
    return session(
        name, FileBinding(name="letters", pattern="letters", is_untrusted=True), write(f"{name}.out"), **keys
    )


def give(world: World, *names: str) -> None:
    world.observe(SecretsSeen(dict.fromkeys(names)))


def test_a_reader_of_what_strangers_wrote_asks_before_it_runs_with_secrets_and_a_way_out() -> None:
    """It also asks if a clock or a person wakes it, because the untrusted text is in its input."""
    agent = session("agent", read("mail.out"), read("go"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), agent, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("mail") == 1
    assert world.starts("agent") == 0
    assert "reaches it through mail" in (world.hold("agent") or "") and "token" in (world.hold("agent") or "")
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
    """The upstream reads untrusted text and has the secret. The reader has the network, so it asks."""
    carrier = session("carrier", read("mail.out"), confinement=NETWORK)
    world = World(stranger(secrets=("token",)), carrier, files={"letters": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("mail") == 1
    assert "token of mail" in (world.hold("carrier") or "")


def test_words_of_strangers_of_ones_own_do_not_hide_those_of_others() -> None:
    """The session has two of the three itself: untrusted input and network.

    Its upstream has a secret and untrusted input too.
    """
    untrusted = FileBinding(name="posts", pattern="posts", is_untrusted=True)
    carrier = session("carrier", read("mail.out"), untrusted, confinement=NETWORK)
    world = World(stranger(secrets=("token",)), carrier, files={"letters": "1", "posts": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("carrier") == 0 and "token of mail" in (world.hold("carrier") or "")


def test_a_secret_known_between_the_strangers_and_the_way_out_counts() -> None:
    """Each session has at most two of the three.

    `mail` reads untrusted text, `middle` has the secret, and `carrier` has the network.
    """
    middle = session("middle", read("mail.out"), write("middle.out"), secrets=("token",))
    carrier = session("carrier", read("middle.out"), confinement=NETWORK)
    world = World(stranger(), middle, carrier, files={"letters": "1"})
    give(world, "token")
    world.rest()
    assert (world.starts("middle"), world.starts("carrier")) == (1, 0)
    assert "reaches it through mail" in (world.hold("carrier") or "") and "token of middle" in (
        world.hold("carrier") or ""
    )


def test_a_message_of_who_knows_a_secret_and_heard_strangers_makes_a_carrier_ask() -> None:
    """The untrusted text comes from further upstream. The message can still contain the secret of its sender."""
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
    """The session with the secret has no untrusted input, so its output does not count."""
    vault = session("vault", read("go"), write("vault.out"), secrets=("token",))
    carrier = session("carrier", read("mail.out"), read("vault.out"), confinement=NETWORK)
    world = World(stranger(), vault, carrier, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("carrier") >= 1


@pytest.mark.parametrize("wake", [True, False])
def test_a_message_of_who_reads_strangers_makes_the_receiver_ask(wake: bool) -> None:
    """This also holds for a message that does not wake, and after a restart: it is in the mailbox."""
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
    assert "reaches it through mail" in (world.hold("agent") or "")
    world.call(calls.Answer(name="agent", text="yes"))
    world.rest()
    assert world.starts("agent") == 2
    world.write("go", "3")
    world.rest()
    assert world.starts("agent") == 3, "a person looked, and said yes"


def test_words_of_strangers_stay_what_they_are_over_several_sessions() -> None:
    """Untrusted text passes from mail to middle by a message, and from middle to agent by a file."""
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
    assert "reaches it through middle" in (world.hold("agent") or "")


def test_a_message_of_a_person_is_trusted() -> None:
    agent = session("agent", read("go"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), agent, files={"letters": "1", "go": "1"})
    give(world, "token")
    world.rest()
    world.call(calls.Send(name="agent", text="go on"))
    world.rest()
    assert world.starts("agent") == 2


def test_reads_that_are_granted_without_a_binding_bring_strangers_words_as_well() -> None:
    """Reads count if granted by allow.read, a probe, a command, a script, a check, or a pattern that opens a folder.

    A command that names another folder does not count.
    """
    outside = Confinement(network=True, allow_read=("/project/desk",))
    readers = {
        "allowed": session("allowed", read("go"), secrets=("token",), confinement=outside),
        "probing": session(
            "probing", ProbeBinding(name="p", argv=("cat", "desk/mail.txt")), secrets=("token",), confinement=NETWORK
        ),
        "command": session(
            "command",
            read("go"),
            run=CommandRun(argv=("cat", "desk/mail.txt")),
            secrets=("token",),
            confinement=NETWORK,
        ),
        "script": session(
            "script", read("go"), run=ScriptRun(text="cat <desk/mail.txt"), secrets=("token",), confinement=NETWORK
        ),
        "check": session(
            "check",
            read("go"),
            run=CommandRun(argv=("true",), check=("grep", "x", "desk/mail.txt")),
            secrets=("token",),
            confinement=NETWORK,
        ),
        "pattern": session("pattern", read("desk/*.csv"), secrets=("token",), confinement=NETWORK),
        "elsewhere": session(
            "elsewhere",
            read("go"),
            run=CommandRun(argv=("cat", "other/mail.txt")),
            secrets=("token",),
            confinement=NETWORK,
        ),
    }
    mail = session("mail", FileBinding(name="letters", pattern="letters", is_untrusted=True), write("desk/mail.txt"))
    world = World(mail, *readers.values(), files={"letters": "1", "go": "1", "desk/a.csv": "1"})
    give(world, "token")
    assert {
        name: find_untrusted_source(world.core.untrusted_text, world.core.state.by_name(name)) for name in readers
    } == dict.fromkeys(readers, "mail") | {"elsewhere": None}
    for name in readers:
        words = find_rule_of_two_breach(world.core.untrusted_text, world.core.state.by_name(name))
        assert (words is None) == (name == "elsewhere"), name


def test_who_waits_for_a_session_that_reads_strangers_hears_them() -> None:
    """A session binding counts too, although no file passes: the run of one causes the run of the other."""
    agent = session("agent", SessionBinding(name="after", session="mail"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), agent, files={"letters": "1"})
    assert find_untrusted_source(world.core.untrusted_text, world.core.state.by_name("agent")) == "mail"


def test_strangers_words_are_what_they_are_whoever_says_so() -> None:
    """One session labels the inbox as untrusted. Another session may read it by allow.read, without a label."""
    mail = session("mail", FileBinding(name="letters", pattern="inbox/*.txt", is_untrusted=True))
    quiet = session(
        "quiet", read("go"), secrets=("token",), confinement=Confinement(network=True, allow_read=("inbox",))
    )
    world = World(mail, quiet, files={"go": "1"})
    give(world, "token")
    world.rest()
    assert world.starts("quiet") == 0 and "reaches it through mail" in (world.hold("quiet") or "")


def test_private_reads_are_as_good_as_secrets_to_who_carries_them_out() -> None:
    """The session has no secret, but may read files outside its project."""
    agent = session("agent", read("mail.out"), confinement=Confinement(network=True, allow_read=("/home/ada/notes",)))
    world = World(stranger(), agent, files={"letters": "1"})
    world.rest()
    assert world.starts("agent") == 0 and "private reads: /home/ada/notes, by allow.read" in (world.hold("agent") or "")


def test_a_label_that_goes_takes_the_question_with_it() -> None:
    agent = session("agent", read("mail.out"), secrets=("token",), confinement=NETWORK)
    world = World(stranger(), agent, files={"letters": "1"})
    assert find_untrusted_source(world.core.untrusted_text, world.core.state.by_name("agent")) == "mail"
    world.declare(session("mail", read("letters"), write("mail.out")))
    assert find_untrusted_source(world.core.untrusted_text, world.core.state.by_name("agent")) is None


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
    """A way out is the network, missing isolation, or writing outside the session's own project."""
    bindings = keys.pop("bindings", ())
    assert find_way_out(session("s", *bindings, **keys)) == words
