"""The calls on history: their effect on the log and the state, and what they refuse (rules 43-45)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import after, cron, every, read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record.fold import fold
from wakeful.core.record.knowledge import Fact, RecordRange, merge_facts
from wakeful.core.record.state import Departed, Moving, Session, Terminated
from wakeful.core.spec.limits import Levels, Limits
from wakeful.core.spec.session import Settings
from wakeful.errors import CallerError


def rest(world: World) -> World:
    """Let every owed run end."""
    world.rest()
    return world


def state(world: World, name: str) -> Session:
    return world.core.state.by_name(name)


def past(world: World, name: str, seq: int) -> Session:
    """Fold the log of the session alone, up to a seq."""
    found = None
    for entry in world.log:
        if entry.session == state(world, name).id and entry.seq <= seq:
            found = fold(found, entry.event, seq=entry.seq, at=entry.at, author=entry.author)
    assert found is not None
    return found


def departed(session: Session) -> Session:
    move, to = (session.closed.move, session.closed.to) if isinstance(session.closed, Moving) else (None, None)
    return replace(session, closed=Departed(move, to))


def remember(world: World, name: str, key: str, value: str) -> None:
    world.call(calls.Remember(name=name, key=key, value=value))


def rewind(world: World, name: str, to: int) -> str | None:
    return world.call(calls.Rewind(name=name, to=to, past=past(world, name, to).recollect()))


def fork(world: World, name: str, at: int, new: str, **how: object) -> str | None:
    return world.call(calls.Fork(name=name, new=new, past=past(world, name, at), **how))


def merge(world: World, name: str, other: str) -> str | None:
    base_seq = state(world, name).lineage.merges.get(state(world, other).id, 1)
    base = past(world, other, base_seq).knowledge.facts
    return world.call(
        calls.Merge(name=name, fork=other, base=base, base_seq=base_seq, fork_seq=state(world, other).seq)
    )


def payroll(**keys: object) -> World:
    spec = session("payroll", read("rates.csv"), write("out.csv"), **keys)
    return rest(World(spec, files={"rates.csv": "1"}))


def kinds(world: World, since: int) -> list[str]:
    return [entry.kind for entry in world.log[since:]]


# -- memory and conversation -------------------------------------------------------------------


def test_memory_belongs_to_the_conversation_and_facts_to_the_session() -> None:
    """A fresh start clears memory.

    The conversation then begins with the messages that no run has dealt with. Facts and the hand-off stay.
    """
    world = payroll()
    world.call(calls.Note(name="payroll", text="half done"))
    remember(world, "payroll", "month", "March")
    world.call(calls.Remember(name="payroll", key="row", value="17", for_now=True))
    assert state(world, "payroll").knowledge.memory == {"row": "17"}
    assert state(world, "payroll").knowledge.conversation.messages == 1
    world.call(calls.Activate(name="payroll", fresh=True))
    session_now = state(world, "payroll")
    assert session_now.run is not None and session_now.knowledge.memory == {}
    assert session_now.knowledge.facts["month"].value == "March" and session_now.knowledge.handoff == "half done"
    assert session_now.knowledge.conversation.stretches == (
        RecordRange(session_now.id, session_now.knowledge.dealt_from + 1),
    )


def said(world: World, name: str) -> list[str]:
    """List the messages that a run of this session would find in its conversation."""
    now = state(world, name)
    logs = [
        [one for one in world.log if one.session == part.session][part.first - 1 : part.last]
        for part in now.knowledge.conversation.stretches
    ]
    texts = [one.event.text for log in logs for one in log if one.kind in ("message_added", "note_added")]
    assert len(texts) == now.knowledge.conversation.messages
    return texts


def test_a_message_that_comes_during_a_run_is_in_the_conversation_of_the_run_it_wakes() -> None:
    """The run under way has not seen the message.

    The next fresh conversation begins with it, without the messages before it.
    """
    world = payroll()
    world.call(calls.Send(name="payroll", text="first"))
    assert world.is_running("payroll") and said(world, "payroll") == ["first"]
    world.call(calls.Send(name="payroll", text="second"))
    world.end("payroll")
    world.answer_all()
    assert world.is_running("payroll") and said(world, "payroll") == ["second"]
    rest(world)
    world.call(calls.Activate(name="payroll"))
    assert said(world, "payroll") == []


def test_a_message_whose_run_is_tried_on_something_newer_is_not_forgotten() -> None:
    """A retry on newer versions begins at attempt 0 (rule 21).

    The message of the failed try is still in its conversation.
    """
    world = payroll(retries=1)
    world.call(calls.Send(name="payroll", text="first"))
    world.end("payroll", 1)
    world.answer_all()
    world.call(calls.Send(name="payroll", text="second"))
    world.advance(60.0)
    world.answer_all()
    assert state(world, "payroll").run.attempt == 0 and said(world, "payroll") == ["first", "second"]


def test_a_rewind_into_a_run_keeps_what_that_run_had_not_seen() -> None:
    """The target lies between the start and the end of a run.

    Messages before the start are dealt with, later ones are not.
    """
    world = payroll()
    world.call(calls.Send(name="payroll", text="first"))
    world.call(calls.Send(name="payroll", text="second", wake=False))
    there = state(world, "payroll").seq
    rest(world)
    world.call(calls.Send(name="payroll", text="third", wake=False))
    rewind(world, "payroll", there)
    world.call(calls.Activate(name="payroll", fresh=True))
    assert said(world, "payroll") == ["second"]


def test_a_session_that_continues_keeps_its_conversation() -> None:
    """With `conversation: continue` only a person's `--fresh` begins a new conversation."""
    world = payroll(conversation="continue")
    world.call(calls.Remember(name="payroll", key="row", value="17", for_now=True))
    world.write("rates.csv", "2")
    world.look()
    assert state(world, "payroll").run is not None and state(world, "payroll").knowledge.memory == {"row": "17"}


