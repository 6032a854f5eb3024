"""Suppresses repeated lines: the first few of a minute are printed, the rest are counted and reported in one line.

The daemon's printer asks about every line that does not stand for a record of the log, and the log handler of libraries
about every traceback. A fault that came back at each turn of the loop once wrote 147,914 tracebacks in 18 seconds.
Records are always printed, however often they repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

# The number of times that the same line is printed in a period.
PRINTED = 3
PERIOD_SECONDS = 60.0
# The most different lines that are remembered. Beyond that the oldest is forgotten.
_MOST_KNOWN = 64


class Repeats:
    """Counts repeated lines. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Line -> the start of its period, and how often it came since.
        self._known: dict[str, tuple[float, int]] = {}

    def take(self, line: str) -> bool:
        """Count the line. Returns whether to print it."""
        began, times = self._known.get(line, (self._clock(), 0))
        self._known[line] = (began, times + 1)
        return times < PRINTED

    def end_periods(self, *, is_over: bool = False) -> list[str]:
        """Summarize the suppressed lines of the periods that are over. `is_over`: of all periods."""
        now, told = self._clock(), []
        for line, (began, times) in list(self._known.items()):
            if is_over or now - began >= PERIOD_SECONDS or len(self._known) > _MOST_KNOWN:
                del self._known[line]
                if times > PRINTED:
                    told.append(f"{line} (the line above {times - PRINTED:,} more times)")
        return told


class RepeatsFilter(logging.Filter):
    """A filter for a log handler: lets the first few of the same message pass.

    Two messages are the same if their first lines, errors and places in the code are.
    """

    def __init__(self, repeats: Repeats, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._repeats = repeats
        self._tell = tell

    def filter(self, record: logging.LogRecord) -> bool:
        for words in self._repeats.end_periods():
            self._tell(words)
        return self._repeats.take(_describe(record))


def _describe(record: logging.LogRecord) -> str:
    first = record.getMessage().partition("\n")[0]
    if not record.exc_info or record.exc_info[0] is None:
        return first
    trace = record.exc_info[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace is not None else ""
    return f"{first}: {record.exc_info[0].__name__}{place}"
