"""Our formats and the library read the same answers alike.

The tests compare the streamed words, calls, stop reason and usage, and the parts in the log.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from pydantic_ai import messages as library

from agents.provider import Call, Cut, Empty, Fail, Garbage, Provider, Reply, Say, Think, Usage
from agents.provider.script import Turn
from agents.pydantic_ai_reference import models as beside
from agents.scripted_models import ADD, FORMATS, KEY, PROVIDERS
from wakeful.agents.contract import ModelAnswer, ModelRequest, ProviderFault
from wakeful.agents.models.http_stream import Exchange
from wakeful.agents.models.provider_model import make_model
from wakeful.core.agents.turns import Asked
from wakeful.core.spec.agent import DEFAULT_SILENCE_SECONDS, ModelSpec

# Run by `make test-long`.
pytestmark = [pytest.mark.asyncio, pytest.mark.long]

REQUEST = ModelRequest(instructions="Be brief.", entries=(Asked(text="Hello?"),), tools=(ADD,))
SPENT = Usage(input=7, output=3)
REPLIES: dict[str, Turn] = {
    "words": Reply((Say("Four, I think, and not five."),), SPENT),
    "thoughts": Reply((Think("Hm, let me see."), Say("Four."), Think("Or five?"), Say("No, four.")), SPENT),
    "a call": Reply((Say("Let me see."), Call("add", {"a": 1, "b": [1, {"c": "ü"}]}, id="call_1")), SPENT),
    "calls": Reply(
        (Think("Both."), Call("add", {"a": 1}, id="call_1"), Call("add", {}, id="call_2"), Say("So.")), SPENT
    ),
    "no JSON": Reply((Call("add", raw='{"a": 1, ', id="call_1"),), SPENT),
    "usage": Reply((Say("Four."),), Usage(input=120, output=6, cached=20)),
    "written": Reply((Say("Four."),), Usage(input=120, output=6, cached=20, cache_written=70)),
    "no usage": Reply((Say("Four."),), Usage(input=1, output=1, is_told=False)),
    "cut short": Reply((Say("Well, I"),), SPENT, "length"),
    "refused": Reply((Say("Well, I"),), SPENT, "refused"),
    "another alphabet": Reply((Say("日本 Ünï 😀\n\n  two  spaces"),), SPENT),
}
FAULTS: dict[str, Turn] = {
    "cut": Cut(after_chunks=3), "reset": Cut(after_chunks=3, how="reset"), "broken off tidily": Cut(after_chunks=3, how="end"),
    "status": Fail(529), "in mid-stream": Fail(500, after_chunks=3), "nothing": Empty(), "page": Garbage("html"),
    "text": Garbage("text"), "half": Garbage("truncated"), "shape": Garbage("shape"), "no body": Garbage("nothing"),
}  # fmt: skip
PART_KEYS = (
    "part_kind",
    "content",
    "id",
    "signature",
    "tool_name",
    "args",
    "tool_call_id",
    "provider_name",
    "provider_details",
)


async def ask_ours(ours: str, address: str, said: list[tuple[str, str]], transport: Any = None) -> ModelAnswer:
    spec = ModelSpec(provider=ours, model="scripted", base_url=address)  # type: ignore[arg-type]
    exchange = Exchange(DEFAULT_SILENCE_SECONDS, transport)
    model = make_model(spec, KEY, exchange=exchange)
    return await model.answer(REQUEST, lambda text, kind="text": said.append((text, kind)))


def assert_same(answer: ModelAnswer, heard: beside.Heard) -> None:
    answered = answer.answered
    assert (answered.text, answered.stop, answer.usage) == (heard.text, heard.stop, heard.usage)
    assert [(call.name, call.arguments) for call in answered.calls] == [
        (call.tool_name, call.args if isinstance(call.args, str) and call.args else call.args_as_json_str()) for call in heard.calls
    ]  # fmt: skip
    # An earlier release reads the log with the library, so the library must be able to read this.
    [read] = library.ModelMessagesTypeAdapter.validate_json(answered.raw or "")
    assert isinstance(read, library.ModelResponse) and len(read.parts) == len(heard.raw[0]["parts"])
    [ours], [theirs] = json.loads(answered.raw or ""), heard.raw
    assert [_plain(part) for part in ours["parts"]] == [_plain(part) for part in theirs["parts"]]


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a part that are ever sent back.

    The scripted provider makes ids from the number of a request, so only their prefixes are compared.
    """
    plain = {key: part[key] for key in PART_KEYS if part.get(key)}
    for key in ("id", "tool_call_id"):
        if len(plain.get(key, "")) > 20:
            plain[key] = plain[key].partition("_")[0]
    # The library names the provider even for a part without any data of it.
    if not any(plain.get(key) for key in ("id", "signature", "provider_details")):
        plain.pop("provider_name", None)
    return plain


