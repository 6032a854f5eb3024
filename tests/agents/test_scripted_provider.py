"""The providers' real clients accept the scripted provider in every wire format: answers, calls, usage and faults.

Some tests hold how the clients behave, not how we would like them to behave. They show what the calling loop must guard
against: half answers taken for whole, and errors without a type.
"""

from __future__ import annotations

from collections.abc import AsyncIterable

import msgspec
import pytest
from pydantic_ai import FunctionToolCallEvent, PartDeltaEvent, PartStartEvent
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelOverloadedError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPartDelta, UserPromptPart
from pydantic_ai.models import ModelRequestParameters

from agents.provider import Call, Cut, Empty, Fail, Garbage, Provider, Reply, Say, Think, Thought, Turn, Usage
from agents.sdk_clients import FORMATS, KEY, make_agent, make_model

# One format always, the others only in long runs. The tests of models cover every format, too.
EACH = [FORMATS[0], *(pytest.param(format, marks=pytest.mark.long) for format in FORMATS[1:])]
# Run by `make test-long`, because the providers' own clients take seconds to import.
pytestmark = [pytest.mark.asyncio, pytest.mark.long, pytest.mark.parametrize("format", EACH)]
WAYS = pytest.mark.parametrize("is_streaming", [False, True], ids=["plain", "streaming"])

ADD_1_2, ADD_3_4 = Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})


async def ask_once(provider: Provider, format: str, is_streaming: bool) -> ModelResponse:
    """Send one request to the model, without an agent and without a retry."""
    messages = [ModelRequest(parts=[UserPromptPart("Well?")])]
    async with make_model(provider, format) as model:
        if not is_streaming:
            return await model.request(messages, None, ModelRequestParameters())
        async with model.request_stream(messages, None, ModelRequestParameters()) as response:
            async for _ in response:
                pass
            return response.get()


async def run_agent(
    provider: Provider, format: str, is_streaming: bool, name: str = "scripted"
) -> tuple[str, list[object]]:
    """Run an agent to its end. With a listener, every request streams."""
    heard: list[object] = []

    async def listen(_: object, events: AsyncIterable[object]) -> None:
        heard.extend([event async for event in events])

    async with make_agent(provider, format, name=name) as agent:
        result = await agent.run("Sums, please.", event_stream_handler=listen if is_streaming else None)
    return result.output, heard


@WAYS
async def test_what_the_script_says_is_what_the_client_hears(
    provider: Provider, format: str, is_streaming: bool
) -> None:
    """Text, usage and stop reason arrive as scripted."""
    text = "Four,  I think.\nOr “五”? "
    provider.play([Reply((Say(text),), usage=Usage(input=120, output=6, cached=20))])
    response = await ask_once(provider, format, is_streaming)
    assert response.text == text
    assert response.finish_reason == "stop"
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (120, 6, 20)
    assert provider.requests[0].is_streaming is is_streaming


async def test_a_request_shows_what_the_model_was_asked(provider: Provider, format: str) -> None:
    """Model, key, instructions, words, tools and settings are read into one shape."""
    provider.play([Say("Four.")])
    async with make_agent(provider, format) as agent:
        await agent.run("What is two and two?", model_settings={"temperature": 0.5, "max_tokens": 77})
    [asked] = provider.requests
    assert (asked.format, asked.model, asked.key, asked.last_words) == (format, "scripted", KEY, "What is two and two?")
    assert "Be brief." in asked.system and "two and two" in asked.text
    [tool] = asked.tools
    assert (tool.name, tool.description) == ("add", "Add two numbers.")
    assert set(tool.schema["properties"]) == {"a", "b"}
    assert (asked.settings["temperature"], asked.settings["max_tokens"]) == (0.5, 77)


async def test_a_stream_arrives_in_pieces(provider: Provider, format: str) -> None:
    """The client gets text while it comes, not only at the end."""
    provider.play([Say("one two three four")])
    output, heard = await run_agent(provider, format, is_streaming=True)
    first = [event.part.content for event in heard if isinstance(event, PartStartEvent)]
    rest = [
        event.delta.content_delta
        for event in heard
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta)
    ]
    assert "".join([*first, *rest]) == output == "one two three four"
    assert len(rest) >= 3


