"""A number and what it counts, as people say it: the one place that knows when a noun takes its `s`.

And how far a count is.

Called by whoever tells a count, in every layer; of nouns it knows the regular ones, which are all we use.
"""

from collections.abc import Callable

# How many are done, of how many.
TellFar = Callable[[int, int], None]


def tell_nobody(done: int, total: int) -> None:
    """For who counts, where nobody waits."""


def count(number: int, noun: str) -> str:
    """`1 record`, `2 records`, `1,000,000 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
