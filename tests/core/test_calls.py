"""Each call on a session that is queued, running, retrying, sleeping, failed, at rest or terminated: one table."""

import pytest

from core.simulated_world import World
from core.spec_builders import read, session
from wakeful.core.calls import call_types as calls
from wakeful.core.spec.session import Settings
from wakeful.errors import CallerError, UnknownSession

S = {"name": "s"}
CALLS = {
    "activate": calls.Activate(**S), "resume": calls.Resume(**S), "suspend": calls.Suspend(**S), "sleep": calls.Sleep(**S),
    "interrupt": calls.Interrupt(**S), "cancel": calls.Cancel(**S), "terminate": calls.Terminate(**S), "open": calls.Open(**S),
    "send": calls.Send(**S, text="hello"), "note": calls.Note(**S, text="done"), "rename": calls.Rename(**S, new="t"),
    "remember": calls.Remember(**S, key="k", value="v"),
}  # fmt: skip


def make(situation: str) -> World:
    """Make a world whose session `s` is in this situation. In each of them it has seen version 1."""
    world = World(
        session("s", read("in"), retries=1),
        session("busy", read("busy")),
        files={"in": "1"},
        settings=Settings(concurrency=1),
    )
    world.rest()
    if situation == "at rest":
        return world
    if situation == "terminated":
        world.call(calls.Terminate(name="s"))
        return world
    if situation == "queued":
        world.write("busy", "2")
        world.look()
    if situation == "sleeping":
        world.call(calls.Sleep(name="s"))
    world.write("in", "2")
    world.look()
    if situation == "retrying":
        world.end("s", 1)
    if situation == "failed":
        world.rest(60.0, exit_code=lambda _: 1)
    return world


