"""The format of Google's Gemini: POST /v1/models/NAME:streamGenerateContent
(https://ai.google.dev/api/generate-content)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.agents.contract import ModelRequest, Say, ToolOffer
from wakeful.agents.models.encoded_conversation import EncodedTurns, Result, ShownImage, Turn, UserTurn
from wakeful.agents.models.model_traits import find_gemini
from wakeful.agents.models.provider_errors import judge_event
from wakeful.agents.models.recorded_answer import Call, Part, RecordedAnswer, Text, Thought
from wakeful.agents.models.wire_format import (
    CompleteAnswer,
    Endpoint,
    HeardParts,
    Post,
    Reason,
    ToolsOnce,
    frame_image,
    read_event,
)
from wakeful.core.agents.turns import TokenUsage
from wakeful.text.unicode import make_sendable

_NAME = "google"
# The first call of a turn needs the signature of the thought before it. For a call of another model, which has none,
# Google documents this placeholder.
_NO_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
# The seconds that Google's server may take for one answer, as Google recommends for long answers.
_SERVER_SECONDS = "1200"
_REASONS: dict[str, Reason] = {
    "STOP": "done",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "MODEL_ARMOR": "refused",
}


class Google:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._traits = find_gemini(endpoint.model)
        self._encoded = EncodedTurns(self._write_turn)
        self._tools = ToolsOnce()

    def write_post(self, request: ModelRequest, turns: Sequence[Turn]) -> Post:
        settings = request.settings
        generation: dict[str, Any] = {
            "maxOutputTokens": settings.max_output_tokens,
            "responseModalities": ["TEXT"],
        }
        if settings.temperature is not None:
            generation["temperature"] = settings.temperature
        if (thinking := self._traits.find_thinking(settings.effort)) is not None:
            generation["thinkingConfig"] = thinking
        body: dict[str, Any] = {"contents": self._encoded.encode(turns), "generationConfig": generation}
        if request.instructions:
            body["systemInstruction"] = {"role": "user", "parts": [{"text": make_sendable(request.instructions)}]}
        if request.tools:
            body["tools"] = [{"functionDeclarations": self._tools.write(request.tools, _write_tool)}]
            # Models that think can be forced to follow the schemas of their tools.
            mode = "AUTO" if self._traits.thinks == "no" else "VALIDATED"
            body["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        url = f"{self._endpoint.address}/v1/models/{self._endpoint.model}:streamGenerateContent?alt=sse"
        headers = {"x-goog-api-key": self._endpoint.key, "X-Server-Timeout": _SERVER_SECONDS}
        return Post(url, headers, msgspec.json.encode(body))

    def listen(self, say: Say) -> _Listener:
        return _Listener(say)

    def _write_turn(self, turn: Turn) -> list[Any]:
        """Write a turn.

        Results and texts become separate items: Google takes an item with both for an answer of the model.
        """
        match turn:
            case UserTurn(results=results, texts=texts):
                responses = [self._write_result(result) for result in results]
                # If a result cannot have images, they follow the results.
                framed = [] if self._traits.shows_results else [part for one in results for part in _frame_images(one)]
                words = [*framed, *({"text": text} for text in texts)]
                return [{"role": "user", "parts": parts} for parts in (responses, words) if parts]
            case RecordedAnswer(parts=parts):
                written = _write_parts(parts)
                return [{"role": "model", "parts": written}] if written else []

    def _write_result(self, result: Result) -> dict[str, Any]:
        response: dict[str, Any] = {"error": result.text} if result.is_error else {"return_value": result.text}
        written: dict[str, Any] = {"id": result.call_id, "name": result.name, "response": response}
        if result.images and self._traits.shows_results:
            written["parts"] = [_write_image(image) for image in result.images]
        elif result.images and not result.is_error:
            written["response"] = {"output": [response, *(f"See file {image.name}." for image in result.images)]}
        return {"functionResponse": written}


def _write_parts(parts: Sequence[Part]) -> list[Any]:
    written: list[Any] = []
    is_first_call = True
    # The signature of a thought is sent with the part after it.
    pending: str | None = None
    for part in parts:
        signature, pending = part.detail("thought_signature") or pending, None
        made: dict[str, Any] | None
        match part:
            case Text(content=text):
                made = {"text": text}
            case Thought(content=text):
                pending = part.signature
                made = {"text": text, "thought": True} if text else None
            case Call():
                made = {"functionCall": {"id": part.tool_call_id, "name": part.tool_name, "args": part.fields}}
                signature = signature or (_NO_SIGNATURE if is_first_call else None)
                is_first_call = False
        if made is not None:
            written.append(made if signature is None else {**made, "thoughtSignature": signature})
    return written


def _write_image(image: ShownImage) -> dict[str, Any]:
    return {"inlineData": {"mimeType": image.media_type, "data": image.base64}}


def _frame_images(result: Result) -> list[Any]:
    framed = []
    for image in result.images:
        opening, closing = frame_image(result, image)
        framed += [{"text": opening}, _write_image(image), {"text": closing}]
    return framed


def _write_tool(offer: ToolOffer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "description": make_sendable(offer.description),
        "parametersJsonSchema": fit_schema(offer.parameters),
    }


# The schema keywords that Gemini refuses, and those whose value is one schema, several, or several by name.
_REFUSED = ("$schema", "title", "discriminator", "examples", "exclusiveMinimum", "exclusiveMaximum", "const")
_ONE = ("items", "additionalProperties", "not")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def fit_schema(schema: Any) -> Any:
    """Remove the keywords that Gemini refuses from a schema.

    A constant becomes a list of one value, and a format becomes a part of the description.
    """
    if not isinstance(schema, Mapping):
        return schema
    fitted = {name: _fit_keyword(name, value) for name, value in schema.items() if name not in _REFUSED}
    if (constant := schema.get("const")) is not None:
        fitted["enum"] = [constant]
        if (kind := _TYPES.get(type(constant))) is not None:
            fitted.setdefault("type", kind)
    if fitted.get("type") == "string" and (form := fitted.pop("format", None)):
        words = fitted.get("description")
        fitted["description"] = f"{words} (format: {form})" if words else f"Format: {form}"
    return fitted


def _fit_keyword(name: str, value: Any) -> Any:
    if name in _NAMED and isinstance(value, Mapping):
        return {key: fit_schema(one) for key, one in value.items()}
    if name in (*_ONE, *_SEVERAL) and isinstance(value, list):
        return [fit_schema(one) for one in value]
    return fit_schema(value) if name in _ONE else value


class _FunctionCall(Struct):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None


class _Piece(Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(Struct):
    parts: list[_Piece] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Response(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_RESPONSE = msgspec.json.Decoder(_Response)


class _Listener:
    def __init__(self, say: Say) -> None:
        self._parts = HeardParts(say, _NAME)
        self._usage = _Usage()
        self._reason: Reason = None
        self._calls = 0

    def take(self, data: bytes) -> None:
        response = read_event(data, _RESPONSE)
        if response.error:
            raise judge_event(response.error)
        self._count(response.usage_metadata)
        if not response.candidates and response.prompt_feedback and response.prompt_feedback.block_reason:
            self._reason = "refused"
        for candidate in (response.candidates or ())[:1]:
            if candidate.finish_reason and self._reason != "refused":
                self._reason = _REASONS.get(candidate.finish_reason)
            for piece in (candidate.content.parts if candidate.content else None) or ():
                self._add(piece)

    def end(self) -> CompleteAnswer:
        told = self._usage
        usage = TokenUsage(
            input=(told.prompt_token_count or 0) + (told.tool_use_prompt_token_count or 0),
            output=(told.candidates_token_count or 0) + (told.thoughts_token_count or 0),
            cached=told.cached_content_token_count or 0,
        )
        return CompleteAnswer(parts=self._parts.end(), reason=self._reason, usage=usage)

    def _add(self, piece: _Piece) -> None:
        details = {"thought_signature": piece.thought_signature} if piece.thought_signature else {}
        match piece:
            case _Piece(function_call=_FunctionCall() as call):
                self._calls += 1
                self._parts.add_call(
                    self._calls, name=call.name or "", args=call.args or {}, call_id=call.id or "", **details
                )
            case _Piece(text=str(text)) if text or details:
                if piece.thought:
                    self._parts.add_thought(text, **details)
                else:
                    self._parts.add_text(text, **details)

    def _count(self, usage: _Usage | None) -> None:
        """Take token counts. Each event has the totals so far; counts that it leaves out keep their values."""
        for name in _Usage.__struct_fields__ if usage is not None else ():
            if told := getattr(usage, name):
                setattr(self._usage, name, told)
