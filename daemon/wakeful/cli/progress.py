"""Progress on a terminal: a bar, a count, or seconds of waiting.

The progress is written to standard error, so that the output of a verb can be piped. It is erased at the end. Without a
terminal, nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event, Thread

from wakeful.cli.text import clear_line, columns, count, paint, write_over


class Bar:
    """Shows a progress bar while its `with` block runs."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()

    def __enter__(self) -> Callable[[int, int], None]:
        return self._tell

    def __exit__(self, *_error: object) -> None:
        if self._is_shown:
            clear_line()

    def _tell(self, done: int, total: int) -> None:
        if self._is_shown:
            print(f"\r{draw_bar(done, total)}", end="", file=sys.stderr, flush=True)


class Tally:
    """Shows a count while its `with` block runs. Used if the total is not known."""

    def __init__(self, what: str, *, is_shown: bool) -> None:
        self._what = what
        self._is_shown = is_shown and sys.stderr.isatty()

    def __enter__(self) -> Callable[[int], None]:
        return self._tell

    def __exit__(self, *_error: object) -> None:
        if self._is_shown:
            clear_line()

    def _tell(self, number: int) -> None:
        if self._is_shown:
            write_over(count(number, self._what))


def draw_bar(done: int, total: int) -> str:
    width = max(min(columns() - 30, 50), 10)
    filled = width * done // total if total else width
    return f"{'█' * filled}{paint('░' * (width - filled), 'dim')} {done:,} of {total:,}"


class Waiting:
    """Shows the seconds that its `with` block has taken, from the first second on."""

    def __init__(self, what: str, *, is_shown: bool) -> None:
        self._what = what
        self._is_over = Event()
        self._ticking = (
            Thread(target=self._tick, name="waiting", daemon=True) if is_shown and sys.stderr.isatty() else None
        )

    def __enter__(self) -> None:
        if self._ticking is not None:
            self._ticking.start()

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        if self._ticking is not None:
            self._ticking.join()

    def _tick(self) -> None:
        seconds = 0
        while not self._is_over.wait(1.0):
            seconds += 1
            write_over(f"{self._what}: {seconds} s")
        if seconds:
            clear_line()
