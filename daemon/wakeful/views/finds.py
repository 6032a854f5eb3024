"""What a search found: records with their session, and the piece of text around the first word that was looked for.

Which records match is the log's answer; here it is only shown. Nothing is escaped: who prints, escapes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

from wakeful.views.records import Exported, view_record

AROUND = 40
_WORD = re.compile(r"[^\W_]+")


def encode_find(record: Exported, name: str, words: list[str]) -> bytes:
    """One line of `search`."""
    line = {"session": name, "id": record.session, **view_record(record), "excerpt": find_excerpt(record, words)}
    return msgspec.json.encode(line) + b"\n"


def split_words(text: str) -> list[str]:
    """The words of a search, as they are compared: without case and accents."""
    return _WORD.findall(_plain(text))


def find_excerpt(record: Exported, words: list[str]) -> str | None:
    """The text around the first word found; None where it stands only in something that is not text."""
    texts = [record.rationale] if record.rationale else []
    if record.payload is not None:
        texts += _leaves(msgspec.json.decode(record.payload))
    for text in texts:
        place = _find(text, words)
        if place is not None:
            return _cut(text, *place)
    return None


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from _leaves(one)
        case list():
            for one in value:
                yield from _leaves(one)


def _find(text: str, words: list[str]) -> tuple[int, int] | None:
    """Where the first of the words stands: as a whole word, else as the beginning of one."""
    beginning = None
    for found in _WORD.finditer(text):
        word = _plain(found[0])
        if word in words:
            return found.span()
        if beginning is None and word.startswith(tuple(words)):
            beginning = found.span()
    return beginning


def _cut(text: str, start: int, end: int) -> str:
    first, last = max(0, start - AROUND), min(len(text), end + AROUND)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")


def _plain(text: str) -> str:
    parted = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parted if not unicodedata.combining(one)).casefold()
