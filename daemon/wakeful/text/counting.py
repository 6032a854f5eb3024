"""A number with its noun, as people say it, and the callback that reports progress.

The one place that adds the plural `s`. Every layer calls it. It knows regular nouns only, which are all we use.
"""

from collections.abc import Callable

# A progress callback: how many are done, of how many.
TellFar = Callable[[int, int], None]


def tell_nobody(done: int, total: int) -> None:
    """A progress callback that does nothing."""


def count(number: int, noun: str) -> str:
    """`1 record`, `2 records`, `1,000,000 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
