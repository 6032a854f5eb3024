"""Questions in the simulated world: the conversation that each belongs to, and the work that stays owed meanwhile."""

from __future__ import annotations

from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import read, session
from core.test_agent_runs import DOCS, answer, end, make_world, post, request, the, thinking
from wakeful.core.agents import steps as work
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.acting_agent import find_hand_off_rule
from wakeful.core.record.fold_runs import MOST_CONVERSATIONS, OWN
from wakeful.core.record.knowledge import RecordRange
from wakeful.core.record.state import OpenRun

ADA, BOB = "person:ada", "person:bob"


def ask(world: World, text: str, author: str = ADA, name: str = "docs", **keys: object) -> None:
    world.call(calls.Ask(name=name, text=text, **keys), author=author)  # type: ignore[arg-type]


def say(world: World) -> OpenRun:
    """Let the open run take one turn, then end it. Return the run."""
    run = the(world).run
    assert run is not None
    post(world, request(), answer())
    end(world)
    return run


def rested(**keys: object) -> World:
    world = make_world(thinking(**keys))
    end(world)
    world.rest()
    return world


def stretches(world: World) -> tuple[RecordRange, ...]:
    return the(world).knowledge.conversation.stretches


def test_each_person_has_a_conversation_that_goes_on_whatever_ran_between() -> None:
    """Ada asks twice, bob asks once, and work runs in between.

    Each run finds only the records of its own conversation.
    """
    world = rested()
    runs: list[OpenRun] = []
    for author in (ADA, BOB, None, ADA):
        if author is None:
            world.write("code.py", "2")
            world.look()
        else:
            ask(world, "?", author)
        runs.append(say(world))
        world.rest()
    assert [run.is_aside for run in runs] == [True, True, False, True]
    spans = [(run.seq, run.seq) for run in runs]
    kept = [(one.first, one.last) for one in stretches(world)]
    # Each question, and its run up to the next start of another conversation.
    assert (
        len(kept) == 4
        and kept[1][0] == spans[0][0]
        and kept[1][1] == spans[1][0] - 1
        and kept[3] == (spans[3][0], None)
    )
    assert all(first == last for first, last in (kept[0], kept[2]))
    assert the(world).knowledge.asker == ADA and the(world).knowledge.talks.keys() == {OWN, BOB}
    ask(world, "anew", fresh=True)
    assert [(one.first, one.last) for one in stretches(world)][-1] == (the(world).run.seq, None) and len(
        stretches(world)
    ) == 2
    assert not the(world).activation.is_fresh


def test_a_session_that_continues_has_one_conversation_for_all() -> None:
    world = rested(conversation="continue")
    for author in (ADA, BOB):
        ask(world, "?", author)
        assert the(world).run.is_aside
        say(world)
    assert the(world).knowledge.asker is None and the(world).knowledge.talks == {} and stretches(world) == ()


def test_a_question_is_answered_and_the_work_stays_owed() -> None:
    """A changed file and an activation, requested before or after the question, are causes of a run of their own.

    They are no causes of the answer.
    """
    for is_before in (True, False):
        world = rested()
        world.call(calls.Sleep(name="docs", seconds=60))
        world.write("code.py", "2")
        world.look()
        steps = [lambda: ask(world, "?"), lambda: world.call(calls.Activate(name="docs"), author=BOB)]
        first, second = reversed(steps) if is_before else steps
        first()
        second()
        taken = []
        while the(world).run is not None:
            run = the(world).run
            taken.append((run.is_aside, sorted({cause.kind for cause in run.causes})))
            end(world)
            world.look()
        work_run, answer_run = (False, ["activation", "file"]), (True, ["activation", "message"])
        assert taken == ([work_run, answer_run] if is_before else [answer_run, work_run])


def test_an_answer_keeps_the_hand_off_and_what_a_failed_run_left_half_done() -> None:
    world = rested()
    world.write("code.py", "2")
    world.look()
    end(world, exit_code=1)
    assert the(world).marks.is_suspect
    ask(world, "what happened?")
    assert find_hand_off_rule(the(world), the(world).run) == "kept"
    say(world)
    assert the(world).marks.is_suspect


def test_a_question_after_an_interrupted_answer_is_a_new_one_and_the_work_goes_on_where_it_was_cut() -> None:
    world = rested()
    world.write("code.py", "2")
    world.look()
    cut = the(world).run.run
    world.call(calls.Interrupt(name="docs"), author=ADA)
    end(world, exit_code=130)
    ask(world, "what did you do?")
    assert the(world).run.resumed_from is None
    world.call(calls.Interrupt(name="docs"), author=ADA)
    end(world, exit_code=130)
    ask(world, "and now?")
    assert the(world).run.resumed_from is None
    say(world)
    world.call(calls.Activate(name="docs"), author=ADA)
    assert (the(world).run.resumed_from, the(world).run.is_aside, the(world).knowledge.asker) == (cut, False, None)


def test_a_question_is_answered_although_the_work_failed_meanwhile() -> None:
    world = rested()
    world.write("code.py", "2")
    world.look()
    ask(world, "how far are you?")
    end(world, exit_code=1)
    assert the(world).run is not None and say(world).is_aside


def test_a_session_without_a_run_answers_questions_and_does_nothing_else() -> None:
    spec = replace(session("desk", read("code.py"), agent="docs"), run=None)
    world = make_world(spec)
    world.rest()
    assert the(world, "desk").tally.runs == 0
    ask(world, "who is there?", name="desk")
    run = the(world, "desk").run
    assert run is not None and run.agent == DOCS and run.is_aside
    world.write("code.py", "2")
    world.look()
    end(world, "desk")
    world.rest()
    assert the(world, "desk").tally.runs == 1 and the(world, "desk").wake is None


def test_an_agent_s_question_is_answered_in_the_conversation_it_was_asked_in() -> None:
    world = rested()
    ask(world, "which rate?")
    post(world, request(), work.AskPerson(call="c1", name="ask_person", text="of which month?"))
    end(world, exit_code=75)
    assert the(world).hold is not None and the(world).hold.kind == "asking"
    world.call(calls.Answer(name="docs", text="May"), author=BOB)
    run = the(world).run
    assert run is not None and run.is_aside and run.resumed_from is not None and the(world).knowledge.asker == ADA


def test_only_so_many_conversations_are_kept() -> None:
    world = rested()
    for number in range(MOST_CONVERSATIONS + 3):
        ask(world, "?", f"person:{number}")
        say(world)
    assert (
        len(the(world).knowledge.talks) == MOST_CONVERSATIONS
        and OWN in the(world).knowledge.talks
        and "person:0" not in the(world).knowledge.talks
    )
