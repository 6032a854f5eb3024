"""Words in flight: what agents say while they say it, for whoever follows.

The log keeps finished turns, and nothing of this.

Held in memory and bounded: the oldest words go first, and a follower that was too slow for them is told so. Nobody
waits for a follower. Values of secrets are taken out as words come in;
what may begin one is held back until more is known. On the loop alone.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal
from weakref import WeakSet

from msgspec import Struct

from wakeful.secrets.redact import Redactor

# `waits` says why a run has not started yet; `lost` that words are missing here,
# which the record of the turn will have.
LiveKind = Literal["text", "thinking", "call", "waits", "lost"]
MOST_BYTES = 512 * 1024
MOST_PIECES = 8_192


class Said(Struct, frozen=True, kw_only=True):
    """A piece of what an agent says.

    `attempt`: the request of the turn that it answers; a later one makes the words of the earlier void.
    """

    turn: int
    attempt: int
    kind: LiveKind
    text: str = ""


class Piece(Struct, frozen=True, kw_only=True):
    """Words of one run, in their order among all that came."""

    session: str
    run: int
    said: Said


@dataclass(slots=True)
class _Turn:
    """One request's answer so far: by kind, the bytes that are held back, and how they become text."""

    held: dict[str, bytes] = field(default_factory=dict)
    decoders: dict[str, codecs.IncrementalDecoder] = field(default_factory=dict)


class LiveWords:
    """`redactor` is asked for each piece: a secret may become known during a run."""

    def __init__(self, redactor: Callable[[], Redactor], most_bytes: int = MOST_BYTES) -> None:
        self._redactor = redactor
        self._most_bytes = most_bytes
        self._pieces: deque[Piece] = deque()
        # The number of the first piece that is kept, and their size.
        self._first = 0
        self._size_bytes = 0
        # Session and run -> the request whose answer comes, and the last turn that was answered.
        self._open: dict[tuple[str, int], tuple[int, int, _Turn]] = {}
        self._answered: dict[tuple[str, int], int] = {}
        # Set when words came. One goes with whoever waits for it.
        self.listeners: WeakSet[asyncio.Event] = WeakSet()

    def add(self, session: str, run: int, words: Iterable[Said]) -> None:
        """Take words in. Those of a turn that is on record are late, and nobody's any more."""
        for said in words:
            if said.turn <= self._answered.get((session, run), 0):
                continue
            turn, attempt, state = self._open.get((session, run), (0, 0, _Turn()))
            if (turn, attempt) != (said.turn, said.attempt):
                state = _Turn()
                self._open[session, run] = said.turn, said.attempt, state
            text = self._redact(state, said)
            if text or said.kind == "lost":
                self._put(
                    Piece(
                        session=session,
                        run=run,
                        said=Said(turn=said.turn, attempt=said.attempt, kind=said.kind, text=text),
                    )
                )
        for listener in self.listeners:
            listener.set()

    def close_turn(self, session: str, run: int, turn: int) -> None:
        """The turn is on its way to the record, which has all of its words."""
        self._answered[session, run] = turn
        self._open.pop((session, run), None)

    def close_run(self, session: str, run: int) -> None:
        self._answered.pop((session, run), None)
        self._open.pop((session, run), None)

    @property
    def position(self) -> int:
        """Where a follower begins: at the first words of a turn that is not over."""
        for number, piece in enumerate(self._pieces, self._first):
            if self._is_open(piece):
                return number
        return self._first + len(self._pieces)

    def read_after(self, position: int, most_bytes: int = MOST_BYTES) -> tuple[int, list[Piece], bool]:
        """The next pieces from a position on, the position behind them, and whether words before them are gone.

        At least one where there is one, and then no more than fit: a follower that does not read holds them."""
        is_lost, position = position < self._first, max(position, self._first)
        pieces: list[Piece] = []
        for piece in islice(self._pieces, position - self._first, None):
            most_bytes -= len(piece.said.text)
            if pieces and most_bytes < 0:
                break
            pieces.append(piece)
        return position + len(pieces), [piece for piece in pieces if self._is_open(piece)], is_lost

    def list_open(self, until: int) -> list[Piece]:
        """The pieces before a position whose turns are not over."""
        return [
            piece for number, piece in enumerate(self._pieces, self._first) if number < until and self._is_open(piece)
        ]

    def _is_open(self, piece: Piece) -> bool:
        turn, attempt, _ = self._open.get((piece.session, piece.run), (0, 0, None))
        return (piece.said.turn, piece.said.attempt) == (turn, attempt)

    def _redact(self, state: _Turn, said: Said) -> str:
        data = state.held.get(said.kind, b"") + said.text.encode("utf-8", "replace")
        redactor = self._redactor()
        shown, state.held[said.kind] = redactor.split(data) if redactor else (data, b"")
        # The released bytes may end within a character.
        decoder = state.decoders.setdefault(said.kind, codecs.getincrementaldecoder("utf-8")("replace"))
        return decoder.decode(shown)

    def _put(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._size_bytes += len(piece.said.text)
        while self._size_bytes > self._most_bytes or len(self._pieces) > MOST_PIECES:
            self._size_bytes -= len(self._pieces.popleft().said.text)
            self._first += 1
