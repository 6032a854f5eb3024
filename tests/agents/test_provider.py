"""The scripted provider is taken for the real one by the real clients, in every wire format."""

from __future__ import annotations

import pytest
from agents.clients import FORMATS, KEY, make_agent
from agents.provider import Call, Provider, Reply, Say, ToolCall, Usage

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("format", FORMATS)
async def test_what_the_script_says_is_what_the_client_hears(provider: Provider, format: str) -> None:
    """Text and usage arrive as scripted; the request shows what the model was asked, and by whose key."""
    provider.play([Reply((Say("Four, I think."),), usage=Usage(input=120, output=6, cached=20))])
    result = await make_agent(provider, format).run("What is two and two?")
    assert result.output == "Four, I think."
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.cache_read_tokens) == (120, 6, 20)
    [asked] = provider.requests
    assert (asked.format, asked.model, asked.key, asked.last_words) == (format, "scripted", KEY, "What is two and two?")
    assert "Be brief." in asked.system
    assert asked.tool_names == ["add"] and asked.tools[0].description == "Add two numbers."


@pytest.mark.parametrize("format", FORMATS)
async def test_calls_reach_the_tool_and_results_the_model(provider: Provider, format: str) -> None:
    """Two calls in one response are both made, and answered in the next request."""
    provider.play([(Say("Let me see."), Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})), Say("3 and 7")])
    result = await make_agent(provider, format).run("Sums, please.")
    assert result.output == "3 and 7"
    last = provider.requests[-1]
    assert [call.args for call in last.calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert all(isinstance(call, ToolCall) and call.name == "add" for call in last.calls)
    assert [answer.content for answer in last.results] == ["3", "7"]
