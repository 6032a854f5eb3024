"""The conversation with a model is read back from the log unchanged, wherever a run was cut.

This also holds after rewinds, forks, compressions and erasures.
"""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest
from msgspec.structs import replace

from model_context.recorded_session import ADA, AGENT, Talk, World, make_call, make_cause
from wakeful.core.agents.turns import INTERRUPTED, Answered, Asked, Entry, Returned, TokenUsage
from wakeful.core.record import events as ev
from wakeful.core.record.erased_payloads import redact
from wakeful.core.record.knowledge import RecordRange, split_stretches
from wakeful.errors import CallerError
from wakeful.model_context.assemble import assemble_sub
from wakeful.model_context.recorded_turns import GONE, NOT_BEGUN, REFUSED, read_messages

REVIEWER = replace(AGENT, name="reviewer", prompt="You find mistakes.")


def say(entries: tuple[Entry, ...]) -> list[str]:
    """Describe each entry in a few words. An opening is described by its last line."""
    words = []
    for entry in entries:
        match entry:
            case Asked(text=text):
                words.append(f"asked {text.splitlines()[-1]}")
            case Answered(text=text, calls=calls):
                words.append(" ".join((f"answered {text}", *(call.id for call in calls))))
            case Returned(call=call, text=text, is_error=is_error):
                words.append(f"{'failed' if is_error else 'returned'} {call} {text}")
    return words


def check_whole(entries: tuple[Entry, ...]) -> None:
    """Check what every provider requires: the conversation begins with a prompt, and each call has one return."""
    open_calls: list[str] = []
    assert not entries or isinstance(entries[0], Asked)
    for entry in entries:
        match entry:
            case Answered(calls=calls):
                assert not open_calls
                open_calls = [call.id for call in calls]
            case Returned(call=call):
                open_calls.remove(call)
            case Asked():
                assert not open_calls
    assert not open_calls


def work(talk: Talk) -> None:
    """Record one whole run: two calls, then an answer."""
    one, two = make_call(1), make_call(2, "edit")
    talk.begin()
    talk.answer("let me see", one, two)
    talk.call(one)
    talk.bring(one, "text")
    talk.call(two)
    talk.bring(two, "done")
    talk.answer("the page is true again")


def test_a_run_comes_back_step_by_step(world: World) -> None:
    """The turns are the opening and each answer with the returns of its calls. Nothing is pending."""
    talk = world.open()
    talk.start()
    work(talk)
    turns = talk.turns()
    assert say(turns.entries) == [
        "asked Bring the page in line.", "answered let me see c1 c2", "returned c1 text", "returned c2 done", "answered the page is true again",
    ]  # fmt: skip
    assert (turns.pending, turns.later, turns.notes) == ((), (), ())
    check_whole(turns.entries)


def test_returns_stand_in_the_order_of_their_calls(world: World) -> None:
    """The order of arrival does not matter, so the same conversation is always sent in the same form."""
    talk = world.open()
    talk.start()
    talk.begin()
    one, two = make_call(1), make_call(2)
    talk.answer("both", one, two)
    for call in (two, one):
        talk.call(call)
    for call in (two, one):
        talk.bring(call, "x")
    assert say(talk.turns().entries)[2:] == ["returned c1 x", "returned c2 x"]


def test_what_had_begun_is_of_unknown_effect_and_the_rest_is_left_to_do(world: World) -> None:
    """At the crash one of three calls has returned, one has begun and one has not."""
    talk = world.open()
    talk.start()
    talk.begin()
    calls = [make_call(number) for number in (1, 2, 3)]
    talk.answer("three things", *calls)
    talk.call(calls[0])
    talk.bring(calls[0], "one")
    talk.call(calls[1])
    talk.end("lost", is_final=False)
    talk.go_on()
    found = talk.assemble()
    assert say(found.entries)[1:] == ["answered three things c1 c2 c3", "returned c1 one", f"failed c2 {INTERRUPTED}"]
    assert [call.id for call in found.pending] == ["c3"] and found.opening == ()


