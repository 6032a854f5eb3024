"""Replaces the values of secrets in bytes and text by `[secret NAME]`, in every encoding of secret_encodings.py.

A `Redactor` is immutable: for a new secret, the caller builds a new one. Everything that a run or the daemon outputs is
redacted before it is stored, because the records of a hash-chained log cannot be changed later. This module reads no
secrets from disk.
"""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from wakeful.secrets.secret_encodings import WHITESPACE, Shape, find_shapes, fold

_WORD = re.compile(b"[^" + re.escape(WHITESPACE) + b"]+")
# The number of bytes at the start of a shape that are searched for in a tail, in case more bytes follow.
_LEAD_BYTES = 8
# The most bytes searched in one step. No other thread can run during a step, and the loop is one of them.
_PIECE_BYTES = 256 * 1024
# A text of fewer bytes is sampled: every `_STRIDE` bytes, `_SAMPLE_BYTES` bytes are looked up in a set.
# Shapes that fit between two samples are searched for one by one.
_SAMPLED_BYTES = 4 * 1024
_SAMPLE_BYTES, _STRIDE = 5, 12
# memmem of the C library is three times as fast as `in` for long texts, and lets other threads run meanwhile.
_memmem = ctypes.CDLL(None).memmem
_memmem.restype = ctypes.c_void_p
_memmem.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)


class _Span(NamedTuple):
    """The place of a secret in the original bytes."""

    start: int
    end: int
    name: str


class _Folded:
    """Bytes without their whitespace, and a map from their offsets to those in the original bytes."""

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
        """Return the offset in the original bytes of the folded byte at `position`."""
        at = bisect_right(self._starts, position) - 1
        return self._origins[at] + position - self._starts[at]


class Redactor:
    """Finds and replaces the values of secrets. A name may have several values: the current one and replaced ones.

    The repr shows names only.
    """

    def __init__(self, values: Iterable[tuple[str, bytes]] = ()) -> None:
        shapes = {shape: name for name, value in values for shape in find_shapes(value)}
        # Deduplicate: two shapes that differ only in case are the same one, unless case matters.
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
        # The most bytes that a secret across a cut can take, even with a space between every two letters.
        self._margin_bytes = 2 * max(map(len, self._lowered), default=0)

    def __repr__(self) -> str:
        return f"Redactor({sorted({name for _, name in self._shapes})})"

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def find(self, data: bytes) -> str | None:
        """Return the name of a secret whose value is in `data`, or None. None is by far the usual case, and fast."""
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
        """Can a shape be in these bytes? A fast check that may return True wrongly, but never False.

        It runs for every record. Short bytes are sampled, longer ones are searched by the C library.
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
        """Redact `text`, a part of a larger text, including secrets that are only partly inside it.

        The line ends within a secret are kept.
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
        """Cut off trailing bytes that may be the beginning of a secret whose rest was not kept."""
        return data[: self._find_cut(data, self._find_open(data))] if self._shapes else data

    def trim_start(self, data: bytes) -> bytes:
        """Cut off leading bytes that may be the end of a secret whose beginning was not kept."""
        lead = data[: self._margin_bytes][::-1]
        return (
            data[len(lead) - _Openings(shape[::-1] for shape in self._lowered).find(lead) :] if self._shapes else data
        )

    def _find_spans(self, data: bytes) -> list[_Span]:
        """Find all secrets, in order. Overlapping secrets are merged into one span, under the name of the first."""
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
        """Split a stream's bytes into a redacted part that can be output now, and an unredacted rest to hold back.

        The rest may be the beginning of a secret whose other bytes are still to come.
        """
        cut = self._find_open(data)
        if self.find(data) is None:
            return data[:cut], data[cut:]
        cut = self._find_cut(data, cut)
        return self.redact(data[:cut]), data[cut:]

    def _find_open(self, data: bytes) -> int:
        lead = max(0, len(data) - self._margin_bytes)
        return lead + self._openings.find(data[lead:])

    def _find_cut(self, data: bytes, cut: int) -> int:
        """Return `cut`, or the beginning of the secret that crosses it."""
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
        """Return the bytes held back, redacted. Called at the end, or if the next bytes do not continue these."""
        held, self._held = self._held, b""
        return self._redactor.redact(held)


def _replace(data: bytes, spans: Iterable[_Span]) -> bytes:
    pieces, position = [], 0
    for span in spans:
        pieces += [data[position : span.start], f"[secret {span.name}]".encode()]
        position = span.end
    return b"".join([*pieces, data[position:]])


def _widen(data: bytes, span: _Span, shared: bytes) -> _Span:
    """Extend a span by one letter on each side, if that letter is in `shared`.

    In base64 and base32 the letter next to the value may encode bits of the value and of its neighbour.
    """
    start, end = span.start, span.end
    if start > 0 and data[start - 1] in shared:
        start -= 1
    if end < len(data) and data[end] in shared:
        end += 1
    return _Span(start, end, span.name)


class _Openings:
    """Finds shapes of which a text contains only the beginning, because the text ends there."""

    def __init__(self, shapes: Iterable[bytes]) -> None:
        self._shapes = tuple(shapes)
        self._short = {shape[:length] for shape in self._shapes for length in range(1, _LEAD_BYTES)}

    def find(self, tail: bytes) -> int:
        """Return the offset of the first such shape, or the length of `tail` if there is none."""
        folded = _Folded(tail)
        text = folded.lowered
        first = min((at for shape in self._shapes if (at := _find_beginning(text, shape)) >= 0), default=len(text))
        for length in range(min(_LEAD_BYTES - 1, len(text)), 0, -1):
            if text[len(text) - length :] in self._short:
                first = min(first, len(text) - length)
                break
        return folded.origin(first) if first < len(text) else len(tail)


def _find_beginning(tail: bytes, shape: bytes) -> int:
    """Return the offset from which the rest of `tail` is the beginning of `shape`, at least _LEAD_BYTES long, or -1."""
    lead = shape[:_LEAD_BYTES]
    at = tail.find(lead, max(0, len(tail) - len(shape) + 1))
    while at >= 0 and not shape.startswith(tail[at:]):
        at = tail.find(lead, at + 1)
    return at