def test_a_key_of_memory_is_taken_away_once() -> None:
    world = payroll()
    world.call(calls.Remember(name="payroll", key="row", value="17", for_now=True))
    world.call(calls.Forget(name="payroll", key="row", for_now=True))
    assert state(world, "payroll").knowledge.memory == {}
    with pytest.raises(CallerError, match="keeps no 'row'"):
        world.call(calls.Forget(name="payroll", key="row", for_now=True))


def test_a_fact_tells_how_sure_it_is_and_where_it_was_drawn_from() -> None:
    world = payroll()
    world.call(calls.Remember(name="payroll", key="rate", value="8 %", confidence=0.5, source=2))
    fact = state(world, "payroll").knowledge.facts["rate"]
    assert (fact.confidence, fact.source, fact.author) == (0.5, 2, "alice")
    with pytest.raises(CallerError, match="between 0 and 1"):
        world.call(calls.Remember(name="payroll", key="rate", value="8 %", confidence=2.0))
    with pytest.raises(CallerError, match="cannot be drawn from record 9999"):
        world.call(calls.Remember(name="payroll", key="rate", value="8 %", source=9999))


# -- checkpoints and rewind ----------------------------------------------------------------------


def test_a_checkpoint_names_a_seq_and_keeps_it() -> None:
    world = payroll()
    seq = state(world, "payroll").seq
    assert world.call(calls.Save(name="payroll", mark="march")) == f"march is seq {seq}"
    assert "already" in (world.call(calls.Save(name="payroll", mark="march", position=seq)) or "")
    with pytest.raises(CallerError, match="choose another name"):
        world.call(calls.Save(name="payroll", mark="march"))
    for wrong in ("12", "", "-x", "2026-01-01", "a/b"):
        with pytest.raises(CallerError, match="cannot name a checkpoint"):
            world.call(calls.Save(name="payroll", mark=wrong))
    with pytest.raises(CallerError, match="none numbered 9999"):
        world.call(calls.Save(name="payroll", mark="far", position=9999))


def test_rule_44_a_rewind_appends_and_brings_back_what_was_known() -> None:
    """Rule 44: facts, memory, hand-off and conversation go back. Nothing is deleted and nothing runs."""
    world = payroll()
    remember(world, "payroll", "month", "March")
    there = state(world, "payroll")
    remember(world, "payroll", "month", "April")
    world.call(calls.Note(name="payroll", text="wrong turn"))
    length = len(world.log)
    rewind(world, "payroll", there.seq)
    assert kinds(world, length) == ["session_rewound"]
    now = state(world, "payroll")
    assert (now.knowledge.facts, now.knowledge.handoff, now.knowledge.conversation.messages) == (
        there.knowledge.facts,
        there.knowledge.handoff,
        0,
    )
    assert now.lineage.line == (RecordRange(now.id, 1, there.seq), RecordRange(now.id, now.seq))
    assert not world.processes


def test_rule_44_a_rewind_never_starts_a_run_and_the_next_change_does() -> None:
    """Rule 44: seen becomes looked, so a file that changed since the target causes no run."""
    world = payroll()
    there = state(world, "payroll").seq
    world.write("rates.csv", "2")
    rest(world)
    rewind(world, "payroll", there)
    rest(world)
    runs = state(world, "payroll").tally.runs
    assert runs == 2
    world.write("rates.csv", "3")
    rest(world)
    assert state(world, "payroll").tally.runs == 3


def test_rule_44_what_was_owed_before_a_rewind_is_no_longer() -> None:
    """Rule 44: an owed file version counts as seen after the rewind. A message is still owed."""
    world = payroll()
    there = state(world, "payroll").seq
    world.call(calls.Sleep(name="payroll"))
    world.write("rates.csv", "2")
    rest(world)
    rewind(world, "payroll", there)
    world.call(calls.Resume(name="payroll"))
    rest(world)
    assert state(world, "payroll").tally.runs == 1
    world.call(calls.Sleep(name="payroll"))
    world.call(calls.Send(name="payroll", text="hello"))
    rewind(world, "payroll", there)
    assert state(world, "payroll").tally.runs == 1
    world.call(calls.Resume(name="payroll"))
    rest(world)
    assert state(world, "payroll").tally.runs == 2


