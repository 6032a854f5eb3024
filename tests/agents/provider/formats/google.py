"""Google's `models/NAME:generateContent` and `:streamGenerateContent`.

The path names the model and the kind of answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from agents.provider.answer import Answer, cut_text, dump
from agents.provider.formats import Wire
from agents.provider.model_request import Asked, Message, Other, Piece, Text, Thought, Tool, ToolCall, ToolResult
from agents.provider.script import Call, Part, Say, Think

_STOPS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refused": "SAFETY"}
_SETTINGS = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "thinkingConfig": "effort",
    "stopSequences": "stop",
    "seed": "seed",
}
_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Google:
    name = "google"
    # Calls have an id only if the script gives one, because most of Google's models send none.
    call_prefix = None

    def serves(self, path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    def read(self, wire: Wire) -> Asked:
        body = wire.body.get("generateContentRequest", wire.body)
        config = body.get("generationConfig") or {}
        settings = {ours: config[theirs] for theirs, ours in _SETTINGS.items() if theirs in config}
        if "toolConfig" in body:
            settings["tool_choice"] = body["toolConfig"]
        return Asked(
            number=wire.number,
            format=self.name,
            model=wire.path.rpartition("/")[2].partition(":")[0],
            system="\n".join(part["text"] for part in (body.get("systemInstruction") or {}).get("parts") or ()),
            messages=tuple(_read_content(content) for content in body["contents"]),
            tools=tuple(
                _read_tool(tool)
                for group in body.get("tools") or ()
                for tool in group.get("functionDeclarations") or ()
            ),
            settings=settings,
            key=wire.headers.get("x-goog-api-key") or wire.query.get("key"),
            is_streaming=wire.path.endswith(":streamGenerateContent"),
            path=wire.path,
            headers=wire.headers,
            raw=wire.body,
        )

    def write(self, answer: Answer) -> dict[str, object]:
        return _piece(
            answer, [piece for pieces in _cut_parts(answer, is_whole=True) for piece in pieces], _STOPS[answer.stop]
        )

    def stream(self, answer: Answer, asked: Asked) -> Iterator[str]:
        for pieces in _cut_parts(answer, is_whole=False):
            yield from (_event(_piece(answer, [piece], None)) for piece in pieces)
        yield _event(_piece(answer, [{"text": ""}] if _shown(answer) else [], _STOPS[answer.stop]))

    def fail(self, status: int, message: str, retry_after: float | None) -> dict[str, object]:
        error: dict[str, object] = {"code": status, "message": message, "status": _ERRORS.get(status, "UNKNOWN")}
        if retry_after is not None:
            error["details"] = [
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after:g}s"}
            ]
        return {"error": error}

    def fail_event(self, status: int, message: str) -> str:
        return _event(self.fail(status, message, None))


def _read_content(content: dict[str, object]) -> Message:
    role = "model" if content.get("role") == "model" else "user"
    return Message(role, tuple(_read_part(part) for part in content.get("parts") or ()))


def _read_part(part: dict[str, object]) -> Piece:
    match part:
        case {"functionCall": {"name": name} as call}:
            return ToolCall(call.get("id"), name, call.get("args") or {})
        case {"functionResponse": {"name": name, "response": response} as result}:
            return ToolResult(result.get("id"), name, _read_response(response), "error" in response)
        case {"thought": True, "text": text}:
            return Thought(text, part.get("thoughtSignature"))
        case {"text": text}:
            return Text(text)
        case _:
            return Other(part)


def _read_response(response: dict[str, object]) -> str:
    """Return a result that is one value as that value's text, as the other formats carry it."""
    match list(response.items()):
        case [(_, str(value))]:
            return value
        case [(_, value)]:
            return dump(value)
        case _:
            return dump(response)


def _read_tool(tool: dict[str, object]) -> Tool:
    # Google accepts every name in both spellings. Its own client writes this one with underscores.
    schemas = (tool.get(name) for name in ("parametersJsonSchema", "parameters_json_schema", "parameters"))
    return Tool(tool["name"], tool.get("description") or "", next(filter(None, schemas), {}))


def _shown(answer: Answer) -> tuple[Part, ...]:
    # Text that the filter stops is not shown at all.
    return () if answer.stop == "refused" else answer.parts


def _cut_parts(answer: Answer, *, is_whole: bool) -> Iterator[list[dict[str, object]]]:
    """Write each part, whole or in pieces.

    The signature of a thought is not sent on the thought, but on the part that follows it.
    """
    proof: dict[str, object] = {}
    for part in _shown(answer):
        match part:
            case Think(text=text, signature=signature):
                yield [{"text": piece, "thought": True} for piece in ([text] if is_whole else cut_text(text))]
                proof = {"thoughtSignature": signature}
                continue
            case Say(text=text):
                first, *rest = [text] if is_whole else cut_text(text) or [""]
                yield [{"text": first, **proof}, *({"text": piece} for piece in rest)]
            case Call(name=name, args=args, id=id):
                yield [{"functionCall": {"name": name, "args": args} | ({"id": id} if id else {}), **proof}]
        proof = {}


def _piece(answer: Answer, parts: list[dict[str, object]], stop: str | None) -> dict[str, object]:
    candidate: dict[str, object] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    if stop is not None:
        candidate["finishReason"] = stop
    usage = {
        "promptTokenCount": answer.usage.input,
        "candidatesTokenCount": answer.usage.output,
        "totalTokenCount": answer.usage.input + answer.usage.output,
    }
    if answer.usage.cached:
        usage["cachedContentTokenCount"] = answer.usage.cached
    told = {"usageMetadata": usage} if answer.usage.is_told else {}
    return {"candidates": [candidate], **told, "modelVersion": answer.model, "responseId": answer.id}


def _event(value: dict[str, object]) -> str:
    return f"data: {dump(value)}\r\n\r\n"
