"""Judge questions to agents, and the steps of an agent's run. Each step is recorded before the next one is taken.

As in lifecycle.py, a function returns the reply, or raises CallerError and records nothing. Only the run under way may
record steps; the API has checked its token. Tokens and money are reserved before they are spent. If the worst case of
a request is more than the rest of a budget, the run halts, and the session sleeps until the next period.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wakeful.core.agents import steps as work
from wakeful.core.agents.prices import find_cost, find_worst_case
from wakeful.core.agents.turns import SubSpent, SubWork
from wakeful.core.calls import call_types as calls
from wakeful.core.calls.lifecycle import CallRule, check_level, check_size, emit_call, find_runnable
from wakeful.core.deciding.acting_agent import find_owner
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.holds import find_ask_timeout, make_question_hold, say_ask_timeout
from wakeful.core.deciding.working_state import Core
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import count_bytes
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.budget import (
    OF_REQUESTS,
    Amounts,
    Budget,
    Spent,
    charge,
    counts_money,
    find_exhausted,
    find_overspent,
    find_shortage,
)
from wakeful.core.spec.session import PromptRun
from wakeful.errors import CallerError


def _judge_ask(call: calls.Ask, core: Core, decision: Decision, called: calls.Called) -> str:
    """Record a question: a message together with an activation. Because of the activation, the question is answered
    despite most holds, except those that only a person may lift."""
    session = find_runnable(core, call.name, is_question=True)
    if not call.text.strip():
        raise CallerError(f"nothing is asked of {call.name}; give the question as one argument")
    check_size(core, "message", call.text)
    check_level(core, session, "conversation", session.knowledge.conversation.size_bytes + count_bytes(call.text))
    agent = _find_asked(core, session, call.agent)
    message = ev.MessageAdded(
        position=session.mailbox.position + 1, sender=called.author, text=call.text, agent=agent,
        asker=called.author.partition("#")[0], activation=session.activation.position + 1, is_fresh=call.fresh,
    )  # fmt: skip
    session = emit_call(core, decision, session, message, called)
    asked = ev.ActivationRequested(
        position=session.activation.position + 1, note=f"{work.ASKED_BY} {called.author}", fresh=call.fresh
    )
    # Both records are one transaction, and the key is in the first one.
    core.emit(decision, session.id, asked, author=called.author, run=called.run)
    return "asked"


def _find_asked(core: Core, session: Session, wanted: str | None) -> str | None:
    """Return the name of the agent that must answer. None for the session's own agent."""
    assert session.spec is not None
    is_prompt = isinstance(session.spec.run, PromptRun)
    owner = find_owner(core, session)
    if wanted is None and is_prompt:
        return None
    name = wanted or (owner.name if owner is not None else None)
    if name is None:
        raise CallerError(f"{session.name} has no agent: its work is a program; name who is to answer with --agent")
    found = core.agents.get(name)
    if found is None:
        known = ", ".join(sorted(one.name for one in core.agents.values() if one.can_answer)) or "none"
        raise CallerError(f"no agent is called {name!r}; those that can answer: {known}")
    if not found.can_answer:
        raise CallerError(f"agent {name} has no model: give it one in agents/{name}.yaml, or name another with --agent")
    return None if is_prompt and owner is not None and owner.name == name else name


