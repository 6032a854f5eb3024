"""The wire format of OpenAI's responses: POST /responses (https://platform.openai.com/docs/api-reference/responses).

The provider stores nothing (`store: false`). So thoughts come encrypted and are sent back with each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.agents.contract import ModelRequest, Say, ToolOffer
from wakeful.agents.models.encoded_conversation import EncodedTurns, Result, Turn, UserTurn
from wakeful.agents.models.model_traits import find_openai
from wakeful.agents.models.provider_errors import judge_event
from wakeful.agents.models.recorded_answer import Call, RecordedAnswer, Text, Thought
from wakeful.agents.models.wire_format import (
    CompleteAnswer,
    Endpoint,
    HeardParts,
    Post,
    Reason,
    ToolsOnce,
    read_event,
    with_properties,
)
from wakeful.core.agents.turns import TokenUsage
from wakeful.text.unicode import make_sendable

_NAME = "openai"
_PHASES = ("commentary", "final_answer")
_REASONS: dict[str, Reason] = {
    "completed": "done",
    "max_output_tokens": "length",
    "content_filter": "refused",
}


class OpenAIResponses:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._traits = find_openai(endpoint.model)
        self._encoded = EncodedTurns(self._write_turn)
        self._tools = ToolsOnce()

    def write_post(self, request: ModelRequest, turns: Sequence[Turn]) -> Post:
        settings, traits = request.settings, self._traits
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "stream": True,
            # The log is the only copy of a conversation. The provider must not store it.
            "store": False,
            "max_output_tokens": settings.max_output_tokens,
            "input": self._encoded.encode(turns),
        }
        if request.instructions:
            body["instructions"] = make_sendable(request.instructions)
        if request.tools:
            body |= {"tools": self._tools.write(request.tools, _write_tool), "tool_choice": "auto"}
        if traits.reasons:
            body["include"] = ["reasoning.encrypted_content"]
        reasoning: dict[str, Any] = {"context": "all_turns"} if traits.keeps_thoughts else {}
        if (effort := traits.find_effort(settings.effort)) is not None:
            reasoning["effort"] = effort
        if reasoning:
            body["reasoning"] = reasoning
        if settings.temperature is not None and traits.takes_temperature(settings.effort):
            body["temperature"] = settings.temperature
        headers = {"Authorization": f"Bearer {self._endpoint.key}"}
        return Post(f"{self._endpoint.address}/responses", headers, msgspec.json.encode(body))

    def listen(self, say: Say) -> _Listener:
        return _Listener(say)

    def _write_turn(self, turn: Turn) -> list[Any]:
        match turn:
            case UserTurn(results=results, texts=texts):
                return [
                    *(_write_result(result) for result in results),
                    *({"role": "user", "content": text} for text in texts),
                ]
            case RecordedAnswer():
                return self._write_answer(turn)

    def _write_answer(self, answer: RecordedAnswer) -> list[Any]:
        """Write the items of an answer.

        Ids are sent only to a model that reasons, at the address that gave them. There they link a thought with the
        items that it led to.
        """
        is_home = answer.provider_url is None or answer.provider_url.rstrip("/") == self._endpoint.address
        items: list[dict[str, Any]] = []
        by_id: dict[str, dict[str, Any]] = {}
        for part in answer.parts:
            id = part.id if self._traits.reasons and is_home else None
            match part:
                case Text():
                    if id is None:
                        items.append({"role": "assistant", "content": part.content, **self._write_phase(part)})
                        continue
                    if id not in by_id:
                        items.append(_begin_message(id))
                        by_id[id] = items[-1]
                    by_id[id]["content"].append({"type": "output_text", "text": part.content, "annotations": []})
                    by_id[id].update(self._write_phase(part))
                case Thought(id=str(of_thought)) if id is not None or self._has_proof(part):
                    if of_thought not in by_id and (part.signature or part.content or part.detail("raw_content")):
                        items.append(_begin_thought(of_thought, self._find_signature(part)))
                        by_id[of_thought] = items[-1]
                    _add_thought(by_id.get(of_thought), part)
                case Thought():
                    items.append({"role": "assistant", "content": f"<think>\n{part.content}\n</think>"})
                case Call():
                    items.append(_write_call(part, id))
        return items

    def _has_proof(self, part: Thought) -> bool:
        """Is the thought valid at every address?

        Yes, if its full text is known, or if it is encrypted and the model reasons.
        """
        return bool(self._find_signature(part) or part.detail("raw_content"))

    def _find_signature(self, part: Thought) -> str | None:
        return part.signature or None if self._traits.reasons else None

    def _write_phase(self, part: Text) -> dict[str, str]:
        phase = part.detail("phase")
        return {"phase": phase} if self._traits.has_phases and phase in _PHASES else {}


def _begin_message(id: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "id": id, "status": "completed", "content": []}


def _begin_thought(id: str, encrypted: str | None) -> dict[str, Any]:
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": encrypted}


def _add_thought(item: dict[str, Any] | None, part: Thought) -> None:
    if item is None:
        return
    if part.content:
        item["summary"].append({"type": "summary_text", "text": part.content})
    if raw := part.detail("raw_content"):
        item["content"] = [{"type": "reasoning_text", "text": text} for text in raw]


def _write_call(call: Call, id: str | None) -> dict[str, Any]:
    written = {
        "type": "function_call",
        "call_id": call.tool_call_id,
        "name": call.tool_name,
        "arguments": call.written,
    }
    return written if id is None else {**written, "id": id}


def _write_result(result: Result) -> dict[str, Any]:
    text = msgspec.json.encode({"error": result.text}).decode() if result.is_error else result.text
    images = [
        {
            "type": "input_image",
            "image_url": f"data:{image.media_type};base64,{image.base64}",
            "detail": "auto",
        }
        for image in result.images
    ]
    output: Any = [{"type": "input_text", "text": text}, *images] if images else text
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _write_tool(offer: ToolOffer) -> dict[str, Any]:
    return {
        "type": "function",
        "name": offer.name,
        "description": make_sendable(offer.description),
        "parameters": with_properties(offer.parameters),
        # A strict schema could not have optional arguments.
        "strict": False,
    }


class _TokenDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _TokenDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    status: str | None = None
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


class _Item(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    phase: str | None = None
    encrypted_content: str | None = None


class _SummaryPart(Struct):
    text: str | None = None


class _Event(Struct):
    type: str = ""
    response: _Response | None = None
    item: _Item | None = None
    item_id: str = ""
    content_index: int = 0
    summary_index: int = 0
    delta: Any = None
    arguments: str | None = None
    part: _SummaryPart | None = None


_EVENT = msgspec.json.Decoder(_Event)
_ANY = msgspec.json.Decoder(Any)


class _Listener:
    def __init__(self, say: Say) -> None:
        self._parts = HeardParts(say, _NAME)
        self._usage = TokenUsage()
        self._reason: Reason = None
        self._is_refused = False
        self._phases: dict[str, str] = {}
        # The full texts of thoughts by item, if the model shows these and not summaries.
        self._raw_thoughts: dict[str, list[str]] = {}

    def take(self, data: bytes) -> None:
        event = read_event(data, _EVENT)
        match event:
            case _Event(type="error" | ""):
                told = read_event(data, _ANY)
                raise judge_event(told.get("error") or told if isinstance(told, dict) else told)
            case _Event(type="response.output_item.added", item=_Item() as item):
                self._begin(item)
            case _Event(type="response.output_item.done", item=_Item() as item):
                self._finish(item)
            case _Event(type="response.output_text.delta", delta=str(piece)):
                phase = self._phases.get(event.item_id)
                details = {"phase": phase} if phase is not None else {}
                self._parts.add_text(piece, (event.item_id, event.content_index), event.item_id, **details)
            case _Event(type="response.refusal.delta" | "response.refusal.done"):
                self._is_refused = True
            case _Event(type="response.reasoning_summary_part.added", part=_SummaryPart(text=piece)):
                self._add_summary(event, piece or "")
            case _Event(type="response.reasoning_summary_text.delta", delta=str(piece)):
                self._add_summary(event, piece)
            case _Event(type="response.reasoning_text.delta", delta=str(piece)):
                self._add_raw_thought(event, piece)
            case _Event(type="response.function_call_arguments.delta", delta=str(piece)):
                if self._parts.has(event.item_id):
                    self._parts.add_call(event.item_id, piece=piece)
            case _Event(type="response.function_call_arguments.done", arguments=str(arguments)):
                if self._parts.has(event.item_id):
                    self._parts.complete_call(event.item_id, arguments)
            case _Event(response=_Response() as response):
                self._take_response(event.type, response)
            case _:
                pass  # The end of a part, or an event that this release does not know.

    def end(self) -> CompleteAnswer:
        reason: Reason = "refused" if self._is_refused and self._reason is not None else self._reason
        return CompleteAnswer(parts=self._parts.end(), reason=reason, usage=self._usage)

    def _begin(self, item: _Item) -> None:
        match item.type:
            case "function_call":
                self._parts.add_call(
                    item.id or "",
                    name=item.name or "",
                    piece=item.arguments or "",
                    call_id=item.call_id or "",
                    id=item.id,
                )
            case "message" if item.phase is not None:
                self._phases[item.id or ""] = item.phase

    def _finish(self, item: _Item) -> None:
        match item.type:
            case "function_call":
                if not self._parts.has(item.id or ""):
                    self._begin(item)
                self._parts.complete_call(item.id or "", item.arguments or "")
            case "reasoning" if item.encrypted_content:
                self._parts.add_thought("", (item.id or "", 0), item.id, item.encrypted_content)

    def _add_summary(self, event: _Event, piece: str) -> None:
        self._parts.add_thought(piece, (event.item_id, event.summary_index), event.item_id)

    def _add_raw_thought(self, event: _Event, piece: str) -> None:
        texts = self._raw_thoughts.setdefault(event.item_id, [])
        texts += [""] * (event.content_index + 1 - len(texts))
        texts[event.content_index] += piece
        self._parts.add_thought("", (event.item_id, 0), event.item_id, raw_content=texts)

    def _take_response(self, kind: str, response: _Response) -> None:
        if response.usage is not None:
            self._usage = _count(response.usage)
        match kind:
            case "response.failed" if response.error:
                raise judge_event(response.error)
            case "response.completed" | "response.incomplete":
                told = response.incomplete_details.reason if response.incomplete_details else response.status
                self._reason = _REASONS.get(told or "")


def _count(usage: _Usage) -> TokenUsage:
    details = usage.input_tokens_details or _TokenDetails()
    return TokenUsage(
        input=usage.input_tokens or 0,
        output=usage.output_tokens or 0,
        cached=details.cached_tokens or 0,
        cache_written=details.cache_write_tokens or 0,
    )
