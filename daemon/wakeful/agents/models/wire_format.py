"""The code that the four wire formats share: their interface, and the collection of an answer's parts from a stream.

A format (anthropic.py, openai_responses.py, openai_completions.py, google.py) writes turns and requests in the form of
its provider, and parses the events of an answer. It sends nothing itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from html import escape
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from wakeful.agents.contract import ModelRequest, Say, ToolOffer
from wakeful.agents.models.encoded_conversation import Result, ShownImage, Turn
from wakeful.agents.models.provider_errors import make_garbage
from wakeful.agents.models.recorded_answer import Call, Part, Text, Thought
from wakeful.core.agents.turns import TokenUsage
from wakeful.text.unicode import SendablePieces, make_sendable

EventT = TypeVar("EventT")
# The reason why an answer ended. None if the provider gave none, so the answer was cut off.
Reason = Literal["done", "length", "refused"] | None


class Post(Struct, frozen=True):
    """A request, ready to be sent. Its headers hold the key."""

    url: str
    headers: dict[str, str]
    body: bytes


class Endpoint(Struct, frozen=True):
    """A model at an address. If the endpoint needs no key, it ignores `key`."""

    model: str
    address: str
    key: str


class CompleteAnswer(Struct, frozen=True, kw_only=True):
    """A complete answer."""

    parts: Sequence[Part]
    reason: Reason
    usage: TokenUsage


class AnswerReader(Protocol):
    """Takes the events of one answer. Raises `Trouble` if an event is an error or cannot be parsed."""

    def take(self, data: bytes) -> None: ...

    def end(self) -> CompleteAnswer: ...


class WireFormat(Protocol):
    def write_post(self, request: ModelRequest, turns: Sequence[Turn]) -> Post: ...

    def listen(self, say: Say) -> AnswerReader: ...


def read_event(data: bytes, decoder: msgspec.json.Decoder[EventT]) -> EventT:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError:
        # The event has lone surrogates, which only the standard library parses, or it is not an event.
        try:
            return msgspec.convert(json.loads(data), decoder.type)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise make_garbage(f"{error}: {data.decode(errors='replace')}") from None


def frame_image(result: Result, image: ShownImage) -> tuple[str, str]:
    """Write the texts around an image that is sent apart from its result.

    They say that a tool and not a person sent it.
    """
    names = {"tool_name": result.name, "tool_call_id": result.call_id, "file_id": image.name}
    marks = " ".join(f'{name}="{escape(value)}"' for name, value in names.items())
    return f"<tool_result {marks}>", "</tool_result>"


def with_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool's schema with the key `properties`, because OpenAI refuses an object without it."""
    return schema if "properties" in schema else {**schema, "properties": {}}


class ToolsOnce:
    """A cache of the tools of a request as a format writes them. They are written again only if they changed."""

    def __init__(self) -> None:
        self._offers: tuple[ToolOffer, ...] = ()
        self._written: list[Any] = []

    def write(self, offers: tuple[ToolOffer, ...], write_tool: Callable[[ToolOffer], dict[str, Any]]) -> list[Any]:
        if offers != self._offers:
            self._offers, self._written = offers, [write_tool(offer) for offer in offers]
        return self._written


class _Growing:
    """A part that is still incomplete. `key` is the provider's name for it."""

    def __init__(self, kind: Literal["text", "thinking", "call"], key: Hashable) -> None:
        self.kind = kind
        self.key = key
        self.pieces: list[str] = []
        self.name = ""
        self.call_id = ""
        self.args: dict[str, Any] | None = None
        self.id: str | None = None
        self.signature: str | None = None
        self.details: dict[str, Any] = {}

    def make_part(self, provider: str) -> Part:
        content, details = "".join(self.pieces), self.details or None
        is_marked = bool(details or self.id or self.signature)
        name = provider if is_marked else None
        match self.kind:
            case "text":
                return Text(content=content, id=self.id, provider_name=name, provider_details=details)
            case "thinking":
                return Thought(
                    content=content,
                    id=self.id,
                    signature=self.signature,
                    provider_name=name,
                    provider_details=details,
                )
            case "call":
                return Call(
                    tool_name=self.name,
                    args=content if content or self.args is None else self.args,
                    tool_call_id=self.call_id,
                    id=self.id,
                    provider_name=name,
                    provider_details=details,
                )


class HeardParts:
    """Collects the parts of one answer, in the order in which they began, and passes their text to `say`.

    A piece belongs to the part with its key. Without a key it belongs to the last part, if that part is of the same
    kind.
    """

    def __init__(self, say: Say, provider: str) -> None:
        self._say = say
        self._provider = provider
        self._parts: list[_Growing] = []
        self._by_key: dict[Hashable, _Growing] = {}
        self._text, self._thoughts = SendablePieces(), SendablePieces()

    def add_text(self, piece: str, key: Hashable = None, id: str | None = None, **details: Any) -> None:
        part = self._find("text", key, id, details)
        if piece:
            part.pieces.append(piece)
            self._say(self._text.take(piece))

    def add_thought(
        self,
        piece: str,
        key: Hashable = None,
        id: str | None = None,
        signature: str | None = None,
        **details: Any,
    ) -> None:
        part = self._find("thinking", key, id, details)
        part.signature = signature or part.signature
        if piece:
            part.pieces.append(piece)
            self._say(self._thoughts.take(piece), "thinking")

    def add_call(
        self,
        key: Hashable,
        *,
        name: str = "",
        piece: str = "",
        args: dict[str, Any] | None = None,
        call_id: str = "",
        id: str | None = None,
        **details: Any,
    ) -> None:
        part = self._find("call", key, id, details)
        if name and not part.name:
            self._say(make_sendable(name), "call")
        part.name += name
        part.call_id = part.call_id or call_id
        part.args = part.args if args is None else args
        if piece:
            part.pieces.append(piece)

    def has(self, key: Hashable) -> bool:
        return key in self._by_key

    def complete_call(self, key: Hashable, arguments: str) -> None:
        """Add the rest of the arguments, which some servers send only at the end."""
        so_far = "".join(self._by_key[key].pieces)
        if arguments.startswith(so_far):
            self.add_call(key, piece=arguments[len(so_far) :])

    def begin_anew(self) -> None:
        """End the present part, so that the next piece begins a new one."""
        if self._parts:
            self._parts[-1].key = object()

    def end(self) -> list[Part]:
        if rest := self._text.end():
            self._say(rest)
        return [
            part.make_part(self._provider)
            for part in self._parts
            if part.pieces or part.kind == "call" or part.signature or part.details
        ]

    def _find(
        self, kind: Literal["text", "thinking", "call"], key: Hashable, id: str | None, details: dict[str, Any]
    ) -> _Growing:
        if key is not None:
            part = self._by_key.get(key)
        else:
            last = self._parts[-1] if self._parts else None
            part = last if last is not None and (last.kind, last.key, last.id) == (kind, None, id) else None
        if part is None:
            part = _Growing(kind, key)
            self._parts.append(part)
            if key is not None:
                self._by_key[key] = part
        if part.kind != kind:
            raise make_garbage(f"a piece of a {kind} in the place of a {part.kind}")
        part.id = part.id or id
        part.details.update(details)
        return part