@WAYS
@pytest.mark.parametrize(
    ("turn", "results"),
    [(ADD_1_2, ["3"]), ((ADD_1_2, ADD_3_4), ["3", "7"]), ((Say("Let me see."), ADD_1_2, ADD_3_4), ["3", "7"])],
    ids=["one call", "two calls", "words and calls"],
)
async def test_calls_reach_the_tool_and_results_the_model(
    provider: Provider, format: str, is_streaming: bool, turn: Turn, results: list[str]
) -> None:
    """Every call of a response runs with its arguments, and the next request has its result."""
    provider.play([turn, Say("done")])
    output, heard = await run_agent(provider, format, is_streaming)
    assert output == "done"
    last = provider.requests[-1]
    assert [call.name for call in last.calls] == ["add"] * len(results)
    assert [call.args for call in last.calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}][: len(results)]
    assert [answer.content for answer in last.results] == results
    assert len({call.id for call in last.calls}) == len(results)
    assert len([event for event in heard if isinstance(event, FunctionToolCallEvent)]) == (
        len(results) if is_streaming else 0
    )
    assert len(provider.requests) == 2


@WAYS
async def test_arguments_that_do_not_fit_are_handed_back(provider: Provider, format: str, is_streaming: bool) -> None:
    """A call with wrong arguments gets an error as its result, and the model may try again."""
    provider.play(
        [Call("add", {"a": "one"}, raw='{"a": 1,' if format in ("openai", "responses") else None), ADD_1_2, Say("done")]
    )
    output, _ = await run_agent(provider, format, is_streaming)
    assert output == "done"
    complaint, result = [answer.content for answer in provider.requests[-1].results]
    assert ("int_parsing" in complaint or "json_invalid" in complaint) and result == "3"


@WAYS
async def test_reasoning_comes_and_goes_back(provider: Provider, format: str, is_streaming: bool) -> None:
    """The client returns the model's thoughts in the next request, with their signature if the format has one."""
    provider.play([(Think("Hmm, sums.", signature="cHJvdmVu"), ADD_1_2), Say("done")])
    # OpenAI's client returns reasoning only to models that it knows to reason.
    output, _ = await run_agent(provider, format, is_streaming, name="gpt-5")
    assert output == "done"
    last = provider.requests[-1]
    [thought] = [piece for message in last.messages for piece in message.pieces if isinstance(piece, Thought)]
    assert thought.text == "Hmm, sums."
    assert format == "openai" or "cHJvdmVu" in msgspec.json.encode(last.raw).decode()
    assert format not in ("responses", "anthropic") or thought.signature == "cHJvdmVu"


@WAYS
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, ModelAuthenticationError),
        pytest.param(403, ModelAuthenticationError, marks=pytest.mark.long),
        (429, ModelRateLimitError),
        pytest.param(500, ModelServerError, marks=pytest.mark.long),
        pytest.param(503, ModelUnavailableError, marks=pytest.mark.long),
        (529, ModelOverloadedError),
    ],
)
async def test_a_failure_has_its_type(
    provider: Provider, format: str, is_streaming: bool, status: int, expected: type[Exception]
) -> None:
    """The client distinguishes each status, with the provider's own words and the time to wait."""
    provider.play([Fail(status, retry_after=7, message="no, because")])
    with pytest.raises(expected, match="no, because") as raised:
        await ask_once(provider, format, is_streaming)
    assert raised.value.status_code == status
    assert raised.value.retry_after == 7
    assert len(provider.requests) == 1


async def test_a_failure_in_mid_stream_has_its_type(provider: Provider, format: str) -> None:
    """A provider that fails after it began is not taken for one that finished."""
    provider.play([Fail(529, after_chunks=3)])
    with pytest.raises((ModelServerError, ModelOverloadedError)):
        await ask_once(provider, format, is_streaming=True)


