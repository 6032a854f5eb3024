"""OpenAI's responses, `/v1/responses`: items instead of messages, and a stream of named, numbered events.

Stateless, as our clients use it. A request that refers to a response kept by the server (`previous_response_id`) is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from agents.provider.answer import Answer, cut_args, cut_text, dump, write_args
from agents.provider.formats import Wire
from agents.provider.formats.bearer import read_bearer
from agents.provider.formats.openai import CREATED, ERROR_TYPES
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
from agents.provider.script import Call, Part, Say, Think

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_tokens",
    "reasoning": "effort",
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "parallel_tool_calls",
}
_SYSTEM_ROLES = ("system", "developer")


class Responses:
    name = "responses"
    call_prefix = "call_"

    def serves(self, path: str) -> bool:
        return path.endswith("/responses")

    def read(self, wire: Wire) -> Asked:
        body = wire.body
        if body.get("previous_response_id"):
            raise KeyError("previous_response_id: this provider keeps no responses")
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        system = [
            _read_text(item["content"]) for item in items if item.get("role") in _SYSTEM_ROLES and "content" in item
        ]
        return Asked(
            number=wire.number,
            format=self.name,
            model=body["model"],
            system="\n".join([body["instructions"], *system] if body.get("instructions") else system),
            messages=merge_roles(
                [piece for item in items if item.get("role") not in _SYSTEM_ROLES for piece in _read_item(item)]
            ),
            tools=tuple(_read_tool(tool) for tool in body.get("tools") or () if tool["type"] == "function"),
            settings={ours: body[theirs] for theirs, ours in _SETTINGS.items() if theirs in body},
            key=read_bearer(wire.headers),
            is_streaming=bool(body.get("stream")),
            path=wire.path,
            headers=wire.headers,
            raw=body,
        )

    def write(self, answer: Answer) -> dict[str, object]:
        status = "incomplete" if answer.stop == "length" else "completed"
        items = [_write_item(answer, index, part) for index, part in enumerate(answer.parts)]
        reason = {"reason": "max_output_tokens"} if answer.stop == "length" else None
        return {
            **_envelope(answer, status),
            "incomplete_details": reason,
            "output": items,
            "usage": _write_usage(answer) if answer.usage.is_told else None,
        }

    def stream(self, answer: Answer, asked: Asked) -> Iterator[str]:
        for number, (kind, fields) in enumerate(self._events(answer)):
            yield f"event: {kind}\ndata: {dump({'type': kind, 'sequence_number': number, **fields})}\n\n"

    def _events(self, answer: Answer) -> Iterator[tuple[str, dict[str, object]]]:
        opening = {**_envelope(answer, "in_progress"), "output": [], "usage": None}
        yield "response.created", {"response": opening}
        yield "response.in_progress", {"response": opening}
        for index, part in enumerate(answer.parts):
            item = _write_item(answer, index, part)
            yield "response.output_item.added", {"output_index": index, "item": _open_item(item)}
            place = {"item_id": item["id"], "output_index": index}
            match part:
                case Say(text=text):
                    yield from _text_events(answer, text, {**place, "content_index": 0}, item["content"][0])
                case Think(text=text):
                    yield from _thought_events(text, {**place, "summary_index": 0})
                case Call():
                    yield from (
                        ("response.function_call_arguments.delta", {**place, "delta": piece})
                        for piece in cut_args(part)
                    )
                    yield (
                        "response.function_call_arguments.done",
                        {**place, "name": part.name, "arguments": item["arguments"]},
                    )
            yield "response.output_item.done", {"output_index": index, "item": item}
        whole = self.write(answer)
        yield f"response.{whole['status']}", {"response": whole}

    def fail(self, status: int, message: str, retry_after: float | None) -> dict[str, object]:
        kind, code = ERROR_TYPES.get(status, ("server_error", None))
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def fail_event(self, status: int, message: str) -> str:
        code = ERROR_TYPES.get(status, ("server_error", None))[1] or "server_error"
        told = {"type": "error", "sequence_number": 99, "code": code, "message": message, "param": None}
        return f"event: error\ndata: {dump(told)}\n\n"


def _read_item(item: dict[str, object]) -> list[tuple[str, Piece]]:
    match item:
        case {"type": "function_call", "call_id": id, "name": name, "arguments": args}:
            return [("model", ToolCall(id, name, read_args(args)))]
        case {"type": "function_call_output", "call_id": id, "output": output}:
            return [("user", ToolResult(id, None, _read_text(output)))]
        case {"type": "reasoning"}:
            text = "\n".join(part["text"] for part in item.get("summary") or ())
            return [("model", Thought(text, item.get("encrypted_content")))]
        case {"role": "assistant", "content": content}:
            return [("model", Text(_read_text(content)))]
        case {"role": "user", "content": str(content)}:
            return [("user", Text(content))]
        case {"role": "user", "content": content}:
            return [("user", Text(part["text"]) if part["type"] == "input_text" else Other(part)) for part in content]
        case _:
            return [("user", Other(item))]


def _read_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)


def _read_tool(tool: dict[str, object]) -> Tool:
    return Tool(tool["name"], tool.get("description") or "", tool.get("parameters") or {})


def _write_item(answer: Answer, index: int, part: Part) -> dict[str, object]:
    match part:
        case Say(text=text):
            content = {"type": "refusal", "refusal": text} if answer.stop == "refused" else _write_text(text)
            return {
                "type": "message",
                "id": f"msg_{answer.id}{index}",
                "status": "completed",
                "role": "assistant",
                "content": [content],
            }
        case Think(text=text, signature=signature):
            summary = [{"type": "summary_text", "text": text}]
            return {
                "type": "reasoning",
                "id": f"rs_{answer.id}{index}",
                "summary": summary,
                "encrypted_content": signature,
            }
        case Call(name=name, id=id):
            call = {"type": "function_call", "id": f"fc_{answer.id}{index}", "status": "completed"}
            return {**call, "call_id": id, "name": name, "arguments": write_args(part)}


def _open_item(item: dict[str, object]) -> dict[str, object]:
    """Write an item as it begins: in progress and still empty."""
    empty = {"content": [], "summary": [], "arguments": "", "status": "in_progress"}
    return {name: empty.get(name, value) for name, value in item.items()}


def _write_text(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _text_events(
    answer: Answer, text: str, place: dict[str, object], part: dict[str, object]
) -> Iterator[tuple[str, dict[str, object]]]:
    is_refused = answer.stop == "refused"
    kind, extra = ("refusal", {}) if is_refused else ("output_text", {"logprobs": []})
    yield (
        "response.content_part.added",
        {**place, "part": {"type": "refusal", "refusal": ""} if is_refused else _write_text("")},
    )
    yield from ((f"response.{kind}.delta", {**place, "delta": piece, **extra}) for piece in cut_text(text))
    yield f"response.{kind}.done", {**place, "refusal" if is_refused else "text": text, **extra}
    yield "response.content_part.done", {**place, "part": part}


def _thought_events(text: str, place: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    yield "response.reasoning_summary_part.added", {**place, "part": {"type": "summary_text", "text": ""}}
    yield from (("response.reasoning_summary_text.delta", {**place, "delta": piece}) for piece in cut_text(text))
    yield "response.reasoning_summary_text.done", {**place, "text": text}
    yield "response.reasoning_summary_part.done", {**place, "part": {"type": "summary_text", "text": text}}


def _write_usage(answer: Answer) -> dict[str, object]:
    usage = answer.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached}
        | ({"cache_write_tokens": usage.cache_written} if usage.cache_written else {}),
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }


def _envelope(answer: Answer, status: str) -> dict[str, object]:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }
