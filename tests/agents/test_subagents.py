"""A sub-agent, end to end: it gets a piece of work in the middle of a run, with its own context, budget and record."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agents.provider import Call, Hold, Provider, Reply, Route, Routes, Say
from agents.provider.script import Usage
from agents.test_agent_runs import KEY, declare
from agents.test_images import PNG
from e2e.box import Box
from wait_conditions import eventually
from wakeful.core.agents.turns import INTERRUPTED

WRITER = "You write documentation."
REVIEWER = "You find mistakes."
WORK = {"agent": "reviewer", "text": "Is page.md right about pay()?"}


def declare_team(
    box: Box, provider: Provider, *, reviewer: str = "", agent: str = "subagents: [reviewer]\n", **keys: str
) -> None:
    declare(box, provider, agent=agent, **keys)
    (box.specs / "agents" / "reviewer.yaml").write_text(
        f"prompt: {REVIEWER}\nmodel: anthropic:claude-other\nbase_url: {provider.url}\n{reviewer}"
    )


def play(provider: Provider, writer: tuple[Any, ...], reviewer: tuple[Any, ...]) -> None:
    provider.play(Routes((Route(reviewer, model="claude-other"), Route(writer))))


def list_asked(provider: Provider, model: str) -> list[Any]:
    return [asked for asked in provider.requests if asked.model == model]


def test_a_sub_agent_works_in_its_own_context_and_its_answer_is_the_result(box: Box, provider: Provider) -> None:
    """Its turns, calls and tokens are recorded under its name. The tokens also count for the session."""
    reviewer = (
        Reply((Call("read", {"path": "code.py"}),), usage=Usage(100, 20)),
        Reply(
            (
                Call("delegate", WORK),
                Call("hand_off", {"done": "x"}),
                Call("remember", {"key": "pay", "value": "takes no argument"}),
                Call("write", {"path": "page.md", "content": "pay()\n"}),
            ),
            usage=Usage(200, 20),
        ),
        Reply((Say("pay() takes no argument."),), usage=Usage(300, 10)),
    )
    play(
        provider,
        (Call("remember", {"key": "style", "value": "terse"}), Call("delegate", WORK), Say("The page is true.")),
        reviewer,
    )
    declare_team(box, provider, budget="{day: {tokens: 1000000}}")
    box.write("code.py", "def pay(): ...  # sk-secret-canary-0001\n")
    box.write("wakeful.yaml", "prices: {'anthropic:*': {input: 2, output: 2}}\n")
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    first, *_, last = list_asked(provider, "claude-other")
    # The request has its own prompt, the facts and the piece of work, but nothing of its caller's conversation.
    assert REVIEWER in first.system and WRITER not in first.text and len(first.messages) == 1
    told = first.messages[0].text
    assert '"style" = "terse"' in told and WORK["text"] in told and "Bring page.md in line" not in told
    assert "delegate" not in first.tool_names and "ask_person" not in first.tool_names and "read" in first.tool_names
    assert [(result.is_error, result.content[:40]) for result in last.results[1:]] == [
        (True, "delegate is not allowed in this session;"), (True, "hand_off is not allowed in this session;"), (False, "remembered pay"), (False, "page.md created: 1 line added, 0 removed"),
    ]  # fmt: skip
    assert "[secret ANTHROPIC_API_KEY]" in last.results[0].content and not any(
        "sk-secret-canary" in asked.text for asked in provider.requests
    )
    # The caller gets only the answer.
    answer = list_asked(provider, "claude-test")[-1]
    assert answer.results[-1].content == "pay() takes no argument." and 'takes no argument"' not in answer.text
    own = [record for record in box.log("docs") if (record["payload"] or {}).get("sub")]
    assert {record["payload"]["sub"]["agent"] for record in own} == {"reviewer"}
    kinds = [record["kind"] for record in own]
    assert kinds[0] == "prompt_assembled" and kinds.count("turn_answered") == 3 and kinds.count("tool_called") == 3
    finished = box.log("docs", "--kind", "run_finished")[-1]["payload"]
    assert finished["subagents"]["reviewer"] == {"tokens": 650, "estimated_tokens": 0, "usd": 0.0013}
    # Its writes are recorded by file as writes of the run.
    assert finished["wrote"].keys() == {"page.md"} and box.read("page.md") == "pay()\n"
    assert (
        finished["usage"]["tokens"] > 650
        and box.json("show", "docs")["budget"]["day"]["tokens"]["spent"] == finished["usage"]["tokens"]
    )
    assert "run 1, sub-agent reviewer says: pay() takes no argument." in box.words("log", "docs")
    assert "run 1, sub-agent reviewer calls read path: code.py" in box.output.read_text()
    costs = {row["agent"]: row for row in box.json("costs", "--by", "agent")["rows"]}
    assert (costs["reviewer"]["tokens"], costs["reviewer"]["runs"], costs["docs"]["runs"]) == (650, 0, 1)
    assert costs["docs"]["tokens"] == finished["usage"]["tokens"] - 650
    assert "(of it sub-agent reviewer 650 tokens, 0.0013 USD)" in box.words("why", "docs#1")
    shown = box.json("show", "docs")
    assert shown["handoff"] == "The page is true." and shown["last_runs"][0]["subagents"]["reviewer"]["tokens"] == 650
    assert "sub-agent reviewer: 650 tokens" in box.words("show", "docs")


@pytest.mark.long
def test_a_sub_agent_is_shown_an_image_that_it_reads(box: Box, provider: Provider) -> None:
    """The image is stored like one of its caller, and the record of the call names it."""
    play(provider, (Call("delegate", WORK), Say("Done.")), (Call("read", {"path": "a.png"}), Say("A square.")))
    declare_team(box, provider)
    box.spec(
        "docs",
        "agent: docs\nobjective: Look.\nbindings: {shots: {file: '*.png', settle: 0ms}}\n"
        "run: {prompt: What is on it?}\n",
    )
    (box.folder / "a.png").write_bytes(PNG)
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    assert base64.b64encode(PNG).decode() in json.dumps(list_asked(provider, "claude-other")[-1].raw)
    returned = [record["payload"] for record in box.log("docs", "--kind", "tool_returned")]
    assert [len(one.get("images", ())) for one in returned if one.get("sub")] == [1]


def test_a_sub_agent_that_cannot_go_on_is_told_to_its_caller(box: Box, provider: Provider) -> None:
    """Its own budget, its limit of turns, an undeclared name, or a tool that its caller lacks stops it.

    The run continues.
    """
    turns = tuple(Call("delegate", {**WORK, "agent": name}) for name in ("nobody", "reviewer", "auditor"))
    play(
        provider,
        (*turns, Say("I give up on it.")),
        (Call("shell", {"line": "true"}), Call("list", {}), Call("list", {}), Say("never said")),
    )
    declare_team(
        box, provider, agent="subagents: [reviewer, auditor]\n", reviewer="tools: {shell: allow}\nlimits: {turns: 2}\n"
    )
    (box.specs / "agents" / "auditor.yaml").write_text(
        f"prompt: You audit.\nmodel: anthropic:claude-third\nbase_url: {provider.url}\nbudget: {{run: {{tokens: 50}}}}\n"
    )
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    unknown, stopped, spent = list_asked(provider, "claude-test")[-1].results
    assert (
        unknown.is_error and "there is no sub-agent 'nobody'; the sub-agents are reviewer, auditor" in unknown.content
    )
    assert (
        stopped.is_error
        and "reviewer did not finish: it took 2 turns and did not come to an end (limits.turns of agent reviewer)"
        in stopped.content
    )
    assert "shell is not allowed" in list_asked(provider, "claude-other")[-1].results[0].content
    assert box.log("docs", "--kind", "subagent_halted")[0]["payload"]["sub"]["agent"] == "reviewer"
    assert "auditor did not finish: agent auditor: budget of the run: " in spent.content and not list_asked(
        provider, "claude-third"
    )


@pytest.mark.parametrize("verb", ["interrupt", pytest.param("suspend", marks=pytest.mark.long)])
def test_a_stop_reaches_a_sub_agent_and_its_caller_is_told(box: Box, provider: Provider, verb: str) -> None:
    """The work is not started again, and the next run reads that it was interrupted."""
    play(
        provider,
        (Call("delegate", WORK), Say("The reviewer was cut short.")),
        (Hold("open", Call("list", {})), Say("never said")),
    )
    declare_team(box, provider, conversation="continue")
    box.start(env=KEY)
    eventually(lambda: list_asked(provider, "claude-other"))
    box.ask(verb, "docs")
    provider.release("open")
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "interrupted" and "tool_returned" not in box.kinds("docs")
    box.ask("activate", "docs", "--wait")
    last = list_asked(provider, "claude-test")[-1]
    assert (
        last.results[0].is_error
        and INTERRUPTED in last.results[0].content
        and len(list_asked(provider, "claude-other")) == 1
    )
