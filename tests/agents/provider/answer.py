"""A model's answer made ready for the wire: with ids and figures, and with text cut into the pieces of a stream.

It stands between the script, which knows no wire format, and the formats, which know no script. Pure: the same request
number and reply always make the same answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Literal

import msgspec

from agents.provider.model_request import Asked
from agents.provider.script import Call, Part, Reply, Say, Think, Usage

# The length of a rough token, for use without a vocabulary.
CHARACTERS_PER_TOKEN = 4
# Arguments of a call arrive in pieces that may end within a word, a number or an escape.
ARGUMENT_PIECE_CHARACTERS = 7


class Answer(msgspec.Struct, frozen=True):
    """The input of a format: every call has its id, and the usage is known."""

    id: str
    model: str
    parts: tuple[Part, ...]
    usage: Usage
    stop: Literal["end", "calls", "length", "refused"]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Say))

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(part for part in self.parts if isinstance(part, Call))


def prepare(reply: Reply | Part | tuple[Part, ...], asked: Asked, call_prefix: str | None) -> Answer:
    """Fill in the ids, the usage and the stop reason that the script left open."""
    match reply:
        case Reply():
            whole = reply
        case tuple() | list():
            whole = Reply(tuple(reply))
        case _:
            whole = Reply((reply,))
    parts = tuple(_with_id(part, call_prefix, asked.number, index) for index, part in enumerate(whole.parts))
    has_calls = any(isinstance(part, Call) for part in parts)
    return Answer(
        id=make_id(asked.number, "answer"),
        model=asked.model,
        parts=parts,
        usage=whole.usage or Usage(count_tokens(asked.text), max(1, count_tokens(dump(parts)))),
        stop="calls" if whole.stop == "end" and has_calls else whole.stop,
    )


def count_tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def make_id(*seeds: object) -> str:
    """Return an id that does not look like a number, as real ids, and is the same in every run of a test."""
    return hashlib.sha256(repr(seeds).encode()).hexdigest()[:24]


def cut_text(text: str) -> list[str]:
    """Cut a text at words and keep every character. An empty text gives no piece.

    A character that a script writes as two surrogates is cut between them.
    """
    return [
        half
        for piece in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text)
        for half in re.split("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])", piece)
    ]


def write_args(call: Call) -> str:
    return dump(call.args) if call.raw is None else call.raw


def cut_args(call: Call) -> list[str]:
    text = write_args(call)
    return [text[at : at + ARGUMENT_PIECE_CHARACTERS] for at in range(0, len(text), ARGUMENT_PIECE_CHARACTERS)]


def dump(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        # Send surrogates as escapes, as real providers do.
        return json.dumps(msgspec.to_builtins(value))


def _with_id(part: Part, prefix: str | None, number: int, index: int) -> Part:
    match part:
        case Call(id=None) if prefix is not None:
            return msgspec.structs.replace(part, id=prefix + make_id(number, index, part.name))
        case Say() | Call() | Think():
            return part
