"""Takes the values of secrets out of bytes and text: each is replaced by `[secret NAME]`, in whichever shape it stands.

A `Redactor` is a value: whoever learns of another secret builds another. Used by everything that lets words out of a
run or out of the daemon, before anything durable is made of them: a chained log cannot be scrubbed later.
Nothing here reads a secret.
"""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from wakeful.secrets.shapes import WHITESPACE, Shape, find_shapes, fold

_WORD = re.compile(b"[^" + re.escape(WHITESPACE) + b"]+")
# Of a shape, what is searched for in a tail that may go on.
_LEAD_BYTES = 8
# Searched in one step. No other thread runs meanwhile, and the loop is one of them.
_PIECE_BYTES = 256 * 1024
# Less than this is sampled: every `_STRIDE` bytes, `_SAMPLE_BYTES` are looked up in a set.
# Shapes that fit between two samples are searched for.
_SAMPLED_BYTES = 4 * 1024
_SAMPLE_BYTES, _STRIDE = 5, 12
# Three times as fast as `in` for long texts, and other threads go on meanwhile.
_memmem = ctypes.CDLL(None).memmem
_memmem.restype = ctypes.c_void_p
_memmem.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)


class _Span(NamedTuple):
    """Where a secret stands, in the bytes as they came."""

    start: int
    end: int
    name: str


class _Folded:
    """Bytes without their whitespace, and the way back."""

    def __init__(self, data: bytes) -> None:
        self.bytes = fold(data)
        self.lowered = self.bytes.lower()
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
        # In any case, two shapes may be one.
        told_apart = {
            (shape.folded if shape.is_exact else shape.folded.lower()): (shape, name) for shape, name in shapes.items()
        }
        self._shapes: tuple[tuple[Shape, str], ...] = tuple(
            sorted(told_apart.values(), key=lambda item: -len(item[0].folded))
        )
        self._lowered = tuple(shape.folded.lower() for shape, _ in self._shapes)
        self._unsampled = tuple(shape for shape in self._lowered if len(shape) < _SAMPLE_BYTES + _STRIDE - 1)
        sampled = self._lowered[: len(self._lowered) - len(self._unsampled)]
        self._samples = {shape[at : at + _SAMPLE_BYTES] for shape in sampled for at in range(_STRIDE)}
        self._openings = _Openings(self._lowered)
        # A secret that lies across a cut is no longer than this, also with a space between any two letters.
        self._margin_bytes = 2 * max(map(len, self._lowered), default=0)

    def __repr__(self) -> str:
        return f"Redactor({sorted({name for _, name in self._shapes})})"

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def find(self, data: bytes) -> str | None:
        """The name of a secret whose value stands here, or None. Fast where there is none, which is nearly always."""
        if not self._shapes:
            return None
        pieces = range(0, max(1, len(data)), _PIECE_BYTES)
        found = (self._find_in_piece(data[start : start + _PIECE_BYTES + self._margin_bytes]) for start in pieces)
        return next((name for name in found if name is not None), None)

    def _find_in_piece(self, piece: bytes) -> str | None:
        folded = fold(piece)
        lowered = folded.lower()
        if not self._may_hold(lowered):
            return None
        found = zip(self._shapes, self._lowered, strict=True)
        return next(
            (
                name
                for (shape, name), in_lower in found
                if (shape.folded in folded if shape.is_exact else in_lower in lowered)
            ),
            None,
        )

    def _may_hold(self, lowered: bytes) -> bool:
        """Whether one of them may stand here.

        This stands before every record: what is small is sampled, what is large searched by the C library.
        """
        if len(lowered) < _SAMPLED_BYTES:
            sampled = [lowered[at : at + _SAMPLE_BYTES] for at in range(0, len(lowered), _STRIDE)]
            return not self._samples.isdisjoint(sampled) or any(map(lowered.__contains__, self._unsampled))
        return any(_memmem(lowered, len(lowered), shape, len(shape)) for shape in self._lowered)

    def redact(self, data: bytes) -> bytes:
        return _replace(data, self._find_spans(data)) if self.find(data) is not None else data

    def redact_text(self, text: str) -> str:
        if not self._shapes or len(text) < _LEAD_BYTES:
            return text
        data = text.encode("utf-8", "surrogatepass")
        return text if self.find(data) is None else self.redact(data).decode("utf-8", "surrogatepass")

    def redact_part(self, before: str, text: str, after: str) -> str:
        """`text`, cut out of a larger one, without any piece of a secret that reaches into it.

        The line ends within a secret stay.
        """
        head, body, rest = (piece.encode("utf-8", "surrogatepass") for piece in (before, text, after))
        data, start, end = head + body + rest, len(head), len(head) + len(body)
        if self.find(data) is None:
            return text
        pieces, position = [], start
        for span in self._find_spans(data):
            first, last = max(span.start, start), min(span.end, end)
            if first < last:
                pieces += [
                    data[position:first],
                    f"[secret {span.name}]".encode(),
                    b"\n" * data.count(b"\n", first, last),
                ]
                position = last
        return b"".join([*pieces, data[position:end]]).decode("utf-8", "surrogatepass")

    def trim_end(self, data: bytes) -> bytes:
        """Without what may be the beginning of a secret: its rest was not kept."""
        return data[: self._find_cut(data, self._find_open(data))] if self._shapes else data

    def trim_start(self, data: bytes) -> bytes:
        """Without what may be the end of a secret, whose beginning was not kept."""
        lead = data[: self._margin_bytes][::-1]
        return (
            data[len(lead) - _Openings(shape[::-1] for shape in self._lowered).find(lead) :] if self._shapes else data
        )

    def _find_spans(self, data: bytes) -> list[_Span]:
        """In order, and none overlaps another: what does is one, by the name of the longest."""
        folded = _Folded(data)
        found: list[_Span] = []
        for shape, name in self._shapes:
            searched, sought = (
                (folded.bytes, shape.folded) if shape.is_exact else (folded.lowered, shape.folded.lower())
            )
            at = searched.find(sought)
            while at >= 0:
                span = _Span(folded.origin(at), folded.origin(at + len(sought) - 1) + 1, name)
                found.append(_widen(data, span, shape.shared))
                at = searched.find(sought, at + 1)
        merged: list[_Span] = []
        for span in sorted(found, key=lambda span: (span.start, -span.end)):
            if merged and span.start < merged[-1].end:
                merged[-1] = merged[-1]._replace(end=max(span.end, merged[-1].end))
            else:
                merged.append(span)
        return merged

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """The redacted part that can be let out while more of `data` may come, and the rest as it is:
        that may begin a secret."""
        cut = self._find_open(data)
        if self.find(data) is None:
            return data[:cut], data[cut:]
        cut = self._find_cut(data, cut)
        return self.redact(data[:cut]), data[cut:]

    def _find_open(self, data: bytes) -> int:
        lead = max(0, len(data) - self._margin_bytes)
        return lead + self._openings.find(data[lead:])

    def _find_cut(self, data: bytes, cut: int) -> int:
        """`cut`, or where the secret begins that lies across it."""
        for span in reversed(self._find_spans(data)):
            if span.start < cut < span.end:
                cut = span.start
        return cut


