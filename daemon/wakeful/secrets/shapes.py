"""The shapes in which a secret's value turns up: as it is, and as programs write it down.

Pure. Called by `Redactor` once per value. Whitespace is left out of every shape, because `base64` breaks its lines and people
their messages: what is searched is folded in the same way. Compression, encryption and spellings of one's own are not seen through.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_from_bytes, quote_plus

# Where nothing but these stands between two letters, they are still one word.
WHITESPACE = b" \t\r\n\v\f"
# Redacting less than this would wreck output that holds no secret; nothing worth the name is shorter.
SHORTEST_BYTES = 8
# `aaaaaaaa` and `00000000` are found everywhere.
_FEWEST_LETTERS = 4
LONGEST_BYTES = 64 * 1024
# A line of a key that is told apart from prose: long, and one word. Its first and last line say only what it is.
_SHORTEST_LINE = 20
_ARMOUR = b"-----"


class Shape(NamedTuple):
    """What to search folded bytes for. Around base64 stand letters that hold a part of the value."""

    folded: bytes
    is_base64: bool = False


def find_unfitness(value: bytes) -> str | None:
    """Why this cannot be a secret, in words, or None: what cannot be redacted must not be handed out."""
    bare = fold(value)
    if len(bare) < SHORTEST_BYTES:
        return f"its value has {len(bare)} bytes, and a secret at least {SHORTEST_BYTES}: to hide less would wreck the output of every run"
    if len(value) > LONGEST_BYTES:
        return f"its value has {len(value)} bytes, and a secret at most {LONGEST_BYTES}"
    if len(set(bare)) < _FEWEST_LETTERS:
        return f"its value repeats fewer than {_FEWEST_LETTERS} letters: to hide it would wreck the output of every run"
    return None


def fold(data: bytes) -> bytes:
    return data.translate(None, WHITESPACE)


def find_shapes(value: bytes) -> tuple[Shape, ...]:
    """Longest first, so that the whole is found before its parts. `value` is fit (find_unfitness)."""
    value = value.strip()
    found = {Shape(fold(text)): None for text in _spell(value)}
    found |= dict.fromkeys(Shape(text, is_base64=True) for text in _encode_base64(value))
    for line in value.splitlines()[1:] and value.splitlines():
        bare = line.strip()
        if len(bare) >= _SHORTEST_LINE and fold(bare) == bare and not bare.startswith(_ARMOUR):
            found[Shape(bare)] = None
    usable = (shape for shape in found if len(shape.folded) >= SHORTEST_BYTES)
    return tuple(sorted(usable, key=lambda shape: (-len(shape.folded), shape.folded)))


def _spell(value: bytes) -> Iterator[bytes]:
    """As bytes, digits, and inside of the quotes of what programs print."""
    yield value
    yield value.hex().encode()
    yield value.hex().upper().encode()
    for safe in ("", "/"):
        quoted = quote_from_bytes(value, safe=safe)
        yield quoted.encode()
        yield _lower_escapes(quoted).encode()
    yield repr(value)[2:-1].encode()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return
    yield quote_plus(text).encode()
    # What stays as it is in an address differs from writer to writer: JavaScript leaves these.
    yield quote(text, safe="!'()*").encode()
    for is_ascii in (True, False):
        spelled = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield spelled.encode()
        yield spelled.replace("/", "\\/").encode()
        # Go and some web frameworks write these so, lest a browser takes them for markup.
        yield spelled.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").encode()
    yield repr(text)[1:-1].encode()
    yield html.escape(text).encode()
    yield text.replace("'", "'\\''").encode()
    yield text.replace("'", "'\"'\"'").encode()


def _lower_escapes(quoted: str) -> str:
    """%2F as %2f, and nothing else in lower case."""
    first, *rest = quoted.split("%")
    return "".join([first, *(f"%{part[:2].lower()}{part[2:]}" for part in rest)])


def _encode_base64(value: bytes) -> Iterator[bytes]:
    """The letters that are the value's alone, wherever it begins in what was encoded: three letters stand for four."""
    for ahead in range(3):
        whole = base64.b64encode(b"\0" * ahead + value)
        own = whole[(8 * ahead + 5) // 6 : 8 * (ahead + len(value)) // 6]
        yield own
        yield own.translate(bytes.maketrans(b"+/", b"-_"))
