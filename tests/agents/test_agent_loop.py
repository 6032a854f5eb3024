"""The durable loop with a scripted model: its records, their order, and the early endings of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from wait_conditions import eventually_async
from wakeful.agents.contract import ModelAnswer, ModelRequest, ProviderFault, ToolOffer, ToolResult
from wakeful.agents.loop import Loop
from wakeful.agents.tools.tool_set import ToolBox
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import Answered, Asked, Returned, TokenUsage, ToolCall
from wakeful.core.spec.agent import AgentLimits, AgentSpec, ModelSpec, TokenWindow

AGENT = AgentSpec(name="docs", models=(ModelSpec(provider="anthropic", model="m"),))
pytestmark = pytest.mark.asyncio


class Scripted:
    """A model that gives the next answer of its script to each request, and keeps the requests."""

    def __init__(self, *turns: Answered | ProviderFault, name: str = "anthropic:m") -> None:
        self.name = name
        self.turns = list(turns)
        self.asked: list[tuple[Any, ...]] = []

    async def answer(
        self, request: ModelRequest, say: Callable[[str], None], recorded: Awaitable[object] | None = None
    ) -> ModelAnswer:
        if recorded is not None:
            await recorded
        self.asked.append(tuple(request.entries))
        turn = self.turns.pop(0)
        if isinstance(turn, ProviderFault):
            raise turn
        say(turn.text)
        return ModelAnswer(answered=turn, usage=TokenUsage(input=10, output=5))


class Adder:
    """A tool that notes each call that it really carries out."""

    def __init__(self, journal: list[Any], is_look: bool = False, name: str = "add") -> None:
        self.journal = journal
        self.is_look = is_look
        self.offer = ToolOffer(name=name, description="Add.", parameters={"type": "object"})

    async def carry_out(self, arguments: Mapping[str, Any], call_id: str) -> ToolResult:
        self.journal.append(("done", call_id))
        return ToolResult(str(arguments["a"] + arguments["b"]))


def say(text: str) -> Answered:
    return Answered(model="anthropic:m", text=text)


def call(*numbers: int, name: str = "add", arguments: str = '{"a": 1, "b": 2}') -> Answered:
    calls = tuple(ToolCall(id=f"c{number}", name=name, arguments=arguments) for number in numbers)
    return Answered(model="anthropic:m", calls=calls, stop="calls")


class World:
    """A stub daemon that keeps one journal of all records and all real effects of tools, in their order.

    `end_at` is the kind of step at which it ends the run.
    """

    def __init__(self, *models: Scripted, end_at: type | None = None, is_look: bool = False, **beginning: Any) -> None:
        self.journal: list[Any] = []
        self.posts = 0
        self.end_at = end_at
        self.pauses: list[float] = []
        fields: dict[str, Any] = {"entries": (Asked(text="add them"),), "agent": AGENT, **beginning}
        self.beginning = work.Beginning(session="s", run=1, run_id="s.1", instructions="be good", root="/p", **fields)
        self.adder = Adder(self.journal, is_look)
        tools = ToolBox(
            [self.adder, Adder(self.journal, is_look=True, name="reckon")],
            {"add": "allow", "reckon": "allow", **self.beginning.tools},
            {},
        )
        self.loop = Loop(self.beginning, models, tools, self, lambda text: None, self.pause)

    async def __call__(self, *steps: work.PostedStep) -> work.Recorded:
        self.posts += 1
        self._take(steps)
        return work.Recorded(end="no more" if self._is_over() else None)

    async def tell(self, *steps: work.PostedStep) -> None:
        self._take(steps)

    def _take(self, steps: Sequence[work.PostedStep]) -> None:
        if not self._is_over():
            self.journal += steps

    def _is_over(self) -> bool:
        return self.end_at is not None and any(isinstance(step, self.end_at) for step in self.journal)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def kinds(self) -> list[str]:
        return [step[0] if isinstance(step, tuple) else type(step).__name__ for step in self.journal]


async def test_every_step_is_on_record_before_the_next_one() -> None:
    """The order is request, answer, call, effect, result, request, answer.

    Two steps that belong together share a post.
    """
    model = Scripted(call(1), say("three"))
    world = World(model)
    assert (await world.loop.run()).words is None
    assert world.kinds() == [
        "RequestTurn",
        "RecordAnswer",
        "CallTool",
        "done",
        "ReturnTool",
        "RequestTurn",
        "RecordAnswer",
    ]
    assert world.posts == 4
    assert model.asked[1][-1] == Returned(call="c1", name="add", text="3")
    assert world.loop.last_words == "three" and not world.loop.has_handed_off


async def test_what_only_looks_is_begun_meanwhile_and_the_model_is_told_once_all_of_it_is_on_record() -> None:
    """A tool without effects runs before its call is on record, and its result is posted right after the call.

    The model gets the result when both are on disk. It never gets it if the daemon refuses.
    """
    acknowledged = asyncio.Event()

    class Slow(World):
        async def __call__(self, *steps: work.PostedStep) -> work.Recorded:
            recorded = await super().__call__(*steps)
            if any(isinstance(step, work.ReturnTool) for step in steps):
                await acknowledged.wait()
            return recorded

    model = Scripted(call(1, 2), say("three"))
    world = Slow(model, is_look=True)
    running = asyncio.create_task(world.loop.run())
    await eventually_async(lambda: world.posts == 2)
    posted = [
        "RequestTurn",
        "RecordAnswer",
        "CallTool",
        "done",
        "ReturnTool",
        "CallTool",
        "done",
        "ReturnTool",
        "RequestTurn",
    ]
    assert world.kinds() == posted and world.posts == 2 and len(model.asked) == 1
    acknowledged.set()
    assert (await running).words is None and model.asked[1][-1].text == "3"
    told_no = Scripted(call(1), say("never"))
    ended = World(told_no, end_at=work.CallTool, is_look=True)
    assert (await ended.loop.run()).words == "no more"
    assert "ReturnTool" not in ended.kinds() and len(told_no.asked) == 1


async def test_an_effect_after_a_look_of_the_same_answer_waits_for_the_record_of_both() -> None:
    """The call of the reading tool is posted without waiting, but the write after it waits for the record of both.

    The write is not carried out if the daemon ends the run at the reading call.
    """
    answer = Answered(model="anthropic:m", calls=(*call(1, name="reckon").calls, *call(2).calls), stop="calls")
    world = World(Scripted(answer, say("three")))
    assert (await world.loop.run()).words is None
    assert world.kinds()[1:8] == ["RecordAnswer", "CallTool", "done", "ReturnTool", "CallTool", "done", "ReturnTool"]
    assert world.posts == 4
    ended = World(Scripted(answer, say("never")), end_at=work.CallTool)
    assert (await ended.loop.run()).words == "no more"
    assert [step for step in ended.journal if isinstance(step, tuple)] == [("done", "c1")]


@pytest.mark.parametrize("is_look", [False, True])
async def test_the_model_is_sent_the_words_that_were_recorded_and_never_a_secret_s_value(is_look: bool) -> None:
    """The request that was prepared in advance is dropped. The request that is sent has the recorded words.

    It is on record once.
    """

    class Redacting(World):
        def __init__(self, *models: Scripted, **beginning: Any) -> None:
            super().__init__(*models, **beginning)
            self.answered = 0

        async def __call__(self, *steps: work.PostedStep) -> work.Recorded:
            recorded = await super().__call__(*steps)
            new, self.answered = self.journal[self.answered :], len(self.journal)
            results = [replace(step, text="[secret gh]") for step in new if isinstance(step, work.ReturnTool)]
            answers = [
                replace(step, answer=replace(step.answer, text="[secret gh]!"))
                for step in new
                if isinstance(step, work.RecordAnswer) and step.answer.text
            ]
            return work.Recorded(end=recorded.end, redacted=(*answers, *results))

    model = Scripted(replace(call(1), text="a value"), say("done"))
    world = Redacting(model, is_look=is_look)
    assert (await world.loop.run()).words is None
    assert len(model.asked) == 2
    assert [entry.text for entry in model.asked[1]] == ["add them", "[secret gh]!", "[secret gh]"]
    assert world.kinds().count("RequestTurn") == 2 and world.loop.last_words == "[secret gh]!"


async def test_definitions_of_tools_are_on_record_once_and_are_sent_as_they_were_recorded() -> None:
    class Redacting(World):
        async def __call__(self, *steps: work.PostedStep) -> work.Recorded:
            recorded = await super().__call__(*steps)
            told = [step for step in steps if isinstance(step, work.RequestTurn) and step.tools]
            return replace(
                recorded,
                redacted=tuple(
                    replace(step, tools=tuple(replace(tool, description="[secret gh]") for tool in step.tools))
                    for step in told
                ),
            )

    offered: list[set[str]] = []

    class Noting(Scripted):
        async def answer(
            self, request: ModelRequest, say: Callable[[str], None], recorded: Awaitable[object] | None = None
        ) -> ModelAnswer:
            answer = await super().answer(request, say, recorded)
            offered.append({tool.description for tool in request.tools})
            return answer

    world = Redacting(Noting(call(1), say("done")))
    assert (await world.loop.run()).words is None
    assert offered == [{"[secret gh]"}, {"[secret gh]"}]
    assert [bool(step.tools) for step in world.journal if isinstance(step, work.RequestTurn)] == [True, False]


async def test_two_calls_of_one_answer_are_two_effects_each_on_record_first() -> None:
    world = World(Scripted(call(1, 2), say("done")))
    await world.loop.run()
    assert world.kinds()[1:8] == ["RecordAnswer", "CallTool", "done", "ReturnTool", "CallTool", "done", "ReturnTool"]


async def test_calls_that_nobody_had_begun_are_carried_out_before_the_model_is_asked_again() -> None:
    """The earlier run was killed between an answer and its calls."""
    open_call = ToolCall(id="c7", name="add", arguments='{"a": 2, "b": 2}')
    asked = (Asked(text="add them"), Answered(model="anthropic:m", calls=(open_call,), stop="calls"))
    model = Scripted(say("four"))
    world = World(model, entries=asked, pending=(open_call,), later=(Asked(text="and quickly"),), turns=1)
    await world.loop.run()
    assert world.kinds() == ["CallTool", "done", "ReturnTool", "RequestTurn", "RecordAnswer"]
    assert world.journal[3].turn == 2
    assert model.asked[0][-2:] == (Returned(call="c7", name="add", text="4"), Asked(text="and quickly"))


async def test_a_run_that_was_killed_after_its_last_word_asks_nothing_more() -> None:
    model = Scripted()
    world = World(model, entries=(Asked(text="add"), say("three")), turns=1)
    assert (await world.loop.run()).words is None
    assert world.journal == [] and world.loop.last_words == "three"


@pytest.mark.parametrize("step", [work.RequestTurn, work.CallTool], ids=["before a request", "before an effect"])
async def test_nothing_is_begun_once_the_daemon_says_no(step: type) -> None:
    """After a spent budget or a suspension, neither the model nor the tool is called."""
    model = Scripted(call(1), say("never"))
    world = World(model, end_at=step)
    assert (await world.loop.run()).words == "no more"
    assert "done" not in world.kinds()
    assert len(model.asked) == (0 if step is work.RequestTurn else 1)


async def test_what_the_daemon_said_counts_and_not_how_the_model_took_it() -> None:
    """A library may report a held request as a network fault. It is none, and is not tried again."""

    class Blaming(Scripted):
        async def answer(
            self, request: ModelRequest, say: Callable[[str], None], recorded: Awaitable[object] | None = None
        ) -> ModelAnswer:
            try:
                return await super().answer(request, say, recorded)
            except Exception as error:
                raise ProviderFault("network", f"connection error: {error}") from None

    world = World(Blaming(say("never")), end_at=work.RequestTurn)
    assert (await world.loop.run()).words == "no more"
    assert world.kinds() == ["RequestTurn"] and world.pauses == []


async def test_a_request_is_on_its_way_to_the_record_before_it_is_made_ready() -> None:
    """Preparing a request blocks the event loop, so its post must begin before that."""
    posted_first: list[list[str]] = []

    class Busy(Scripted):
        async def answer(
            self, request: ModelRequest, say: Callable[[str], None], recorded: Awaitable[object] | None = None
        ) -> ModelAnswer:
            posted_first.append(world.kinds())
            return await super().answer(request, say, recorded)

    world = World(Busy(say("three")))
    await world.loop.run()
    assert posted_first == [["RequestTurn"]]


async def test_a_provider_that_is_busy_is_asked_again_as_it_wishes_and_each_failure_is_on_record() -> None:
    busy = ProviderFault("busy", "429", retry_after=7.0)
    world = World(Scripted(busy, ProviderFault("network", "reset"), say("there")))
    assert (await world.loop.run()).words is None
    assert world.pauses == [7.0, 4.0]
    assert world.kinds() == ["RequestTurn", "RecordFault", "RequestTurn", "RecordFault", "RequestTurn", "RecordAnswer"]


async def test_a_model_that_never_answers_gives_way_to_the_next_of_its_agent_and_the_last_one_halts_the_run() -> None:
    gone = [ProviderFault("busy", "529: overloaded")] * 4
    world = World(Scripted(*gone), Scripted(say("mine"), name="openai:o"))
    assert (await world.loop.run()).words is None
    assert [step.model for step in world.journal if isinstance(step, work.RequestTurn)] == ["anthropic:m"] * 4 + [
        "openai:o"
    ]
    lonely = World(Scripted(*gone))
    assert (await lonely.loop.run()).words == "529: overloaded"
    assert lonely.kinds()[-1] == "Halt"


@pytest.mark.parametrize("kind", ["key", "refused"])
async def test_what_the_next_try_cannot_mend_is_not_tried_again(kind: Any) -> None:
    world = World(Scripted(ProviderFault(kind, "401: no")))
    assert (await world.loop.run()).words == "401: no"
    assert world.kinds() == ["RequestTurn", "RecordFault", "Halt"] and world.pauses == []


async def test_a_conversation_that_is_too_long_is_neither_sent_nor_failed_but_to_be_made_shorter() -> None:
    """The conversation is too long by our own estimate, or by the provider's word. Earlier steps are on record."""
    small = AgentSpec(name="docs", models=AGENT.models, window=TokenWindow(compress_at=400))
    model = Scripted(call(1), say("never"))
    world = World(model, agent=small)
    world.adder.carry_out = long_result  # type: ignore[method-assign]
    assert (await world.loop.run()).is_long
    assert len(model.asked) == 1 and world.kinds()[-1] == "ReturnTool"
    told = World(Scripted(ProviderFault("too_long", "413")))
    assert (await told.loop.run()).is_long and told.kinds()[-1] == "RecordFault"