def test_a_run_cut_short_anywhere_never_spoils_those_after_it(world: World) -> None:
    """Wherever a run is cancelled, the conversation of the next run is whole."""
    steps = 8
    for cut in range(1, steps + 1):
        talk = world.open(f"cut{cut}", conversation="continue")
        talk.start(is_fresh=False)
        one, two = make_call(1), make_call(2)
        doing = [
            talk.begin, lambda: talk.answer("two things", one, two), lambda: talk.call(one), lambda: talk.bring(one, "1"), lambda: talk.call(two),
            lambda: talk.bring(two, "2"), lambda: talk.answer("done"), lambda: talk.add(ev.NoteAdded(text="next: nothing"), f"run:cut{cut}#1"),
        ]  # fmt: skip
        for do in doing[:cut]:
            do()
        talk.end("cancelled")
        talk.start(is_fresh=False)
        found = talk.begin()
        assert found.pending == () and found.opening
        check_whole((*found.entries, Asked(text="opening")))
        talk.answer("new")
        check_whole(talk.turns().entries)


def test_a_person_who_stopped_a_run_is_not_overruled_by_the_next(world: World) -> None:
    """A call that had not begun at the interrupt is not carried out after an activation.

    The model may ask for it again.
    """
    talk = world.open()
    talk.start()
    talk.begin()
    talk.answer("now I delete it", make_call(1, "shell"))
    talk.end("interrupted")
    talk.go_on(make_cause("activation", "activation", "1"))
    found = talk.assemble()
    assert found.pending == () and say(found.entries)[-1] == f"failed c1 {NOT_BEGUN}"
    assert "a person asked for this run" in (found.opening_text or "")


def test_an_answer_of_a_person_is_what_the_call_brought(world: World) -> None:
    """The return names the person. No call is pending, and there is no new opening."""
    talk = world.open()
    talk.start()
    talk.begin()
    call = make_call(1, "ask_person")
    talk.answer("I wonder", call)
    talk.ask(call, "which year?")
    assert [one.id for one in talk.turns().pending] == ["c1"], "as long as nobody answered it is to be asked again"
    talk.reply(call, "2026, please")
    talk.go_on()
    found = talk.assemble()
    assert say(found.entries)[-1] == f"returned c1 {ADA} answered: 2026, please"
    assert (found.pending, found.opening) == ((), ())


def test_a_yes_or_no_to_a_call_is_kept_for_who_carries_it_out(world: World) -> None:
    """A permission is not the return of the call. If the call is given up later, a no is shown as refused."""
    for text, is_allowed in (("yes", True), ("no", False)):
        talk = world.open(f"asks-{text}")
        talk.start()
        talk.begin()
        call, other = make_call(1, "shell"), make_call(2)
        talk.answer("may I?", call, other)
        talk.ask(call, "may it run make?", is_permission=True)
        talk.reply(call, text)
        talk.go_on()
        found = talk.assemble()
        assert [one.id for one in found.pending] == ["c1", "c2"] and found.permissions == {"c1": is_allowed}
        closed = talk.turns().close()
        assert say(closed.entries)[-2:] == [
            f"failed c1 {NOT_BEGUN if is_allowed else REFUSED}",
            f"failed c2 {NOT_BEGUN}",
        ]


def test_what_comes_while_calls_are_pending_is_told_after_them(world: World) -> None:
    """The resumed run carries out an approved call. A message that came meanwhile stands behind its return."""
    talk = world.open()
    talk.start()
    talk.begin()
    call = make_call(1, "shell")
    talk.answer("may I?", call)
    talk.ask(call, "may it?", is_permission=True)
    talk.reply(call, "yes")
    talk.say("and hurry")
    talk.go_on()
    found = talk.begin()
    assert found.pending == (call,) and "and hurry" in (found.opening_text or "")
    # The run was killed before the call: the opening waits behind it, and is not made twice.
    again = talk.assemble()
    assert again.pending == (call,) and len(again.later) == 1 and again.opening == ()
    talk.call(call)
    talk.bring(call, "made")
    talk.answer("done")
    entries = talk.turns().entries
    assert [type(entry).__name__ for entry in entries] == ["Asked", "Answered", "Returned", "Asked", "Answered"]
    check_whole(entries)


def test_ids_that_a_provider_uses_again_are_told_apart(world: World) -> None:
    """Each answer has its own calls."""
    talk = world.open()
    talk.start()
    talk.begin()
    for text in ("first", "second"):
        talk.answer(text, make_call(0))
        talk.call(make_call(0))
        talk.bring(make_call(0), f"of {text}")
    assert say(talk.turns().entries)[1:] == [
        "answered first c0",
        "returned c0 of first",
        "answered second c0",
        "returned c0 of second",
    ]


