"""A turn as bytes on a connection: the chunks to send, the waits between them, and the ending.

This module decides it from the script's turn and the request, without I/O. The server carries it out. The wrappers
`Slow`, `Hold` and `Cut` change the delivery of the turn inside them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from agents.provider.answer import dump, prepare
from agents.provider.formats import Format
from agents.provider.model_request import Asked
from agents.provider.script import UNHEARD, Cut, Empty, Fail, Garbage, Hold, Reply, Slow, Turn

EVENTS = "text/event-stream; charset=utf-8"
JSON = "application/json"
_PAGE = "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>\n"


class Wait(msgspec.Struct, frozen=True):
    """A wait before a chunk: for some seconds, or until a gate is released."""

    chunk: int
    seconds: float = 0.0
    gate: str | None = None


class Delivery(msgspec.Struct, frozen=True):
    """One response.

    `length` is the announced length of a plain body, which a cut breaks. A stream has none.
    """

    status: int
    kind: str
    chunks: tuple[bytes, ...]
    length: int | None = None
    headers: dict[str, str] = {}
    waits: tuple[Wait, ...] = ()
    ending: Literal["whole", "close", "reset"] = "whole"


class ScriptMistake(Exception):
    """The script asks for something impossible, such as a cut after more events than there are.

    Its fault would never fire.
    """


def deliver(turn: Turn, asked: Asked, format: Format) -> Delivery:
    match turn:
        case Fail():
            return _fail(turn, asked, format)
        case Garbage():
            return _garble(turn, asked, format)
        case Empty(usage=usage):
            return _answer(Reply((), usage), asked, format)
        case Cut():
            return _cut(turn, deliver(turn.then, asked, format))
        case Slow(before=before, between=between, then=then):
            whole = deliver(then, asked, format)
            waits = (Wait(0, before), *(Wait(chunk, between) for chunk in range(1, len(whole.chunks)) if between))
            return msgspec.structs.replace(whole, waits=(*waits, *whole.waits))
        case Hold(gate=gate, then=then, after_chunks=after):
            whole = deliver(then, asked, format)
            if after >= max(1, len(whole.chunks)):
                raise ScriptMistake(f"held after {after} events, but there are only {len(whole.chunks)}")
            return msgspec.structs.replace(whole, waits=(Wait(after, gate=gate), *whole.waits))
        case _:
            return _answer(turn, asked, format)


def plain(status: int, value: object, headers: dict[str, str] | None = None) -> Delivery:
    """Deliver one JSON value."""
    body = dump(value).encode()
    return Delivery(status, JSON, (body,), len(body), headers or {})


def _answer(reply: Turn, asked: Asked, format: Format) -> Delivery:
    answer = prepare(reply, asked, format.call_prefix)
    if asked.is_streaming:
        return Delivery(200, EVENTS, tuple(event.encode() for event in format.stream(answer, asked)))
    return plain(200, format.write(answer))


def _fail(turn: Fail, asked: Asked, format: Format) -> Delivery:
    if asked.is_streaming and turn.after_chunks:
        begun = _cut(Cut(turn.after_chunks, how="end"), _answer(UNHEARD, asked, format))
        return msgspec.structs.replace(
            begun, chunks=(*begun.chunks, format.fail_event(turn.status, turn.message).encode())
        )
    headers = {} if turn.retry_after is None else {"Retry-After": f"{turn.retry_after:g}"}
    return plain(turn.status, format.fail(turn.status, turn.message, turn.retry_after), headers)


def _garble(turn: Garbage, asked: Asked, format: Format) -> Delivery:
    match turn.kind:
        case "html":
            kind, body = "text/html", turn.text or _PAGE
        case "nothing":
            kind, body = JSON, ""
        case "text":
            kind, body = JSON, turn.text or "upstream connect error or disconnect/reset before headers"
        case "shape":
            kind, body = JSON, turn.text or '{"status":"ok","items":[1,2,3]}'
        case "truncated":
            whole = _answer(Reply(()), asked, format).chunks[0].decode().strip().rpartition("data: ")[2]
            kind, body = JSON, turn.text or whole[: len(whole) // 2]
    if asked.is_streaming and kind == JSON:
        return Delivery(200, EVENTS, (f"data: {body}\n\n".encode(),) if body else ())
    return Delivery(200, kind, (body.encode(),), len(body.encode()))


def _cut(turn: Cut, whole: Delivery) -> Delivery:
    if whole.length is None:
        if turn.after_chunks >= len(whole.chunks):
            raise ScriptMistake(f"cut after {turn.after_chunks} events, but there are only {len(whole.chunks)}")
        kept = whole.chunks[: turn.after_chunks]
    else:
        [body] = whole.chunks
        kept = (body[: len(body) // 2],) if turn.after_chunks else ()
    if turn.how == "end":
        length = None if whole.length is None else sum(map(len, kept))
        return msgspec.structs.replace(whole, chunks=kept, length=length)
    return msgspec.structs.replace(whole, chunks=kept, ending=turn.how)
