"""OpenAI's chat completions, `/v1/chat/completions`. Ollama, vLLM and llama.cpp speak this format too."""

from __future__ import annotations

from collections.abc import Iterator

from agents.provider.answer import Answer, cut_args, cut_text, dump, write_args
from agents.provider.formats import Wire
from agents.provider.formats.bearer import read_bearer
from agents.provider.model_request import (
    Asked,
    Other,
    Piece,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
    merge_roles,
    read_args,
)
from agents.provider.script import Call, Say, Think

CREATED = 1_760_000_000
_STOPS = {"end": "stop", "calls": "tool_calls", "length": "length", "refused": "content_filter"}
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "reasoning_effort": "effort",
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "parallel_tool_calls",
    "stop": "stop",
    "seed": "seed",
}
ERROR_TYPES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("service_unavailable", None),
}


class OpenAI:
    name = "openai"
    call_prefix = "call_"

    def serves(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def read(self, wire: Wire) -> Asked:
        body = wire.body
        system = [message for message in body["messages"] if message["role"] in ("system", "developer")]
        return Asked(
            number=wire.number,
            format=self.name,
            model=body["model"],
            system="\n".join(_read_text(message["content"]) for message in system),
            messages=merge_roles(
                [piece for message in body["messages"] if message not in system for piece in _read_message(message)]
            ),
            tools=tuple(_read_tool(tool["function"]) for tool in body.get("tools") or ()),
            settings={ours: body[theirs] for theirs, ours in _SETTINGS.items() if theirs in body},
            key=read_bearer(wire.headers),
            is_streaming=bool(body.get("stream")),
            path=wire.path,
            headers=wire.headers,
            raw=body,
        )

    def write(self, answer: Answer) -> dict[str, object]:
        is_refused = answer.stop == "refused"
        message: dict[str, object] = {
            "role": "assistant",
            "content": None if is_refused or not answer.text else answer.text,
            "refusal": answer.text if is_refused else None,
        }
        if thoughts := "".join(part.text for part in answer.parts if isinstance(part, Think)):
            message["reasoning_content"] = thoughts
        if answer.calls:
            message["tool_calls"] = [_write_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop]}
        return {**_envelope(answer, "chat.completion"), "choices": [choice], "usage": _write_usage(answer)}

    def stream(self, answer: Answer, asked: Asked) -> Iterator[str]:
        def chunk(delta: dict[str, object], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return _event({**_envelope(answer, "chat.completion.chunk"), "choices": [choice]})

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        calls = 0
        for part in answer.parts:
            match part:
                case Say(text=text):
                    field = "refusal" if answer.stop == "refused" else "content"
                    yield from (chunk({field: piece}) for piece in cut_text(text))
                case Think(text=text):
                    yield from (chunk({"reasoning_content": piece}) for piece in cut_text(text))
                case Call(name=name, id=id):
                    opened = {"index": calls, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                    yield chunk({"tool_calls": [opened]})
                    for piece in cut_args(part):
                        yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                    calls += 1
        yield chunk({}, _STOPS[answer.stop])
        # The usage of a stream is sent only to clients that ask for it.
        if answer.usage.is_told and (asked.raw.get("stream_options") or {}).get("include_usage"):
            yield _event({**_envelope(answer, "chat.completion.chunk"), "choices": [], "usage": _write_usage(answer)})
        yield "data: [DONE]\n\n"

    def fail(self, status: int, message: str, retry_after: float | None) -> dict[str, object]:
        kind, code = ERROR_TYPES.get(status, ("server_error", None))
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def fail_event(self, status: int, message: str) -> str:
        return _event(self.fail(status, message, None))


def _read_message(message: dict[str, object]) -> list[tuple[str, Piece]]:
    match message["role"]:
        case "tool":
            return [("user", ToolResult(message["tool_call_id"], None, _read_text(message["content"])))]
        case "assistant":
            said = _read_text(message.get("content"))
            thought = message.get("reasoning_content")
            pieces: list[Piece] = [Thought(thought, None)] if thought else []
            pieces += [Text(said)] if said else []
            pieces += [_read_call(call) for call in message.get("tool_calls") or ()]
            return [("model", piece) for piece in pieces]
        case _:
            return [("user", piece) for piece in _read_content(message["content"])]


def _read_content(content: object) -> list[Piece]:
    if isinstance(content, str):
        return [Text(content)]
    return [Text(part["text"]) if part["type"] == "text" else Other(part) for part in content]


def _read_text(content: object) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case _:
            return "\n".join(part["text"] for part in content if part["type"] == "text")


def _read_call(call: dict[str, object]) -> ToolCall:
    return ToolCall(call["id"], call["function"]["name"], read_args(call["function"]["arguments"]))


def _read_tool(function: dict[str, object]) -> Tool:
    return Tool(function["name"], function.get("description") or "", function.get("parameters") or {})


def _write_call(call: Call) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": write_args(call)}}


def _write_usage(answer: Answer) -> dict[str, object]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0}
        | ({"cache_write_tokens": usage.cache_written} if usage.cache_written else {}),
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _envelope(answer: Answer, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": kind,
        "created": CREATED,
        "model": answer.model,
        "system_fingerprint": "fp_script",
    }


def _event(value: dict[str, object]) -> str:
    return f"data: {dump(value)}\n\n"
