"""The usage that budgets and `costs` book for an agent's requests, end to end: all that was spent, and no more."""

from __future__ import annotations

import pytest

from agents.provider import Call, Provider, Reply, Say, Usage
from agents.test_agent_runs import KEY, declare
from e2e.box import Box

PRICES = "prices: {anthropic:claude-test: {input: 1000, output: 1000}}\n"


def test_a_provider_that_reports_no_usage_is_booked_by_estimate_and_marked(box: Box, provider: Provider) -> None:
    """The estimate is marked in the log, in `costs` and in `why`. The budget stops the run before it spends more."""
    untold = Usage(0, 0, is_told=False)
    looks = [Reply((Call("read", {"path": "code.py", "offset": number}),), usage=untold) for number in range(1, 9)]
    provider.play([*looks, Reply((Say("done"),), usage=untold)])
    declare(box, provider, agent="settings: {max_output: 1000}\n", budget="{day: {tokens: 20000, usd: 100}}")
    box.write("code.py", "value = 'of some length'\n" * 400)
    box.write("wakeful.yaml", PRICES)
    box.start(env=KEY)
    row = box.wait_for("docs", state="sleeping")
    assert "budget of the day" in row["reason"] and "of 20000 tokens spent" in row["reason"], row
    answered = [record["payload"] for record in box.log("docs") if record["kind"] == "turn_answered"]
    assert 0 < len(answered) < 8 and all(
        one["usage"]["is_estimated"] and one["usage"]["input"] > 1000 and one["usd"] > 0 for one in answered
    )
    total = box.json("costs")["total"]
    assert (
        total["tokens"]
        == total["estimated_tokens"]
        == sum(one["usage"]["input"] + one["usage"]["output"] for one in answered)
    )
    table = box.ask("costs")
    assert f"~{total['tokens']}" in table and f"~ with {total['tokens']:,} tokens by estimate" in table
    assert f"({total['tokens']:,} of the tokens by estimate)" in box.words(
        "why", "docs#1"
    ) and "by agent docs" in box.words("why", "docs#1")
    assert f"It took {total['tokens']:,} tokens" in box.words(
        "why", "docs"
    ) and f"~{total['tokens']}  {total['usd']:.4f}" in box.ask("show", "docs")
    assert (
        f"[about {answered[0]['usage']['input'] + answered[0]['usage']['output']:,} tokens, {answered[0]['usd']:.4f} USD]"
        in box.words("log", "docs")
    )


@pytest.mark.long
def test_a_refused_connection_books_nothing_and_the_session_does_not_sleep_for_its_budget(box: Box) -> None:
    """After all tries of one request, the run fails with the reason, and the day's budget is untouched."""
    with Provider() as gone:
        declare(box, gone, budget="{day: {usd: 20}}")
    box.write("wakeful.yaml", PRICES)
    box.start(env=KEY)
    row = box.wait_for("docs", state="sleeping")
    assert "cannot be reached, and nothing was sent" in row["reason"] and "budget" not in row["reason"]
    assert box.kinds("docs").count("turn_failed") == 4
    total = box.json("costs")["total"]
    assert (total["runs"], total["tokens"], total["usd"]) == (1, 0, 0)