def test_a_fresh_start_puts_the_conversation_aside(world: World) -> None:
    """The records of the earlier run are in the same stretch, but are not part of the conversation."""
    talk = world.open()
    talk.start()
    work(talk)
    talk.end()
    talk.start()
    assert talk.turns().entries == ()
    talk.begin()
    assert say(talk.turns().entries) == ["asked Bring the page in line."]


def test_a_conversation_that_continues_holds_all_runs(world: World) -> None:
    """Each run has one opening."""
    talk = world.open(conversation="continue")
    for _ in range(3):
        talk.start(is_fresh=False)
        work(talk)
        talk.end()
    entries = talk.turns().entries
    assert sum(isinstance(entry, Asked) for entry in entries) == 3
    check_whole(entries)


def test_a_rewound_conversation_ends_where_it_went_back_to(world: World) -> None:
    """The rewind goes to the middle of a run.

    A call that had begun has an unknown effect, and later records do not count.
    """
    talk = world.open(conversation="continue")
    talk.start(is_fresh=False)
    talk.begin()
    one, two = make_call(1), make_call(2)
    talk.answer("first", one)
    talk.call(one)
    talk.bring(one, "1")
    talk.answer("second", two)
    talk.call(two)
    here = talk.session.seq
    talk.bring(two, "2")
    talk.answer("third")
    talk.end()
    talk.rewind(here)
    assert say(talk.turns().entries)[1:] == [
        "answered first c1",
        "returned c1 1",
        "answered second c2",
        f"failed c2 {INTERRUPTED}",
    ]
    talk.start(is_fresh=False)
    talk.begin()
    talk.answer("another third")
    told = say(talk.turns().entries)
    assert told[-1] == "answered another third" and "answered third" not in told
    check_whole(talk.turns().entries)


def test_a_fork_takes_the_conversation_along_and_goes_its_own_way(world: World) -> None:
    """The first run of the fork has the same number as its parent's first run, and its own opening."""
    talk = world.open(conversation="continue")
    talk.start(is_fresh=False)
    work(talk)
    talk.end()
    fork = world.fork(talk)
    talk.start(is_fresh=False)
    talk.begin()
    talk.answer("of the parent")
    assert fork.turns().entries == talk.turns().entries[:5]
    fork.start(is_fresh=False)
    assert fork.session.tally.runs == 1 and fork.begin().opening
    fork.answer("of the fork")
    assert say(fork.turns().entries)[-1] == "answered of the fork" and "answered of the parent" not in say(
        fork.turns().entries
    )
    check_whole(fork.turns().entries)


def test_a_compressed_conversation_begins_with_its_summary(world: World) -> None:
    """For every cut, the records before it are left out, and the conversation is whole without them."""
    for cut in itertools.count(3):
        talk = world.open(f"long{cut}", conversation="continue")
        talk.start(is_fresh=False)
        work(talk)
        talk.end()
        if cut > talk.session.seq:
            break
        replaced, kept = split_stretches((RecordRange(talk.id, 1),), talk.id, cut)
        talk.add(
            ev.ConversationCompressed(
                replaced=replaced,
                kept=kept,
                summary="we fixed it",
                messages=1,
                kept_messages=1,
                kept_bytes=1,
                by="rule",
            )
        )
        talk.start(is_fresh=False)
        found = talk.begin()
        check_whole((*found.entries, Asked(text="opening")))
        told = "\n".join(entry.text for entry in found.entries if isinstance(entry, Asked)) + (found.opening_text or "")
        assert told.count("we fixed it") == 1, cut


def test_what_is_gone_for_good_is_said_to_be(world: World) -> None:
    """The blob of an opening is removed and the payload of an answer is erased. The rest stays whole."""
    talk = world.open()
    talk.start()
    work(talk)
    opening = next(record for record in world.log.read(talk.id, kinds=("prompt_assembled",)))
    erased = next(record.seq for record in world.log.read(talk.id, kinds=("turn_answered",)))
    assert opening.payload is not None
    world.blobs.remove([address for address in opening.payload.decode().split('"') if address.startswith("blake2b-")])
    world.log.erase(talk.id, [erased])
    entries = talk.turns().entries
    assert say(entries) == [f"asked {GONE}", "answered the page is true again"]
    check_whole(entries)


def list_told(talk: Talk) -> list[str]:
    """List the messages that the open run is told in its opening."""
    run = talk.session.run
    assert run is not None
    return [word.text for word in read_messages(talk.world.log, talk.session, run, talk.turns().told_position)]


