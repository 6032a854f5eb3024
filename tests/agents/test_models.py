"""The adapter between our values and each provider's wire format, against the scripted provider that speaks it."""

from __future__ import annotations

import pytest
from agents.provider import Call, Provider, Reply, Say, Usage
from wakeful.agents.contract import Model, ModelAnswer, ModelRequest, ToolOffer
from wakeful.agents.models import make_model
from wakeful.core.agent import ModelSettings, ModelSpec
from wakeful.core.turn import INTERRUPTED, Asked, Entry, Returned, TokenUsage

pytestmark = pytest.mark.asyncio

KEY = "sk-scripted-1234567890"
# Ours -> the format the scripted provider knows it by.
FORMATS = {"anthropic": "anthropic", "openai-chat": "openai", "openai-compatible": "openai"}
PROVIDERS = tuple(FORMATS)
ADD = ToolOffer(
    name="add",
    description="Add two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def reach(provider: Provider, ours: str, *, key: str | None = KEY, model: str = "scripted") -> Model:
    spec = ModelSpec(provider=ours, model=model, key="KEY", base_url=provider.base_url(FORMATS[ours]))  # type: ignore[arg-type]
    return make_model(spec, key)


async def ask(model: Model, *entries: Entry, said: list[str] | None = None, **settings: object) -> ModelAnswer:
    request = ModelRequest(instructions="Be brief.", entries=entries, tools=(ADD,), settings=ModelSettings(**settings))  # type: ignore[arg-type]
    return await model.answer(request, (said if said is not None else []).append)


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_an_answer_comes_as_it_is_said(provider: Provider, ours: str) -> None:
    """Text arrives in pieces and whole, usage as the provider counted it; the model saw instructions, words, tools and settings."""
    provider.play([Reply((Say("Four, I think, and not five."),), usage=Usage(input=120, output=6, cached=20))])
    said: list[str] = []
    answer = await ask(reach(provider, ours), Asked(text="What is two and two?"), said=said, temperature=0.5, max_output_tokens=99)
    assert answer.answered.text == "".join(said) == "Four, I think, and not five."
    assert len(said) > 1
    assert answer.answered.model == f"{ours}:scripted"
    assert (answer.answered.stop, answer.answered.calls) == ("done", ())
    assert answer.usage == TokenUsage(input=120, output=6, cached=20)
    [asked] = provider.requests
    assert (asked.model, asked.key, asked.is_streaming) == ("scripted", KEY, True)
    assert "Be brief." in asked.system and asked.last_words == "What is two and two?"
    assert asked.tools[0].description == "Add two numbers."
    assert asked.settings["temperature"] == 0.5 and asked.settings["max_tokens"] == 99


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_calls_are_answered_in_their_order_whatever_order_they_ended_in(provider: Provider, ours: str) -> None:
    """Two calls of one answer are two values, and their results one message, an error marked as such."""
    provider.play([(Say("Let me see."), Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})), Say("3 and trouble")])
    model = reach(provider, ours)
    first = (await ask(model, Asked(text="Sums, please."))).answered
    assert (first.stop, [call.name for call in first.calls]) == ("calls", ["add", "add"])
    assert [call.arguments.replace(" ", "") for call in first.calls] == ['{"a":1,"b":2}', '{"a":3,"b":4}']
    one, two = first.calls
    assert one.id != two.id
    late = Returned(call=two.id, name="add", text="no seven here", is_error=True)
    soon = Returned(call=one.id, name="add", text="3")
    last = await ask(model, Asked(text="Sums, please."), first, late, soon)
    assert last.answered.text == "3 and trouble"
    results = provider.requests[-1].results
    assert "3" in results[0].content and "no seven here" in results[1].content
    assert results[1].is_error or "error" in results[1].content


@pytest.mark.parametrize("ours", PROVIDERS)
async def test_a_call_that_nobody_answered_is_told_as_interrupted(provider: Provider, ours: str) -> None:
    """A conversation whose log ends with open calls goes on legally, and the model reads that their effect is unknown."""
    provider.play([(Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})), Say("I shall look.")])
    first = (await ask(reach(provider, ours), Asked(text="Sums, please."))).answered
    entries = Asked(text="Sums, please."), first, Returned(call=first.calls[0].id, name="add", text="3"), Asked(text="And?")
    await ask(reach(provider, ours), *entries)
    asked = provider.requests[-1]
    assert [result.content for result in asked.results] == ["3", INTERRUPTED]
    assert asked.last_words == "And?"