# For each situation and call: the first word of the reply, or `!` and words of the refusal. Then the recorded events.
TABLE = {
    "at rest": {
        "activate": ("activated", "activation_requested wake_requested run_started"),
        "resume": ("not", ""),
        "suspend": ("suspended", ""),
        "sleep": ("sleeps", "session_slept"),
        "interrupt": ("!nothing to interrupt", ""),
        "cancel": ("!nothing to cancel", ""),
        "terminate": ("terminated", "session_terminated"),
        "open": ("open", ""),
        "send": ("message", "message_added wake_requested run_started"),
        "note": ("left a hand-off", "note_added"),
        "rename": ("renamed", "session_renamed"),
        "remember": ("remembered", "fact_set"),
    },
    "queued": {
        "activate": ("activated", "activation_requested wake_extended"),
        "resume": ("not", ""),
        "suspend": ("suspended:", "wake_withdrawn"),
        "sleep": ("sleeps", "session_slept"),
        "interrupt": ("interrupted:", "wake_withdrawn"),
        "cancel": ("cancelled:", "wake_withdrawn"),
        "terminate": ("terminated", "session_terminated"),
        "open": ("open", ""),
        "send": ("message", "message_added wake_extended"),
        "note": ("left a hand-off", "note_added"),
        "rename": ("renamed", "session_renamed"),
        "remember": ("remembered", "fact_set"),
    },
    "running": {
        "activate": ("activated:", "activation_requested"),
        "resume": ("not", ""),
        "suspend": ("suspends", "run_stop_requested"),
        "sleep": ("sleeps", "session_slept"),
        "interrupt": ("interrupting", "run_stop_requested"),
        "cancel": ("cancelling", "run_stop_requested"),
        "terminate": ("terminates", "run_stop_requested"),
        "open": ("open", ""),
        "send": ("message", "message_added"),
        "note": ("left a hand-off", "note_added"),
        "rename": ("!is running", ""),
        "remember": ("remembered", "fact_set"),
    },
    "retrying": {
        "activate": ("activated", "activation_requested wake_extended run_started"),
        "resume": ("resumed", "session_resumed run_started"),
        "suspend": ("suspended:", "wake_withdrawn"),
        "sleep": ("sleeps", "session_slept"),
        "interrupt": ("interrupted:", "wake_withdrawn"),
        "cancel": ("cancelled:", "wake_withdrawn"),
        "terminate": ("terminated", "session_terminated"),
        "open": ("open", ""),
        "send": ("message", "message_added wake_extended"),
        "note": ("left a hand-off", "note_added"),
        "rename": ("renamed", "session_renamed"),
        "remember": ("remembered", "fact_set"),
    },
    "sleeping": {
        "activate": ("activated", "activation_requested wake_extended run_started"),
        "resume": ("resumed", "session_resumed run_started"),
        "suspend": ("suspended:", "wake_withdrawn"),
        "sleep": ("sleeps", "session_slept"),
        "interrupt": ("interrupted:", "wake_withdrawn"),
        "cancel": ("cancelled:", "wake_withdrawn"),
        "terminate": ("terminated", "session_terminated"),
        "open": ("open", ""),
        "send": ("message", "message_added wake_extended"),
        "note": ("left a hand-off", "note_added"),
        "rename": ("renamed", "session_renamed"),
        "remember": ("remembered", "fact_set"),
    },
    "failed": {
        "activate": ("activated", "activation_requested wake_requested run_started"),
        "resume": ("resumed", "session_resumed"),
        "suspend": ("suspended", ""),
        "sleep": ("sleeps", "session_slept"),
        "interrupt": ("!nothing to interrupt", ""),
        "cancel": ("cancelled:", "wake_withdrawn"),
        "terminate": ("terminated", "session_terminated"),
        "open": ("open", ""),
        "send": ("message", "message_added session_resumed wake_requested run_started"),
        "note": ("left a hand-off", "note_added"),
        "rename": ("renamed", "session_renamed"),
        "remember": ("remembered", "fact_set"),
    },
    "terminated": {
        "activate": ("!is terminated", ""),
        "resume": ("!is terminated", ""),
        "suspend": ("!is terminated", ""),
        "sleep": ("!is terminated", ""),
        "interrupt": ("!is terminated", ""),
        "cancel": ("!is terminated", ""),
        "terminate": ("terminated", ""),
        "open": ("!--again", ""),
        "send": ("!is terminated", ""),
        "note": ("!is terminated", ""),
        "rename": ("!is terminated", ""),
        "remember": ("!is terminated", ""),
    },
}


@pytest.mark.parametrize(("situation", "verb"), [(situation, verb) for situation in TABLE for verb in TABLE[situation]])
def test_each_call_in_each_situation(situation: str, verb: str) -> None:
    """A call replies and records exactly these events, or is refused and records nothing."""
    reply, kinds = TABLE[situation][verb]
    world = make(situation)
    before = len(world.log)
    if reply.startswith("!"):
        with pytest.raises(CallerError, match=reply[1:]):
            world.call(CALLS[verb])
    else:
        assert world.call(CALLS[verb]).split()[0] == reply.split()[0]
    assert [entry.kind for entry in world.log[before:]] == kinds.split()
    world.oracle.judge_replay()


@pytest.mark.parametrize("situation", TABLE)
@pytest.mark.parametrize("verb", ["suspend", "interrupt", "cancel", "terminate", "resume"])
def test_each_call_is_safe_to_repeat(situation: str, verb: str) -> None:
    """The same call again records nothing more. It says so, or is refused."""
    world = make(situation)
    for _ in range(2):
        before = len(world.log)
        try:
            world.call(CALLS[verb])
        except CallerError:
            assert len(world.log) == before
    assert len(world.log) == before


@pytest.mark.parametrize("situation", [situation for situation in TABLE if situation != "terminated"])
def test_each_situation_comes_to_rest_again(situation: str) -> None:
    """After any call, the session still sees a newer version in the end."""
    for verb, call in CALLS.items():
        if verb in ("terminate", "rename"):
            continue
        world = make(situation)
        try:
            world.call(call)
        except CallerError:
            continue
        world.write("in", "3")
        world.rest(60.0)
        world.call(calls.Resume(name="s"))
        world.rest(60.0)
        world.oracle.judge_rest()