async def long_result(arguments: Mapping[str, Any], call_id: str) -> ToolResult:
    return ToolResult("a file " * 300)


async def test_the_same_call_again_and_again_is_a_breaker() -> None:
    agent = AgentSpec(name="docs", models=AGENT.models, limits=AgentLimits(repeats=2))
    world = World(Scripted(call(1), call(2), call(3)), agent=agent)
    words = (await world.loop.run()).words
    assert words is not None and "3 times in a row" in words
    assert world.kinds().count("done") == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (call(1, name="rm"), "there is no tool 'rm'"),
        (call(1, arguments="{broken"), "not JSON"),
        (call(1, arguments="[1]"), "a JSON list"),
        (call(1, name="ask_person", arguments='{"question": " "}'), "needs a question"),
    ],
)
async def test_a_call_that_is_none_is_answered_to_the_model_and_has_no_effect(answer: Answered, words: str) -> None:
    model = Scripted(answer, say("sorry"))
    world = World(model)
    await world.loop.run()
    returned = model.asked[1][-1]
    assert words in returned.text and returned.is_error
    assert "done" not in world.kinds()


async def test_a_denied_tool_is_neither_offered_nor_carried_out() -> None:
    model = Scripted(call(1), say("then not"))
    world = World(model, tools={"add": "deny"})
    await world.loop.run()
    assert "done" not in world.kinds() and model.asked[1][-1].is_error


