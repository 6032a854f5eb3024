"""Says how long something takes already, on the terminal of a person who waits: where nobody can tell how far it is.

Apart from the bar, since it needs a thread, whose import every quick command would pay for. Written to standard error, gone when it is over.
"""

from __future__ import annotations

import sys
from threading import Event, Thread

from wakeful.cli.bar import clear_line, write_over


class Waiting:
    """From the first second on; used with `with`."""

    def __init__(self, what: str, *, is_shown: bool) -> None:
        self._what = what
        self._is_over = Event()
        self._ticking = Thread(target=self._tick, name="waiting", daemon=True) if is_shown and sys.stderr.isatty() else None

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