def test_unknown_names_are_refused() -> None:
    """A call on an unknown name is refused. The message says what to do."""
    world = make("at rest")
    for call in CALLS.values():
        with pytest.raises(UnknownSession, match="wakeful list"):
            world.call(
                type(call)(**{field: getattr(call, field) for field in call.__struct_fields__} | {"name": "nobody"})
            )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (calls.Rename(name="s", new="busy"), "another session"),
        (calls.Sleep(name="s", until=1), "passed already"),
        (calls.Send(name="s", text="x" * 300_000), "at most 256 KiB"),
        (calls.Send(name="s", text="x", sender="nobody"), "nobody"),
        (calls.Remember(name="s", key="", value="v"), "1 to 200 characters"),
        (calls.Remember(name="s", key="k" * 201, value="v"), "1 to 200 characters"),
        (calls.Forget(name="s", key="k"), "no fact 'k'"),
    ],
)
def test_bad_arguments_are_refused_in_words(call: calls.Call, words: str) -> None:
    """The refusal of a bad argument says what was expected. Nothing is recorded."""
    world = make("at rest")
    before = len(world.log)
    with pytest.raises(CallerError, match=words):
        world.call(call)
    assert len(world.log) == before


@pytest.mark.parametrize(
    ("spec", "words"),
    [(session("s", run=None), "no `run`"), (session("s", enabled=False), "is disabled")],
)
def test_what_cannot_run_is_not_activated(spec, words: str) -> None:
    """A session without `run`, a disabled and an undeclared one refuse an activation.

    Each refusal has its own words.
    """
    world = World(spec)
    with pytest.raises(CallerError, match=words):
        world.call(calls.Activate(name="s"))
    world.remove("s")
    with pytest.raises(CallerError, match="undeclared"):
        world.call(calls.Activate(name="s"))


def test_facts_carry_author_and_rationale() -> None:
    """A fact has its author, its seq and its reason. Setting the key again replaces the fact; `forget` removes it."""
    world = make("at rest")
    world.call(calls.Remember(name="s", key="rate", value="7", rationale="law"), author="bob")
    fact = world.session("s").knowledge.facts["rate"]
    assert (fact.value, fact.author, fact.rationale, fact.seq) == ("7", "bob", "law", world.session("s").seq)
    world.call(calls.Remember(name="s", key="rate", value="8"))
    assert world.session("s").knowledge.facts["rate"].value == "8"
    world.call(calls.Forget(name="s", key="rate"))
    assert world.session("s").knowledge.facts == {}


def test_messages_have_positions_and_may_be_quiet() -> None:
    """Messages are counted per mailbox. A message that does not wake waits for the next run."""
    world = make("at rest")
    assert world.call(calls.Send(name="s", text="one", wake=False)) == "message 1 is in the mailbox of s"
    assert not world.is_running("s")
    assert world.call(calls.Send(name="s", text="two")) == "message 2 is in the mailbox of s"
    assert world.session("s").run.versions["message"] == "2"


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e15, float("inf"), float("nan")])
def test_absurd_sleeps_are_refused(seconds: float) -> None:
    """A time outside any calendar is refused, and nothing is recorded."""
    world = World(session("s", read("in")), files={"in": "1"})
    world.rest()
    before = world.session("s").seq
    with pytest.raises(CallerError):
        world.call(calls.Sleep(name="s", seconds=seconds))
    with pytest.raises(CallerError):
        world.call(calls.Sleep(name="s", until=10**22))
    assert world.session("s").seq == before


def test_notes_and_facts_have_a_bound() -> None:
    """Notes and facts stay in the state, so one that exceeds the limit of a message is refused."""
    world = World(session("s", read("in")), files={"in": "1"})
    world.rest()
    for call in (calls.Note(name="s", text="x" * 300_000), calls.Remember(name="s", key="k", value="x" * 300_000)):
        with pytest.raises(CallerError, match="at most 256 KiB"):
            world.call(call)
