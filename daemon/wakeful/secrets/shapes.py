"""The shapes in which a secret's value turns up: as it is, and as programs write it down.

Pure. Called by `Redactor` once per value. Whitespace is left out of every shape, because `base64` breaks its lines and
people their messages: what is searched is folded in the same way. A shape is found in capitals and in small letters
alike, unless it is short. Compression, encryption and spellings of one's own are not seen through.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_from_bytes, quote_plus

# Where nothing but these stands between two letters, they are still one word.
WHITESPACE = b" \t\r\n\v\f"
# Redacting less than this would wreck output that holds no secret; nothing worth the name is shorter.
SHORTEST_BYTES = 8
# `aaaaaaaa` and `00000000` are found everywhere.
_FEWEST_LETTERS = 4
LONGEST_BYTES = 64 * 1024
# A shorter shape counts only as it stands: eight letters in any case are found in prose.
_SHORTEST_IN_ANY_CASE = 12
# A line of a key that is told apart from prose: long, and one word. Its first and last line say only what it is.
_SHORTEST_LINE = 20
_ARMOUR = b"-----"


# The letters of an encoding that puts several bytes into one group: those beside a value hold a part of it.
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_BASE32 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz234567"


class Shape(NamedTuple):
    """A byte sequence to search for in folded bytes.

    `shared` are letters that hold a part of the value if they stand beside it.
    """

    folded: bytes
    shared: bytes = b""

    @property
    def is_exact(self) -> bool:
        """A short shape is no secret in another case."""
        return len(self.folded) < _SHORTEST_IN_ANY_CASE


def find_unfitness(value: bytes) -> str | None:
    """Why this cannot be a secret, in words, or None: what cannot be redacted must not be handed out."""
    bare = fold(value)
    if len(bare) < SHORTEST_BYTES:
        return (
            f"its value has {len(bare)} bytes, and a secret at least {SHORTEST_BYTES}: "
            "to hide less would wreck the output of every run"
        )
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
    found = {Shape(fold(text)): None for text in (*_spell(value), *_spell_bytes(value))}
    found |= dict.fromkeys(Shape(text, _BASE64) for text in _encode_base64(value))
    found |= dict.fromkeys(Shape(text, _BASE32) for text in _encode_groups(value, base64.b32encode, bytes_in_group=5))
    for line in value.splitlines()[1:] and value.splitlines():
        bare = line.strip()
        if len(bare) >= _SHORTEST_LINE and fold(bare) == bare and not bare.startswith(_ARMOUR):
            found[Shape(bare)] = None
    usable = (shape for shape in found if len(shape.folded) >= SHORTEST_BYTES)
    return tuple(sorted(usable, key=lambda shape: (-len(shape.folded), shape.folded)))


def _spell(value: bytes) -> Iterator[bytes]:
    """As it is, and inside of the quotes of what programs print."""
    yield value
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
    # Each language leaves other characters unescaped in an address. JavaScript leaves these.
    yield quote(text, safe="!'()*").encode()
    for is_ascii in (True, False):
        spelled = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield spelled.encode()
        yield spelled.replace("/", "\\/").encode()
        # Go and some web frameworks escape these, so that a browser does not take them for markup.
        yield spelled.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").encode()
    yield repr(text)[1:-1].encode()
    yield from _spell_in_markup(text)
    yield text.replace("'", "'\\''").encode()
    yield text.replace("'", "'\"'\"'").encode()


def _lower_escapes(quoted: str) -> str:
    """%2F as %2f, and nothing else in lower case."""
    first, *rest = quoted.split("%")
    return "".join([first, *(f"%{part[:2].lower()}{part[2:]}" for part in rest)])


def _spell_bytes(value: bytes) -> Iterator[bytes]:
    """Byte by byte: hexadecimal as `xxd`, `openssl` and debuggers write it, addresses with every byte escaped,
    lists of numbers."""
    pairs = [f"{byte:02x}" for byte in value]
    for before, between in (("", ""), ("", ":"), ("", "-"), ("%", ""), ("\\x", ""), ("0x", ","), ("\\u00", "")):
        yield between.join(f"{before}{pair}" for pair in pairs).encode()
    yield ",".join(map(str, value)).encode()


def _spell_in_markup(text: str) -> Iterator[bytes]:
    """HTML and XML: names or numbers for a few letters, or a number for every one."""
    yield html.escape(text).encode()
    # Go and Jinja, then PHP.
    for quote_mark, apostrophe in (("&#34;", "&#39;"), ("&quot;", "&#039;")):
        yield html.escape(text, quote=False).replace('"', quote_mark).replace("'", apostrophe).encode()
    for form in ("&#{:d};", "&#x{:x};"):
        yield "".join(form.format(ord(letter)) for letter in text).encode()
        yield "".join(letter if letter.isalnum() else form.format(ord(letter)) for letter in text).encode()


def _encode_base64(value: bytes) -> Iterator[bytes]:
    for own in _encode_groups(value, base64.b64encode, bytes_in_group=3):
        yield own
        yield own.translate(bytes.maketrans(b"+/", b"-_"))


def _encode_groups(value: bytes, encode: Callable[[bytes], bytes], bytes_in_group: int) -> Iterator[bytes]:
    """The letters that are the value's alone, wherever in a group it begins."""
    bits = 8 * bytes_in_group // len(encode(bytes(bytes_in_group)))
    for ahead in range(bytes_in_group):
        whole = encode(b"\0" * ahead + value)
        yield whole[-(-8 * ahead // bits) : 8 * (ahead + len(value)) // bits]
