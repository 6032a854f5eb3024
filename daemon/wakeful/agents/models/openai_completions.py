"""The wire format of chat completions, of OpenAI, Ollama, vLLM, llama.cpp and others: POST /chat/completions
(https://platform.openai.com/docs/api-reference/chat).

Results cannot have images in this format, so images follow in a message of their own. There is no field for thoughts
either: servers that send thoughts use an extra field (`reasoning`, `reasoning_content`) or tags in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.agents.contract import ModelRequest, Say, ToolOffer
from wakeful.agents.models.encoded_conversation import EncodedTurns, Result, ShownImage, Turn, UserTurn
from wakeful.agents.models.model_traits import OpenAITraits, find_openai
from wakeful.agents.models.provider_errors import judge_event
from wakeful.agents.models.recorded_answer import Call, RecordedAnswer, Text, Thought
from wakeful.agents.models.wire_format import (
    CompleteAnswer,
    Endpoint,
    HeardParts,
    Post,
    Reason,
    ToolsOnce,
    frame_image,
    read_event,
    with_properties,
)
from wakeful.core.agents.turns import TokenUsage
from wakeful.text.unicode import make_sendable

_TAGS = ("<think>", "</think>")
# The id of a thought that came between tags. The id of any other thought is the name of its field.
_TAGGED = "content"
_THOUGHT_FIELDS = ("reasoning", "reasoning_content")
_REASONS: dict[str, Reason] = {
    "stop": "done",
    "tool_calls": "done",
    "function_call": "done",
    "length": "length",
    "content_filter": "refused",
}


class OpenAICompletions:
    """Writes and reads chat completions. `is_local`: the user's own server, with an unknown model."""

    def __init__(self, endpoint: Endpoint, *, is_local: bool) -> None:
        self._endpoint = endpoint
        self._name = "openai-compatible" if is_local else "openai"
        self._traits = OpenAITraits() if is_local else find_openai(endpoint.model)
        # Ollama, vLLM and llama.cpp accept the older name of the limit, and some of them accept no other.
        self._limit = "max_tokens" if is_local else "max_completion_tokens"
        self._encoded = EncodedTurns(self._write_turn)
        # The fields in which the turns so far have thoughts, and the field to add to every call, if there is one.
        self._thought_fields: set[str] = set()
        self._thought_field: str | None = None
        self._tools = ToolsOnce()

    def write_post(self, request: ModelRequest, turns: Sequence[Turn]) -> Post:
        settings = request.settings
        self._find_thought_field(turns)
        system = [{"role": "system", "content": make_sendable(request.instructions)}] if request.instructions else []
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            self._limit: settings.max_output_tokens,
            "messages": self._encoded.encode(turns, system),
        }
        if request.tools:
            body |= {"tools": self._tools.write(request.tools, _write_tool), "tool_choice": "auto"}
        if (effort := self._traits.find_effort(settings.effort)) is not None:
            body["reasoning_effort"] = effort
        if settings.temperature is not None and self._traits.takes_temperature(settings.effort):
            body["temperature"] = settings.temperature
        headers = {"Authorization": f"Bearer {self._endpoint.key}"}
        return Post(f"{self._endpoint.address}/chat/completions", headers, msgspec.json.encode(body))

    def listen(self, say: Say) -> _Listener:
        return _Listener(say, self._name)

    def _find_thought_field(self, turns: Sequence[Turn]) -> None:
        """Find the field in which this conversation has thoughts, if there is exactly one.

        As soon as one tool call has the field, DeepSeek's API refuses calls without it. So every call gets it, even
        empty, and turns that were encoded before are encoded again.
        """
        new = self._encoded.find_new(turns)
        if len(new) == len(turns):
            self._thought_fields = set()
        self._thought_fields |= {
            part.id
            for turn in new
            if isinstance(turn, RecordedAnswer)
            for part in turn.parts
            if isinstance(part, Thought) and part.id in _THOUGHT_FIELDS
        }
        field = next(iter(self._thought_fields)) if len(self._thought_fields) == 1 else None
        if field != self._thought_field:
            self._thought_field = field
            self._encoded.forget()

    def _write_turn(self, turn: Turn) -> list[Any]:
        match turn:
            case UserTurn(results=results, texts=texts):
                shown = [
                    piece for result in results for image in result.images for piece in _write_image(result, image)
                ]
                return [
                    *({"role": "tool", "tool_call_id": one.call_id, "content": _write_result(one)} for one in results),
                    *({"role": "user", "content": text} for text in texts),
                    *([{"role": "user", "content": shown}] if shown else ()),
                ]
            case RecordedAnswer():
                return self._write_answer(turn)

    def _write_answer(self, answer: RecordedAnswer) -> list[Any]:
        texts: list[str] = []
        thoughts: dict[str, list[str]] = {}
        calls: list[Any] = []
        for part in answer.parts:
            match part:
                case Text(content=text):
                    texts.append(text)
                case Thought(content=text, id=str(field)) if field != _TAGGED:
                    thoughts.setdefault(field, []).append(text)
                case Thought(content=text):
                    texts.append("\n".join((_TAGS[0], text, _TAGS[1])))
                case Call():
                    calls.append(_write_call(part))
        if not texts and not calls:
            return []
        message: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) if texts else None}
        if calls:
            message["tool_calls"] = calls
            if self._thought_field is not None:
                message[self._thought_field] = ""
        return [message | {field: "\n\n".join(pieces) for field, pieces in thoughts.items()}]


