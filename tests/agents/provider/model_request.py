"""A request to a model, in one shape for every wire format. Tests assert on these values, and scripts choose by them.

Each format reads its own JSON into these values. `refuse_broken_history` checks a rule of every real provider: each
call of a tool is answered exactly once, directly after it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec


class Text(msgspec.Struct, frozen=True, tag=True):
    text: str


class Thought(msgspec.Struct, frozen=True, tag=True):
    """Reasoning that the client sends back, with the signature that proves it unchanged."""

    text: str
    signature: str | None


class ToolCall(msgspec.Struct, frozen=True, tag=True):
    id: str | None
    name: str
    args: dict[str, object]


class ToolResult(msgspec.Struct, frozen=True, tag=True):
    """The result of a call, as the client reports it.

    `name` is None in formats that give no tool name here, and `id` is None in formats without ids.
    """

    id: str | None
    name: str | None
    content: str
    is_error: bool = False


class Other(msgspec.Struct, frozen=True, tag=True):
    """A part that these values do not cover, such as an image or a document, unchanged."""

    raw: dict[str, object]


Piece: TypeAlias = Text | Thought | ToolCall | ToolResult | Other


class Message(msgspec.Struct, frozen=True):
    role: Literal["user", "model"]
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "\n".join(piece.text for piece in self.pieces if isinstance(piece, Text))


class Tool(msgspec.Struct, frozen=True):
    """A tool that the model was offered."""

    name: str
    description: str
    schema: dict[str, object]


class Asked(msgspec.Struct, frozen=True):
    """One request. `settings` has the same names in every format. `raw` is the body as it came."""

    number: int
    format: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    settings: dict[str, object]
    key: str | None
    is_streaming: bool
    path: str
    headers: dict[str, str]
    raw: dict[str, object]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(piece for message in self.messages for piece in message.pieces if isinstance(piece, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(piece for message in self.messages for piece in message.pieces if isinstance(piece, ToolResult))

    @property
    def tool_names(self) -> list[str]:
        return [tool.name for tool in self.tools]

    @property
    def last_words(self) -> str:
        """Return the last message that a person wrote. Results of tools do not count."""
        return next((message.text for message in reversed(self.messages) if _is_words(message)), "")

    @property
    def text(self) -> str:
        """Return everything that the model was shown, so that a test can search it for a planted mark."""
        return msgspec.json.encode([self.system, self.messages, self.tools]).decode()

    @property
    def model_turns(self) -> int:
        return sum(_is_model_turn(message) for message in self.messages)

    @property
    def model_turns_since_message(self) -> int:
        count = 0
        for message in reversed(self.messages):
            if _is_words(message):
                return count
            count += _is_model_turn(message)
        return count


class BrokenHistory(Exception):
    """The request shows a conversation that a real provider refuses with 400."""


def refuse_broken_history(messages: tuple[Message, ...]) -> None:
    """Raise if a call is not answered, is answered twice, or a result answers no call.

    Google matches by name and order, so its ids are None.
    """
    if not messages:
        raise BrokenHistory("messages: at least one message is required")
    open_calls: list[tuple[str | None, str | None]] = []
    for message in messages:
        results = [piece for piece in message.pieces if isinstance(piece, ToolResult)]
        for result in results:
            found = next((call for call in open_calls if _answers(result, call)), None)
            if found is None:
                raise BrokenHistory(
                    f"result {result.id or result.name!r} answers no call of the model's turn before it"
                )
            open_calls.remove(found)
        if open_calls:
            raise BrokenHistory(
                f"calls {[call[0] or call[1] for call in open_calls]} were not answered right after the model's turn"
            )
        open_calls = [(piece.id, piece.name) for piece in message.pieces if isinstance(piece, ToolCall)]
    if open_calls:
        raise BrokenHistory(f"calls {[call[0] or call[1] for call in open_calls]} were not answered")


def merge_roles(pieces: list[tuple[Literal["user", "model"], Piece]]) -> tuple[Message, ...]:
    """Make messages of loose pieces. Adjacent pieces of one role become one message."""
    messages: list[Message] = []
    for role, piece in pieces:
        if messages and messages[-1].role == role:
            messages[-1] = Message(role, (*messages[-1].pieces, piece))
        else:
            messages.append(Message(role, (piece,)))
    return tuple(messages)


def read_args(text: str) -> dict[str, object]:
    """Read a call's arguments.

    Text that is no JSON object is kept under an empty name, because providers accept any text back.
    """
    try:
        args = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {"": text}
    return args if isinstance(args, dict) else {"": args}


def _answers(result: ToolResult, call: tuple[str | None, str | None]) -> bool:
    if result.id is None or call[0] is None:
        return result.name == call[1]
    return result.id == call[0]


def _is_words(message: Message) -> bool:
    return message.role == "user" and any(not isinstance(piece, ToolResult) for piece in message.pieces)


def _is_model_turn(message: Message) -> bool:
    # A model's message without words and calls comes from an empty answer, which the script counts as a fault.
    return message.role == "model" and any(not isinstance(piece, Text) or piece.text for piece in message.pieces)
