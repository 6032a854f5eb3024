"""The steps of an agent's run judged: each becomes a record before the process takes the next one.

As in judge.py: words, or a CallerError and nothing recorded. Only the run under way speaks here, which the API has made sure of by its token.
Money and tokens are asked for before they are spent: where the worst case of a request is more than what is left, the
run halts instead, and sleeps until its period turns.
"""

from __future__ import annotations

from functools import singledispatch

from wakeful.core import calls, work
from wakeful.core import events as ev
from wakeful.core.agency import find_owner
from wakeful.core.agent import AgentSpec
from wakeful.core.asking import find_timeout, make_asking, say_denial
from wakeful.core.budget import OF_REQUESTS, Amounts, Spent, charge, counts_money, find_exhausted, find_overspent, find_shortage
from wakeful.core.decision import Decision
from wakeful.core.judge import check_level, check_size, emit_call, find_runnable
from wakeful.core.judge_history import judge_call
from wakeful.core.knowledge import count_bytes
from wakeful.core.machine import Core
from wakeful.core.prices import find_cost, find_worst_case
from wakeful.core.spec import PromptRun
from wakeful.core.state import OpenRun, Session
from wakeful.errors import CallerError

# Every call is registered once this module is read.
__all__ = ["judge_call"]


@judge_call.register
def _(call: calls.Ask, core: Core, decision: Decision, called: calls.Called) -> str:
    """A message and an activation in one: it is answered whatever holds the session, but for what only its people may lift."""
    session = find_runnable(core, call.name, is_question=True)
    if not call.text.strip():
        raise CallerError(f"nothing is asked of {call.name}; give the question as one argument")
    check_size(core, "message", call.text)
    check_level(core, session, "conversation", session.conversation.size_bytes + count_bytes(call.text))
    agent = _find_asked(core, session, call.agent)
    message = ev.MessageAdded(
        position=session.mailbox + 1, sender=called.author, text=call.text, agent=agent,
        asker=called.author.partition("#")[0], activation=session.activations + 1, is_fresh=call.fresh,
    )  # fmt: skip
    session = emit_call(core, decision, session, message, called)
    asked = ev.ActivationRequested(position=session.activations + 1, note=f"{work.ASKED_BY} {called.author}", fresh=call.fresh)
    # The key stands with the first of both: one transaction.
    core.emit(decision, session.id, asked, author=called.author, run=called.run)
    return "asked"


def _find_asked(core: Core, session: Session, wanted: str | None) -> str | None:
    """Who is to answer, by name; None: whoever works there anyway."""
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


