"""The wire format of Anthropic's messages: POST /v1/messages (https://platform.claude.com/docs/en/api/messages)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.agents.contract import ModelRequest, Say, ToolOffer
from wakeful.agents.models.encoded_conversation import EncodedTurns, Result, Turn, UserTurn
from wakeful.agents.models.model_traits import find_claude
from wakeful.agents.models.provider_errors import judge_event
from wakeful.agents.models.recorded_answer import Call, Part, RecordedAnswer, Text, Thought
from wakeful.agents.models.wire_format import CompleteAnswer, Endpoint, HeardParts, Post, Reason, ToolsOnce, read_event
from wakeful.core.agents.turns import TokenUsage
from wakeful.core.spec.agent import Effort
from wakeful.text.unicode import make_sendable

_VERSION = "2026-10-21"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_NAME = "anthropic"
# The ids of thoughts whose text the provider does not show. They only have a signature.
_REDACTED = ("redacted_thinking", "redacted_content")
# The cache setting. Without it, each request pays for the whole conversation again; other providers cache by default.
# Our prices assume five minutes.
_CACHED = {"type": "ephemeral", "ttl": "5m"}
# The share of an answer's tokens for thoughts, for models that take a token budget.
_THINKING_SHARES: dict[Effort, float] = {"low": 0.25, "medium": 0.5, "high": 0.75}
# The smallest number of thinking tokens that Anthropic accepts.
_LEAST_THINKING = 1_024
_REASONS: dict[str, Reason] = {
    "end_turn": "done",
    "stop_sequence": "done",
    "tool_use": "done",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


class Anthropic:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._traits = find_claude(endpoint.model)
        self._encoded = EncodedTurns(_write_turn)
        self._tools = ToolsOnce()

    def write_post(self, request: ModelRequest, turns: Sequence[Turn]) -> Post:
        settings = request.settings
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "max_tokens": settings.max_output_tokens,
            "stream": True,
            "cache_control": _CACHED,
            "messages": self._encoded.encode(turns),
            **self._write_thinking(request, turns),
        }
        if request.instructions:
            system = {"type": "text", "text": make_sendable(request.instructions), "cache_control": _CACHED}
            body["system"] = [system]
        if request.tools:
            *tools, last = self._tools.write(request.tools, _write_tool)
            body["tools"] = [*tools, {**last, "cache_control": _CACHED}]
            body["tool_choice"] = {"type": "auto"}
        headers = {"Authorization": f"Bearer {self._endpoint.key}", "anthropic-version": _VERSION}
        if self._traits.binds_thoughts and _has_thoughts(turns):
            # A summary, other tools or other instructions break the binding of a thought. Ask the provider to drop such
            # a thought and not to refuse the request.
            body["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            headers["anthropic-beta"] = _BINDING_BETA
        return Post(f"{self._endpoint.address}/v1/messages", headers, msgspec.json.encode(body))

    def listen(self, say: Say) -> _Listener:
        return _Listener(say)

    def _write_thinking(self, request: ModelRequest, turns: Sequence[Turn]) -> dict[str, Any]:
        """Write effort and temperature. A model that thinks by budget accepts only one of them."""
        settings, traits = request.settings, self._traits
        has_temperature = settings.temperature is not None and traits.takes_temperature
        temperature = {"temperature": settings.temperature} if has_temperature else {}
        if settings.effort is None:
            return temperature
        if traits.is_adaptive:
            effort = {"output_config": {"effort": settings.effort}} if traits.takes_effort else {}
            return {"thinking": {"type": "adaptive"}, **effort, **temperature}
        budget = int(settings.max_output_tokens * _THINKING_SHARES[settings.effort])
        if budget < _LEAST_THINKING or not _may_think(turns):
            return temperature
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _has_thoughts(turns: Sequence[Turn]) -> bool:
    return any(isinstance(part, Thought) for turn in turns if isinstance(turn, RecordedAnswer) for part in turn.parts)


def _may_think(turns: Sequence[Turn]) -> bool:
    """May a Claude model that thinks by budget think here?

    It refuses to continue after tool calls if its answer has no thought before them.
    """
    match turns:
        case [*_, RecordedAnswer(parts=parts), UserTurn(results=[_, *_])]:
            return any(isinstance(part, Thought) for part in parts)
        case _:
            return True


def _write_turn(turn: Turn) -> list[Any]:
    match turn:
        case UserTurn(results=results, texts=texts):
            content = [*(_write_result(result) for result in results), *(_write_text(text) for text in texts)]
            return [{"role": "user", "content": content}]
        case RecordedAnswer(parts=parts):
            blocks = [block for part in parts if (block := _write_part(part)) is not None]
            return [{"role": "assistant", "content": blocks}] if blocks else []


def _write_part(part: Part) -> dict[str, Any] | None:
    """Write a part. None for parts that the provider refuses: an empty text, and a thought without a signature."""
    match part:
        case Text(content=text):
            return _write_text(text) if text else None
        case Thought(signature=None | ""):
            return None
        case Thought(id=id, signature=signature) if id in _REDACTED:
            return {"type": "redacted_thinking", "data": signature}
        case Thought(content=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call():
            return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.fields}


def _write_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _write_result(result: Result) -> dict[str, Any]:
    images = (
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": image.media_type,
                "data": image.base64,
            },
        }
        for image in result.images
    )
    # Neither a text block nor the list of blocks may be empty.
    content = [*([_write_text(result.text)] if result.text else []), *images]
    return {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": content or "",
        "is_error": result.is_error,
    }


def _write_tool(offer: ToolOffer) -> dict[str, Any]:
    return {"name": offer.name, "description": make_sendable(offer.description), "input_schema": offer.parameters}


class _Usage(Struct):
    """The token counts so far. A later event replaces the counts that it contains, and leaves the others."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(Struct):
    usage: _Usage | None = None