def test_good_goes_back_and_ordered_positions_stay() -> None:
    """Rule 44: the next run is told everything since good at the target seq. Slots are not run again."""
    world = rest(World(session("payroll", read("rates.csv"), every(3600.0)), files={"rates.csv": "1"}))
    there = state(world, "payroll")
    world.write("rates.csv", "2")
    rest(world)
    world.advance(3600.0)
    rest(world)
    before = state(world, "payroll")
    rewind(world, "payroll", there.seq)
    now = state(world, "payroll")
    assert now.marks.good["file rates.csv content"] == there.marks.good["file rates.csv content"]
    assert now.marks.good["every 3600s"] == before.marks.good["every 3600s"] != there.marks.good["every 3600s"]
    assert now.marks.seen["every 3600s"] == before.marks.seen["every 3600s"]


def test_a_rewind_can_be_undone_by_a_rewind_also_onto_the_abandoned_branch() -> None:
    world = payroll()
    there = state(world, "payroll").seq
    remember(world, "payroll", "month", "April")
    later = state(world, "payroll")
    rewind(world, "payroll", there)
    assert state(world, "payroll").knowledge.facts == {}
    rewind(world, "payroll", later.seq)
    now = state(world, "payroll")
    assert now.knowledge.facts == later.knowledge.facts
    assert now.lineage.line == (RecordRange(now.id, 1, later.seq), RecordRange(now.id, now.seq))


def test_a_running_session_is_not_rewound() -> None:
    world = payroll()
    world.call(calls.Activate(name="payroll"))
    with pytest.raises(CallerError, match="is running; rewind it when it rests"):
        rewind(world, "payroll", 2)


# -- fork ------------------------------------------------------------------------------------------


def test_rule_43_a_fork_has_an_identity_of_its_own_and_sleeps_until_activated() -> None:
    """Rule 43: a fork takes seen and good of its seq. It has an empty mailbox, clocks from now, and no open wake."""
    world = rest(World(session("payroll", read("rates.csv"), cron("0 * * * *")), files={"rates.csv": "1"}))
    remember(world, "payroll", "month", "March")
    world.call(calls.Send(name="payroll", text="hello", wake=False))
    parent = state(world, "payroll")
    fork(world, "payroll", parent.seq, "april")
    child = state(world, "april")
    assert child.id != parent.id and child.lineage.origin is not None
    assert (child.lineage.origin.session, child.lineage.origin.seq) == (parent.id, parent.seq)
    assert child.knowledge.facts == parent.knowledge.facts and child.mailbox.position == 0 and child.wake is None
    assert child.marks.seen["file rates.csv content"] == parent.marks.seen["file rates.csv content"]
    assert child.hold is not None and "forked from payroll" in child.hold.words
    rest(world)
    assert state(world, "april").tally.runs == 0
    world.call(calls.Activate(name="april"))
    rest(world)
    assert state(world, "april").tally.runs == 1 and state(world, "payroll").tally.runs == 1


def test_rule_43_what_was_asked_of_the_parent_is_not_asked_of_the_fork() -> None:
    """A fork counts activations and messages from zero. The first of each wakes it."""
    world = rest(World(session("payroll", read("rates.csv")), files={"rates.csv": "1"}))
    for _ in range(3):
        world.call(calls.Activate(name="payroll"))
        world.call(calls.Send(name="payroll", text="hello"))
        rest(world)
    fork(world, "payroll", state(world, "payroll").seq, "april")
    world.call(calls.Activate(name="april"))
    rest(world)
    assert state(world, "april").tally.runs == 1
    world.call(calls.Send(name="april", text="hello"))
    rest(world)
    assert state(world, "april").tally.runs == 2


def test_a_fork_wakes_by_itself_once_it_was_let_go() -> None:
    world = rest(World(session("payroll", read("rates.csv")), files={"rates.csv": "1"}))
    fork(world, "payroll", state(world, "payroll").seq, "april")
    world.write("rates.csv", "2")
    rest(world)
    assert (state(world, "payroll").tally.runs, state(world, "april").tally.runs) == (2, 0)
    world.call(calls.Resume(name="april"))
    rest(world)
    assert state(world, "april").tally.runs == 1


def test_a_fork_without_a_place_of_its_own_never_writes_over_its_parent() -> None:
    """The write bindings of the fork are detached, so it does not run.

    With a workspace or a spec of its own it does.
    """
    world = payroll()
    told = fork(world, "payroll", state(world, "payroll").seq, "april")
    assert told is not None and told.endswith(
        "it sleeps until it has its own files for out_csv: fork with --workspace, or write sessions.d/april.yaml"
    )
    assert state(world, "april").lineage.detached == ("out_csv",)
    assert all(binding.name != "out_csv" for binding in state(world, "april").spec.bindings)
    with pytest.raises(CallerError, match="--workspace"):
        world.call(calls.Activate(name="april"))
    world.call(calls.Resume(name="april"))
    world.write("rates.csv", "2")
    rest(world)
    assert state(world, "april").tally.runs == 0
    world.declare(session("april", read("rates.csv"), write("april.csv")))
    rest(world)
    assert state(world, "april").tally.runs == 1 and state(world, "april").lineage.detached == ()


