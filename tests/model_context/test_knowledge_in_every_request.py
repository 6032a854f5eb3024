"""The model always has the session's knowledge: facts, open conflicts, the hand-off and the to-do list.

This holds after compaction, cuts and fresh starts.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from model_context.recorded_session import ADA, AGENT, Talk, World, make_call, make_cause
from wakeful.core.agents.model_text import quote_line
from wakeful.core.agents.turns import Answered, Asked, Returned
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import Conflict, Fact
from wakeful.core.record.state import Session
from wakeful.core.record.todo import TodoItem
from wakeful.core.spec.agent import AgentSpec, TokenWindow
from wakeful.errors import CallerError
from wakeful.history.conversation import SummaryWithoutModel, make_compress
from wakeful.model_context.assemble import Assembled

STEPS = (
    "answer",
    "answer",
    "fact",
    "own fact",
    "found fact",
    "note",
    "merge",
    "say",
    "compress",
    "compress all",
    "next",
    "fresh",
    "ask",
    "lose",
    "rewind",
    "big",
    "todo",
)
SMALL = replace(
    AGENT,
    window=TokenWindow(tokens=24_000, compress_at=12_000),
    settings=replace(AGENT.settings, max_output_tokens=2_000),
)


def tell(found: Assembled) -> str:
    """Return all text of the next request to the model."""
    words = []
    for entry in (*found.entries, *found.later):
        match entry:
            case Asked(text=text) | Returned(text=text):
                words.append(text)
            case Answered(text=text, calls=calls):
                words += [text, *(call.arguments for call in calls)]
    return "\n".join(
        (found.instructions_text, *words, *(call.arguments for call in found.pending), found.opening_text or "")
    )


def say_fact(fact: Fact) -> tuple[str, str]:
    """Return the two forms of a fact: that of an opening, and that of the model's own call."""
    return f"{quote_line(fact.key)} = {quote_line(fact.value)}", json.dumps({"key": fact.key, "value": fact.value})


def check_told(session: Session, told: str) -> None:
    lost = [fact for fact in session.knowledge.facts.values() if not any(words in told for words in say_fact(fact))]
    assert not lost, f"facts are not in front of the model: {lost}"
    assert all(f"conflict {conflict.number} over" in told for conflict in session.lineage.conflicts)
    assert (session.knowledge.handoff or "") in told
    assert all(quote_line(item.text) in told or f'"{item.text}"' in told for item in session.knowledge.todo)


def compress(talk: Talk, keep: int) -> bool:
    """Compress the conversation as the daemon does. Return False if it cannot be made shorter."""
    try:
        made = make_compress(talk.world.log, talk.session, keep, SummaryWithoutModel())
    except CallerError:
        return False
    talk.add(
        ev.ConversationCompressed(
            replaced=made.replaced,
            kept=made.kept,
            summary=made.summary,
            messages=made.messages,
            kept_messages=made.kept_messages,
            kept_bytes=made.kept_bytes,
            by=made.by,
        )
    )
    return True


