"""Waiting in tests: for a condition, with a deadline, never for a fixed time.

Tests that observe a real process, file watch or socket call `eventually`, or `eventually_async` inside a running loop,
which it never blocks. Both return the result of the predicate, so that the test can use it.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

# A shared machine stalls for tens of seconds. A passing test does not wait this long, and a hung test names itself.
PATIENCE_SECONDS = 60.0
# A look costs microseconds. Frequent looks keep the suite fast, and the pauses leave the cores to the daemon under
# test.
FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05

T = TypeVar("T")


def eventually(predicate: Callable[[], T], seconds: float = PATIENCE_SECONDS, *, what: str | None = None) -> T:
    """Look until `predicate` returns a true value, and return it. At the deadline, fail with the last value seen."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        # Read the clock before the look: a look that began in time counts, however slow the machine is.
        is_last = time.monotonic() >= deadline
        seen = predicate()
        if seen:
            return seen
        if is_last:
            raise AssertionError(_describe(predicate, seconds, seen, what))
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


async def eventually_async(
    predicate: Callable[[], T | Awaitable[T]], seconds: float = PATIENCE_SECONDS, *, what: str | None = None
) -> T:
    """Do the same as `eventually`, and yield to the running loop between looks.
    The predicate may be a coroutine function."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        is_last = time.monotonic() >= deadline
        found = predicate()
        seen = await found if inspect.isawaitable(found) else found
        if seen:
            return seen
        if is_last:
            raise AssertionError(_describe(predicate, seconds, seen, what))
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _describe(predicate: Callable[..., object], seconds: float, seen: object, what: str | None) -> str:
    name = what or getattr(predicate, "__qualname__", repr(predicate))
    return f"not within {seconds:g} s: {name}; last seen: {seen!r}"
