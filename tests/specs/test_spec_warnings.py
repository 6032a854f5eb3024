"""Warnings of `check` about promises that cannot be kept: budgets without a count, and questions without a person."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core.spec_builders import read, session
from wakeful.core.spec.agent import AgentSpec, ModelSpec
from wakeful.core.spec.bindings import CronBinding, MessageBinding
from wakeful.core.spec.budget import Amounts, Budget, Price
from wakeful.core.spec.session import PromptRun, SessionSpec
from wakeful.specs.check_warnings import find_unkept

DAY = Budget(day=Amounts(tokens=100, usd=1))
CLOCK = CronBinding(name="clock", expression="0 6 * * *", timezone="UTC")
MAIL = MessageBinding(name="message")
PROMPT = PromptRun(prompt="Do it.")
DOCS = AgentSpec(name="docs", models=(ModelSpec(provider="anthropic", model="m"),))
PRICES = {"anthropic:m": Price(input=1, output=1), "acp:*": Price(input=1, output=1)}


def outside(program: str) -> AgentSpec:
    return AgentSpec(name="docs", acp=("node", program))


def find(spec: SessionSpec, agent: AgentSpec = DOCS, prices: dict[str, Price] = PRICES) -> list[str]:
    return [f"{one.file}: {one.words}" for one in find_unkept({spec.name: spec}, {"docs": agent}, prices)]


def thinking(**keys: object) -> SessionSpec:
    return session("s", *keys.pop("bindings", (read("in"), MAIL)), agent="docs", run=PROMPT, **keys)


def test_a_budget_of_tokens_does_not_hold_for_a_command() -> None:
    [words] = find(session("s", read("in"), budget=DAY))
    assert words.startswith("s: a budget of tokens and usd does not hold for its command")
    assert find(session("s", read("in"), budget=Budget(day=Amounts(runs=1)))) == find(thinking(budget=DAY)) == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("some-agent", "acp:some-agent may not report its spending"),
        ("opencode", "acp:opencode may not report its spending"),
        ("claude-agent-acp", None),
        ("codex-acp", None),
    ],
)
def test_an_external_agent_that_reports_no_spending_is_checked_by_estimate(program: str, words: str | None) -> None:
    found = find(thinking(budget=DAY), outside(program))
    assert [words in one for one in found] == [True] if words is not None else found == []
    assert find(thinking(), outside(program)) == []
    assert len(find(thinking(), replace(outside(program), budget=DAY))) == (words is not None)


def test_a_budget_of_money_needs_a_price_of_every_model_and_program() -> None:
    assert find(thinking(budget=DAY), prices={}) == [
        "agents/docs: the price of anthropic:m is not known, and a budget counts money; add it to prices in wakeful.yaml"
    ]
    assert (
        "the price of acp:claude-agent-acp is not known"
        in find(thinking(budget=DAY), outside("claude-agent-acp"), prices={})[0]
    )


@pytest.mark.parametrize(
    ("keys", "tools", "words"),
    [
        ({"bindings": (CLOCK, MAIL), "is_approved_first": True}, {}, "it asks before each run (approve: before_run)"),
        (
            {"bindings": (CLOCK, MAIL)},
            {"shell": "ask", "write": "ask", "edit": "allow"},
            "it asks before it uses shell, write (tools)",
        ),
        ({"bindings": (CLOCK, MAIL), "tools": {"shell": "deny"}}, {"shell": "ask"}, None),
        ({"bindings": (CLOCK, MAIL), "ask_timeout_seconds": 60.0}, {"shell": "ask"}, None),
        # A person saved the file, or wrote the message.
        ({"bindings": (CLOCK, read("in"), MAIL)}, {"shell": "ask"}, None),
        ({"bindings": (MAIL,)}, {"shell": "ask"}, None),
    ],
)
def test_a_question_of_a_session_that_only_the_machine_wakes_may_find_nobody(
    keys: dict[str, object], tools: dict[str, str], words: str | None
) -> None:
    found = find(thinking(**keys), replace(DOCS, tools=tools))
    assert [one.startswith(f"s: {words}, and it may be woken") for one in found] == (
        [True] if words is not None else []
    )
    assert find(thinking(**keys), replace(DOCS, tools=tools, ask_timeout_seconds=60.0)) == []
