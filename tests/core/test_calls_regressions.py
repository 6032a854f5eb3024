"""The smallest histories that the random calls of test_calls_state_machine.py found. Each broke a promise once."""

from __future__ import annotations

import pytest

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.erased_payloads import redact
from wakeful.core.record.observations import SpecsRead
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import CallerError

SPECS = {
    "a": session("a", read("s0"), write("oa"), retries=1),
    "b": session("b", read("s1", settle_seconds=0.0), conversation="continue"),
    "c": session("c", run=None),
}


def settled(*specs: SessionSpec) -> World:
    world = World(*specs, files={"s0": "red", "s1": "red"})
    world.rest()
    return world


def test_the_log_of_a_terminated_session_takes_nothing_at_a_restart() -> None:
    """The file of the session is still there. It is ignored until the session is opened again."""
    world = settled(SPECS["a"])
    world.call(calls.Terminate(name="a"))
    length = len(world.log)
    world.crash()
    world.remove("a")
    assert len(world.log) == length


def test_what_lost_its_file_while_it_was_closed_is_undeclared_when_it_opens() -> None:
    world = settled(SPECS["a"])
    world.call(calls.Archive(name="a", at=world.session("a").seq, bundle="b", digest="d"))
    world.remove("a")
    world.call(calls.Restore(name="a"))
    world.observe(SpecsRead(removed=("a",)))
    with pytest.raises(CallerError, match="a is undeclared"):
        world.call(calls.Activate(name="a"))


def test_what_is_opened_while_its_file_cannot_be_read_goes_on_with_its_last_good_spec() -> None:
    """A broken file is not a missing file. This also holds if the session was closed when the daemon started."""
    world = settled(SPECS["a"])
    world.call(calls.Terminate(name="a"))
    broken, world.specs = {"a": "sessions.d/a.yaml:1:1: broken"}, {}
    world.crash()
    world.observe(SpecsRead(refused=broken))
    world.call(calls.Open(name="a", again=True))
    world.observe(SpecsRead(refused=broken))
    world.write("s0", "green")
    world.rest()
    assert (
        world.session("a").declaration.is_declared
        and world.session("a").tally.runs == 2
        and world.core.looked.refused == broken
    )


def test_a_renamed_fork_is_declared_under_its_new_name_for_ever() -> None:
    """No file names the fork, so its name is in the log. A restart opens no second session under the old name."""
    world = settled(SPECS["b"])
    world.call(calls.Fork(name="b", new="f", past=world.session("b")))
    world.call(calls.Rename(name="f", new="g"))
    world.call(calls.Resume(name="g"))
    world.crash()
    world.write("s1", "green")
    world.rest()
    assert sorted(world.core.state.ids) == ["b", "g"] and world.session("g").tally.runs == 1


def test_a_fork_keeps_its_place_when_no_file_of_its_name_is_found() -> None:
    """A session that is opened again asks for its file. A fork has none, and keeps its declaration and edges."""
    world = settled(SPECS["a"], session("b", read("oa")))
    world.call(calls.Fork(name="b", new="f", past=world.session("b")))
    edges = dict(world.core.graph.upstreams)
    world.observe(SpecsRead(removed=("f",)))
    assert world.session("f").declaration.is_declared and world.core.graph.upstreams == edges
    world.call(calls.Activate(name="f"))
    assert world.is_running("f") and world.process_of("f") is not None


def test_a_fork_that_is_open_again_waits_for_what_it_reads() -> None:
    """While the fork was closed, its input had no reader. The thawed fork finds out again that the writer runs."""
    world = settled(SPECS["a"], session("b", read("oa")))
    world.call(calls.Fork(name="b", new="f", past=world.session("b")))
    world.call(calls.Resume(name="f"))
    world.remove("b")
    world.call(calls.Freeze(name="f", move="m", to="laptop"))
    world.write("s0", "green")
    world.look()
    assert world.is_running("a")
    world.call(calls.Thaw(name="f"))
    world.answer_all()
    world.call(calls.Send(name="f", text="go"))
    assert not world.is_running("f") and "upstream a" in (world.queued("f") or "")


def test_a_rename_is_safe_to_repeat_under_either_name() -> None:
    world = settled(SPECS["c"])
    world.call(calls.Rename(name="c", new="d"), key="k")
    length = len(world.log)
    assert world.call(calls.Rename(name="c", new="d"), key="k") == "done already"
    assert len(world.log) == length


def test_a_name_that_is_free_again_gives_a_session_of_its_own() -> None:
    """The new session has another id, also if the clock stood still in between."""
    world = settled(SPECS["c"])
    first = world.session("c").id
    world.call(calls.Rename(name="c", new="d"))
    world.declare(SPECS["c"])
    assert world.session("c").id != first == world.session("d").id


def test_a_conversation_that_begins_anew_counts_what_it_holds() -> None:
    """The conversation counts the messages since the last run, with their size.

    Those of an abandoned branch do not count.
    """
    world = settled(SPECS["a"])
    world.call(calls.Note(name="a", text="abandoned"))
    there = world.session("a").seq - 1
    world.call(
        calls.Rewind(name="a", to=there, past=world.fold_log(len(world.log) - 1)[world.session("a").id].recollect())
    )
    world.call(calls.Send(name="a", text="hello", wake=False))
    world.call(calls.Activate(name="a"))
    now = world.session("a")
    assert (now.run is not None, now.knowledge.conversation.messages, now.knowledge.conversation.size_bytes) == (
        True,
        1,
        5,
    )
    assert not any(
        stretch.first <= there + 1 <= (stretch.last or now.seq) for stretch in now.knowledge.conversation.stretches
    )


def test_where_nothing_was_said_nothing_is_erased() -> None:
    """Erasing a merge without a summary does not give it one."""
    assert redact("session_merged", {"summary": "", "taken": []}) == {"summary": "", "taken": []}


@pytest.mark.parametrize(
    "call", [calls.Open(name="c", again=True), calls.Erase(name="c", seq=1, kind="note_added", stand_in={})]
)
def test_what_was_terminated_and_then_archived_takes_nothing_until_it_is_back(call: calls.Call) -> None:
    world = settled(SPECS["c"])
    world.call(calls.Terminate(name="c"))
    world.call(calls.Archive(name="c", at=world.session("c").seq, bundle="b", digest="d"))
    with pytest.raises(CallerError, match="c is archived"):
        world.call(call)