class RedactedStream:
    """Redacts bytes as they come. The stream holds back bytes that may begin a secret until more bytes arrive."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def push(self, chunk: bytes) -> bytes:
        if not self._redactor:
            return chunk
        shown, self._held = self._redactor.split(self._held + chunk)
        return shown

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


def _widen(data: bytes, span: _Span, shared: bytes) -> _Span:
    """The letter on either side may hold bits of the value and of its neighbour."""
    start, end = span.start, span.end
    if start > 0 and data[start - 1] in shared:
        start -= 1
    if end < len(data) and data[end] in shared:
        end += 1
    return _Span(start, end, span.name)


class _Openings:
    """Where one of some shapes begins that the end of a text cuts off."""

    def __init__(self, shapes: Iterable[bytes]) -> None:
        self._shapes = tuple(shapes)
        self._short = {shape[:length] for shape in self._shapes for length in range(1, _LEAD_BYTES)}

    def find(self, tail: bytes) -> int:
        """The first such beginning; the length of `tail` where there is none."""
        folded = _Folded(tail)
        text = folded.lowered
        first = min((at for shape in self._shapes if (at := _find_beginning(text, shape)) >= 0), default=len(text))
        for length in range(min(_LEAD_BYTES - 1, len(text)), 0, -1):
            if text[len(text) - length :] in self._short:
                first = min(first, len(text) - length)
                break
        return folded.origin(first) if first < len(text) else len(tail)


def _find_beginning(tail: bytes, shape: bytes) -> int:
    """Where a beginning of `shape` ends `tail` that has its first letters at least; -1 where none does."""
    lead = shape[:_LEAD_BYTES]
    at = tail.find(lead, max(0, len(tail) - len(shape) + 1))
    while at >= 0 and not shape.startswith(tail[at:]):
        at = tail.find(lead, at + 1)
    return at
