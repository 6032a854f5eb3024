"""A conversation made to fit what its model takes in, where nobody has compressed it: the oldest turns are left out, and the mark says so.

A turn goes whole, an answer with the returns of its calls: half of one is refused by every provider. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from wakeful.core.digest import Message, digest_messages
from wakeful.core.tokens import estimate_entry
from wakeful.core.turn import Answered, Asked, Entry, Returned
from wakeful.counting import count

# Some four million tokens: far below what one answer over the socket holds.
MOST_LEFT_OUT_BYTES = 16 * 1024 * 1024


def fit_entries(entries: tuple[Entry, ...], tokens: int) -> tuple[Entry, ...]:
    """The newest turns that fit; the last one always does."""
    turns = split_turns(entries)
    kept: list[Sequence[Entry]] = []
    for turn in reversed(turns):
        tokens -= sum(map(estimate_entry, turn))
        if tokens < 0 and kept:
            break
        kept.append(turn)
    left = len(turns) - len(kept)
    if not left:
        return entries
    mark = Asked(text=f"({count(left, 'earlier turn')} of this conversation left out: too long for this model; history shows them.)")
    return (mark, *(entry for turn in reversed(kept) for entry in turn))


def find_left_out(entries: tuple[Entry, ...], fitting: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The turns that the mark stands for, in words and calls alone: they go to a summariser, and back to no provider.

    Of very many the oldest are told by rule: one answer of the daemon holds them all."""
    left = [replace(entry, raw=None) if isinstance(entry, Answered) else entry for entry in (entries[: len(entries) - len(fitting) + 1] if fitting != entries else ())]
    used = 0
    for place in range(len(left) - 1, -1, -1):
        used += len(_say(left[place]).encode(errors="replace"))
        if used > MOST_LEFT_OUT_BYTES:
            return (_digest(left[: place + 1]), *left[place + 1 :])
    return tuple(left)


def _digest(entries: Sequence[Entry]) -> Asked:
    said = [Message(session="", seq=0, at=0, author="AGENT" if isinstance(one, Answered) else "ASKED", text=_say(one)) for one in entries if not isinstance(one, Returned)]
    return Asked(text=f"({count(len(entries), 'older message')} told by rule.)\n\n{digest_messages(said, objective=None)}")


def _say(entry: Entry) -> str:
    return entry.text + "".join(call.arguments for call in entry.calls) if isinstance(entry, Answered) else entry.text


def split_turns(entries: tuple[Entry, ...]) -> list[list[Entry]]:
    """Each begins with what was asked, or with an answer."""
    turns: list[list[Entry]] = []
    for entry in entries:
        if isinstance(entry, Returned) and turns:
            turns[-1].append(entry)
        else:
            turns.append([entry])
    return turns
