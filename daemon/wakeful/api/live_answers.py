"""Answers in progress: the text of agents while their models produce it, for live streams.

The log keeps only finished turns. The text of unfinished turns is kept in memory, up to a size. The oldest pieces are
dropped first, and a follower that was too slow is told that text was lost. Agents never wait for a follower. Values of
secrets are removed as text arrives. Text that may be the beginning of a secret is held back until more text arrives.
Used on the loop only.
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

# The kinds of a piece. A piece `waits` has the reason why a run has not started yet. A piece `lost` marks text that is
# missing here. The record of the turn will have the whole text.
LiveKind = Literal["text", "thinking", "call", "waits", "lost"]
MOST_BYTES = 512 * 1024
MOST_PIECES = 8_192


class Said(Struct, frozen=True, kw_only=True):
    """A piece of an agent's answer.

    `attempt` counts the model requests of the turn. A later attempt replaces the text of the earlier ones.
    """

    turn: int
    attempt: int
    kind: LiveKind
    text: str = ""


class Piece(Struct, frozen=True, kw_only=True):
    """A piece of the text of one run. Pieces of all runs are kept in order of arrival."""

    session: str
    run: int
    said: Said


@dataclass(slots=True)
class _Turn:
    """The answer to one model request so far. For each kind of text: the bytes that are held back, and the decoder."""

    held: dict[str, bytes] = field(default_factory=dict)
    decoders: dict[str, codecs.IncrementalDecoder] = field(default_factory=dict)


class LiveWords:
    """The pieces that are kept. `redactor` is called for each piece, because a secret may be added during a run."""

    def __init__(self, redactor: Callable[[], Redactor], most_bytes: int = MOST_BYTES) -> None:
        self._redactor = redactor
        self._most_bytes = most_bytes
        self._pieces: deque[Piece] = deque()
        # The number of the first piece that is kept, and the size of all pieces.
        self._first = 0
        self._size_bytes = 0
        # By session and run: `_open` has the turn, attempt and state of the answer in progress, `_answered` the last
        # finished turn.
        self._open: dict[tuple[str, int], tuple[int, int, _Turn]] = {}
        self._answered: dict[tuple[str, int], int] = {}
        # Events that are set when text arrives. The set is weak, so an event leaves it together with its owner.
        self.listeners: WeakSet[asyncio.Event] = WeakSet()

    def add(self, session: str, run: int, words: Iterable[Said]) -> None:
        """Add pieces. Late pieces of a turn that is already recorded are dropped."""
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
        """Close a turn that is being recorded. Its record has the whole text."""
        self._answered[session, run] = turn
        self._open.pop((session, run), None)

    def close_run(self, session: str, run: int) -> None:
        self._answered.pop((session, run), None)
        self._open.pop((session, run), None)

    @property
    def position(self) -> int:
        """The position where a new follower begins: the first piece of a turn that is not finished."""
        for number, piece in enumerate(self._pieces, self._first):
            if self._is_open(piece):
                return number
        return self._first + len(self._pieces)

    def read_after(self, position: int, most_bytes: int = MOST_BYTES) -> tuple[int, list[Piece], bool]:
        """Read the next pieces. Returns the position after them, the pieces, and True if earlier pieces were dropped.

        Reads at least one piece if there is one, then as many as fit into `most_bytes`. The limit matters because a
        stalled follower keeps these pieces in memory. Pieces of finished turns are skipped."""
        is_lost, position = position < self._first, max(position, self._first)
        pieces: list[Piece] = []
        for piece in islice(self._pieces, position - self._first, None):
            most_bytes -= len(piece.said.text)
            if pieces and most_bytes < 0:
                break
            pieces.append(piece)
        return position + len(pieces), [piece for piece in pieces if self._is_open(piece)], is_lost

    def list_open(self, until: int) -> list[Piece]:
        """List the pieces before a position whose turns are not finished."""
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
        # The released bytes may end in the middle of a character.
        decoder = state.decoders.setdefault(said.kind, codecs.getincrementaldecoder("utf-8")("replace"))
        return decoder.decode(shown)

    def _put(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._size_bytes += len(piece.said.text)
        while self._size_bytes > self._most_bytes or len(self._pieces) > MOST_PIECES:
            self._size_bytes -= len(self._pieces.popleft().said.text)
            self._first += 1
