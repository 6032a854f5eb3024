"""Each person's questions are a separate conversation, in any history of askers, work, compactions and rewinds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from model_context.recorded_session import AGENT, Talk, World, make_cause
from model_context.test_knowledge_in_every_request import compress, tell
from wakeful.core.record import events as ev
from wakeful.model_context.assemble import Assembled

ADA, BOB = "person:ada", "person:bob"
OWNER = replace(AGENT)
# The asker, or None for the session's work; whether the conversation is fresh; what happens during the run.
STEP = st.tuples(
    st.sampled_from([ADA, BOB, None]),
    st.booleans(),
    st.sampled_from(["nothing", "nothing", "compress", "lose", "rewind"]),
)
WORD = re.compile(r"(?:question|answer)-\d+-\S+?-\d+")


class Story:
    """The words that each conversation must hold, kept beside the log.

    `past` has a copy of them after each run, with the seq of its last record.
    """

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.number = 0
        self.said: dict[str | None, list[str]] = {}
        # Conversations of which a part is summarised.
        self.shortened: set[str | None] = set()
        self.past: list[tuple[int, dict[str | None, list[str]], set[str | None]]] = []

    def take(self, asker: str | None, is_fresh: bool, meanwhile: str) -> None:
        if meanwhile == "rewind" and self.past:
            seq, said, shortened = self.past[self.number % len(self.past)]
            self.talk.rewind(seq)
            self.said, self.shortened = {one: list(words) for one, words in said.items()}, set(shortened)
        self.number += 1
        self.start(asker, is_fresh or asker is None)
        self.check(asker, self.talk.begin(OWNER))
        if meanwhile == "lose":
            self.talk.end("lost", is_final=False)
            self.talk.go_on(asker=asker, is_aside=asker is not None)
            self.check(asker, self.talk.begin(OWNER))
        self.speak(asker, "answer")
        if meanwhile == "compress" and compress(self.talk, 2):
            self.shortened.add(asker)
            self.check(asker, self.talk.begin(OWNER))
        self.talk.end()
        self.past.append(
            (self.talk.session.seq, {one: list(words) for one, words in self.said.items()}, set(self.shortened))
        )

    def start(self, asker: str | None, is_fresh: bool) -> None:
        if is_fresh:
            self.said[asker] = []
            self.shortened.discard(asker)
        if asker is None:
            self.talk.start(is_fresh=True)
            return
        self.speak(asker, "question")
        cause = make_cause("message", "message", str(self.talk.session.mailbox.position))
        self.talk.start(cause, is_fresh=is_fresh, is_aside=True, asker=asker)

    def speak(self, asker: str | None, what: str) -> None:
        word = f"{what}-{self.number}-{asker}-{self.number}"
        self.said.setdefault(asker, []).append(word)
        if what == "answer":
            self.talk.answer(word)
        else:
            self.talk.say(word, asker or "", asker=asker, activation=self.number)

    def check(self, asker: str | None, found: Assembled) -> None:
        """Check that the conversation has its own words in their order, and no word of another.

        If a part is summarised, some of its own words may be missing.
        """
        told = list(dict.fromkeys(WORD.findall(tell(found))))
        wanted = self.said.get(asker, [])
        assert set(told) <= set(wanted), (asker, told, wanted)
        if asker not in self.shortened:
            assert told == wanted, (asker, told, wanted)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, max_size=14))
def test_a_conversation_holds_its_own_words_and_nobody_else_s(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str | None, bool, str]]
) -> None:
    world = World(tmp_path_factory.mktemp("any"))
    try:
        story = Story(world.open(agent=OWNER.name))
        for step in steps:
            story.take(*step)
    finally:
        world.log.close()


def test_work_that_is_tried_again_goes_on_where_it_was_whatever_was_asked_between(world: World) -> None:
    """A run is lost, a person asks a question, and the run is tried again.

    It finds its own turns, not those of the answer.
    """
    talk = world.open(agent=OWNER.name)
    talk.start()
    talk.begin()
    talk.answer("half of the work")
    talk.end("lost", is_final=False)
    lost = talk.session.tally.runs
    talk.say("and?", ADA, asker=ADA, activation=1)
    talk.start(
        make_cause("message", "message", "1"), is_fresh=False, is_aside=True, asker=ADA, versions={"message": "1"}
    )
    talk.begin()
    talk.answer("soon")
    talk.end()
    talk.add(ev.WakeRequested(wake=talk.session.tally.wakes + 1, causes=(make_cause(new="v9"),)))
    talk.start(is_fresh=False, resumed_from=lost)
    told = tell(talk.begin())
    assert "half of the work" in told and "soon" not in told
