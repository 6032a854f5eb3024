"""The daemon watches the spending of an external agent while it works.

It stops the agent when its budget is spent, and records the reason.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from agents.test_external_agents import declare, records, told
from e2e.box import Box

# Two hundred requests, which would take about four million tokens.
ENDLESS = "200 2000"


def begin(box: Box, spends: str, *, agent: str = "", budget: str = "", prices: str = "", **settings: str) -> Any:
    folder = declare(box, spends=spends, **settings)
    with (box.specs / "agents" / "coder.yaml").open("a") as file:
        file.write(agent)
    if budget:
        box.spec("docs", (box.specs / "docs.yaml").read_text() + f"budget: {budget}\n")
    (box.specs.parent / "wakeful.yaml").write_text(prices)
    box.start()
    return folder


@pytest.mark.long
def test_it_is_stopped_when_its_budget_is_spent_by_our_estimate(box: Box) -> None:
    """The agent reports no usage, so the daemon estimates it.

    The session sleeps with the reason, every figure is marked as an estimate, and a restart keeps all of it.
    """
    folder = begin(box, ENDLESS, budget="{day: {tokens: 100000}}")
    row = box.wait_for("docs", state="sleeping")
    assert (
        "acp:scripted_acp_agent.py was stopped: budget of the day: " in row["reason"]
        and "of 100000 tokens spent, by estimate" in row["reason"]
    ), row
    lines = told(folder)[0]
    assert "cancelled" in lines and 3 < sum(line.startswith("round") for line in lines) < 200
    assert "was stopped: budget of the day" in box.words("why", "docs")
    total = box.json("costs")["total"]
    assert 100_000 <= total["tokens"] == total["estimated_tokens"] < 1_000_000
    assert "by estimate" in box.words("why", "docs#1") and "~" in box.ask("costs")
    assert records(box, "turn_metered") and all(one["usage"]["is_estimated"] for one in records(box, "turn_answered"))
    box.stop()
    box.start()
    assert "was stopped: budget of the day" in box.wait_for("docs", state="sleeping")["reason"]


@pytest.mark.long
def test_it_is_stopped_by_what_it_tells_in_usd(box: Box) -> None:
    """The cost that the agent reports counts before our price, which would be a thousand times less."""
    prices = "prices: {acp:scripted_acp_agent.py: {input: 0.001, output: 0.001}}\n"
    begin(box, f"{ENDLESS} costs", budget="{run: {usd: 1.20}}", prices=prices)
    row = box.wait_for("docs", state="sleeping")
    assert (
        "acp:scripted_acp_agent.py was stopped: budget of the run: " in row["reason"]
        and "of 1.2 USD spent" in row["reason"]
    ), row
    assert 1.2 <= box.json("costs", "--by", "agent")["rows"][0]["usd"] < 50


@pytest.mark.long
def test_what_it_cost_is_used_and_a_session_that_goes_on_is_charged_with_what_came_on_top(box: Box) -> None:
    begin(box, "2 10 costs", can="resume")
    box.wait_at_rest("docs", runs=1)
    box.save("code.py", "def pay_more(): ...\n")
    box.wait_at_rest("docs", runs=2)
    assert [one["usd"] for one in records(box, "turn_answered")] == [0.5, 0.5]


@pytest.mark.long
def test_limits_turns_counts_its_requests_as_far_as_they_are_told(box: Box) -> None:
    begin(box, "200 10", agent="limits: {turns: 5}\n")
    row = box.wait_for("docs", state="sleeping")
    assert re.search(
        r"it sent \d+ requests and did not come to an end \(limits.turns of agent coder\)", row["reason"]
    ), row


@pytest.mark.long
def test_a_program_that_does_not_stop_is_ended(box: Box) -> None:
    """The agent ignores its cancellation.

    It gets some time to stop, and its spending meanwhile is booked by estimate.
    """
    folder = begin(box, "100000 2000 deaf", agent="budget: {day: {tokens: 60000}}\n")
    row = box.wait_for("docs", state="sleeping")
    assert "agent coder: budget of the day" in row["reason"], row
    assert "cancelled" in told(folder)[0] and box.json("costs")["total"]["tokens"] >= 60_000