@judge_call.register
def _(call: calls.Work, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    if session.run is None or session.run.run != call.run or session.run.agent is None:
        raise CallerError(f"run {call.run} of {call.name} is not an agent's run under way; nothing was recorded")
    # All of them before the first is recorded: one that is refused takes the others with it.
    for step in call.steps:
        _check_step(core, step)
    for step in call.steps:
        run = session.run
        assert run is not None
        # What an external agent said and took until it was stopped counts; nothing else follows a halt.
        if run.halt is not None and not (isinstance(step, work.RecordAnswer) and run.progress.reserved_tokens and run.agent is not None and run.agent.acp):
            break
        for event in _take_step(step, core, session, run, decision.moment.wall):
            session = emit_call(core, decision, session, event, called)
    return "recorded"


def _check_step(core: Core, step: work.Step) -> None:
    match step:
        case work.RecordAnswer(answer=answer):
            check_size(core, "payload", answer.text + (answer.raw or ""))
        case work.CallTool(call=call):
            check_size(core, "payload", call.arguments)
        case work.ReturnTool(text=text) | work.AskPerson(text=text) | work.Halt(words=text) | work.RecordFault(words=text):
            check_size(core, "message", text)
        case work.RequestTurn(input_tokens=taken, max_output_tokens=made) if taken < 0 or made < 1:
            raise CallerError(f"a request takes in at least 0 tokens and may answer with at least 1, not {taken} and {made}")
        case work.RequestTurn(tools=tools) if tools:
            check_size(core, "payload", "".join(f"{tool.description}{tool.parameters}" for tool in tools))


@singledispatch
def _take_step(step: work.Step, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    raise TypeError(f"no one takes {type(step).__name__}")


@_take_step.register
def _(step: work.Assemble, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [
        ev.PromptAssembled(
            run=run.run, agent=step.agent, model=step.model, instructions=step.instructions, opening=step.opening, tokens=step.tokens,
            window_tokens=step.window_tokens, window_source=step.window_source,
        )
    ]


@_take_step.register
def _(step: work.RequestTurn, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    assert run.agent is not None
    # Summaries come of work that has turns of its own, and stop where they make no room.
    if step.purpose == "work" and run.progress.work_turns >= run.agent.limits.turns and step.turn > run.progress.turns:
        return [_fail(run, f"it took {run.progress.work_turns} turns and did not come to an end (limits.turns of agent {run.agent.name})")]
    usd = find_worst_case(core.settings.prices, step.model, step.input_tokens, step.max_output_tokens)
    hold = _find_spent(core, session, run, run.agent, step, usd, wall)
    if hold is not None:
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
        )
    ]


@_take_step.register
def _(step: work.RecordAnswer, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    usd = find_cost(core.settings.prices, step.answer.model, step.usage) if step.usd is None else step.usd
    return [ev.TurnAnswered(run=run.run, turn=step.turn, answer=step.answer, usage=step.usage, usd=usd, purpose=step.purpose)]


@_take_step.register
def _(step: work.MeterTurn, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    assert run.agent is not None
    usd = find_cost(core.settings.prices, run.agent.model_name, step.usage) if step.usd is None else step.usd
    metered = ev.TurnMetered(run=run.run, turn=step.turn, requests=step.requests, usage=step.usage, usd=usd)
    hold = _find_overspent(core, session, run, run.agent, step, usd or 0.0, wall)
    return [metered] if hold is None else [metered, ev.WorkHalted(run=run.run, hold=hold)]


@_take_step.register
def _(step: work.RecordFault, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    usd = find_cost(core.settings.prices, step.model, step.usage) if step.usage is not None else None
    return [ev.TurnFailed(run=run.run, turn=step.turn, model=step.model, fault=step.fault, words=step.words, usage=step.usage, usd=usd)]


@_take_step.register
def _(step: work.CallTool, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [ev.ToolCalled(run=run.run, call=step.call)]


@_take_step.register
def _(step: work.ReturnTool, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [ev.ToolReturned(run=run.run, call=step.call, name=step.name, text=step.text, is_error=step.is_error, wrote=step.wrote, images=step.images)]


@_take_step.register
def _(step: work.AskPerson, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    how = f"wakeful answer {session.name} yes, or no" if step.is_permission else f"wakeful answer {session.name} TEXT"
    asked = ev.QuestionAsked(run=run.run, call=step.call, name=step.name, text=step.text, is_permission=step.is_permission)
    seconds = find_timeout(run.spec, run.agent)
    return [asked, ev.WorkHalted(run=run.run, hold=make_asking(seconds, f"asks: {step.text} ({how}{say_denial(seconds)})", wall))]


@_take_step.register
def _(step: work.Halt, core: Core, session: Session, run: OpenRun, wall: int) -> list[ev.Event]:
    return [_fail(run, step.words)]


def _fail(run: OpenRun, words: str) -> ev.WorkHalted:
    return ev.WorkHalted(run=run.run, hold=ev.Hold(kind="failed", words=words))


# -- what is left to be spent -----------------------------------------------------------------


def _find_spent(core: Core, session: Session, run: OpenRun, agent: AgentSpec, step: work.RequestTurn, usd: float | None, wall: int) -> ev.Hold | None:
    """Why this request may not be sent, as the hold it brings on; None where it may."""
    tokens = step.input_tokens + step.max_output_tokens
    wanted = Amounts(tokens=run.progress.spent_tokens + tokens, usd=run.progress.spent_usd + (usd or 0.0))
    own = sum_spent(core, agent.name) if agent.budget is not None else {}
    for whose, budget, spent in (("", run.spec.budget, session.spent), (f"agent {agent.name}: ", agent.budget, own)):
        if budget is None:
            continue
        if usd is None and counts_money(budget):
            words = f"nobody knows what {step.model} costs, and its budget counts money; add it to prices in wakeful.yaml"
            return ev.Hold(kind="failed", words=words)
        if (short := find_shortage(budget.run, wanted)) is not None:
            return ev.Hold(kind="failed", words=f"{whose}budget of the run: {short} for the next request at its worst")
        if (found := find_exhausted(budget, spent, wall, counted=OF_REQUESTS, tokens=tokens, usd=usd or 0.0)) is not None:
            return ev.Hold(kind="budget", words=whose + found.words, until=found.until, length_seconds=max(0.0, (found.until - wall) / 1e6))
    return None


def _find_overspent(core: Core, session: Session, run: OpenRun, agent: AgentSpec, step: work.MeterTurn, usd: float, wall: int) -> ev.Hold | None:
    """Why the prompt under way is to be stopped, as the hold it brings on; None where it may go on."""
    if step.requests > agent.limits.turns:
        words = f"{agent.model_name} was stopped: it sent {step.requests} requests and did not come to an end (limits.turns of agent {agent.name})"
        return ev.Hold(kind="failed", words=words)
    taken = Amounts(tokens=run.progress.tokens + step.usage.total, usd=run.progress.usd + usd)
    own = sum_spent(core, agent.name) if agent.budget is not None else {}
    about = ", by estimate" if step.usage.is_estimated else ""
    for whose, budget, spent in (("", run.spec.budget, session.spent), (f"agent {agent.name}: ", agent.budget, own)):
        if budget is None:
            continue
        if (over := find_overspent(budget.run, taken)) is not None:
            return ev.Hold(kind="failed", words=f"{agent.model_name} was stopped: {whose}budget of the run: {over}{about}")
        if (found := find_exhausted(budget, charge(spent, budget, wall, tokens=step.usage.total, usd=usd), wall, counted=OF_REQUESTS)) is not None:
            words = f"{agent.model_name} was stopped: {whose}{found.words}{about}"
            return ev.Hold(kind="budget", words=words, until=found.until, length_seconds=max(0.0, (found.until - wall) / 1e6))
    return None


def sum_spent(core: Core, agent: str) -> dict[str, Spent]:
    """What an agent spent of its own budget in all sessions, as periods that may have turned since."""
    total: dict[str, Spent] = {}
    for session in core.state:
        for period, spent in session.agents_spent.get(agent, {}).items():
            known = total.get(period)
            if known is None or spent.since > known.since:
                total[period] = spent
            elif spent.since == known.since:
                total[period] = known.plus(spent)
    return total
