"""How the steps of an agent's run change its session: the part of the fold for turns, tools and questions.

`fold.py` calls these functions; like it, they trust the log. The cost of a turn is charged when it is
answered. A request whose answer was never recorded is charged at its worst case when the run ends, because the
provider may have charged it too.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from wakeful.core.agents.steps import WRITING_TOOLS, OwnFile, Progress
from wakeful.core.agents.turns import SubSpent, SubWork, TokenUsage, WroteFile
from wakeful.core.record import events as ev
from wakeful.core.record.state import OpenRun, Question, Session
from wakeful.core.spec.budget import Budget, Periods, Spent, charge

# The fault after which it is unknown whether the provider did the work, so the request is charged. With the fault
# `unreached` the provider did no work.
UNKNOWN_EFFECT = "network"


TurnEvent = (
    ev.PromptAssembled
    | ev.TurnRequested
    | ev.TurnAnswered
    | ev.TurnMetered
    | ev.TurnFailed
    | ev.ToolCalled
    | ev.ToolReturned
    | ev.QuestionAsked
    | ev.WorkHalted
    | ev.SubagentHalted
)


def fold_turn(session: Session, event: TurnEvent, at: int) -> Session:
    run = session.run
    assert run is not None
    done = run.progress
    match event:
        case (
            ev.SubagentHalted()
            | ev.PromptAssembled(sub=SubWork())
            | ev.TurnRequested(sub=SubWork())
            | ev.TurnAnswered(sub=SubWork())
            | ev.ToolReturned(sub=SubWork())
        ):
            return _fold_sub_turn(session, run, event, at)
        case ev.TurnRequested(turn=turn, purpose=purpose):
            summaries = done.summaries + (max(0, turn - done.turns) if purpose == "summary" else 0)
            return _put(session, run, replace(_reserve(done, event, None), turns=turn, summaries=summaries), at)
        case ev.TurnAnswered(usage=usage, usd=usd, answer=answer, purpose=purpose):
            session = _settle_counted(session, run, at, event.periods, usage, usd or 0.0)
            return session if purpose == "summary" else _add_words(session, answer.words, usage.total)
        case ev.TurnMetered(usage=usage, usd=usd):
            # The reserve is the worst case of one request, until more than that is known to be spent.
            metered = replace(
                done,
                reserved_tokens=max(done.reserved_tokens, usage.total),
                reserved_usd=max(done.reserved_usd, usd or 0.0),
            )
            return _put(session, run, metered, at)
        case ev.ToolCalled(call=call) if call.name in WRITING_TOOLS:
            return _put(session, run, replace(done, writing=(*done.writing, call.id)), at)
        case ev.ToolReturned(call=call_id, text=text, wrote=wrote):
            conversation = session.knowledge.conversation.grow(text)
            session = replace(session, knowledge=replace(session.knowledge, conversation=conversation))
            return _put(session, run, _return_result(done, call_id, wrote), at)
        case ev.TurnFailed(usage=TokenUsage() as usage, usd=usd):
            return _settle_counted(session, run, at, event.periods, usage, usd or 0.0)
        case ev.TurnFailed(fault=fault) if fault == UNKNOWN_EFFECT:
            return _settle_unanswered(session, run, at, event.periods)
        case ev.TurnFailed():
            return _put(session, run, replace(done, reserved_tokens=0, reserved_usd=0.0), at)
        case ev.QuestionAsked(call=call, name=name, text=text, is_permission=is_permission):
            question = Question(call=call, name=name, text=text, is_permission=is_permission)
            return replace(session, question=question, last_active_at=at)
        case ev.WorkHalted(hold=hold):
            return replace(session, run=replace(run, halt=hold), last_active_at=at)
        case ev.PromptAssembled() | ev.ToolCalled():
            return replace(session, last_active_at=at)
        case _:
            assert_never(event)


def _fold_sub_turn(
    session: Session,
    run: OpenRun,
    event: ev.SubagentHalted | ev.PromptAssembled | ev.TurnRequested | ev.TurnAnswered | ev.ToolReturned,
    at: int,
) -> Session:
    """Fold a step of a sub-agent: it is charged to the run, and leaves the session's own conversation alone."""
    assert event.sub is not None
    done, call = run.progress, event.sub.call
    match event:
        case ev.SubagentHalted(words=words):
            return _put(session, run, replace(done, sub_halts={**done.sub_halts, call: words}), at)
        case ev.PromptAssembled():
            halts = {known: words for known, words in done.sub_halts.items() if known != call}
            return _put(session, run, replace(done, sub_halts=halts), at)
        case ev.TurnRequested():
            return _put(session, run, _reserve(done, event, event.sub.agent), at)
        case ev.TurnAnswered(usage=usage, usd=usd):
            return _settle_counted(session, run, at, event.periods, usage, usd or 0.0)
        case ev.ToolReturned(call=call_id, wrote=wrote):
            return _put(session, run, _return_result(done, call_id, wrote), at)
        case _:
            assert_never(event)


