"""The parts of a conversation that were sent before are not encoded again.

Their bytes stay the same, and a turn of a long conversation costs as little as one of a short conversation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import pytest

from agents.provider import Asked as Seen
from agents.provider import Call, Provider, Say, Think
from agents.provider.script import Turn
from agents.scripted_models import ADD, PROVIDERS, ask, hear, reach
from wakeful.agents.contract import ModelRequest, ToolOffer
from wakeful.agents.models import encoded_conversation
from wakeful.agents.models.encoded_conversation import EncodedTurns
from wakeful.core.agents.turns import Answered, Asked, Entry, Returned, ToolCall

pytestmark = pytest.mark.asyncio

NAMES = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-5",
    "openai-chat": "gpt-4o",
    "openai-compatible": "llama",
    "google": "gemini-3-pro",
}


def talk(asked: Seen) -> Turn:
    """Answer with thoughts, text and calls in turns, so that every kind of message becomes an old one."""
    match asked.model_turns % 4:
        case 0:
            return (
                Think("Hm, let me see."),
                Say(f"Turn {asked.model_turns}."),
                Call("add", {"a": 1, "b": 2}),
                Call("add", {"a": 3, "b": 4}),
            )
        case 1:
            return (Call("add", {"a": asked.model_turns, "b": 0}),)
        case _:
            return (Think("Simple."), Say('Ünïcode \\ "quoted" 日本 and done.'))


def talk_plainly(asked: Seen) -> Turn:
    said = talk(asked)
    assert isinstance(said, tuple)
    return tuple(part for part in said if not isinstance(part, Think))


@pytest.mark.parametrize("has_thoughts", [True, False])
@pytest.mark.parametrize("ours", PROVIDERS)
async def test_what_is_sent_is_what_would_be_sent_anew(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, ours: str, has_thoughts: bool
) -> None:
    """In each turn, a model object that is kept sends the same request as a new one."""
    provider.play(talk if has_thoughts else talk_plainly)
    seen: list[encoded_conversation.Turn] = []
    begin = EncodedTurns.__init__

    def begin_and_tell(
        self: EncodedTurns, encode_turn: Callable[[encoded_conversation.Turn], Sequence[object]]
    ) -> None:
        begin(self, lambda turn: (seen.append(turn), encode_turn(turn))[1])

    with monkeypatch.context() as patch:
        patch.setattr(EncodedTurns, "__init__", begin_and_tell)
        lasting, entries = reach(provider, ours, model=NAMES[ours]), [Asked(text="Go.")]
    for turn in range(9):
        before = len(seen)
        answered = await hear(lasting, *entries)
        await hear(reach(provider, ours, model=NAMES[ours]), *entries)
        kept, anew = provider.requests[-2:]
        assert kept.raw == anew.raw
        # The last answer, the messages before it, and the new messages. The field for thoughts is known after the first
        # thought.
        assert 1 <= len(seen) - before <= 3, "what was sent before was made anew"
        entries += [
            answered,
            *(Returned(call=call.id, name="add", text=f"{turn}", is_error=turn == 4) for call in answered.calls),
        ]
        entries += [] if answered.calls else [Asked(text=f"More, {turn}."), Asked(text="And more.")]


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_another_conversation_does_not_begin_like_the_last(provider: Provider, ours: str) -> None:
    """After a shortened or a different conversation, the model sends nothing of the earlier one."""
    provider.play(talk)
    model = reach(provider, ours, model=NAMES[ours])
    entries: list[Entry] = [Asked(text="The first secret is swordfish.")]
    for _ in range(3):
        answered = await hear(model, *entries)
        entries += [
            answered,
            *(Returned(call=call.id, name="add", text="7") for call in answered.calls),
            Asked(text="More."),
        ]
    await hear(model, Asked(text="Something else."))
    assert "swordfish" not in provider.requests[-1].text and len(provider.requests[-1].messages) == 1
    shorter = [Asked(text="Summary."), *entries[-1:]]
    await hear(model, *shorter)
    assert "swordfish" not in provider.requests[-1].text and "Summary." in provider.requests[-1].text
    await hear(model, *entries)
    assert provider.requests[-1].text.count("swordfish") == 1


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_a_failed_request_is_sent_again_whole(provider: Provider, ours: str) -> None:
    """The same turn asked twice, as after a fault, gives the same request twice."""
    provider.play(talk)
    model, entries = reach(provider, ours, model=NAMES[ours]), [Asked(text="Go.")]
    for _ in range(3):
        answered = await hear(model, *entries)
        entries += [
            answered,
            *(Returned(call=call.id, name="add", text="7") for call in answered.calls),
            Asked(text="More."),
        ]
        await hear(model, *entries)
        await hear(model, *entries)
        assert provider.requests[-1].raw == provider.requests[-2].raw


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_tools_and_instructions_that_changed_are_told_as_they_are_now(provider: Provider, ours: str) -> None:
    """Each request has the current instructions and tools, not cached ones."""
    provider.play(talk_plainly)
    model, entries = reach(provider, ours, model=NAMES[ours]), [Asked(text="Go.")]
    multiply = ToolOffer(name="multiply", description="Multiply.", parameters=ADD.parameters)
    for instructions, tools in (
        ("Be brief.", (ADD,)),
        ("Be brief.", (ADD, multiply)),
        ("Be long.", (multiply,)),
        ("Be long.", ()),
    ):
        await model.answer(ModelRequest(instructions=instructions, entries=entries, tools=tools), lambda *_: None)
        asked = provider.requests[-1]
        assert (asked.system, [tool.name for tool in asked.tools]) == (instructions, [offer.name for offer in tools])


def long_history(turns: int) -> list[Entry]:
    return [
        entry
        for turn in range(turns)
        for entry in (
            Asked(text=f"Question {turn}. " + "words " * 20),
            Answered(
                model="elsewhere:m",
                calls=(ToolCall(id=f"c{turn}", name="add", arguments='{"a":1,"b":2}'),),
                stop="calls",
            ),
            Returned(call=f"c{turn}", name="add", text="result " * 20),
            Answered(model="elsewhere:m", text="answer " * 20),
        )
    ]


@pytest.mark.long
@pytest.mark.parametrize("ours", PROVIDERS)
async def test_a_turn_costs_the_same_after_a_thousand(provider: Provider, ours: str) -> None:
    """After the first request of a process, the time of a turn does not grow with the conversation."""
    provider.play(lambda _: Say("ok"))

    async def median_ms(turns: int) -> float:
        model, entries, times = reach(provider, ours), long_history(turns), []
        for turn in range(12):
            entries.append(Asked(text=f"more {turn}"))
            begun = time.process_time()
            answer = await ask(model, *entries)
            times.append((time.process_time() - begun) * 1000)
            entries.append(answer.answered)
        return statistics.median(times[2:])

    short, long = await median_ms(5), await median_ms(500)
    # The provider reads the whole body in this process too. Its share grows, and is included here.
    assert long < short * 10 + 40, f"{short:.1f} ms after 5 turns, {long:.1f} ms after 500"
