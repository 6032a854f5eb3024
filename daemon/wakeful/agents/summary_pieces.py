"""Writes a conversation as text for a summary: all of it, uncut, in pieces that each fit into one request.

Pure. A piece keeps its entries apart, so that it can be condensed without a model if no model answers. Called by
compaction.py, and for the hand-off of a run that had to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from wakeful.core.agents import steps as work
from wakeful.core.agents.model_text import cut_to_tokens, estimate_tokens
from wakeful.core.agents.rule_summary import Message, digest_messages
from wakeful.core.agents.turns import Answered, Asked, Entry, Returned

_RETURNED = " RETURNED"
# More letters than an estimated token ever has.
_MOST_LETTERS_A_TOKEN = 5


class SummaryPiece(Struct, frozen=True):
    """One entry, or a part of a long entry. `who` is its label."""

    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.who}: {self.text}"


Piece = tuple[SummaryPiece, ...]


def list_whole(beginning: work.Beginning, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the conversation with the turns that did not fit the model, in place of the mark for them.

    The summary at its beginning is left out.
    """
    made = bool(beginning.summary and beginning.entries) + bool(beginning.left_out)
    return (*beginning.left_out, *entries[made:])


def tell_entries(entries: Iterable[Entry]) -> list[SummaryPiece]:
    return [_tell(entry) for entry in entries]


def tell_piece(piece: Piece) -> str:
    return "\n\n".join(map(str, piece))


def split_pieces(told: Sequence[SummaryPiece], most_tokens: int) -> list[Piece]:
    """Split entries into pieces, in order. An entry that is too long for one piece continues in the next."""
    pieces: list[Piece] = []
    current: list[SummaryPiece] = []
    used = 0
    for part in (part for one in told for part in _split(one, most_tokens)):
        size = estimate_tokens(str(part)) + 1
        if current and used + size > most_tokens:
            pieces.append(tuple(current))
            current, used = [], 0
        current.append(part)
        used += size
    return [*pieces, tuple(current)] if current else pieces


def digest_piece(piece: Iterable[SummaryPiece], earlier: str | None = None) -> str:
    """Condense a piece without a model.

    Results of tools are left out, because they are not part of the talk, and can be looked up again.
    """
    said = [
        Message(session="", seq=0, at=0, author=one.who, text=one.text) for one in piece if _RETURNED not in one.who
    ]
    return digest_messages(said, objective=None, earlier=earlier)


def _tell(entry: Entry) -> SummaryPiece:
    match entry:
        case Asked(text=text):
            return SummaryPiece("ASKED", text)
        case Answered(text=text, calls=calls):
            return SummaryPiece("AGENT", text + "".join(f"\nCALLS {call.name} {call.arguments}" for call in calls))
        case Returned(name=name, text=text):
            return SummaryPiece(f"{name}{_RETURNED}", text)


def _split(told: SummaryPiece, most_tokens: int) -> Iterator[SummaryPiece]:
    # Leave room for the label.
    room = max(1, most_tokens - estimate_tokens(told.who) - 8)
    if estimate_tokens(told.text) <= room:
        yield told
        return
    rest, who = told.text, told.who
    while rest:
        part = cut_to_tokens(rest[: room * _MOST_LETTERS_A_TOKEN], room) or rest[:1]
        if len(part) < len(rest):
            part = _end_at_word(part)
        yield SummaryPiece(who, part)
        rest, who = rest[len(part) :], f"{told.who} (continued)"


def _end_at_word(text: str) -> str:
    """Cut off the last word, which may be incomplete, unless it is half of the text or more."""
    end = max(text.rfind(" "), text.rfind("\n")) + 1
    return text[:end] if end > len(text) // 2 else text