def test_a_fork_with_a_workspace_reads_and_writes_there() -> None:
    world = payroll()
    fork(world, "payroll", state(world, "payroll").seq, "april", root="/april")
    child = state(world, "april")
    assert child.lineage.detached == () and child.spec is not None and child.spec.root == "/april"
    assert [binding.name for binding in child.spec.files] == ["rates_csv", "out_csv"]


def test_forks_and_their_specs_outlive_the_daemon() -> None:
    """No file declares a fork. Its spec is in the log, and is there after a crash."""
    world = rest(World(session("payroll", read("rates.csv")), files={"rates.csv": "1"}))
    fork(world, "payroll", state(world, "payroll").seq, "april")
    world.call(calls.Resume(name="april"))
    world.crash()
    rest(world)
    assert state(world, "april").declaration.is_declared
    world.write("rates.csv", "2")
    rest(world)
    assert state(world, "april").tally.runs == 1


def test_a_fork_from_an_earlier_seq_knows_what_was_known_there() -> None:
    world = payroll()
    remember(world, "payroll", "month", "March")
    there = state(world, "payroll").seq
    remember(world, "payroll", "month", "April")
    fork(world, "payroll", there, "march")
    assert state(world, "march").knowledge.facts["month"].value == "March"
    assert state(world, "march").lineage.line == (
        RecordRange(state(world, "payroll").id, 1, there),
        RecordRange(state(world, "march").id, 1),
    )


def test_a_fresh_fork_takes_facts_and_hand_off_only() -> None:
    world = payroll()
    remember(world, "payroll", "month", "March")
    world.call(calls.Note(name="payroll", text="go on with row 17"))
    world.call(calls.Remember(name="payroll", key="row", value="17", for_now=True))
    fork(world, "payroll", state(world, "payroll").seq, "april", fresh=True)
    child = state(world, "april")
    assert child.knowledge.facts and child.knowledge.handoff == "go on with row 17"
    assert child.knowledge.memory == {} and child.knowledge.conversation.messages == 0


def test_a_fork_is_safe_to_repeat_and_its_name_must_be_free() -> None:
    world = payroll()
    at = state(world, "payroll").seq
    fork(world, "payroll", at, "april")
    length = len(world.log)
    assert fork(world, "payroll", at, "april") == "is that fork of payroll already"
    assert len(world.log) == length
    with pytest.raises(CallerError, match="name of another session"):
        fork(world, "payroll", at - 1, "april")


def test_a_reader_of_the_parent_is_not_held_by_a_fork() -> None:
    """The fork writes nothing, so no reader depends on it."""
    world = rest(
        World(
            session("payroll", read("rates.csv"), write("out.csv")),
            session("filing", read("out.csv")),
            files={"rates.csv": "1"},
        )
    )
    fork(world, "payroll", state(world, "payroll").seq, "april")
    world.write("rates.csv", "2")
    rest(world)
    assert state(world, "filing").tally.runs == 2


def test_a_terminated_session_can_be_forked_and_its_log_takes_nothing() -> None:
    world = payroll()
    world.call(calls.Terminate(name="payroll"))
    seq = state(world, "payroll").seq
    fork(world, "payroll", seq, "april")
    assert state(world, "payroll").seq == seq and state(world, "april").lineage.origin is not None


# -- merge -----------------------------------------------------------------------------------------


def fact(value: str) -> Fact:
    return Fact(key="k", value=value, author="alice", seq=1)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        (None, None, None, "nothing"),
        ("a", "a", "a", "nothing"),
        ("a", "b", "a", "nothing"),
        ("a", "b", "b", "nothing"),
        ("a", "a", "b", "taken"),
        (None, None, "b", "taken"),
        ("a", "a", None, "retracted"),
        ("a", None, None, "nothing"),
        (None, "b", "b", "nothing"),
        ("a", "b", "c", "conflict"),
        (None, "b", "c", "conflict"),
        ("a", None, "c", "conflict"),
        ("a", "b", None, "conflict"),
        ("a", None, "a", "nothing"),
    ],
)
def test_facts_merge_three_ways(base: str | None, ours: str | None, theirs: str | None, expected: str) -> None:
    """A side that did not change a fact yields. Equal changes are one change. Different changes are a conflict."""
    sides = [{"k": fact(value)} if value is not None else {} for value in (base, ours, theirs)]
    merged = merge_facts(*sides, fork="f", numbers_from=1)
    found = {"taken": bool(merged.taken), "retracted": bool(merged.retracted), "conflict": bool(merged.conflicts)}
    assert [word for word, is_so in found.items() if is_so] == ([] if expected == "nothing" else [expected])