def test_a_message_is_news_until_an_opening_told_it(world: World) -> None:
    """A message before the run is in its opening, a message during the run in the next one.

    If the run is lost and its conversation begins again, the message is told again.
    """
    talk = world.open()
    talk.say("before")
    talk.start()
    talk.say("meanwhile")
    assert "before" in (talk.begin().opening_text or "") and list_told(talk) == []
    talk.end("lost", is_final=False)
    talk.start()
    assert list_told(talk) == ["before", "meanwhile"]
    told = talk.begin().opening_text or ""
    assert told.index("before") < told.index("meanwhile")
    talk.answer("done")
    talk.end()
    talk.start()
    assert list_told(talk) == [] and "before" not in (talk.begin().opening_text or "")


def test_a_message_put_to_another_agent_takes_none_away_from_the_owner(world: World) -> None:
    """Both messages came before the run of the named agent. It reads its own, and the owner is told the other."""
    talk = world.open()
    talk.say("look at the keys", agent="security")
    talk.say("for the owner")
    talk.start(make_cause("mailbox", "message", "1"), versions={"message": "1"}, is_aside=True)
    aside = talk.begin().opening_text or ""
    assert "look at the keys" in aside and "for the owner" not in aside and "addressed to you by name" in aside
    talk.answer("they are fine")
    talk.end()
    talk.start(make_cause("mailbox", "message", "2"))
    own = talk.begin().opening_text or ""
    assert "for the owner" in own and "look at the keys" not in own and "Bring the page in line." in own


def test_a_fork_is_not_told_the_messages_of_its_parent(world: World) -> None:
    """The mailbox of a fork begins empty. Positions belong to one session."""
    talk = world.open(conversation="continue")
    talk.say("one")
    talk.start(is_fresh=False)
    talk.begin()
    talk.answer("done")
    talk.end()
    talk.say("two")
    fork = world.fork(talk)
    fork.say("mine")
    fork.start(is_fresh=False)
    assert list_told(fork) == ["mine"]


@pytest.mark.parametrize("kind", ["turn_answered", "tool_called", "tool_returned", "prompt_assembled"])
def test_what_is_erased_leaves_the_conversation_whole(world: World, kind: str) -> None:
    """The text is gone, and a stand-in takes its place.

    Each call still has its return, and none has an unknown effect.
    """
    talk = world.open()
    talk.start()
    talk.begin()
    call = make_call(1, "read", '{"path": "swordfish"}')
    talk.answer("I saw swordfish", call)
    talk.call(call)
    talk.bring(call, "the word is swordfish")
    talk.answer("done")
    talk.end()
    before = talk.turns().entries
    record = next(record for record in world.log.read(talk.id, kinds=(kind,)))
    stand_in = redact(kind, msgspec.json.decode(record.payload or b""))
    talk.add(ev.PayloadErased(erased=record.seq, kind=kind, stand_in=stand_in))
    world.log.erase(talk.id, [record.seq])
    after = talk.turns().entries
    check_whole(after)
    assert [type(entry) for entry in after] == [type(entry) for entry in before]
    said = say(after)
    assert not any(INTERRUPTED in words for words in said)
    match kind:
        case "turn_answered":
            assert (
                said[1] == "answered [erased] c1"
                and json.loads(after[1].calls[0].arguments) == {}
                and after[1].raw is None
            )
        case "tool_returned":
            assert said[2] == "returned c1 [erased]"
        case "prompt_assembled":
            assert said[0] == f"asked {GONE}"
        case "tool_called":
            assert said == say(before)
    assert not any("swordfish" in json.dumps(value) for value in [stand_in])


def test_a_decision_is_no_word_and_digests_stay() -> None:
    """An erased yes would count as a no."""
    with pytest.raises(CallerError, match="a yes or a no"):
        redact("question_answered", {"wake": 1, "text": " Yes ", "call": "c1"})
    assert redact("question_answered", {"wake": 1, "text": "the one of May"})["text"] == "[erased]"
    wrote = [{"path": "a", "base": "d0", "digest": "d1"}]
    assert redact("tool_returned", {"text": "x", "wrote": wrote}) == {"text": "[erased]", "wrote": wrote}


