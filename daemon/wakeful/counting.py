"""A number and what it counts, as people say it: the one place that knows when a noun takes its `s`.

Called by whoever tells a count, in every layer; of nouns it knows the regular ones, which are all we use.
"""


def count(number: int, noun: str) -> str:
    """`1 record`, `2 records`, `1,000,000 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