def test_a_merge_takes_what_the_fork_learnt_and_opens_what_both_changed() -> None:
    world = payroll()
    remember(world, "payroll", "month", "March")
    remember(world, "payroll", "rate", "8")
    fork(world, "payroll", state(world, "payroll").seq, "april")
    remember(world, "april", "rate", "9")
    remember(world, "april", "holiday", "yes")
    remember(world, "payroll", "rate", "10")
    assert "1 fact taken; 1 to resolve" in (merge(world, "payroll", "april") or "")
    now = state(world, "payroll")
    assert now.knowledge.facts["holiday"].value == "yes" and now.knowledge.facts["rate"].value == "10"
    (conflict,) = now.lineage.conflicts
    assert (conflict.key, conflict.base, conflict.ours, conflict.theirs) == ("rate", "8", "10", "9")
    with pytest.raises(CallerError, match="with a reason"):
        world.call(calls.Resolve(name="payroll", number=conflict.number, choice="theirs"))
    world.call(
        calls.Resolve(name="payroll", number=conflict.number, choice="theirs", rationale="the fork read the law")
    )
    now = state(world, "payroll")
    assert (
        now.lineage.conflicts == ()
        and now.knowledge.facts["rate"].value == "9"
        and now.knowledge.facts["rate"].rationale == "the fork read the law"
    )
    with pytest.raises(CallerError, match="no open conflict 1; open are: none"):
        world.call(calls.Resolve(name="payroll", number=1, choice="ours", rationale="x"))


def test_a_second_merge_starts_where_the_first_ended() -> None:
    """A resolved conflict is not opened again. Facts set since the first merge are taken."""
    world = payroll()
    fork(world, "payroll", state(world, "payroll").seq, "april")
    remember(world, "april", "rate", "9")
    remember(world, "payroll", "rate", "10")
    merge(world, "payroll", "april")
    world.call(calls.Resolve(name="payroll", number=1, choice="ours", rationale="ours is newer"))
    remember(world, "april", "holiday", "yes")
    merge(world, "payroll", "april")
    now = state(world, "payroll")
    assert (
        now.lineage.conflicts == ()
        and now.knowledge.facts["rate"].value == "10"
        and now.knowledge.facts["holiday"].value == "yes"
    )
    assert "nothing new" in (merge(world, "payroll", "april") or "")


def test_a_merge_is_undone_by_a_rewind() -> None:
    """The rewind takes back the facts, the conflicts and the base of the next merge."""
    world = payroll()
    fork(world, "payroll", state(world, "payroll").seq, "april")
    remember(world, "april", "rate", "9")
    before = state(world, "payroll")
    merge(world, "payroll", "april")
    rewind(world, "payroll", before.seq)
    now = state(world, "payroll")
    assert (now.knowledge.facts, now.lineage.conflicts, now.lineage.merges) == ({}, (), {})
    merge(world, "payroll", "april")
    assert state(world, "payroll").knowledge.facts["rate"].value == "9"


def test_only_a_fork_is_merged_and_only_into_its_parent() -> None:
    world = rest(World(session("a"), session("b")))
    with pytest.raises(CallerError, match="b is no fork"):
        merge(world, "a", "b")
    fork(world, "a", state(world, "a").seq, "c")
    with pytest.raises(CallerError, match="c is a fork of a, so it cannot be merged into b"):
        merge(world, "b", "c")


def test_a_merge_prepared_on_old_news_is_refused() -> None:
    world = payroll()
    fork(world, "payroll", state(world, "payroll").seq, "april")
    remember(world, "april", "rate", "9")
    late = calls.Merge(name="payroll", fork="april", base={}, base_seq=1, fork_seq=state(world, "april").seq)
    remember(world, "april", "rate", "11")
    with pytest.raises(CallerError, match="went on while"):
        world.call(late)


# -- compress ----------------------------------------------------------------------------------------


def compress(world: World, name: str, summary: str, messages: int, kept_messages: int, kept_bytes: int) -> str | None:
    now = state(world, name)
    cut = now.seq - 1
    return world.call(
        calls.Compress(
            name=name,
            at=now.seq,
            replaced=(RecordRange(now.id, 1, cut),),
            kept=(RecordRange(now.id, cut + 1),),
            summary=summary,
            messages=messages,
            kept_messages=kept_messages,
            kept_bytes=kept_bytes,
            by="digest",
        )
    )


def test_compress_replaces_messages_and_touches_no_fact() -> None:
    world = payroll()
    remember(world, "payroll", "month", "March")
    for number in range(3):
        world.call(calls.Send(name="payroll", text=f"message {number} " * 10, wake=False))
    before = state(world, "payroll")
    compress(world, "payroll", "three messages", 2, 1, 110)
    now = state(world, "payroll")
    assert now.knowledge.facts == before.knowledge.facts
    assert (
        now.knowledge.conversation.summary,
        now.knowledge.conversation.messages,
        now.knowledge.conversation.size_bytes,
    ) == (
        "three messages",
        1,
        110,
    )
    rewind(world, "payroll", before.seq)
    assert state(world, "payroll").knowledge.conversation.summary is None
    assert state(world, "payroll").knowledge.conversation.messages == 3


def test_compress_never_loops_and_never_summarises_old_news() -> None:
    world = payroll()
    world.call(calls.Send(name="payroll", text="short", wake=False))
    with pytest.raises(CallerError, match="as short as it gets"):
        compress(world, "payroll", "a summary that is longer than what it replaces", 1, 0, 0)
    late = calls.Compress(
        name="payroll",
        at=state(world, "payroll").seq,
        replaced=(),
        kept=(),
        summary="",
        messages=1,
        kept_messages=0,
        kept_bytes=0,
        by="digest",
    )
    world.call(calls.Send(name="payroll", text="one more", wake=False))
    with pytest.raises(CallerError, match="went on while"):
        world.call(late)