def _reserve(done: Progress, asked: ev.TurnRequested, agent: str | None) -> Progress:
    """Reserve the worst case of a request that is about to be sent; `agent` is the sub-agent that asks."""
    return replace(
        done,
        reserved_tokens=asked.input_tokens + asked.max_output_tokens,
        reserved_usd=asked.usd or 0.0,
        reserved_by=agent,
    )


def _add_words(session: Session, words: str, size_tokens: int) -> Session:
    knowledge = session.knowledge
    return replace(
        session,
        knowledge=replace(knowledge, size_tokens=size_tokens, conversation=knowledge.conversation.add(words)),
    )


def _return_result(done: Progress, call_id: str, wrote: tuple[WroteFile, ...]) -> Progress:
    if not wrote and call_id not in done.writing:
        return done
    known = dict(done.wrote)
    for one in wrote:
        before = known.get(one.path)
        known[one.path] = before.follow(one) if before is not None else OwnFile(base=one.base, digest=one.digest)
    return replace(done, wrote=known, writing=tuple(call for call in done.writing if call != call_id))


def settle_run(session: Session, run: OpenRun, at: int, periods: Periods | None) -> Session:
    """Charge a request that was still unanswered when the run ended, at its worst case."""
    return _settle_unanswered(session, run, at, periods) if run.progress.reserved_tokens else session


def _settle_counted(
    session: Session, run: OpenRun, at: int, periods: Periods | None, usage: TokenUsage, usd: float
) -> Session:
    """Charge the real usage of a request, and drop its reserve."""
    done = run.progress
    guessed = usage.total if usage.is_estimated else 0
    settled = replace(
        done, tokens=done.tokens + usage.total, usd=done.usd + usd, estimated_tokens=done.estimated_tokens + guessed,
        reserved_tokens=0, reserved_usd=0.0,
        subs=add_spent(done, usage.total, guessed, usd),
    )  # fmt: skip
    return _put(_charge(session, run, at, periods, usage.total, usd), run, settled, at)


def _settle_unanswered(session: Session, run: OpenRun, at: int, periods: Periods | None) -> Session:
    done = run.progress
    guessed = done.estimated_tokens + done.reserved_tokens
    subs = add_spent(done, done.reserved_tokens, done.reserved_tokens, done.reserved_usd)
    settled = replace(
        done,
        tokens=done.spent_tokens,
        usd=done.spent_usd,
        estimated_tokens=guessed,
        reserved_tokens=0,
        reserved_usd=0.0,
        subs=subs,
    )
    return _put(_charge(session, run, at, periods, done.reserved_tokens, done.reserved_usd), run, settled, at)


def add_spent(done: Progress, tokens: int, estimated_tokens: int, usd: float) -> dict[str, SubSpent]:
    """Return the amounts spent by sub-agents, with this usage of the request under way added."""
    if done.reserved_by is None:
        return done.subs
    known = done.subs.get(done.reserved_by, SubSpent())
    added = SubSpent(
        tokens=known.tokens + tokens, estimated_tokens=known.estimated_tokens + estimated_tokens, usd=known.usd + usd
    )
    return {**done.subs, done.reserved_by: added}


def _put(session: Session, run: OpenRun, progress: Progress, at: int) -> Session:
    return replace(session, run=replace(run, progress=progress), last_active_at=at)


def _charge(session: Session, run: OpenRun, at: int, periods: Periods | None, tokens: int, usd: float) -> Session:
    """Charge a usage to the session's budget, and to the agent's own budget if it has one."""
    spent = _charge_one(session.tally.spent, run.spec.budget, at, periods, tokens, usd)
    agents = dict(session.tally.agents_spent)
    member = (
        run.agent.find_subagent(run.progress.reserved_by)
        if run.agent is not None and run.progress.reserved_by is not None
        else None
    )
    # The work of a sub-agent is charged to its own budget, and to that of the run's agent.
    charged = {agent.name: agent for agent in (run.agent, member) if agent is not None and agent.budget is not None}
    for name, agent in charged.items():
        agents[name] = _charge_one(agents.get(name, {}), agent.budget, at, periods, tokens, usd)
    return replace(session, tally=replace(session.tally, spent=spent, agents_spent=agents))


def _charge_one(
    spent: dict[str, Spent], budget: Budget | None, at: int, periods: Periods | None, tokens: int, usd: float
) -> dict[str, Spent]:
    return charge(spent, budget, at, periods, tokens=tokens, usd=usd) if budget is not None else spent