@pytest.mark.parametrize("what", REPLIES)
@pytest.mark.parametrize("ours", PROVIDERS)
async def test_an_answer_is_read_as_the_library_reads_it(provider: Provider, ours: str, what: str) -> None:
    """The streamed words and the parts in the log are equal."""
    provider.play(lambda _: REPLIES[what])
    said: list[tuple[str, str]] = []
    theirs: list[tuple[str, str]] = []
    address = provider.base_url(FORMATS[ours])
    answer = await ask_ours(ours, address, said)
    heard = await beside.hear(ours, "scripted", address, REQUEST, lambda text, kind="text": theirs.append((text, kind)))
    assert said == theirs
    assert_same(answer, heard)


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("ours", PROVIDERS)
async def test_what_comes_before_a_fault_is_said_as_the_library_says_it(
    provider: Provider, ours: str, what: str
) -> None:
    """Afterwards both fail, or the library returns an answer without calls."""
    provider.play(lambda _: FAULTS[what])
    said: list[tuple[str, str]] = []
    theirs: list[tuple[str, str]] = []
    address = provider.base_url(FORMATS[ours])
    with pytest.raises(ProviderFault):
        await ask_ours(ours, address, said)
    try:
        heard = await beside.hear(
            ours, "scripted", address, REQUEST, lambda text, kind="text": theirs.append((text, kind))
        )
    except Exception:
        pass
    else:
        assert what in ("broken off tidily", "nothing", "shape", "no body", "half") and not heard.calls
    assert said == theirs


def events(*datas: Any, named: bool = False) -> str:
    lines = []
    for data in datas:
        lines.append(f"event: {data['type']}\n" if named else "")
        lines.append(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")
    return "".join(lines)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def candidate(*parts: Any, finish: str | None = None, **rest: Any) -> dict[str, Any]:
    one: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    return {
        "candidates": [one | ({"finishReason": finish} if finish else {})],
        "responseId": "r",
        "modelVersion": "m",
        **rest,
    }


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "in_progress",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "add",
    "arguments": "",
    "status": "in_progress",
}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "in_progress",
    "content": [],
    "phase": "commentary",
}

