"""The results of a search: records with their session, and an excerpt around the first word of the search.

The log decides which records match. Nothing is escaped here: the printer does that.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

from wakeful.core.record.erased_payloads import list_values
from wakeful.views.records import Exported, view_record

AROUND = 40
_WORD = re.compile(r"[^\W_]+")


def encode_find(record: Exported, name: str, words: list[str]) -> bytes:
    """Encode one line of `search`."""
    line = {"session": name, "id": record.session, **view_record(record), "excerpt": find_excerpt(record, words)}
    return msgspec.json.encode(line) + b"\n"


def split_words(text: str) -> list[str]:
    """Split a search into words, in the form in which they are compared: without case and accents."""
    return _WORD.findall(_plain(text))


def find_excerpt(record: Exported, words: list[str]) -> str | None:
    """Find the text with the most of the words, around the first of them. None if no value of the payload contains
    them.
    """
    texts = [record.rationale] if record.rationale else []
    if record.payload is not None:
        texts += list_values(msgspec.json.decode(record.payload))
    best, most = None, 0
    for text in texts:
        found = {_plain(one) for one in _WORD.findall(text)}
        matched = sum(any(one.startswith(word) for one in found) for word in words)
        if matched > most:
            best, most = text, matched
    place = _find(best, words) if best is not None else None
    return _cut(best, *place) if best is not None and place is not None else None


def matches(record: Exported, shown: str, text: str) -> bool:
    """Does a record contain this text, in its shown line or in one of its values? Case and accents are ignored."""
    wanted = _plain(text)
    texts = [shown, record.rationale or ""]
    if record.payload is not None:
        texts += list_values(msgspec.json.decode(record.payload))
    return any(wanted in _plain(one) for one in texts)


def _find(text: str, words: list[str]) -> tuple[int, int] | None:
    """Find the position of the first of the words: as a whole word, else as the beginning of one."""
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
