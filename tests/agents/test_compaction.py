"""Conversations that are shortened, end to end.

A summary reads every part of them. A run that has to stop leaves a hand-off, with which the next run continues.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest

from agents.provider import Call, Fail, Hold, Provider, Reply, Say, Usage
from agents.test_agent_crash_recovery import find_agent
from agents.test_agent_runs import KEY, declare
from e2e.box import Box
from wait_conditions import eventually

MARK = re.compile(r"mark-\d+-(?:first|last)")


def is_summary(asked: Any) -> bool:
    return "summarise" in asked.tool_names


def talk(asked: Any) -> Any:
    """A model with long answers. Its summaries name every mark that it was shown."""
    if is_summary(asked):
        return Call(
            "summarise",
            {"summary": " ".join(sorted(set(MARK.findall(asked.text)))), "decisions": ["Use the rate 4.6."]},
        )
    number = len(re.findall(r"mark-\d+-first", asked.text))
    return Say(f"mark-{number}-first {'words of an answer ' * 250} mark-{number}-last")


@pytest.mark.long
def test_a_session_that_moves_to_a_model_with_a_smaller_window_is_summarised_whole(
    box: Box, provider: Provider
) -> None:
    """The summariser reads a long conversation in pieces, and waits as long as a provider asks.

    The next request contains everything that was said.
    """
    provider.play(talk)
    declare(box, provider, conversation="continue", agent="context: {tokens: 100000}\n")
    (box.specs / "agents" / "small.yaml").write_text(
        f"prompt: You write documentation.\nmodel: anthropic:claude-small\nbase_url: {provider.url}\ncontext: {{tokens: 9000, compress_at: 6000}}\nsettings: {{max_output: 1000}}\n"
    )
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    for number in range(1, 12):
        box.ask("ask", "docs", f"question {number}?")
    before = len(provider.requests)
    box.ask("migrate", "docs", "--agent", "small")
    busy = iter([Fail(429, retry_after=1.0)])
    provider.play(lambda asked: next(busy, None) or talk(asked) if is_summary(asked) else Say("I know all of it."))
    box.ask("ask", "docs", "What do you know?")
    asked = provider.requests[before:]
    summaries = [one for one in asked if is_summary(one)]
    marks = {f"mark-{number}-{end}" for number in range(12) for end in ("first", "last")}
    read = {mark for one in summaries if "Summarise this part alone" in one.text for mark in MARK.findall(one.text)}
    assert read == marks and len(summaries) > 3
    compressed = [record["payload"] for record in box.log("docs") if record["kind"] == "conversation_compressed"]
    assert set(MARK.findall(compressed[-1]["summary"])) == marks and compressed[-1]["by"] == "anthropic:claude-small"
    failed = next(record["payload"] for record in box.log("docs") if record["kind"] == "turn_failed")
    again = [
        record["payload"]
        for record in box.log("docs")
        if record["kind"] == "turn_requested"
        and record["payload"]["turn"] == failed["turn"]
        and record["payload"]["purpose"] == "summary"
    ]
    assert len(again) == 2
    assert marks <= set(MARK.findall(asked[-1].text)) and "Use the rate 4.6." in asked[-1].text
    assert all(len(one.text) < 9_000 * 4.4 for one in asked)


def work_on(asked: Any) -> Any:
    """A model that reads the code again and again and reports its progress. It never finishes."""
    if is_summary(asked):
        return Reply((Call("summarise", {"summary": "It was read up to here."}),), usage=Usage(2_000, 100))
    return Reply(
        (
            Say(f"We decided to use 4.6 in round {asked.model_turns}."),
            Call("read", {"path": "code.py", "offset": asked.model_turns + 1}),
        ),
        usage=Usage(2_000, 100),
    )


def test_a_run_whose_budget_is_spent_leaves_its_hand_off_and_the_next_one_begins_with_it(
    box: Box, provider: Provider
) -> None:
    provider.play(work_on)
    declare(box, provider, agent="settings: {max_output: 500}\n", budget="{run: {tokens: 15000}}")
    box.write("code.py", "rate = 4.6\n" * 20)
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "failed" and "budget of the run" in row["reason"], row
    left = box.json("show", "docs")["handoff"]
    assert left.startswith("Run 1 was stopped before it was done: budget of the run")
    assert "Its last words: We decided to use 4.6 in round" in left and "Decisions:" in left and "code.py" in left
    provider.play(Say("I go on."))
    box.ask("activate", "docs", "--wait")
    assert "Run 1 was stopped before it was done" in provider.requests[-1].messages[-1].text
    assert box.json("show", "docs")["handoff"] == "I go on."


@pytest.mark.long
def test_a_run_that_goes_on_after_its_budget_leaves_a_hand_off_of_its_own(box: Box, provider: Provider) -> None:
    """The hand-off that the daemon writes at the stop is not taken for words of the agent."""
    provider.play(work_on)
    declare(box, provider, agent="settings: {max_output: 500}\n", budget="{day: {tokens: 15000}}")
    box.write("code.py", "rate = 4.6\n" * 20)
    box.start(env=KEY)
    row = box.wait_for("docs", state="sleeping")
    assert "budget of the day" in row["reason"], row
    assert box.json("show", "docs")["handoff"].startswith("Run 1 was stopped before it was done: budget of the day")
    provider.play(lambda asked: Say("All is done."))
    path = box.specs / "docs.yaml"
    path.write_text(path.read_text().replace("tokens: 15000", "tokens: 150000"))
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded", row
    assert provider.requests[-1].model_turns > 2, "it did not go on in its conversation"
    assert box.json("show", "docs")["handoff"] == "All is done."


@pytest.mark.long
def test_a_budget_that_ends_in_the_middle_of_a_summary_leaves_a_short_conversation_all_the_same(
    box: Box, provider: Provider
) -> None:
    """The summaries that were paid for are kept, and the rest is condensed by rule.

    So the next run does not begin with the same summary.
    """
    provider.play(talk)
    declare(box, provider, conversation="continue", agent="settings: {max_output: 500}\n")
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    for number in range(1, 16):
        box.ask("ask", "docs", f"question {number}?")
    box.stop()
    declare(
        box,
        provider,
        conversation="continue",
        agent="context: {tokens: 16000, compress_at: 9000}\nsettings: {max_output: 500}\n",
        budget="{run: {tokens: 20000}}",
    )
    before = len(provider.requests)
    box.start(env=KEY)
    box.run("ask", "docs", "And now?")
    row = box.wait_at_rest("docs", runs=17)
    assert row["last_run"]["outcome"] == "failed" and "budget of the run" in row["reason"], row
    assert all(is_summary(one) for one in provider.requests[before:])
    compressed = [record["payload"] for record in box.log("docs") if record["kind"] == "conversation_compressed"]
    assert len(compressed) == 1 and compressed[0]["by"] == "anthropic:claude-test and rule"
    assert "mark-0-first" in compressed[0]["summary"] and "question 15?" in compressed[0]["summary"]
    box.ask("ask", "docs", "Once more?")
    assert not is_summary(provider.requests[-1]) and "mark-0-first" in provider.requests[-1].text
    assert box.kinds("docs").count("conversation_compressed") == 1


@pytest.mark.long
def test_a_run_that_is_ended_as_a_timeout_ends_it_leaves_its_hand_off(box: Box, provider: Provider) -> None:
    """A run gets SIGTERM when its time is over."""
    provider.play(
        [(Say("I look at the code first."), Call("read", {"path": "code.py"})), Hold("never", Say("too late"))]
    )
    declare(box, provider)
    box.start(env=KEY)
    eventually(lambda: len(provider.requests) == 2)
    pid = find_agent(box)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    row = box.wait_at_rest("docs", runs=1)
    provider.release("never")
    assert row["last_run"]["outcome"] == "failed", row
    left = box.json("show", "docs")["handoff"]
    assert (
        left.startswith("Run 1 was stopped before it was done: it was stopped by its timeout")
        and "I look at the code first." in left
    )