async def test_a_tool_that_needs_a_person_ends_the_run_with_the_question_and_their_word_decides() -> None:
    world = World(Scripted(call(1)), tools={"add": "ask"}, end_at=work.AskPerson)
    assert (await world.loop.run()).words == "no more"
    question = world.journal[-1]
    assert question.is_permission and question.call == "c1" and "done" not in world.kinds()
    open_call = call(1)
    for said, did in ((True, 1), (False, 0)):
        model = Scripted(say("ok"))
        again = World(
            model,
            tools={"add": "ask"},
            entries=(Asked(text="x"), open_call),
            pending=open_call.calls,
            permissions={"c1": said},
        )
        await again.loop.run()
        assert again.kinds().count("done") == did
        assert model.asked[0][-1].is_error is not said


async def test_a_question_to_a_person_ends_the_run() -> None:
    asks = call(1, name="ask_person", arguments='{"question": "which rate?"}')
    world = World(Scripted(asks), end_at=work.AskPerson)
    assert (await world.loop.run()).words == "no more"
    assert world.journal[-1] == work.AskPerson(call="c1", name="ask_person", text="which rate?")


@pytest.mark.parametrize("stop", ["length", "refused"])
async def test_an_answer_that_is_no_end_fails_in_words(stop: Any) -> None:
    world = World(Scripted(Answered(model="anthropic:m", text="I w", stop=stop)))
    ending = await world.loop.run()
    assert ending.words is not None and world.kinds()[-1] == "Halt"


def turns_of(steps: Sequence[Any]) -> list[int]:
    return [step.turn for step in steps if isinstance(step, work.RequestTurn)]


async def test_turns_are_numbered_through_and_a_repeated_request_keeps_its_number() -> None:
    world = World(Scripted(ProviderFault("busy", "429"), call(1), say("done")), turns=4)
    await world.loop.run()
    assert turns_of(world.journal) == [5, 5, 6]
