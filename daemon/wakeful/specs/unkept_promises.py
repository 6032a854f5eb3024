"""Promises of a spec that nothing keeps: budgets that cannot be enforced, and questions that nobody is there to answer.

`check` tells them as warnings. They need sessions and their agents together, and the prices, so no single file's reading can find them.
A budget that is not enforced does not refuse a spec: its other amounts still hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wakeful.core.agents.prices import Prices, find_price
from wakeful.core.deciding.acting_agent import merge_tools
from wakeful.core.deciding.questions import find_timeout
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.budget import OF_REQUESTS, PERIODS, Budget, counts_money
from wakeful.core.spec.session import CommitsBinding, FileBinding, MessageBinding, PromptRun, SessionSpec

# These tell the size of their requests while they work, so that their budget is watched by more than our estimate.
TELLS_SIZE = ("claude", "codex")


class Unkept(NamedTuple):
    """One such promise: in the file of a session or of an agent, at a key of it."""

    file: str
    key: tuple[str, ...]
    words: str


def find_unkept(
    sessions: Mapping[str, SessionSpec], agents: Mapping[str, AgentSpec], prices: Prices
) -> Iterator[Unkept]:
    for session in sessions.values():
        agent = agents.get(session.agent or "") if isinstance(session.run, PromptRun) else None
        yield from _find_of_session(session, agent)
    for agent in agents.values():
        # The work of a sub-agent is paid from the budgets of its callers, too.
        payers = {agent.name, *(one.name for one in agents.values() if agent.name in one.subagents)}
        own = [
            session.budget
            for session in sessions.values()
            if session.agent in payers and isinstance(session.run, PromptRun)
        ]
        yield from _find_of_agent(agent, [*(agents[name].budget for name in payers), *own], prices)


def _find_of_session(session: SessionSpec, agent: AgentSpec | None) -> Iterator[Unkept]:
    if session.run is None:
        return
    spent = name_spent(session.budget)
    if spent and not isinstance(session.run, PromptRun):
        words = f"a budget of {spent} does not hold for its command: nothing tells what a command spends; wall, cpu, written and runs are held"
        yield Unkept(session.name, ("budget",), words)
    if (
        (asks := find_asking(session, agent)) is not None
        and find_timeout(session, agent) is None
        and is_unattended(session)
    ):
        words = f"{asks}, and what wakes it comes when nobody may be there to answer: it sleeps until somebody does; ask_timeout, such as 2h, denies it then"
        yield Unkept(session.name, (), words)


def _find_of_agent(agent: AgentSpec, budgets: list[Budget | None], prices: Prices) -> Iterator[Unkept]:
    names = [model.name for model in agent.models] or [agent.model_name] * bool(agent.acp)
    if any(counts_money(budget) for budget in budgets):
        for name in names:
            if find_price(prices, name) is None:
                yield Unkept(
                    f"agents/{agent.name}",
                    (),
                    f"nobody knows what {name} costs, and a budget counts money; add it to prices in wakeful.yaml",
                )
    spent = next((words for budget in budgets if (words := name_spent(budget))), None)
    if spent and agent.acp and not any(word in agent.model_name.lower() for word in TELLS_SIZE):
        words = f"{agent.model_name} may tell nothing of its spending while it works: a budget of {spent} is then held by our estimate of what passes through it"
        yield Unkept(f"agents/{agent.name}", (), words)


def name_spent(budget: Budget | None) -> str | None:
    """The amounts of a budget that requests to a model spend; None if it bounds none of them."""
    bounds = [budget.run, *(budget.bound(period) for period in PERIODS)] if budget is not None else []
    return (
        " and ".join(
            name
            for name in OF_REQUESTS
            if any(getattr(bound, name) is not None for bound in bounds if bound is not None)
        )
        or None
    )


def find_asking(session: SessionSpec, agent: AgentSpec | None) -> str | None:
    """The keys by which a question may reach a person, in words."""
    if session.is_approved_first:
        return "it asks before each run (approve: before_run)"
    tools = merge_tools(agent.tools, session.tools) if agent is not None else {}
    asked = sorted(name for name, policy in tools.items() if policy == "ask")
    return f"it asks before it uses {', '.join(asked)} (tools)" if asked else None


def is_unattended(session: SessionSpec) -> bool:
    """Does only the machine wake it: a clock, a probe, another session? Whoever saves a file or writes a message is there."""
    waking = [binding for binding in session.bindings if binding.wake and not isinstance(binding, MessageBinding)]
    return bool(waking) and not any(isinstance(binding, FileBinding | CommitsBinding) for binding in waking)
