"""What budgets and `costs` book of an agent's requests, end to end: what was spent, and nothing that was not."""

from __future__ import annotations

import pytest
from agents.provider import Provider
from agents.test_runs import KEY, declare
from e2e.box import Box

PRICES = "prices: {anthropic:claude-test: {input: 1000, output: 1000}}\n"


@pytest.mark.long
def test_a_refused_connection_books_nothing_and_the_session_does_not_sleep_for_its_budget(box: Box) -> None:
    """All tries of one request: the run fails with the words, and the day's budget is whole."""
    with Provider() as gone:
        declare(box, gone, budget="{day: {usd: 20}}")
    box.write("wakeful.yaml", PRICES)
    box.start(env=KEY)
    row = box.wait_for("docs", state="sleeping")
    assert "cannot be reached, and nothing was sent" in row["reason"] and "budget" not in row["reason"]
    assert box.kinds("docs").count("turn_failed") == 4
    total = box.json("costs")["total"]
    assert (total["runs"], total["tokens"], total["usd"]) == (1, 0, 0)