class _Block(Struct):
    """The beginning of a block."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class _Delta(Struct):
    """A further piece of a block, or at the end the reason why the model stopped."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_EVENT = msgspec.json.Decoder(_Event)


class _Listener:
    def __init__(self, say: Say) -> None:
        self._parts = HeardParts(say, _NAME)
        self._usage = _Usage()
        self._reason: Reason = None

    def take(self, data: bytes) -> None:
        event = read_event(data, _EVENT)
        match event:
            case _Event(type="error"):
                raise judge_event(event.error)
            case _Event(type="message_start", message=_Message(usage=usage)):
                self._count(usage)
            case _Event(type="content_block_start", content_block=_Block() as block):
                self._begin(event.index, block)
            case _Event(type="content_block_delta", delta=_Delta() as delta):
                self._add(event.index, delta)
            case _Event(type="message_delta", delta=_Delta(stop_reason=reason)):
                self._count(event.usage)
                self._reason = _REASONS.get(reason) if reason else self._reason
            case _:
                pass  # A ping, the end of a block, or an event that this release does not know.

    def end(self) -> CompleteAnswer:
        told = self._usage
        read, written = told.cache_read_input_tokens or 0, told.cache_creation_input_tokens or 0
        # Anthropic's input count does not include the tokens read from or written to the cache.
        usage = TokenUsage(
            input=(told.input_tokens or 0) + read + written,
            output=told.output_tokens or 0,
            cached=read,
            cache_written=written,
        )
        return CompleteAnswer(parts=self._parts.end(), reason=self._reason, usage=usage)

    def _begin(self, index: int, block: _Block) -> None:
        match block.type:
            case "text":
                self._parts.add_text(block.text or "", index)
            case "thinking":
                self._parts.add_thought(block.thinking or "", index, signature=block.signature)
            case "redacted_thinking":
                self._parts.add_thought("", index, "redacted_thinking", block.data)
            case "tool_use":
                self._parts.add_call(index, name=block.name or "", call_id=block.id or "", args=block.input or None)

    def _add(self, index: int, delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self._parts.add_text(delta.text or "", index)
            case "thinking_delta":
                self._parts.add_thought(delta.thinking or "", index)
            case "signature_delta":
                self._parts.add_thought("", index, signature=delta.signature)
            case "input_json_delta":
                self._parts.add_call(index, piece=delta.partial_json or "")

    def _count(self, usage: _Usage | None) -> None:
        """Take token counts. Later ones replace earlier ones."""
        for name in _Usage.__struct_fields__ if usage is not None else ():
            if (told := getattr(usage, name)) is not None:
                setattr(self._usage, name, told)