@WAYS
@pytest.mark.parametrize(
    "turn",
    [
        pytest.param(Cut(3), id="closed"),
        pytest.param(Cut(3, how="reset"), id="reset", marks=pytest.mark.long),
        pytest.param(Cut(0), id="unanswered"),
        pytest.param(Cut(0, how="reset"), id="reset unanswered", marks=pytest.mark.long),
    ],
)
async def test_a_cut_connection_has_its_type(provider: Provider, format: str, is_streaming: bool, turn: Cut) -> None:
    """A connection lost before or within an answer is a connection error, never half an answer."""
    provider.play([turn])
    with pytest.raises(ModelConnectionError):
        await ask_once(provider, format, is_streaming)
    assert len(provider.requests) == 1


async def test_a_stream_that_ends_early_and_tidily_tells_no_figures(provider: Provider, format: str) -> None:
    """If the connection ends tidily, clients accept half a stream as an answer.

    Only the missing stop reason or missing usage reveals it.
    """
    provider.play([Cut(4, how="end")])
    response = await ask_once(provider, format, is_streaming=True)
    assert response.finish_reason is None or response.usage.output_tokens == 0


@WAYS
@pytest.mark.parametrize(
    "kind",
    ["text", "shape", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("html", "truncated", "nothing"))],
)
async def test_garbage_never_passes_for_an_answer(
    provider: Provider, format: str, is_streaming: bool, kind: str
) -> None:
    """An invalid answer is an error, or an answer with nothing in it. Some of the errors have no type of their own."""
    provider.play([Garbage(kind)])
    try:
        response = await ask_once(provider, format, is_streaming)
    except (ModelAPIError, UnexpectedModelBehavior, TypeError):
        return
    assert response.parts == [] and response.usage.output_tokens == 0


@WAYS
async def test_an_empty_answer_is_well_formed(provider: Provider, format: str, is_streaming: bool) -> None:
    """A model may say nothing. Then the answer has usage and no part."""
    provider.play([Empty(Usage(50, 2))])
    response = await ask_once(provider, format, is_streaming)
    assert (response.parts, response.usage.input_tokens, response.usage.output_tokens) == ([], 50, 2)


@WAYS
@pytest.mark.parametrize(("stop", "reason"), [("length", "length"), ("refused", "content_filter")])
async def test_an_answer_says_why_it_stopped(
    provider: Provider, format: str, is_streaming: bool, stop: str, reason: str
) -> None:
    """The stop reason distinguishes an answer of maximum length and a refusal from a complete answer."""
    provider.play([Reply((Say("As far as"),), stop=stop)])
    response = await ask_once(provider, format, is_streaming)
    assert response.finish_reason == reason
    assert stop == "refused" or response.text == "As far as"


async def test_a_client_that_tries_again_meets_the_next_turn(provider: Provider, format: str) -> None:
    """A fault fires once, then the same request is answered. Google's client does not retry by itself."""
    provider.play([Fail(429, retry_after=0.01), Say("at last")])
    messages = [ModelRequest(parts=[UserPromptPart("Well?")])]
    async with make_model(provider, format, retries=2) as model:
        if format == "google":
            with pytest.raises(ModelRateLimitError):
                await model.request(messages, None, ModelRequestParameters())
        response = await model.request(messages, None, ModelRequestParameters())
    assert response.text == "at last"
    assert len(provider.requests) == 2


async def test_a_history_with_an_open_call_is_refused(provider: Provider, format: str) -> None:
    """A call that was never answered makes the conversation invalid, as with real providers.

    The client gets 400, and the test reads the surprise.
    """
    provider.play([ADD_1_2, Say("done")])
    async with make_agent(provider, format) as agent:
        messages = (await agent.run("Sums, please.")).all_messages()
    async with make_model(provider, format) as model:
        with pytest.raises(ModelAPIError, match="not answered"):
            await model.request(
                [*messages[:2], ModelRequest(parts=[UserPromptPart("And?")])], None, ModelRequestParameters()
            )
    [surprise] = provider.surprises
    assert "BrokenHistory" in surprise
    provider.forget()


@WAYS
async def test_the_wrong_key_is_refused(format: str, is_streaming: bool) -> None:
    """A provider with a list of keys refuses every other key."""
    with Provider([Say("come in")], keys={"another"}) as provider, pytest.raises(ModelAuthenticationError):
        await ask_once(provider, format, is_streaming)
