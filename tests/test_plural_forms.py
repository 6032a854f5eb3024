"""Numbers with nouns are written as people say them."""

import pytest

from wakeful.text.display import count


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (1_000_000, "1,000,000 messages")],
)
def test_a_noun_follows_its_number(number: int, words: str) -> None:
    """The noun is singular for one and plural for all other numbers, zero included."""
    assert count(number, "message") == words
