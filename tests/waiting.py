"""How a test waits: for a condition, with a deadline, never for a fixed time.

Every test that observes a real process, file watch or socket calls `eventually` (or `eventually_async` inside a running
loop, which it never blocks). Both return what the predicate returned, so that a test can go on with what it waited for.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

# A shared machine stalls for tens of seconds: what passes costs none of this, and a hung test still names itself.
PATIENCE_SECONDS = 60.0
# A look costs microseconds: looking often keeps the suite fast without burning the cores the daemon under test needs.
FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05

T = TypeVar("T")


def eventually(predicate: Callable[[], T], seconds: float = PATIENCE_SECONDS, *, what: str | None = None) -> T:
    """Look until `predicate` returns something true and return that, or fail saying what was last seen."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        # Read before the look: a look that began in time counts, however slow the machine is.
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
    """As `eventually`, yielding to the running loop between looks; the predicate may be a coroutine function."""
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
