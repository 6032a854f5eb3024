"""Every misbehaviour of a provider becomes one of a few kinds of fault.

Its message says which provider, what happened and why, and never contains the key.
"""

from __future__ import annotations

import asyncio

import pytest

from agents.provider import Cut, Empty, Fail, Garbage, Hold, Provider, Say
from agents.provider.script import Turn
from agents.scripted_models import FORMATS, KEY, PROVIDERS, hear, reach
from wakeful.agents.contract import ProviderFault
from wakeful.agents.models import http_stream
from wakeful.agents.models.provider_errors import Trouble
from wakeful.agents.models.provider_model import make_model
from wakeful.core.agents.turns import Asked
from wakeful.core.spec.agent import ModelSpec

FAULTS: dict[str, tuple[Turn, str]] = {
    "wrong key": (Fail(401, message=f"Incorrect API key provided: {KEY}."), "key"),
    "forbidden": (Fail(403), "key"),
    "no money": (Fail(402), "key"),
    "rate limit": (Fail(429, retry_after=7), "busy"),
    "server error": (Fail(500), "busy"),
    "bad gateway": (Fail(502), "busy"),
    "unavailable": (Fail(503), "busy"),
    "gateway timeout": (Fail(504), "busy"),
    "overloaded": (Fail(529), "busy"),
    "no such model": (Fail(404), "refused"),
    "bad request": (Fail(400, message="tools: bad schema"), "refused"),
    "body too large": (Fail(413), "too_long"),
    "cut at once": (Cut(after_chunks=0), "network"),
    "cut": (Cut(after_chunks=2), "network"),
    "reset": (Cut(after_chunks=2, how="reset"), "network"),
    "broken off tidily": (Cut(after_chunks=2, how="end"), "garbage"),
    "text": (Garbage("text"), "garbage"),
    "page": (Garbage("html"), "garbage"),
    "half a JSON": (Garbage("truncated"), "garbage"),
    "another JSON": (Garbage("shape"), "garbage"),
    "no body": (Garbage("nothing"), "garbage"),
    "nothing said": (Empty(), "garbage"),
}
# Faults inside a stream that began well. OpenAI's formats send no status there, so only the words tell them apart.
IN_MID_STREAM: dict[str, tuple[Turn, str]] = {
    "rate limit": (Fail(429, after_chunks=2), "busy"),
    "server error": (Fail(500, after_chunks=2), "busy"),
    "unavailable": (Fail(503, after_chunks=2), "busy"),
    "gateway timeout": (Fail(504, after_chunks=2), "busy"),
    "wrong key": (Fail(401, message=f"Incorrect API key provided: {KEY}.", after_chunks=2), "key"),
    "no such model": (Fail(404, after_chunks=2), "refused"),
    "cut": (Cut(after_chunks=2), "network"),
    "reset": (Cut(after_chunks=2, how="reset"), "network"),
    "broken off tidily": (Cut(after_chunks=2, how="end"), "garbage"),
}
OF_GOOGLE: dict[str, tuple[Turn, str]] = {
    "bad request": (Fail(400, message="tools: bad schema", after_chunks=2), "refused"),
    "forbidden": (Fail(403, after_chunks=2), "key"),
    "no money": (Fail(402, after_chunks=2), "key"),
    "too long": (
        Fail(
            400,
            message="The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            after_chunks=2,
        ),
        "too_long",
    ),
}
TOO_LONG = {
    "anthropic": "prompt is too long: 205000 tokens > 200000 maximum",
    "openai": "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.",
    "openai-chat": "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.",
    "openai-compatible": "the request exceeds the available context size, try increasing it",
    "google": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
}


async def fault_of(provider: Provider, ours: str, turn: Turn, silence_seconds: float = 60.0) -> ProviderFault:
    provider.play([turn, Say("Well then.")])
    asked = len(provider.requests)
    model = reach(provider, ours, silence_seconds=silence_seconds)
    with pytest.raises(ProviderFault) as caught:
        await hear(model, Asked(text="Hello?"))
    assert len(provider.requests) == asked + 1, "nobody but the loop retries"
    # The next request of the same model works again.
    assert (await hear(model, Asked(text="Hello?"))).text == "Well then."
    return caught.value


async def _holds(provider: Provider, ours: str, what: str) -> None:
    turn, kind = FAULTS[what]
    fault = await fault_of(provider, ours, turn)
    assert fault.kind == kind, str(fault)
    assert str(fault).startswith(f"{ours}:scripted ") and KEY not in str(fault) + repr(fault)
    assert fault.__cause__ is None and (fault.__context__ is None or fault.__suppress_context__), (
        "a traceback of an SDK shows headers"
    )
    if isinstance(turn, Fail):
        assert (fault.status, fault.retry_after) == (turn.status, turn.retry_after)
        assert f"HTTP {turn.status}" in str(fault)


