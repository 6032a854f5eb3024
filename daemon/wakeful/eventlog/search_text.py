"""The words of a search and the text of a record. Pure; every engine that can search uses it.

`parse_phrases` parses the words of a person, and `read_text` returns the searchable text of a record. An engine with
its own index asks that index. `has_phrases` is the plain comparison for an engine without one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import msgspec

from wakeful.core.record.erased_payloads import list_values
from wakeful.eventlog.contract import BadSearch, Record

_WORDS = re.compile(r'"([^"]*)"|(\S+)')


class Phrase(msgspec.Struct, frozen=True):
    """Words that must be next to each other. `is_prefix` means that the last word may be longer."""

    text: str
    is_prefix: bool = False


class Query(msgspec.Struct, frozen=True):
    """The words and filters of a search. Bounds are inclusive; None means no bound."""

    text: str
    session: str | None = None
    since: int | None = None
    until: int | None = None
    kinds: Sequence[str] | None = None
    author: str | None = None
    limit: int = 100

    def admits(self, record: Record) -> bool:
        """Is the record within the bounds, and is its payload here? The words are not compared."""
        return (
            record.payload is not None
            and (self.session is None or record.session == self.session)
            and (self.since is None or record.at >= self.since)
            and (self.until is None or record.at <= self.until)
            and (self.kinds is None or record.kind in self.kinds)
            and (self.author is None or record.author == self.author)
        )


def parse_phrases(text: str) -> list[Phrase]:
    """Parse the phrases of a search, in order. Each word is a phrase, and so are several words in quotes.

    Only * and quotes have a special meaning.
    """
    phrases = []
    for quoted, word in _WORDS.findall(text):
        phrase = Phrase(quoted) if quoted else Phrase(word.rstrip("*"), word.endswith("*"))
        # Punctuation alone contains no word.
        if has_word(phrase.text):
            phrases.append(phrase)
    if not phrases:
        raise BadSearch(f"nothing to search for in {text!r}; give at least one word")
    return phrases


def has_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


def read_text(record: Record) -> str:
    """Return the readable text of a record: the values of its payload and its rationale, without the names of
    fields.
    """
    assert record.payload is not None
    parts: list[str] = [record.rationale] if record.rationale else []
    try:
        parts += list_values(msgspec.json.decode(record.payload))
    except msgspec.DecodeError:
        parts.append(record.payload.decode(errors="replace"))
    return "\n".join(parts)


def has_phrases(text: str, phrases: Sequence[Phrase]) -> bool:
    """Does the text contain all of the phrases? Case and accents are ignored."""
    words = _split(text)
    return all(_has_phrase(words, phrase) for phrase in phrases)


def _has_phrase(words: list[str], phrase: Phrase) -> bool:
    wanted = _split(phrase.text)
    for start in range(len(words) - len(wanted) + 1):
        found = words[start : start + len(wanted)]
        if found[:-1] == wanted[:-1] and (found[-1].startswith(wanted[-1]) if phrase.is_prefix else found == wanted):
            return True
    return False


def _split(text: str) -> list[str]:
    plain = (character for character in unicodedata.normalize("NFKD", text) if not unicodedata.combining(character))
    return "".join(character if character.isalnum() else " " for character in plain).casefold().split()