# Streams that the scripted provider cannot produce, as the reference of each API shows them.
STREAMS: dict[str, tuple[str, str]] = {
    "redacted thoughts": ("anthropic", events(
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "c2VjcmV0"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "All "}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "right."}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"}, named=True)),
    "summaries": ("openai", events(
        {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": REASONING},
        {"type": "response.reasoning_summary_part.added", "sequence_number": 2, "item_id": "rs_1", "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}},
        {"type": "response.reasoning_summary_text.delta", "sequence_number": 3, "item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "First."},
        {"type": "response.reasoning_summary_part.added", "sequence_number": 4, "item_id": "rs_1", "output_index": 0, "summary_index": 1, "part": {"type": "summary_text", "text": ""}},
        {"type": "response.reasoning_summary_text.delta", "sequence_number": 5, "item_id": "rs_1", "output_index": 0, "summary_index": 1, "delta": "Second."},
        {"type": "response.output_item.done", "sequence_number": 6, "output_index": 0, "item": {**REASONING, "encrypted_content": "ZW5j"}},
        {"type": "response.output_item.added", "sequence_number": 7, "output_index": 1, "item": MESSAGE},
        {"type": "response.output_text.delta", "sequence_number": 8, "item_id": "msg_1", "output_index": 1, "content_index": 0, "delta": "Wait", "logprobs": []},
        {"type": "response.output_text.delta", "sequence_number": 9, "item_id": "msg_1", "output_index": 1, "content_index": 0, "delta": ".", "logprobs": []},
        {"type": "response.output_item.added", "sequence_number": 10, "output_index": 2, "item": CALL},
        {"type": "response.function_call_arguments.done", "sequence_number": 11, "item_id": "fc_1", "output_index": 2, "name": "add", "arguments": '{"a":1}'},
        {"type": "response.output_item.done", "sequence_number": 12, "output_index": 2, "item": {**CALL, "arguments": '{"a":1}'}},
        {"type": "response.completed", "sequence_number": 13, "response": {**RESPONSE, "status": "completed", "usage": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13, "input_tokens_details": {"cached_tokens": 2}, "output_tokens_details": {"reasoning_tokens": 1}}}}, named=True)),
    "encrypted alone": ("openai", events(
        {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": REASONING},
        {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": {**REASONING, "encrypted_content": "ZW5j"}},
        {"type": "response.reasoning_text.delta", "sequence_number": 3, "item_id": "rs_2", "output_index": 1, "content_index": 0, "delta": "In "},
        {"type": "response.reasoning_text.delta", "sequence_number": 4, "item_id": "rs_2", "output_index": 1, "content_index": 0, "delta": "full."},
        {"type": "response.output_text.delta", "sequence_number": 5, "item_id": "msg_1", "output_index": 2, "content_index": 0, "delta": "Yes.", "logprobs": []},
        {"type": "response.incomplete", "sequence_number": 6, "response": {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}}, named=True)),
    "tags": ("openai-compatible", events(
        chunk(role="assistant", content=""), chunk(content="<think>"), chunk(content="Hm"), chunk(content="."), chunk(content="</think>"), chunk(content="\n\nYes."), chunk("stop"), "[DONE]")),
    "both fields": ("openai-compatible", events(
        chunk(reasoning="Hm."), chunk(reasoning=" So."), chunk(content="Yes"), chunk(reasoning="Or?"), chunk(content=", yes."),
        chunk(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a"'}}]),
        chunk(tool_calls=[{"index": 1, "id": "call_2", "type": "function", "function": {"name": "add", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "c2ln"}}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]), chunk("tool_calls"), "[DONE]")),
    "no index, and objects": ("openai-compatible", events(
        chunk(tool_calls=[{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a"'}}]),
        chunk(tool_calls=[{"function": {"arguments": ":1}"}}]),
        chunk(tool_calls=[{"id": "call_2", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}]), chunk("tool_calls"), "[DONE]")),
    "thoughts counted": ("google", events(
        candidate({"text": "Hm.", "thought": True}), candidate({"text": "Yes", "thoughtSignature": "c2ln"}), candidate({"text": "."}),
        candidate({"functionCall": {"name": "add", "args": {"a": 1}, "id": "call_1"}, "thoughtSignature": "Y2FsbA=="}),
        candidate({"functionCall": {"name": "add", "id": "call_2"}}),
        candidate({"text": "", "thoughtSignature": "bGFzdA=="}, finish="STOP", usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 2, "totalTokenCount": 24}))),
    "blocked": ("google", events({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}, "responseId": "r"})),
}  # fmt: skip


@pytest.mark.parametrize("what", STREAMS)
async def test_what_the_references_show_is_read_as_the_library_reads_it(what: str) -> None:
    """The streams have redacted thoughts, late arguments, tags in the text, signatures and counted thoughts."""
    ours, text = STREAMS[what]

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=text.encode())

    transport = httpx2.MockTransport(respond)
    said: list[tuple[str, str]] = []
    theirs: list[tuple[str, str]] = []
    answer = await ask_ours(ours, "http://provider.example", said, transport)
    heard = await beside.hear(
        ours,
        "scripted",
        "http://provider.example",
        REQUEST,
        lambda text, kind="text": theirs.append((text, kind)),
        transport,
    )
    assert said == theirs
    assert_same(answer, heard)
