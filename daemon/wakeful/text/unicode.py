"""Removes halves of characters (surrogates) from text, because no provider, log or terminal accepts them.

They come with a model's answer (a stream that cuts an emoji in two, an escape without its other half) and with names of
files that are not UTF-8. Two halves that belong together become their character. Each other half becomes an escape such
as \\ud83d, and `tell_sendable` tells the reader. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

from wakeful.text.display import count

_HALF = re.compile("[\ud800-\udfff]")
# In JSON text a half may also be written as an escape of six characters.
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def make_sendable(text: str) -> str:
    """Join the halves of characters, and escape lone ones. Any other text is returned unchanged."""
    return _HALF.sub(_show, _join_halves(text)) if _HALF.search(text) else text


def tell_sendable(text: str) -> str:
    """Make text sendable, and add a last line that tells the reader about halves that became escapes."""
    if not _HALF.search(text):
        return text
    lone = len(_HALF.findall(_join_halves(text)))
    told = (
        f"\n[{count(lone, 'character')} here cannot be sent (half a character, or a byte that is not UTF-8): shown "
        "as an escape such as \\ud83d]"
    )
    return make_sendable(text) + (told if lone else "")


def has_lone_half(text: str) -> bool:
    return _HALF.search(text) is not None and _HALF.search(_join_halves(text)) is not None


def make_json_sendable(text: str) -> str:
    """Make JSON text sendable, also after it is parsed: the arguments of a tool call, or the message of a server."""
    if not _has_escaped_half(text):
        return make_sendable(text)
    found = _read_json(text)
    return text if found is None else json.dumps(_mend(found), ensure_ascii=False)


def find_lone_half(arguments: str) -> str | None:
    """Find the first value in JSON arguments that contains a lone half. Returns it with an escape in place of the half.

    None if there is no such value.
    """
    return _find(_read_json(arguments)) if _has_escaped_half(arguments) else None


class SendablePieces:
    """Makes text sendable that arrives in pieces. A half at the end of a piece waits for the next piece."""

    def __init__(self) -> None:
        self._held = ""

    def take(self, piece: str) -> str:
        text = self._held + piece
        self._held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return make_sendable(text.removesuffix(self._held) if self._held else text)

    def end(self) -> str:
        held, self._held = self._held, ""
        return make_sendable(held)


def _join_halves(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _show(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _has_escaped_half(arguments: str) -> bool:
    return _ESCAPED_HALF.search(arguments) is not None


def _read_json(text: str) -> Any:
    """Parse JSON with the standard library, which accepts lone halves.

    None if the text is not JSON. Another check refuses it then.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mend(value: Any) -> Any:
    match value:
        case str():
            return make_sendable(value)
        case list():
            return [_mend(one) for one in value]
        case dict():
            return {make_sendable(name): _mend(one) for name, one in value.items()}
        case _:
            return value


def _find(value: Any) -> str | None:
    match value:
        case str():
            return make_sendable(value) if has_lone_half(value) else None
        case list():
            return next((found for one in value if (found := _find(one)) is not None), None)
        case dict():
            return _find([*value, *value.values()])
        case _:
            return None