# -- moves, archive, erase -----------------------------------------------------------------------------


def test_another_agent_works_from_the_next_run_on_and_back() -> None:
    world = payroll()
    world.call(calls.Migrate(name="payroll", agent="auditor", model="local:small"))
    assert (state(world, "payroll").declaration.agent, state(world, "payroll").declaration.model) == (
        "auditor",
        "local:small",
    )
    world.call(calls.Migrate(name="payroll"))
    assert (state(world, "payroll").declaration.agent, state(world, "payroll").declaration.model) == (None, None)
    assert "already" in (world.call(calls.Migrate(name="payroll")) or "")


def test_a_frozen_session_writes_nothing_until_its_receipt_or_its_release() -> None:
    """Rule 45: no call, no change and no spec adds a record to a frozen session."""
    world = payroll()
    world.call(calls.Freeze(name="payroll", move="m1", to="laptop"))
    seq = state(world, "payroll").seq
    for call in (
        calls.Activate(name="payroll"),
        calls.Resume(name="payroll"),
        calls.Send(name="payroll", text="x"),
        calls.Remember(name="payroll", key="k", value="v"),
        calls.Terminate(name="payroll"),
        calls.Save(name="payroll", mark="m"),
    ):
        with pytest.raises(CallerError, match="is frozen"):
            world.call(call)
    world.write("rates.csv", "2")
    rest(world)
    world.declare(session("payroll", read("rates.csv"), read("more.csv")))
    world.crash()
    rest(world)
    world.remove("payroll")
    assert state(world, "payroll").seq == seq
    with pytest.raises(CallerError, match="another move"):
        world.call(calls.Depart(name="payroll", move="m2", receipt="r"))
    world.call(calls.Depart(name="payroll", move="m1", receipt="r"))
    with pytest.raises(CallerError, match="moved to another host"):
        world.call(calls.Activate(name="payroll"))
    with pytest.raises(CallerError, match="its receipt came"):
        world.call(calls.Thaw(name="payroll"))


def test_a_move_that_was_given_up_leaves_the_session_as_it_was() -> None:
    world = payroll()
    world.call(calls.Freeze(name="payroll", move="m1", to="laptop"))
    world.write("rates.csv", "2")
    world.call(calls.Thaw(name="payroll"))
    # Its file is read again.
    world.declare(session("payroll", read("rates.csv"), write("out.csv")))
    rest(world)
    assert state(world, "payroll").tally.runs == 2


def test_a_move_that_was_given_up_wakes_nobody_who_slept() -> None:
    """The freeze does not replace an existing hold. A thawed session has the same hold as before."""
    world = payroll()
    fork(world, "payroll", state(world, "payroll").seq, "trial")
    world.call(calls.Sleep(name="payroll", words="on leave"))
    for name, words in (("payroll", "on leave"), ("trial", "activate it to let it go on")):
        before = state(world, name)
        world.call(calls.Freeze(name=name, move="m1", to="laptop"))
        assert world.hold(name) == "moving to laptop: frozen until its receipt comes"
        world.call(calls.Thaw(name=name))
        assert state(world, name).hold == before.hold and before.hold is not None and words in before.hold.words
    world.declare(session("payroll", read("rates.csv"), write("out.csv")))
    world.write("rates.csv", "2")
    rest(world)
    assert (state(world, "payroll").tally.runs, state(world, "trial").tally.runs) == (1, 0)
    world.call(calls.Resume(name="payroll"))
    rest(world)
    assert state(world, "payroll").tally.runs == 2


def test_a_session_that_departed_says_so_whatever_it_slept_for() -> None:
    world = payroll()
    world.call(calls.Sleep(name="payroll", words="on leave"))
    world.call(calls.Freeze(name="payroll", move="m1", to="laptop"))
    world.call(calls.Depart(name="payroll", move="m1", receipt="r"))
    assert world.hold("payroll") == "moved to another host; its log stays here"


def test_rule_45_a_session_that_arrived_goes_on_with_its_seen() -> None:
    """Rule 45: a file that is equal at the target causes no run. The session sleeps until activated (rule 43)."""
    world = payroll()
    world.call(calls.Freeze(name="payroll", move="m1", to="laptop"))
    frozen = state(world, "payroll")
    there = World(files={"rates.csv": "1", "out.csv": world.files["/project/out.csv"]})
    # Its records arrived first, unchanged.
    for entry in world.log:
        there.log.append(entry)
        there.oracle.take(entry)
    there.call(calls.Arrive(name="payroll", past=frozen, move="m1", origin="desk"))
    there.declare(session("payroll", read("rates.csv"), write("out.csv")))
    rest(there)
    assert state(there, "payroll").tally.runs == 1 and state(there, "payroll").closed is None
    there.call(calls.Resume(name="payroll"))
    rest(there)
    assert state(there, "payroll").tally.runs == 1
    there.write("rates.csv", "2")
    rest(there)
    assert state(there, "payroll").tally.runs == 2
    assert there.call(calls.Arrive(name="payroll", past=frozen, move="m1", origin="desk")) == "it arrived already"


