"""An answer of a model as a list of parts, and its form in the log (`Answered.raw`).

The log keeps the data that only the same provider needs back: signatures of thoughts, ids of items. The form is the one
of pydantic-ai, because older logs have it: a list of one response, whose parts are texts, thoughts and calls.
encoded_conversation.py reads it. The wire formats make parts from streams, and items of requests from parts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.text.unicode import find_lone_half, has_lone_half, make_sendable

# The key for arguments that are not a JSON object, for providers that accept only an object.
_NO_JSON = "INVALID_JSON"


class _Part(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="part_kind"):
    """A part of an answer. `provider_details` has data without a field of its own, such as `thought_signature`."""

    id: str | None = None
    provider_name: str | None = None
    provider_details: dict[str, Any] | None = None

    def detail(self, name: str) -> Any:
        return (self.provider_details or {}).get(name)


class Text(_Part, frozen=True, kw_only=True, tag="text"):
    content: str


class Thought(_Part, frozen=True, kw_only=True, tag="thinking"):
    content: str
    signature: str | None = None


class Call(_Part, frozen=True, kw_only=True, tag="tool-call"):
    """A call of a tool. `args` is as the provider gave it: JSON text, or an object."""

    tool_name: str
    args: str | dict[str, Any] | None = None
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """The arguments as the model wrote them."""
        return (self.args or "{}") if isinstance(self.args, str) else _write(self.args or {})

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments as an object, whatever the model wrote."""
        if not isinstance(self.args, str):
            return self.args or {}
        if not self.args:
            return {}
        try:
            found = json.loads(self.args)
        except (ValueError, RecursionError):
            return {_NO_JSON: self.args}
        return found if isinstance(found, dict) else {_NO_JSON: self.args}

    @property
    def written(self) -> str:
        """The arguments as a JSON object's text, always written the same way, so that a provider's cache matches."""
        return _write(self.fields)


Part = Text | Thought | Call


class RecordedAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="response"):
    """A whole answer. Ids of items are valid only at `provider_url`, the address that gave them."""

    parts: tuple[Part, ...]
    provider_url: str | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(part for part in self.parts if isinstance(part, Call))

    @property
    def text(self) -> str:
        return "".join(part.content for part in self.parts if isinstance(part, Text))


_RAW = msgspec.json.Decoder(tuple[RecordedAnswer])


def write_raw(answer: RecordedAnswer) -> str:
    return msgspec.json.encode([answer]).decode()


def read_raw(raw: str) -> RecordedAnswer | None:
    """Parse `Answered.raw`. None if another version wrote it, or it is damaged.

    The log has the same answer in our own values too, only without signatures of thoughts.
    """
    try:
        return _RAW.decode(raw)[0]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def make_parts_sendable(parts: Iterable[Part]) -> list[Part]:
    """Return the parts in a form that can be recorded and sent again.

    A thought with a lone surrogate is left out, because its signature would not match a changed text.
    """
    made: list[Part] = []
    for part in parts:
        match part:
            case Text(content=text):
                made.append(replace(part, content=make_sendable(text)))
            case Thought(content=text):
                made += [] if has_lone_half(text) else [replace(part, content=make_sendable(text))]
            case Call():
                made.append(_make_call_sendable(part))
    return made


def _make_call_sendable(part: Call) -> Call:
    match part.args:
        case str(text):
            args: Any = make_sendable(text)
        case dict(found):
            # In JSON text a lone surrogate is an escape, so keep the text and not the object.
            args = text if find_lone_half(text := json.dumps(found)) else found
        case None:
            args = None
    return replace(
        part,
        tool_name=make_sendable(part.tool_name).replace("\\", "_"),
        tool_call_id=make_sendable(part.tool_call_id),
        args=args,
    )


def make_ids_distinct(parts: Iterable[Part], taken: set[str]) -> tuple[Part, ...]:
    """Give new ids to calls whose id is missing or was used before.

    Local servers number calls from zero in each answer, or not at all. In the log only the id identifies a call.
    """
    seen: set[str] = set()
    made: list[Part] = []
    for part in parts:
        if isinstance(part, Call):
            if not part.tool_call_id or part.tool_call_id in taken or part.tool_call_id in seen:
                part = replace(part, tool_call_id=f"call_{uuid.uuid4().hex[:24]}")
            seen.add(part.tool_call_id)
        made.append(part)
    return tuple(made)


def _write(fields: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(fields).decode()
    except UnicodeEncodeError:
        return json.dumps(fields)
