"""Anthropic's messages, `/v1/messages`."""

from __future__ import annotations

from collections.abc import Iterator

from agents.provider.answer import Answer, cut_args, cut_text, dump
from agents.provider.formats import Wire
from agents.provider.formats.bearer import read_bearer
from agents.provider.model_request import Asked, Other, Piece, Text, Thought, Tool, ToolCall, ToolResult, merge_roles
from agents.provider.script import Call, Part, Say, Think, Usage

_STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refused": "refusal"}
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "thinking": "thinking",
    "output_config": "effort",
    "tool_choice": "tool_choice",
    "stop_sequences": "stop",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Anthropic:
    name = "anthropic"
    call_prefix = "toolu_"

    def serves(self, path: str) -> bool:
        return path.endswith("/v1/messages")

    def read(self, wire: Wire) -> Asked:
        body = wire.body
        return Asked(
            number=wire.number,
            format=self.name,
            model=body["model"],
            system=_read_text(body.get("system") or ""),
            messages=merge_roles([piece for message in body["messages"] for piece in _read_message(message)]),
            tools=tuple(
                Tool(tool["name"], tool.get("description") or "", tool.get("input_schema") or {})
                for tool in body.get("tools") or ()
            ),
            settings={ours: body[theirs] for theirs, ours in _SETTINGS.items() if theirs in body},
            key=wire.headers.get("x-api-key") or read_bearer(wire.headers),
            is_streaming=bool(body.get("stream")),
            path=wire.path,
            headers=wire.headers,
            raw=body,
        )

    def write(self, answer: Answer) -> dict[str, object]:
        return {
            **_envelope(answer),
            "content": [_write_part(part) for part in answer.parts],
            "stop_reason": _STOPS[answer.stop],
            "usage": _write_usage(answer),
        }

    def stream(self, answer: Answer, asked: Asked) -> Iterator[str]:
        opening = {**_write_usage(answer), "output_tokens": int(answer.usage.is_told)}
        yield _event(
            "message_start", message={**_envelope(answer), "content": [], "stop_reason": None, "usage": opening}
        )
        for index, part in enumerate(answer.parts):
            yield _event("content_block_start", index=index, content_block=_open_part(part))
            if index == 0:
                yield _event("ping")
            yield from (_event("content_block_delta", index=index, delta=delta) for delta in _deltas(part))
            yield _event("content_block_stop", index=index)
        ending = {"stop_reason": _STOPS[answer.stop], "stop_sequence": None}
        yield _event("message_delta", delta=ending, usage={"output_tokens": _write_usage(answer)["output_tokens"]})
        yield _event("message_stop")

    def fail(self, status: int, message: str, retry_after: float | None) -> dict[str, object]:
        return {
            "type": "error",
            "error": {"type": _ERRORS.get(status, "api_error"), "message": message},
            "request_id": "req_script",
        }

    def fail_event(self, status: int, message: str) -> str:
        return _event("error", error=self.fail(status, message, None)["error"])


def _read_message(message: dict[str, object]) -> list[tuple[str, Piece]]:
    role = "model" if message["role"] == "assistant" else "user"
    content = message["content"]
    if isinstance(content, str):
        return [(role, Text(content))]
    return [(role, _read_block(block)) for block in content]


def _read_block(block: dict[str, object]) -> Piece:
    match block:
        case {"type": "text", "text": text}:
            return Text(text)
        case {"type": "thinking", "thinking": text}:
            return Thought(text, block.get("signature"))
        case {"type": "tool_use", "id": id, "name": name, "input": args}:
            return ToolCall(id, name, args)
        case {"type": "tool_result", "tool_use_id": id}:
            return ToolResult(id, None, _read_text(block.get("content") or ""), bool(block.get("is_error")))
        case _:
            return Other(block)


def _read_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def _write_part(part: Part) -> dict[str, object]:
    match part:
        case Say(text=text):
            return {"type": "text", "text": text}
        case Think(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call(name=name, args=args, id=id):
            return {"type": "tool_use", "id": id, "name": name, "input": args}


def _open_part(part: Part) -> dict[str, object]:
    """Write a part as its block begins, still empty."""
    match part:
        case Say():
            return {"type": "text", "text": ""}
        case Think():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Call():
            return {**_write_part(part), "input": {}}


def _deltas(part: Part) -> Iterator[dict[str, object]]:
    match part:
        case Say(text=text):
            yield from ({"type": "text_delta", "text": piece} for piece in cut_text(text))
        case Think(text=text, signature=signature):
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in cut_text(text))
            yield {"type": "signature_delta", "signature": signature}
        case Call():
            yield {"type": "input_json_delta", "partial_json": ""}
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in cut_args(part))


def _write_usage(answer: Answer) -> dict[str, object]:
    # Anthropic counts cached tokens separately, not as part of the input.
    usage = answer.usage if answer.usage.is_told else Usage(0, 0)
    return {
        "input_tokens": usage.input - usage.cached - usage.cache_written,
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def _envelope(answer: Answer) -> dict[str, object]:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "stop_sequence": None,
    }


def _event(kind: str, **fields: object) -> str:
    return f"event: {kind}\ndata: {dump({'type': kind, **fields})}\n\n"