@pytest.mark.parametrize(
    ("ours", "what"),
    [("anthropic", "wrong key"), ("openai", "rate limit"), ("google", "rate limit"), ("openai-chat", "overloaded"), ("google", "cut"), ("openai", "page"),
     ("anthropic", "half a JSON"), ("openai-compatible", "nothing said"), ("google", "no body"), ("openai", "broken off tidily")],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_fault_says_whose_it_is(provider: Provider, ours: str, what: str) -> None:
    """The kind of a fault decides the next step of the loop, and its words let a person act."""
    await _holds(provider, ours, what)


@pytest.mark.long
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("ours", PROVIDERS)
@pytest.mark.asyncio
async def test_every_fault_of_every_provider_has_its_kind(provider: Provider, ours: str, what: str) -> None:
    """The same check for every fault and provider."""
    await _holds(provider, ours, what)


@pytest.mark.parametrize(
    "ours", ["google", *(pytest.param(one, marks=pytest.mark.long) for one in FORMATS if one != "google")]
)
def test_a_fault_in_mid_stream_has_its_kind_and_leaves_nothing_open(provider: Provider, ours: str) -> None:
    """The response that the client gave up is closed, so a process that ends afterwards prints no traceback."""
    complaints: list[str] = []

    async def meet_all() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        for what, (turn, kind) in {**IN_MID_STREAM, **(OF_GOOGLE if ours == "google" else {})}.items():
            fault = await fault_of(provider, ours, turn)
            assert fault.kind == kind, f"{what}: {fault}"
            assert KEY not in str(fault)

    asyncio.run(meet_all())
    assert complaints == []


WRONG_TYPES = {
    "anthropic": '{"type": "content_block_start", "index": "one", "content_block": [1]}',
    "openai": '{"type": "response.output_item.added", "item": "one"}',
    "openai-chat": '{"choices": {"delta": "one"}}',
    "openai-compatible": '{"choices": [{"delta": {"tool_calls": "one"}}]}',
    "google": '{"candidates": [{"content": "one"}]}',
}


@pytest.mark.parametrize("ours", PROVIDERS)
@pytest.mark.asyncio
async def test_an_event_with_values_of_other_types_is_no_answer(provider: Provider, ours: str) -> None:
    """The JSON has the right names, but values of wrong types."""
    fault = await fault_of(provider, ours, Garbage("text", text=WRONG_TYPES[ours]))
    assert fault.kind == "garbage" and "an answer that cannot be read" in str(fault), str(fault)


@pytest.mark.parametrize("ours", PROVIDERS)
@pytest.mark.asyncio
async def test_a_conversation_too_long_is_told_from_other_refusals(provider: Provider, ours: str) -> None:
    """Each provider has its own words for it. The fault has the kind `too_long`."""
    assert (await fault_of(provider, ours, Fail(400, message=TOO_LONG[ours]))).kind == "too_long"


@pytest.mark.parametrize(
    "ours", ["anthropic", *(pytest.param(one, marks=pytest.mark.long) for one in ("openai", "openai-chat", "google"))]
)
@pytest.mark.asyncio
async def test_silence_is_not_waited_for_without_end(provider: Provider, ours: str) -> None:
    """A silent provider is given up after the time that its agent sets.

    It may be silent before or after the first word. The message names the setting.
    """
    for after in (0, 2):
        fault = await fault_of(
            provider,
            ours,
            Hold("never", after_chunks=after, then=Cut(after_chunks=3, then=Say("One two three four."))),
            0.3,
        )
        assert fault.kind == "network" and "limits.silence" in str(fault), str(fault)


@pytest.mark.parametrize("ours", PROVIDERS)
@pytest.mark.asyncio
async def test_an_address_where_nobody_is_says_so(ours: str) -> None:
    """The address may be back in a moment. Nothing was sent, so nothing was spent."""
    with Provider() as gone:
        address = gone.base_url(FORMATS[ours])
    with pytest.raises(ProviderFault) as caught:
        await hear(make_model(ModelSpec(provider=ours, model="m", base_url=address), KEY), Asked(text="Hello?"))  # type: ignore[arg-type]
    assert caught.value.kind == "unreached" and "nothing was sent" in str(caught.value)


@pytest.mark.asyncio
async def test_a_long_complaint_is_cut(provider: Provider) -> None:
    """A long error message of a provider is shortened to a readable length."""
    assert len(str(await fault_of(provider, "anthropic", Fail(400, message="why " * 10_000)))) < 600


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 100 + b"\n"])
def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    """Neither one long line nor many lines without an empty line between them can fill the memory."""
    monkeypatch.setattr(http_stream, "LARGEST_EVENT_BYTES", 1_000)
    reader = http_stream.EventReader()
    with pytest.raises(Trouble) as trouble:
        for _ in range(20):
            assert list(reader.take(piece)) == []
    assert trouble.value.kind == "garbage" and "one piece of more than" in trouble.value.said