def carry_over(source: World, target: World) -> None:
    """Copy the records that the target does not have yet, unchanged."""
    for entry in source.log[len(target.log) :]:
        target.log.append(entry)
        target.oracle.take(entry)


def test_a_session_that_was_away_comes_home_and_goes_on() -> None:
    """Rule 45: a session moves away and back, each time with a receipt.

    At home it runs and can move again. An old receipt changes nothing.
    """
    home = payroll()
    home.call(calls.Freeze(name="payroll", move="m1", to="laptop"))
    away = World(files={"rates.csv": "1", "out.csv": home.files["/project/out.csv"]})
    carry_over(home, away)
    away.call(calls.Arrive(name="payroll", past=state(home, "payroll"), move="m1", origin="desk"))
    # The receipt brings the record of the arrival, so both sides have one history.
    carry_over(away, home)
    home.call(calls.Depart(name="payroll", move="m1", receipt="r1", past=departed(state(away, "payroll"))))
    with pytest.raises(CallerError, match="moved to another host"):
        home.call(calls.Activate(name="payroll"))
    remember(away, "payroll", "learnt", "away")
    away.call(calls.Freeze(name="payroll", move="m2", to="desk"))
    carry_over(away, home)
    # The past as folded from a snapshot that was taken at home while the session was away: departed.
    frozen = departed(state(away, "payroll"))
    assert home.call(calls.Arrive(name="payroll", past=frozen, move="m2", origin="laptop")) != "it arrived already"
    home.declare(session("payroll", read("rates.csv"), write("out.csv")))
    back = state(home, "payroll")
    assert (back.closed, back.knowledge.facts["learnt"].value) == (None, "away")
    home.call(calls.Resume(name="payroll"))
    home.write("rates.csv", "2")
    rest(home)
    assert state(home, "payroll").tally.runs == 2
    with pytest.raises(CallerError, match="is not moving"):
        home.call(calls.Depart(name="payroll", move="m1", receipt="r1"))
    assert home.call(calls.Arrive(name="payroll", past=frozen, move="m2", origin="laptop")) == "it arrived already"


def test_a_session_that_was_terminated_elsewhere_is_not_opened_here() -> None:
    """Rule 45: only its record is here. The session is on the other host."""
    home = payroll()
    gone = replace(state(home, "payroll"), closed=Departed(before=Terminated()))
    home.core.state.put(gone)
    with pytest.raises(CallerError, match="on another host"):
        home.call(calls.Open(name="payroll", again=True))
    assert state(home, "payroll") == gone


def test_a_session_that_arrives_takes_its_name_from_the_one_that_was_made_of_its_file() -> None:
    """Rule 45: the target already has a session made from the same spec.

    That session gets another name and is closed. The session that arrives has the name and its own past.
    """
    home = payroll()
    remember(home, "payroll", "whose", "the one that moves")
    home.call(calls.Freeze(name="payroll", move="m1", to="laptop"))
    there = World(files={"rates.csv": "1"})
    there.advance(60.0)
    there.declare(session("payroll", read("rates.csv"), write("out.csv")))
    rest(there)
    remember(there, "payroll", "whose", "the one that was there")
    assert state(there, "payroll").id != state(home, "payroll").id
    for entry in home.log:
        there.log.append(entry)
        there.oracle.take(entry)
    said = there.call(calls.Arrive(name="payroll", past=state(home, "payroll"), move="m1", origin="desk"))
    assert "payroll-before" in (said or "")
    assert state(there, "payroll").id == state(home, "payroll").id
    assert state(there, "payroll").knowledge.facts["whose"].value == "the one that moves"
    assert (
        state(there, "payroll-before").is_terminated
        and state(there, "payroll-before").knowledge.facts["whose"].value == "the one that was there"
    )


def test_an_archived_session_is_inert_and_comes_back_as_it_was() -> None:
    world = payroll()
    remember(world, "payroll", "month", "March")
    before = state(world, "payroll")
    world.call(calls.Archive(name="payroll", at=before.seq, bundle="payroll.bundle", digest="d"))
    with pytest.raises(CallerError, match="is archived; `wakeful load payroll`"):
        world.call(calls.Activate(name="payroll"))
    world.write("rates.csv", "2")
    rest(world)
    assert state(world, "payroll").tally.runs == 1
    world.call(calls.Restore(name="payroll"))
    world.declare(session("payroll", read("rates.csv"), write("out.csv")))
    rest(world)
    assert state(world, "payroll").knowledge.facts == before.knowledge.facts and state(world, "payroll").tally.runs == 2


def test_the_record_of_an_archive_folds_without_those_before_it() -> None:
    """The payloads of the earlier records are in the bundle."""
    world = payroll()
    remember(world, "payroll", "month", "March")
    now = state(world, "payroll")
    world.call(calls.Archive(name="payroll", at=now.seq, bundle="b", digest="d"))
    entry = world.log[-1]
    empty = Session(id=now.id, name="?", opened_at=0)
    assert fold(empty, entry.event, seq=entry.seq, at=entry.at, author=entry.author) == state(world, "payroll")