def test_what_another_agent_answered_is_marked_as_theirs(world: World) -> None:
    """The owner sees a mark at the answers of the agent aside, and that agent at the owner's.

    The answers themselves do not change.
    """
    security = replace(AGENT, name="security")
    talk = world.open()
    for agent, words in ((AGENT, "mine"), (security, "theirs"), (AGENT, "mine again")):
        talk.start(is_fresh=False, agent=agent, is_aside=agent is security)
        talk.begin(agent)
        talk.answer(words)
        talk.end()
    for agent, marked in ((AGENT, ["theirs"]), (security, ["mine", "mine again"])):
        talk.start(is_fresh=False, agent=agent, is_aside=agent is security)
        found = talk.assemble(agent)
        check_whole(found.entries)
        other = "security" if agent is AGENT else "docs"
        mark = f'(This was addressed to the agent "{other}". The work and the text that follow, until you are asked again, are its own and not yours.)'
        pairs = list(zip(found.entries, found.entries[1:], strict=False))
        assert [
            answer.text
            for asked, answer in pairs
            if isinstance(asked, Asked) and mark in asked.text and isinstance(answer, Answered)
        ] == marked
        assert mark not in (found.opening_text or "")
        talk.end()


# -- sub-agents -------------------------------------------------------------------------------


def delegate(talk: Talk) -> ev.SubWork:
    """Record a run with a sub-agent in the middle of its work: it has answered once, and its call has begun."""
    call, own = make_call(1, "delegate", json.dumps({"agent": "reviewer", "text": "Is it right?"})), make_call(1)
    sub = ev.SubWork(call=call.id, agent="reviewer")
    talk.begin()
    talk.answer("a second pair of eyes", call, make_call(2))
    talk.call(call)
    found = assemble_sub(
        talk.session, REVIEWER, call.id, "Is it right?", log=talk.world.log, blobs=talk.world.blobs, redact=str
    )
    opening = talk.world.blobs.put((found.opening_text or "").encode())
    talk.add(
        ev.PromptAssembled(run=1, agent="reviewer", model="anthropic:m", instructions="i", opening=opening, sub=sub)
    )
    answer = Answered(model="anthropic:m", text="let me see", calls=(own,), stop="calls")
    talk.add(ev.TurnAnswered(run=1, turn=1, answer=answer, usage=TokenUsage(input=9, output=1), sub=sub))
    # The id equals that of its caller's call, because ids belong to one conversation.
    talk.add(ev.ToolCalled(run=1, call=own, sub=sub))
    return sub


def test_the_work_of_a_sub_agent_is_taken_up_by_a_run_that_goes_on(world: World) -> None:
    """The conversation of the sub-agent is read back too. It is not part of its caller's conversation."""
    talk = world.open()
    talk.start(agent=AGENT)
    sub = delegate(talk)
    talk.end("lost", is_final=False)
    talk.go_on(agent=AGENT)
    found = talk.assemble()
    assert [call.id for call in found.pending] == ["c1", "c2"] and say(found.entries)[1:] == [
        "answered a second pair of eyes c1 c2"
    ]
    taken = assemble_sub(talk.session, REVIEWER, sub.call, "Is it right?", log=world.log, blobs=world.blobs, redact=str)
    assert taken.opening == () and "Is it right?" in taken.entries[0].text  # type: ignore[union-attr]
    assert say(taken.entries)[1:] == ["answered let me see c1", f"failed c1 {INTERRUPTED}"]
    check_whole(taken.entries)


def test_the_work_of_a_sub_agent_that_a_person_stopped_is_told_as_interrupted(world: World) -> None:
    talk = world.open(conversation="continue")
    talk.start(agent=AGENT)
    delegate(talk)
    talk.end("interrupted")
    talk.start(is_fresh=False, agent=AGENT)
    found = talk.assemble()
    assert not found.pending and say(found.entries)[-2:] == [f"failed c1 {INTERRUPTED}", f"failed c2 {NOT_BEGUN}"]
    check_whole(found.entries)


def test_a_piece_of_work_under_an_id_that_was_used_before_begins_anew(world: World) -> None:
    """Some providers number the calls of every answer from one."""
    talk = world.open()
    talk.start(agent=AGENT)
    sub = delegate(talk)
    call = make_call(1, "delegate")
    talk.bring(call, "yes")
    talk.answer("once more", call)
    talk.call(call)
    found = assemble_sub(talk.session, REVIEWER, sub.call, "And now?", log=world.log, blobs=world.blobs, redact=str)
    assert (
        found.entries == ()
        and "And now?" in (found.opening_text or "")
        and "Is it right?" not in (found.opening_text or "")
    )
