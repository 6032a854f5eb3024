"""Repeated lines: a few are printed, and the rest is counted and reported.

Different lines and records are never held back.
"""

from __future__ import annotations

import io
import logging
import weakref
from contextlib import redirect_stdout

from wakeful.service.log_printer import PERIOD_SECONDS, PRINTED, LogPrinter, Repeats, RepeatsFilter


def test_the_same_line_is_printed_a_few_times_and_then_counted() -> None:
    """After a minute the count is printed, and the line may be printed again."""
    now = [0.0]
    repeats = Repeats(lambda: now[0])
    assert [repeats.take("no room") for _ in range(1000)].count(True) == PRINTED
    assert repeats.take("another") and repeats.end_periods() == []
    now[0] = PERIOD_SECONDS
    assert repeats.end_periods() == [f"no room (the line above {1000 - PRINTED} more times)"]
    assert repeats.take("no room")


class Line(str):
    """A text with weak references, so that the test sees when it is released."""


def test_many_different_lines_take_no_memory() -> None:
    repeats = Repeats(lambda: 0.0)
    lines: list[weakref.ref[Line]] = []
    for number in range(10_000):
        line = Line(f"line {number}")
        lines.append(weakref.ref(line))
        assert repeats.take(line)
        repeats.end_periods()
    assert sum(line() is not None for line in lines) < 100


def test_the_voice_tells_a_line_of_its_own_a_few_times_and_every_record() -> None:
    """Its count of suppressed lines is printed when the printer closes."""
    heard = io.StringIO()
    with redirect_stdout(heard):
        voice = LogPrinter(is_terminal=False)
        for number in range(1000):
            voice.say("no room")
            voice.say("noted", name="talk", fields={"WAKEFUL_SEQ": str(number)})
        voice.close(60.0)
    lines = [line.partition(" ")[2] for line in heard.getvalue().splitlines()]
    assert lines.count("no room") == PRINTED and lines.count("talk: noted") == 1000
    assert lines[-1] == f"no room (the line above {1000 - PRINTED} more times)"


def test_a_traceback_that_comes_back_is_written_a_few_times() -> None:
    """Tracebacks are compared by where they were raised: another line of code is another defect."""
    written, told = io.StringIO(), list[str]()
    now = [0.0]
    handler = logging.StreamHandler(written)
    handler.addFilter(RepeatsFilter(Repeats(lambda: now[0]), told.append))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    for number in range(1000):
        try:
            raise OSError(f"fault {number}")
        except OSError:
            logger.exception("Exception in callback")
    assert written.getvalue().count("Traceback") == PRINTED
    now[0] = PERIOD_SECONDS
    logger.error("something else")
    assert (
        len(told) == 1
        and "OSError in test_repeated_log_lines.py" in told[0]
        and f"{1000 - PRINTED} more times" in told[0]
    )
