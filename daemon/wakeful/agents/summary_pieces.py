"""A conversation as quoted text for whoever summarises it: all of it, nothing cut,
in pieces that each fit into one request.

Pure. A piece knows its entries, so that a rule can tell what it came to where no model did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from wakeful.core.agents import steps as work
from wakeful.core.agents.rule_summary import Message, digest_messages
from wakeful.core.agents.tokens import cut_to_tokens, estimate_tokens
from wakeful.core.agents.turns import Answered, Asked, Entry, Returned

_RETURNED = " RETURNED"
# More letters than any text has of one token, by estimate.
_MOST_LETTERS_A_TOKEN = 5


class Told(Struct, frozen=True):
    """One entry, or a part of a long one. `who` is the label it is quoted under."""

    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.who}: {self.text}"


Piece = tuple[Told, ...]


def list_whole(beginning: work.Beginning, entries: Sequence[Entry]) -> Sequence[Entry]:
    """A conversation with the turns that did not fit its model; without the summary it begins with,
    and the mark for those turns."""
    made = bool(beginning.summary and beginning.entries) + bool(beginning.left_out)
    return (*beginning.left_out, *entries[made:])


def tell_entries(entries: Iterable[Entry]) -> list[Told]:
    return [_tell(entry) for entry in entries]


def tell_piece(piece: Piece) -> str:
    return "\n\n".join(map(str, piece))


def split_pieces(told: Sequence[Told], most_tokens: int) -> list[Piece]:
    """In their order; an entry that is too long for one piece goes on in the next."""
    pieces: list[Piece] = []
    current: list[Told] = []
    used = 0
    for part in (part for one in told for part in _split(one, most_tokens)):
        size = estimate_tokens(str(part)) + 1
        if current and used + size > most_tokens:
            pieces.append(tuple(current))
            current, used = [], 0
        current.append(part)
        used += size
    return [*pieces, tuple(current)] if current else pieces


def digest_piece(piece: Iterable[Told], earlier: str | None = None) -> str:
    """A summary of the piece by rule.

    Results of tools are left out: nobody said them, and they can be looked at again.
    """
    said = [
        Message(session="", seq=0, at=0, author=one.who, text=one.text) for one in piece if _RETURNED not in one.who
    ]
    return digest_messages(said, objective=None, earlier=earlier)


def _tell(entry: Entry) -> Told:
    match entry:
        case Asked(text=text):
            return Told("ASKED", text)
        case Answered(text=text, calls=calls):
            return Told("AGENT", text + "".join(f"\nCALLS {call.name} {call.arguments}" for call in calls))
        case Returned(name=name, text=text):
            return Told(f"{name}{_RETURNED}", text)


def _split(told: Told, most_tokens: int) -> Iterator[Told]:
    # Room for its label.
    room = max(1, most_tokens - estimate_tokens(told.who) - 8)
    if estimate_tokens(told.text) <= room:
        yield told
        return
    rest, who = told.text, told.who
    while rest:
        part = cut_to_tokens(rest[: room * _MOST_LETTERS_A_TOKEN], room) or rest[:1]
        if len(part) < len(rest):
            part = _end_at_word(part)
        yield Told(who, part)
        rest, who = rest[len(part) :], f"{told.who} (continued)"


def _end_at_word(text: str) -> str:
    """Without a word that may go on behind it, unless that is most of the text."""
    end = max(text.rfind(" "), text.rfind("\n")) + 1
    return text[:end] if end > len(text) // 2 else text
