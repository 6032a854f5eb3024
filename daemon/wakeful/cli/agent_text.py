"""Prints an agent's words on a terminal as they arrive: wrapped into lines, with thoughts marked apart.

Streamed words can become invalid (the model broke off) or get lost (they came too fast). The record of the turn then
completes or replaces them. Control characters are escaped, so that the words cannot control the terminal. `ask`, `talk`
and `follow` use this module and pass in the function that writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wakeful.cli.text import Colour, escape_lines, measure, paint

TEXT_LEAD, THOUGHT_LEAD = "│ ", "┊ "
BROKE_OFF = "the answer broke off and starts again"
FOLDED = "thinks …"
WORDS_LOST = "some words were lost; the whole answer follows when it is recorded"


class LineWrapper:
    """Wraps text that arrives in pieces into lines of a given width. Each line begins with a lead.

    With a width of None the text is not wrapped. A word is printed as soon as a part of it arrives, so a long word may
    be split at the end of a line. Empty lines at the beginning and at the end are not printed.
    """

    def __init__(
        self, write: Callable[[str], None], *, lead: str = "", width: int | None = None, colour: Colour = ""
    ) -> None:
        self._write = write
        self._lead = lead
        self._room = max(width - measure(lead), 10) if width is not None else None
        self._colour = colour
        self._column = 0
        self._breaks = 0
        self.is_open = False

    def put(self, text: str) -> None:
        first, *lines = escape_lines(text).split("\n")
        self._put_line(first)
        for line in lines:
            self._breaks += 1
            self._put_line(line)

    def end(self) -> None:
        if self.is_open:
            self._write("\n")
        self.is_open, self._column, self._breaks = False, 0, 0

    def _put_line(self, line: str) -> None:
        if not line:
            return
        if not self.is_open:
            # Drop the empty lines at the beginning.
            self._breaks = 0
            self._begin()
        while self._breaks:
            self._breaks -= 1
            self._write("\n")
            self._begin()
        if self._room is None:
            self._write(paint(line, self._colour))
            return
        for number, word in enumerate(line.split(" ")):
            self._put_word(word, is_parted=number > 0)

    def _put_word(self, word: str, *, is_parted: bool) -> None:
        assert self._room is not None
        size = measure(word)
        if is_parted and self._column and self._column + 1 + size > self._room:
            self._write("\n")
            self._begin()
        elif is_parted:
            self._write(paint(" ", self._colour))
            self._column += 1
        if self._column + size <= self._room:
            self._write(paint(word, self._colour) if word else "")
            self._column += size
            return
        for one in word:
            if self._column + measure(one) > self._room:
                self._write("\n")
                self._begin()
            self._write(paint(one, self._colour))
            self._column += measure(one)

    def _begin(self) -> None:
        self._write(paint(self._lead, "dim") if self._lead else "")
        self.is_open, self._column = True, 0


class AgentWordsPrinter:
    """Prints the words of one run's agent. `remark` prints messages about these words, one line each."""

    def __init__(self, text: LineWrapper, thoughts: LineWrapper | None, remark: Callable[[str], None]) -> None:
        """`thoughts` is None if thoughts are not shown."""
        self.text = text
        self.thoughts = thoughts
        self._remark = remark
        self._request: tuple[int, int] = (0, 0)
        self._shown = ""
        self._is_missing = False
        # If true, one line ("thinks …") replaces the text of the thoughts.
        self.is_folded = False

    @property
    def is_open(self) -> bool:
        return self.text.is_open or (self.thoughts is not None and self.thoughts.is_open)

    def has_shown(self, turn: int) -> bool:
        """Was any text of this turn printed?"""
        return bool(self._shown) and turn == self._request[0]

    def begin_run(self) -> None:
        """Reset the state because another run continues the answer. Its turns are numbered from the start."""
        self.pause()
        self._request, self._shown, self._is_missing = (0, 0), "", False

    def take(self, live: dict[str, Any]) -> None:
        """Print streamed words. Once some words were lost, later words of the turn wait for its record."""
        if live["kind"] == "lost":
            self._miss()
            return
        turn, attempt = live["turn"], live["attempt"]
        if turn < self._request[0]:
            # These words are late: the record of their turn was already printed.
            return
        if (turn, attempt) != self._request:
            if self._shown and turn == self._request[0]:
                self.pause()
                self._remark(BROKE_OFF)
            self._request, self._shown, self._is_missing = (turn, attempt), "", False
        if self._is_missing:
            return
        match live["kind"]:
            case "text":
                if self.thoughts is not None:
                    self.thoughts.end()
                self._shown += live["text"]
                self.text.put(live["text"])
            case "thinking" if self.thoughts is not None and not (self.is_folded and self.thoughts.is_open):
                self.text.end()
                self.thoughts.put(FOLDED if self.is_folded else live["text"])

    def conclude(self, turn: int, text: str) -> None:
        """Print the rest of a recorded turn that was not streamed."""
        if self.thoughts is not None:
            self.thoughts.end()
        is_part = turn == self._request[0] and text.startswith(self._shown)
        if not is_part:
            self.text.end()
            if self.has_shown(turn) and not self._is_missing:
                # Another attempt was answered so quickly that none of its words were streamed.
                self._remark(BROKE_OFF)
        self.text.put(text[len(self._shown) :] if is_part else text)
        self.pause()
        self._request, self._shown, self._is_missing = (turn + 1, 0), "", False

    def pause(self) -> None:
        """End the open line, so that other text can be printed."""
        self.text.end()
        if self.thoughts is not None:
            self.thoughts.end()

    def _miss(self) -> None:
        if not self._is_missing:
            self._is_missing = True
            self.pause()
            self._remark(WORDS_LOST)