def _judge_work(call: calls.Work, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    if session.run is None or session.run.run != call.run or session.run.agent is None:
        raise CallerError(f"run {call.run} of {call.name} is not an agent's run under way; nothing was recorded")
    # All steps are checked before the first one is recorded, so one refused step refuses all.
    for step in call.steps:
        _check_step(core, step)
        _check_member(session.run.agent, step)
    for step in call.steps:
        run = session.run
        assert run is not None
        # After a halt only the answer of an external agent is recorded: its text and its cost until the stop count.
        if run.halt is not None and not (
            isinstance(step, work.RecordAnswer)
            and run.progress.reserved_tokens
            and run.agent is not None
            and run.agent.acp
        ):
            break
        for event in STEPS[type(step)](step, core, session, run, decision.moment.wall):
            session = emit_call(core, decision, session, event, called)
    return "recorded"


def _check_step(core: Core, step: work.Step) -> None:
    match step:
        case work.RecordAnswer(answer=answer):
            check_size(core, "payload", answer.text + (answer.raw or ""))
        case work.CallTool(call=call):
            check_size(core, "payload", call.arguments)
        case (
            work.ReturnTool(text=text)
            | work.AskPerson(text=text)
            | work.Halt(words=text)
            | work.RecordFault(words=text)
        ):
            check_size(core, "message", text)
        case work.RequestTurn(input_tokens=taken, max_output_tokens=made) if taken < 0 or made < 1:
            raise CallerError(
                f"a request takes in at least 0 tokens and may answer with at least 1, not {taken} and {made}"
            )
        case work.RequestTurn(tools=tools) if tools:
            check_size(core, "payload", "".join(f"{tool.description}{tool.parameters}" for tool in tools))


def _check_member(agent: AgentSpec, step: work.Step) -> None:
    """Raise CallerError if the step is by a sub-agent that the agent of the run does not declare."""
    sub = None if isinstance(step, work.AskPerson | work.MeterTurn) else step.sub
    if sub is not None and agent.find_subagent(sub.agent) is None:
        known = ", ".join(one.name for one in agent.team) or "none"
        raise CallerError(f"agent {agent.name} has no sub-agent {sub.agent!r}; those it has: {known}")


def _take_assemble(step: work.Assemble, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [
        ev.PromptAssembled(
            run=run.run,
            agent=step.agent,
            model=step.model,
            instructions=step.instructions,
            opening=step.opening,
            tokens=step.tokens,
            window_tokens=step.window_tokens,
            window_source=step.window_source,
            sub=step.sub,
        )
    ]


def _take_request_turn(step: work.RequestTurn, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    assert run.agent is not None
    usd = find_worst_case(core.settings.prices, step.model, step.input_tokens, step.max_output_tokens)
    if step.sub is not None:
        halted = _halt_sub(core, session, run, run.agent, step, step.sub, usd, wall)
        if halted is not None:
            return [halted]
    elif (
        step.purpose == "work" and run.progress.work_turns >= run.agent.limits.turns and step.turn > run.progress.turns
    ):
        # Only turns of work are limited. Summaries follow from work, and end when they free no space.
        return [
            _fail(
                run,
                f"it took {run.progress.work_turns} turns and did not come to an end (limits.turns of agent "
                f"{run.agent.name})",
            )
        ]
    elif (hold := _find_spent(core, session, run, run.agent, step, usd, wall)) is not None:
        return [ev.WorkHalted(run=run.run, hold=hold)]
    return [
        ev.TurnRequested(
            run=run.run,
            turn=step.turn,
            model=step.model,
            input_tokens=step.input_tokens,
            max_output_tokens=step.max_output_tokens,
            usd=usd,
            purpose=step.purpose,
            tools=step.tools,
            servers_down=step.servers_down,
            sub=step.sub,
        )
    ]


def _take_record_answer(
    step: work.RecordAnswer, core: Core, session: Session, run: OpenRun, wall: int
) -> list[ev.Event]:
    usd = find_cost(core.settings.prices, step.answer.model, step.usage) if step.usd is None else step.usd
    return [
        ev.TurnAnswered(
            run=run.run,
            turn=step.turn,
            answer=step.answer,
            usage=step.usage,
            usd=usd,
            purpose=step.purpose,
            sub=step.sub,
        )
    ]


def _take_meter_turn(step: work.MeterTurn, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    assert run.agent is not None
    usd = find_cost(core.settings.prices, run.agent.model_name, step.usage) if step.usd is None else step.usd
    metered = ev.TurnMetered(run=run.run, turn=step.turn, requests=step.requests, usage=step.usage, usd=usd)
    hold = _find_overspent(core, session, run, run.agent, step, usd or 0.0, wall)
    return [metered] if hold is None else [metered, ev.WorkHalted(run=run.run, hold=hold)]


def _take_record_fault(step: work.RecordFault, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    usd = find_cost(core.settings.prices, step.model, step.usage) if step.usage is not None else None
    return [
        ev.TurnFailed(
            run=run.run,
            turn=step.turn,
            model=step.model,
            fault=step.fault,
            words=step.words,
            usage=step.usage,
            usd=usd,
            sub=step.sub,
        )
    ]


def _take_call_tool(step: work.CallTool, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [ev.ToolCalled(run=run.run, call=step.call, sub=step.sub)]


def _take_return_tool(step: work.ReturnTool, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [
        ev.ToolReturned(
            run=run.run,
            call=step.call,
            name=step.name,
            text=step.text,
            is_error=step.is_error,
            wrote=step.wrote,
            images=step.images,
            sub=step.sub,
        )
    ]


def _take_ask_person(step: work.AskPerson, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    how = f"wakeful answer {session.name} yes, or no" if step.is_permission else f"wakeful answer {session.name} TEXT"
    asked = ev.QuestionAsked(
        run=run.run, call=step.call, name=step.name, text=step.text, is_permission=step.is_permission
    )
    seconds = find_ask_timeout(run.spec, run.agent)
    return [
        asked,
        ev.WorkHalted(
            run=run.run, hold=make_question_hold(seconds, f"asks: {step.text} ({how}{say_ask_timeout(seconds)})", wall)
        ),
    ]


def _take_halt(step: work.Halt, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [
        _fail(run, step.words) if step.sub is None else ev.SubagentHalted(run=run.run, sub=step.sub, words=step.words)
    ]


def _fail(run: OpenRun, words: str) -> ev.WorkHalted:
    return ev.WorkHalted(run=run.run, hold=ev.Hold(kind="failed", words=words))


# -- the rest of budgets ----------------------------------------------------------------------


def _halt_sub(
    core: Core,
    session: Session,
    run: OpenRun,
    agent: AgentSpec,
    step: work.RequestTurn,
    sub: SubWork,
    usd: float | None,
    wall: int,
) -> ev.WorkHalted | ev.SubagentHalted | None:
    """Return the event that keeps a sub-agent from sending this request. None if it may send it.

    If the budget of a period is spent, the run halts, and a later run continues the work. Any other limit ends only
    the work of the sub-agent.
    """
    member = agent.find_subagent(sub.agent)
    assert member is not None
    if step.turn > member.limits.turns:
        return ev.SubagentHalted(
            run=run.run,
            sub=sub,
            words=f"it took {member.limits.turns} turns and did not come to an end (limits.turns of agent "
            f"{member.name})",
        )
    hold = _find_spent(core, session, run, agent, step, usd, wall)
    if hold is not None and hold.kind == "budget":
        return ev.WorkHalted(run=run.run, hold=hold)
    if hold is None and member.budget is not None:
        taken = run.progress.subs.get(member.name, SubSpent())
        wanted = Amounts(tokens=taken.tokens + step.input_tokens + step.max_output_tokens, usd=taken.usd + (usd or 0.0))
        hold = _find_spent_of(
            f"agent {member.name}: ", member.budget, sum_spent(core, member.name), wanted, step, usd, wall
        )
    return ev.SubagentHalted(run=run.run, sub=sub, words=hold.words) if hold is not None else None


def _find_spent(
    core: Core, session: Session, run: OpenRun, agent: AgentSpec, step: work.RequestTurn, usd: float | None, wall: int
) -> ev.Hold | None:
    """Return the hold that a budget puts on the session instead of this request. None if the request may be sent."""
    tokens = step.input_tokens + step.max_output_tokens
    wanted = Amounts(tokens=run.progress.spent_tokens + tokens, usd=run.progress.spent_usd + (usd or 0.0))
    own = sum_spent(core, agent.name) if agent.budget is not None else {}
    for whose, budget, spent in (
        ("", run.spec.budget, session.tally.spent),
        (f"agent {agent.name}: ", agent.budget, own),
    ):
        if budget is not None and (hold := _find_spent_of(whose, budget, spent, wanted, step, usd, wall)) is not None:
            return hold
    return None


def _find_spent_of(
    whose: str,
    budget: Budget,
    spent: dict[str, Spent],
    wanted: Amounts,
    step: work.RequestTurn,
    usd: float | None,
    wall: int,
) -> ev.Hold | None:
    """Check one budget for `_find_spent`. `wanted` is the usage of the run including this request."""
    if usd is None and counts_money(budget):
        words = f"the price of {step.model} is not known, and a budget counts money; add it to prices in wakeful.yaml"
        return ev.Hold(kind="failed", words=words)
    if (short := find_shortage(budget.run, wanted)) is not None:
        return ev.Hold(kind="failed", words=f"{whose}budget of the run: the next request may bring it to {short}")
    found = find_exhausted(
        budget, spent, wall, counted=OF_REQUESTS, tokens=step.input_tokens + step.max_output_tokens, usd=usd or 0.0
    )
    if found is None:
        return None
    return ev.Hold(
        kind="budget", words=whose + found.words, until=found.until, length_seconds=max(0.0, (found.until - wall) / 1e6)
    )


def _find_overspent(
    core: Core, session: Session, run: OpenRun, agent: AgentSpec, step: work.MeterTurn, usd: float, wall: int
) -> ev.Hold | None:
    """Return the hold for which the prompt under way must be stopped. None if it may go on."""
    if step.requests > agent.limits.turns:
        words = (
            f"{agent.model_name} was stopped: it sent {step.requests} requests and did not come to an end "
            f"(limits.turns of agent {agent.name})"
        )
        return ev.Hold(kind="failed", words=words)
    taken = Amounts(tokens=run.progress.tokens + step.usage.total, usd=run.progress.usd + usd)
    own = sum_spent(core, agent.name) if agent.budget is not None else {}
    about = ", by estimate" if step.usage.is_estimated else ""
    for whose, budget, spent in (
        ("", run.spec.budget, session.tally.spent),
        (f"agent {agent.name}: ", agent.budget, own),
    ):
        if budget is None:
            continue
        if (over := find_overspent(budget.run, taken)) is not None:
            return ev.Hold(
                kind="failed", words=f"{agent.model_name} was stopped: {whose}budget of the run: {over}{about}"
            )
        if (
            found := find_exhausted(
                budget, charge(spent, budget, wall, tokens=step.usage.total, usd=usd), wall, counted=OF_REQUESTS
            )
        ) is not None:
            words = f"{agent.model_name} was stopped: {whose}{found.words}{about}"
            return ev.Hold(
                kind="budget", words=words, until=found.until, length_seconds=max(0.0, (found.until - wall) / 1e6)
            )
    return None


def sum_spent(core: Core, agent: str) -> dict[str, Spent]:
    """Sum an agent's spending from its own budget over all sessions, by kind of period. Only the newest period of each
    kind counts, and it may have ended already."""
    total: dict[str, Spent] = {}
    for session in core.state:
        for period, spent in session.tally.agents_spent.get(agent, {}).items():
            known = total.get(period)
            if known is None or spent.since > known.since:
                total[period] = spent
            elif spent.since == known.since:
                total[period] = known.plus(spent)
    return total


AGENT_CALLS: dict[type[calls.Call], CallRule] = {
    calls.Ask: CallRule(_judge_ask, ("message_added",), asks_for_run=True),
    calls.Work: CallRule(_judge_work),
}

# The function for each kind of step.
STEPS: dict[type[work.Step], Callable[[Any, Core, Session, OpenRun, int], list[ev.Event]]] = {
    work.Assemble: _take_assemble,
    work.RequestTurn: _take_request_turn,
    work.RecordAnswer: _take_record_answer,
    work.MeterTurn: _take_meter_turn,
    work.RecordFault: _take_record_fault,
    work.CallTool: _take_call_tool,
    work.ReturnTool: _take_return_tool,
    work.AskPerson: _take_ask_person,
    work.Halt: _take_halt,
}