class Story:
    """One random history with a check of each request.

    The checks cover the first request of a run, the first after a compaction, and all later ones. A request in the
    middle of a run has the knowledge of its opening. Later changes come with the next opening.
    """

    def __init__(self, talk: Talk, agent: AgentSpec) -> None:
        self.talk, self.agent = talk, agent
        self.number = 0
        talk.start(is_fresh=False)
        self.begin()

    def begin(self) -> None:
        self.known = self.talk.session
        check_told(self.known, tell(self.talk.begin(self.agent)))

    def go_on(self) -> None:
        """Check the next request of the same run, after the model has answered and its calls have returned."""
        check_told(self.known, tell(self.talk.assemble(self.agent)))

    def own(self) -> str:
        return f"run:{self.talk.session.name}#{self.talk.session.tally.runs}"

    def finish(self, **start: bool) -> None:
        """End the run as the daemon does, with its last words as the hand-off."""
        self.talk.answer(f"words {self.number}")
        self.talk.add(ev.NoteAdded(text=f"words {self.number}"), self.own())
        self.talk.end()
        self.talk.start(**start)
        self.begin()

    def set_fact(self, author: str) -> tuple[str, str]:
        key, value = f"k{self.number % 4}", f"v{self.number}"
        self.talk.add(ev.FactSet(key=key, value=value), author)
        return key, value

    def take(self, step: str) -> None:
        talk, self.number = self.talk, self.number + 1
        match step:
            case "answer" | "big":
                call = make_call(self.number)
                talk.answer(f"turn {self.number}", call)
                talk.call(call)
                talk.bring(call, "text " * (4_000 if step == "big" else 4))
                self.go_on()
            case "fact":
                self.set_fact(ADA)
            case "own fact":
                # By its tool, so that the call is part of the conversation.
                call = make_call(
                    self.number, "remember", json.dumps({"key": f"k{self.number % 4}", "value": f"v{self.number}"})
                )
                talk.answer("", call)
                talk.call(call)
                self.set_fact(self.own())
                talk.bring(call, "kept")
                # A fact that the run sets again has the newer value.
                self.known = replace(
                    self.known,
                    knowledge=replace(
                        self.known.knowledge,
                        facts={
                            **self.known.knowledge.facts,
                            **{
                                key: fact
                                for key, fact in talk.session.knowledge.facts.items()
                                if key == f"k{self.number % 4}"
                            },
                        },
                    ),
                )
                self.go_on()
            case "found fact":
                # By a summary: no call of the conversation has the fact.
                self.set_fact(self.own())
                if compress(talk, 2):
                    self.begin()
                else:
                    self.finish(is_fresh=True)
            case "note":
                talk.add(ev.NoteAdded(text=f"note {self.number}"), ADA)
            case "merge":
                number = talk.session.lineage.conflicts_opened + 1
                conflict = Conflict(
                    number=number, key="rate", base="1", ours="2", theirs=str(self.number), fork="trial"
                )
                talk.add(
                    ev.SessionMerged(
                        fork="01trial", name="trial", fork_seq=self.number, summary="", conflicts=(conflict,)
                    ),
                    ADA,
                )
            case "todo":
                items = (f"item {self.number % 5}", f"item {self.number % 3 + 5}")
                call = make_call(self.number, "todo", json.dumps({"items": items}))
                talk.answer("", call)
                talk.call(call)
                talk.add(ev.TodoSet(items=tuple(TodoItem(text=item) for item in items)), self.own())
                talk.bring(call, "kept")
            case "say":
                talk.say(f"wish {self.number}")
            case "compress" | "compress all":
                if compress(talk, 3 if step == "compress" else 0):
                    self.begin()
            case "next" | "fresh":
                self.finish(is_fresh=step == "fresh")
            case "ask":
                talk.answer("")
                talk.end()
                talk.say(f"question {self.number}")
                talk.start(make_cause("message", "message", str(talk.session.mailbox.position)), is_fresh=False)
                self.begin()
            case "lose":
                talk.end("lost", is_final=False)
                talk.go_on()
                self.begin()
            case "rewind":
                talk.rewind(max(2, talk.session.seq - self.number % 9))
                self.finish(is_fresh=False)


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=30), agent=st.sampled_from([AGENT, SMALL]))
def test_every_request_has_all_facts_open_questions_and_the_hand_off(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], agent: AgentSpec
) -> None:
    """The histories are random: runs, compactions, fresh starts, losses and rewinds."""
    world = World(tmp_path_factory.mktemp("any"))
    try:
        story = Story(world.open(conversation="continue"), agent)
        for step in steps:
            story.take(step)
    finally:
        world.log.close()


def test_a_conversation_whose_oldest_turns_are_left_out_tells_its_facts_again(world: World) -> None:
    """This happens to an external agent, which has no summary. The first opening, which had the facts, is cut."""
    talk = world.open(conversation="continue")
    talk.add(ev.FactSet(key="style", value="terse"), ADA)
    talk.add(ev.NoteAdded(text="the title is next"), ADA)
    story = Story(talk, SMALL)
    for _ in range(6):
        story.take("big")
    story.take("ask")
    assert talk.assemble(SMALL).is_cut


def test_an_opening_that_is_kept_no_more_is_made_up_for(world: World) -> None:
    """Retention may have removed the text of an opening. The next run is then told all facts."""
    talk = world.open(conversation="continue")
    talk.add(ev.FactSet(key="style", value="terse"), ADA)
    talk.start(is_fresh=False)
    opening = talk.begin().opening_text
    assert opening is not None
    talk.answer("done")
    talk.end()
    world.blobs.remove([world.blobs.put(opening.encode())])
    talk.start(is_fresh=False)
    check_told(talk.session, tell(talk.begin()))


def test_an_open_conflict_is_told_once_and_again_after_a_compaction(world: World) -> None:
    """This also holds if there are no facts."""
    story = Story(world.open(conversation="continue"), AGENT)
    story.take("merge")
    for step, times in (("next", 1), ("next", 0), ("compress", 1)):
        story.take(step)
        told = story.talk.turns().entries[-1]
        assert isinstance(told, Asked) and told.text.count("conflict 1 over") == times, step