def test_what_is_not_at_rest_is_not_archived() -> None:
    world = payroll()
    with pytest.raises(CallerError, match="went on"):
        world.call(calls.Archive(name="payroll", at=1, bundle="b", digest="d"))
    world.call(calls.Activate(name="payroll"))
    with pytest.raises(CallerError, match="not at rest"):
        world.call(calls.Archive(name="payroll", at=state(world, "payroll").seq, bundle="b", digest="d"))


def test_an_erasure_is_recorded_with_what_stands_in() -> None:
    world = payroll()
    world.call(calls.Note(name="payroll", text="the password is swordfish"))
    seq = state(world, "payroll").seq
    world.call(calls.Erase(name="payroll", seq=seq, kind="note_added", stand_in={"text": "[erased]"}))
    assert world.log[-1].kind == "payload_erased" and b"swordfish" not in world.log[-1].payload
    with pytest.raises(CallerError, match="none numbered 9999"):
        world.call(calls.Erase(name="payroll", seq=9999, kind="note_added", stand_in={}))
    length = len(world.log)
    world.call(calls.Erase(name="payroll", seq=seq, kind="note_added", stand_in={"text": "[erased]"}, is_recorded=True))
    assert len(world.log) == length, "what the log says already is not said again"


def test_a_snapshot_anywhere_is_harmless_to_all_of_this() -> None:
    """After any call on history, folding through a snapshot gives the same state."""
    world = payroll()
    remember(world, "payroll", "rate", "8")
    there = state(world, "payroll").seq
    fork(world, "payroll", there, "april", root="/april")
    remember(world, "april", "rate", "9")
    remember(world, "payroll", "rate", "10")
    merge(world, "payroll", "april")
    rewind(world, "payroll", there)
    world.call(calls.Save(name="payroll", mark="here"))
    fork(world, "payroll", there + 2, "again")
    world.call(calls.Archive(name="again", at=state(world, "again").seq, bundle="b", digest="d"))
    for cut in range(len(world.log)):
        assert world.fold_log(snapshot_at=cut) == {one.id: one for one in world.core.state}


def test_a_session_binding_of_a_fork_keeps_its_position() -> None:
    """A success of the upstream that the parent dealt with does not wake the fork."""
    world = rest(World(session("up", read("in.csv")), session("down", after("up")), files={"in.csv": "1"}))
    fork(world, "down", state(world, "down").seq, "other")
    world.call(calls.Resume(name="other"))
    rest(world)
    assert state(world, "other").tally.runs == 0
    world.write("in.csv", "2")
    rest(world)
    assert state(world, "other").tally.runs == 1


# -- people and limits -----------------------------------------------------------------------------------


def test_an_observer_looks_and_a_contributor_does_not_close() -> None:
    """Roles come from the spec. A person who is not named is a maintainer, and a run is not a person."""
    people = {"olga": "observer", "carl": "contributor", "mara": "maintainer"}
    world = rest(World(session("payroll", read("rates.csv"), people=people), files={"rates.csv": "1"}))
    length = len(world.log)
    for call in (calls.Activate(name="payroll"), calls.Send(name="payroll", text="x"), calls.Terminate(name="payroll")):
        with pytest.raises(CallerError, match="olga is an observer of payroll"):
            world.call(call, author="person:olga")
    for call in (
        calls.Terminate(name="payroll"),
        calls.Erase(name="payroll", seq=1, kind="note_added", stand_in={}),
        calls.Freeze(name="payroll", move="m", to="x"),
    ):
        with pytest.raises(CallerError, match="carl is a contributor to payroll"):
            world.call(call, author="person:carl")
    assert len(world.log) == length
    world.call(calls.Send(name="payroll", text="x", wake=False), author="person:carl")
    world.call(calls.Remember(name="payroll", key="k", value="v"), author="run:payroll#1")
    world.call(calls.Terminate(name="payroll"), author="person:mara")
    assert state(world, "payroll").is_terminated


def test_beyond_a_hard_level_a_call_is_refused_with_the_way_out() -> None:
    """Each fact, all facts, the conversation and the unseen messages have a bound. Nothing beyond it is recorded."""
    limits = Limits(
        fact=Levels(1, 10), facts=Levels(1, 2), conversation=Levels(10, 50), mailbox=Levels(1, 3), note=Levels(1, 20)
    )
    world = World(session("talk", run=None), settings=Settings(limits=limits))
    for key in "ab":
        remember(world, "talk", key, "x" * 10)
    for call, words in (
        (calls.Remember(name="talk", key="a", value="x" * 11), "one fact's value: at most 10 bytes"),
        (calls.Remember(name="talk", key="c", value="x"), "wakeful forget talk KEY"),
        (calls.Note(name="talk", text="x" * 21), "one hand-off"),
    ):
        with pytest.raises(CallerError, match=words):
            world.call(call)
    remember(world, "talk", "a", "again")
    for _ in range(3):
        world.call(calls.Send(name="talk", text="x" * 10))
    with pytest.raises(CallerError, match="wakeful why talk"):
        world.call(calls.Send(name="talk", text="x"))
    world.call(calls.Note(name="talk", text="x" * 20))
    with pytest.raises(CallerError, match="wakeful compress talk"):
        world.call(calls.Note(name="talk", text="x"))