def _write_call(call: Call) -> dict[str, Any]:
    written: dict[str, Any] = {
        "id": call.tool_call_id,
        "type": "function",
        "function": {"name": call.tool_name, "arguments": call.written},
    }
    # Google's gateway puts the signature of a thought here.
    if extra := call.detail("extra_content"):
        written["extra_content"] = extra
    return written


def _write_result(result: Result) -> str:
    """Write the text of a result. An error is marked in JSON. Images, which follow later, are referred to by name."""
    if not result.images:
        return _write_json({"error": result.text}) if result.is_error else result.text
    text = {"error": result.text} if result.is_error else result.text
    return _write_json([text, *(f"See file {image.name}." for image in result.images)])


def _write_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _write_image(result: Result, image: ShownImage) -> list[Any]:
    opening, closing = frame_image(result, image)
    return [
        {"type": "text", "text": opening},
        {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{image.base64}"}},
        {"type": "text", "text": closing},
    ]


def _write_tool(offer: ToolOffer) -> dict[str, Any]:
    function = {
        "name": offer.name,
        "description": make_sendable(offer.description),
        "parameters": with_properties(offer.parameters),
    }
    return {"type": "function", "function": function}


class _TokenDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _TokenDetails | None = None


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct):
    """A piece of a call. If a server sends no index, each name begins a new call."""

    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(Struct):
    """A piece of an answer. Some servers send the content as a list of parts."""

    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class _Listener:
    def __init__(self, say: Say, name: str) -> None:
        self._parts = HeardParts(say, name)
        self._usage = TokenUsage()
        self._reason: Reason = None
        self._is_refused = False
        self._is_tagged = False
        # The index of the call that is under way.
        self._call = -1

    def take(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            return
        chunk = read_event(data, _CHUNK)
        if chunk.error:
            raise judge_event(chunk.error)
        if chunk.usage is not None:
            self._usage = _count(chunk.usage)
        for choice in (chunk.choices or ())[:1]:
            self._reason = _REASONS.get(choice.finish_reason) if choice.finish_reason else self._reason
            if choice.delta is not None:
                self._add(choice.delta)

    def end(self) -> CompleteAnswer:
        reason: Reason = "refused" if self._is_refused else self._reason
        return CompleteAnswer(parts=self._parts.end(), reason=reason, usage=self._usage)

    def _add(self, delta: _Delta) -> None:
        if delta.refusal:
            self._is_refused = True
            return
        for field in _THOUGHT_FIELDS:
            thought = getattr(delta, field)
            if isinstance(thought, str) and thought:
                self._parts.add_thought(thought, id=field)
                break
        if content := _join(delta.content):
            self._add_content(content)
        for call in delta.tool_calls or ():
            self._add_call(call, call.function or _Function())

    def _add_call(self, call: _ToolCall, function: _Function) -> None:
        if call.index is not None:
            self._call = call.index
        elif function.name:
            self._call += 1
        arguments = function.arguments or ""
        details = {"extra_content": call.extra_content} if call.extra_content else {}
        self._parts.add_call(
            self._call,
            name=function.name or "",
            piece=arguments if isinstance(arguments, str) else "",
            args=arguments if isinstance(arguments, dict) else None,
            call_id=call.id or "",
            **details,
        )

    def _add_content(self, content: str) -> None:
        """Add text, or a thought between tags. A tag always comes as a piece of its own, because it is one token."""
        if not self._is_tagged and content == _TAGS[0]:
            self._is_tagged = True
            self._parts.begin_anew()
        elif self._is_tagged and content == _TAGS[1]:
            self._is_tagged = False
        elif self._is_tagged:
            self._parts.add_thought(content, id=_TAGGED)
        else:
            self._parts.add_text(content)


def _join(content: str | list[Any] | None) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content or ""


def _count(usage: _Usage) -> TokenUsage:
    details = usage.prompt_tokens_details or _TokenDetails()
    return TokenUsage(
        input=usage.prompt_tokens or 0,
        output=usage.completion_tokens or 0,
        cached=details.cached_tokens or 0,
        cache_written=details.cache_write_tokens or 0,
    )
