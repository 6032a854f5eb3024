"""The shapes of a secret: its value as it is, and in the encodings in which programs print it.

Pure. Called by `Redactor` once per value. Shapes have no whitespace, because `base64` and people break lines. The text
that is searched is folded in the same way. Upper and lower case are not distinguished, except in short shapes.
Compressed, encrypted and unusually encoded values are not found.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_from_bytes, quote_plus

# The bytes that folding removes.
WHITESPACE = b" \t\r\n\v\f"
# The fewest bytes of a secret. Redacting shorter values would garble output that contains no secret.
SHORTEST_BYTES = 8
# The fewest different letters of a secret. `aaaaaaaa` and `00000000` occur everywhere.
_FEWEST_LETTERS = 4
LONGEST_BYTES = 64 * 1024
# The fewest bytes of a shape that is matched regardless of case. Shorter ones would match ordinary prose.
_SHORTEST_IN_ANY_CASE = 12
# The fewest bytes of a line of a multi-line key that is searched for by itself. The line must also be one word, so that
# prose does not match it. The first and last line of a key (`-----BEGIN …`) are not secret.
_SHORTEST_LINE = 20
_ARMOUR = b"-----"


# The letters of encodings that put several bytes into one group. A letter next to a value may encode a part of it.
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_BASE32 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz234567"


class Shape(NamedTuple):
    """A byte sequence to search for in folded bytes.

    `shared` has the letters that may encode a part of the value if they stand next to it.
    """

    folded: bytes
    shared: bytes = b""

    @property
    def is_exact(self) -> bool:
        """Must the case match? True for a short shape."""
        return len(self.folded) < _SHORTEST_IN_ANY_CASE


def find_unfitness(value: bytes) -> str | None:
    """Return the reason why this value cannot be a secret, or None. A value must be redactable to be given to a run."""
    bare = fold(value)
    if len(bare) < SHORTEST_BYTES:
        return (
            f"its value has {len(bare)} bytes, and a secret needs at least {SHORTEST_BYTES}: "
            "redacting a shorter one would garble the output of every run"
        )
    if len(value) > LONGEST_BYTES:
        return f"its value has {len(value)} bytes, and a secret at most {LONGEST_BYTES}"
    if len(set(bare)) < _FEWEST_LETTERS:
        return (
            f"its value has fewer than {_FEWEST_LETTERS} different characters: "
            "redacting it would garble the output of every run"
        )
    return None


def fold(data: bytes) -> bytes:
    return data.translate(None, WHITESPACE)


def find_shapes(value: bytes) -> tuple[Shape, ...]:
    """Return the shapes of a value, longest first, so that the whole is found before its parts.

    `find_unfitness` must have accepted the value.
    """
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
    """Yield the value as it is, percent-encoded, and as it is escaped within quotes in several languages."""
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
    # Languages differ in the characters that they leave unescaped in a URL. These are JavaScript's.
    yield quote(text, safe="!'()*").encode()
    for is_ascii in (True, False):
        spelled = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield spelled.encode()
        yield spelled.replace("/", "\\/").encode()
        # Go and some web frameworks escape these characters, so that a browser does not take them for markup.
        yield spelled.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").encode()
    yield repr(text)[1:-1].encode()
    yield from _spell_in_markup(text)
    yield text.replace("'", "'\\''").encode()
    yield text.replace("'", "'\"'\"'").encode()


def _lower_escapes(quoted: str) -> str:
    """Lower the case of percent escapes (%2F to %2f) and of nothing else."""
    first, *rest = quoted.split("%")
    return "".join([first, *(f"%{part[:2].lower()}{part[2:]}" for part in rest)])


def _spell_bytes(value: bytes) -> Iterator[bytes]:
    """Yield the value byte by byte: in hexadecimal, as `xxd`, `openssl` and debuggers print it, escaped, and as
    numbers.
    """
    pairs = [f"{byte:02x}" for byte in value]
    for before, between in (("", ""), ("", ":"), ("", "-"), ("%", ""), ("\\x", ""), ("0x", ","), ("\\u00", "")):
        yield between.join(f"{before}{pair}" for pair in pairs).encode()
    yield ",".join(map(str, value)).encode()


def _spell_in_markup(text: str) -> Iterator[bytes]:
    """Yield the text escaped for HTML and XML: only special characters by name or number, or every one by number."""
    yield html.escape(text).encode()
    # The escapes of Go and Jinja, then those of PHP.
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
    """Yield the letters that encode only bits of the value, for each position within a group at which it may begin."""
    bits = 8 * bytes_in_group // len(encode(bytes(bytes_in_group)))
    for ahead in range(bytes_in_group):
        whole = encode(b"\0" * ahead + value)
        yield whole[-(-8 * ahead // bits) : 8 * (ahead + len(value)) // bits]
