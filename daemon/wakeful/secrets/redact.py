"""Takes the values of secrets out of bytes and text: each is replaced by `[secret NAME]`, in whichever shape it stands.

A `Redactor` is a value: whoever learns of another secret builds another. Used by everything that lets words out of a run or
out of the daemon, before anything durable is made of them: a chained log cannot be scrubbed later. Nothing here reads a secret.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from wakeful.secrets.shapes import WHITESPACE, Shape, find_shapes, fold

_WORD = re.compile(b"[^" + re.escape(WHITESPACE) + b"]+")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
# Of a shape, what is searched for in a tail that may go on.
_LEAD_BYTES = 8
# Searched at once: no other thread goes on meanwhile, and the loop is one of them.
_PIECE_BYTES = 256 * 1024


class _Span(NamedTuple):
    """Where a secret stands, in the bytes as they came."""

    start: int
    end: int
    name: str


class _Folded:
    """Bytes without their whitespace, and the way back."""

    def __init__(self, data: bytes) -> None:
        self.bytes = fold(data)
        self._starts: list[int] = []
        self._origins: list[int] = []
        kept = 0
        for word in _WORD.finditer(data):
            self._starts.append(kept)
            self._origins.append(word.start())
            kept += word.end() - word.start()

    def origin(self, position: int) -> int:
        """Where the byte at `position` stood."""
        at = bisect_right(self._starts, position) - 1
        return self._origins[at] + position - self._starts[at]


class Redactor:
    """Knows values by name; several of one name where it was changed. Its repr tells none of them."""

    def __init__(self, values: Iterable[tuple[str, bytes]] = ()) -> None:
        shapes = {shape: name for name, value in values for shape in find_shapes(value)}
        self._shapes: tuple[tuple[Shape, str], ...] = tuple(sorted(shapes.items(), key=lambda item: -len(item[0].folded)))
        self._folded = tuple(shape.folded for shape, _ in self._shapes)
        # A secret that lies across a cut is no longer than this, also with a space between any two letters.
        self._margin_bytes = 2 * max(map(len, self._folded), default=0)

    def __repr__(self) -> str:
        return f"Redactor({sorted(set(name for _, name in self._shapes))})"

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def find(self, data: bytes) -> str | None:
        """The name of a secret whose value stands here, or None. Fast where there is none, which is nearly always."""
        if not self._folded:
            return None
        pieces = range(0, max(1, len(data)), _PIECE_BYTES)
        found = (self._find_in_piece(data[start : start + _PIECE_BYTES + self._margin_bytes]) for start in pieces)
        return next((name for name in found if name is not None), None)

    def _find_in_piece(self, piece: bytes) -> str | None:
        folded = fold(piece)
        # One pass of C for all of them: this stands before every record.
        if not any(map(folded.__contains__, self._folded)):
            return None
        return next(name for shape, name in self._shapes if shape.folded in folded)

    def redact(self, data: bytes) -> bytes:
        return _replace(data, self._find_spans(data)) if self.find(data) is not None else data

    def redact_text(self, text: str) -> str:
        if not self._shapes or len(text) < _LEAD_BYTES:
            return text
        data = text.encode("utf-8", "surrogatepass")
        return text if self.find(data) is None else self.redact(data).decode("utf-8", "surrogatepass")

    def trim_end(self, data: bytes) -> bytes:
        """Without what may be the beginning of a secret: its rest was not kept."""
        return data[: self.find_cut(data)] if self._shapes else data

    def trim_start(self, data: bytes) -> bytes:
        """Without what may be the end of a secret, whose beginning was not kept."""
        lead = data[: self._margin_bytes][::-1]
        return data[len(lead) - _find_open(lead, tuple(shape[::-1] for shape in self._folded)) :] if self._shapes else data

    def _find_spans(self, data: bytes) -> list[_Span]:
        """In order, and none overlaps another: what does is one, by the name of the longest."""
        folded = _Folded(data)
        found: list[_Span] = []
        for shape, name in self._shapes:
            at = folded.bytes.find(shape.folded)
            while at >= 0:
                span = _Span(folded.origin(at), folded.origin(at + len(shape.folded) - 1) + 1, name)
                found.append(_widen(data, span) if shape.is_base64 else span)
                at = folded.bytes.find(shape.folded, at + 1)
        merged: list[_Span] = []
        for span in sorted(found, key=lambda span: (span.start, -span.end)):
            if merged and span.start < merged[-1].end:
                merged[-1] = merged[-1]._replace(end=max(span.end, merged[-1].end))
            else:
                merged.append(span)
        return merged

    def find_cut(self, data: bytes) -> int:
        """Up to where `data` can be let out while more of it may come: what stands after that may begin a secret."""
        lead = max(0, len(data) - self._margin_bytes)
        cut = lead + _find_open(data[lead:], self._folded)
        if cut == len(data):
            return cut
        for span in reversed(self._find_spans(data)):
            if span.start < cut < span.end:
                cut = span.start
        return cut


class RedactedStream:
    """Redacts bytes as they come. What may be the beginning of a secret is held back until more is known."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def push(self, chunk: bytes) -> bytes:
        if not self._redactor:
            return chunk
        data = self._held + chunk
        cut = self._redactor.find_cut(data)
        self._held = data[cut:]
        return self._redactor.redact(data[:cut])

    def flush(self) -> bytes:
        """Nothing more comes, or what comes next does not belong to it."""
        held, self._held = self._held, b""
        return self._redactor.redact(held)


def _replace(data: bytes, spans: Iterable[_Span]) -> bytes:
    pieces, position = [], 0
    for span in spans:
        pieces += [data[position : span.start], f"[secret {span.name}]".encode()]
        position = span.end
    return b"".join([*pieces, data[position:]])


def _widen(data: bytes, span: _Span) -> _Span:
    """The letter on either side holds bits of the value and of its neighbour."""
    start, end = span.start, span.end
    if start > 0 and data[start - 1] in _BASE64:
        start -= 1
    if end < len(data) and data[end] in _BASE64:
        end += 1
    return _Span(start, end, span.name)


def _find_open(tail: bytes, shapes: Iterable[bytes]) -> int:
    """Where the first of these begins that the end of `tail` cuts off; the length of `tail` where none does."""
    folded = _Folded(tail)
    first = min((_find_beginning(folded.bytes, shape) for shape in shapes), default=len(folded.bytes))
    return folded.origin(first) if first < len(folded.bytes) else len(tail)


def _find_beginning(tail: bytes, shape: bytes) -> int:
    """Where a proper beginning of `shape` ends `tail`; the length of `tail` where none does."""
    lead = shape[:_LEAD_BYTES]
    at = tail.find(lead, max(0, len(tail) - len(shape) + 1))
    while at >= 0:
        if shape.startswith(tail[at:]):
            return at
        at = tail.find(lead, at + 1)
    for length in range(min(_LEAD_BYTES, len(tail) + 1) - 1, 0, -1):
        if tail.endswith(lead[:length]):
            return len(tail) - length
    return len(tail)
