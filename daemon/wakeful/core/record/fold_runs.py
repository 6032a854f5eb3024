"""How a run changes its session: its start in a conversation, the steps of its agent, and its end.

A part of the reducer in `fold.py`, which trusts the log.
- The session holds the present conversation. `talks` stores the conversations of persons who asked questions, each as
  its last run left it. If a run works in another conversation than the last run, the fold exchanges the two.
- The cost of a turn is charged when it is answered. A request whose answer was never recorded is charged at its worst
  case when the run ends, because the provider may have charged it too.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from wakeful.core.agents.steps import WRITING_TOOLS, OwnFile, Progress
from wakeful.core.agents.turns import SubSpent, SubWork, TokenUsage, WroteFile
from wakeful.core.record import events as ev
from wakeful.core.record.fold_history import Fold
from wakeful.core.record.knowledge import Conversation, RecordRange, StoredConversation, close_lineage, cut_lineage
from wakeful.core.record.state import LastRun, OpenRun, OpenWake, Question, SelfFed, Session, Stop, advance_marks
from wakeful.core.spec.budget import UNITS, Budget, Periods, Spent, charge
from wakeful.core.spec.session import PromptRun, SessionSpec, observe_spec

# The most start times kept: as many as a command may have in a minute (rule 34 c).
STARTS_REMEMBERED = 120
# The key of the session's own conversation in `talks`.
OWN = ""
# The most conversations of persons that are kept. The oldest is dropped, and its person begins a new one.
MOST_CONVERSATIONS = 32
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


def _fold_run_started(event: ev.RunStarted, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.wake is not None and session.spec is not None
    run = OpenRun(
        run=event.run,
        run_id=event.run_id,
        wake=event.wake,
        attempt=event.attempt,
        incarnation=event.incarnation,
        started_at=at,
        versions=event.versions,
        causes=event.causes,
        spec=_find_run_spec(session.spec, event),
        chain=event.chain,
        mixed=event.mixed,
        resumed_from=event.resumed_from,
        seq=seq,
        trace=event.trace,
        agent=event.agent,
        is_aside=event.is_aside,
    )
    is_counted = session.wake.tried is None and not event.is_backlog
    session = _enter_conversation(session, event, seq)
    session = _begin_anew(session) if event.is_fresh and event.asker is None else session
    assert session.wake is not None and session.spec is not None
    return replace(
        session,
        run=run,
        activation=replace(session.activation, trace=None),
        question=None,
        knowledge=replace(
            session.knowledge, conversation=replace(session.knowledge.conversation, late=0, late_bytes=0)
        ),
        tally=replace(
            session.tally,
            runs=event.run,
            spent=charge(session.tally.spent, session.spec.budget, at, event.periods, runs=1)
            if session.spec.budget is not None
            else {},
            starts=(*session.tally.starts, at)[-STARTS_REMEMBERED:] if is_counted else session.tally.starts,
            paced=event.paced if is_counted else session.tally.paced,
        ),
        last_active_at=at,
        wake=replace(session.wake, attempt=event.attempt, tried=event.versions, retry_at=None),
    )


def _find_run_spec(spec: SessionSpec, event: ev.RunStarted) -> SessionSpec:
    """Return the spec that a run works by. A run of a session without `run` only answers a question."""
    if spec.run is None:
        return replace(spec, run=PromptRun(prompt=""))
    return observe_spec(spec) if event.trace == "observed" else spec


def _enter_conversation(session: Session, event: ev.RunStarted, seq: int) -> Session:
    """Make the conversation that a run works in the present conversation of the session.

    `seq` is the record that starts the run.
    """
    if event.asker == session.knowledge.asker and not (event.asker is not None and event.is_fresh):
        return session
    if event.asker == session.knowledge.asker:
        return _open_conversation(session, StoredConversation(), event, seq)
    left = StoredConversation(
        conversation=replace(
            session.knowledge.conversation,
            stretches=close_lineage(session.knowledge.conversation.stretches, session.id, seq - 1),
        ),
        memory=session.knowledge.memory,
        size_tokens=session.knowledge.size_tokens,
        cut_run=find_interrupted_run(session),
    )
    talks = {**session.knowledge.talks, session.knowledge.asker or OWN: left}
    found = talks.pop(event.asker or OWN, StoredConversation())
    oldest = next((asker for asker in talks if asker != OWN), None)
    if len(talks) > MOST_CONVERSATIONS and oldest is not None:
        del talks[oldest]
    is_anew = event.asker is not None and event.is_fresh
    return _open_conversation(
        replace(session, knowledge=replace(session.knowledge, asker=event.asker, talks=talks)),
        StoredConversation() if is_anew else found,
        event,
        seq,
    )


def _open_conversation(session: Session, talk: StoredConversation, event: ev.RunStarted, seq: int) -> Session:
    """Make `talk` the present conversation, and add the questions of this run. Each question is a stretch of its own,
    because other records may lie between the questions and the start of the run."""
    last = int(event.versions.get("message", "0"))
    asked = [
        one.seq
        for one in session.list_unread()
        if one.asker is not None and one.asker == event.asker and one.position <= last
    ]
    stretches = (
        *talk.conversation.stretches,
        *(RecordRange(session.id, one, one) for one in asked),
        RecordRange(session.id, seq),
    )
    conversation: Conversation = replace(
        talk.conversation, stretches=stretches, messages=talk.conversation.messages + len(asked)
    )
    is_fresh_wanted = session.activation.is_fresh and not (event.asker is not None and event.is_fresh)
    return replace(
        session,
        knowledge=replace(
            session.knowledge, conversation=conversation, memory=talk.memory, size_tokens=talk.size_tokens
        ),
        activation=replace(session.activation, is_fresh=is_fresh_wanted),
    )


def find_interrupted_run(session: Session) -> int | None:
    """Return the number of the last run if it was interrupted or lost."""
    last = session.last_run
    return last.run if last is not None and last.outcome in ("interrupted", "lost") else None


def _begin_anew(session: Session) -> Session:
    """Begin a new conversation with the messages that no run has dealt with yet.

    The memory is cleared; facts and hand-off stay. A message that arrived during a run is new to the next run (rule
    14). Messages that a retried run had seen are new as well.
    """
    came = session.knowledge.conversation
    if session.knowledge.dealt_from:
        stretches = cut_lineage(session.lineage.line, session.id, session.knowledge.dealt_from + 1)
        came = replace(came, stretches=stretches, summary=None, messages=came.recent, size_bytes=came.recent_bytes)
    return replace(
        session,
        knowledge=replace(session.knowledge, memory={}, conversation=came, size_tokens=0),
        activation=replace(session.activation, is_fresh=False),
    )


# -- the run under way -------------------------------------------------------------------------


def _fold_run_stop_requested(event: ev.RunStopRequested, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, stop=Stop(event.why, author, event.reason)))


def _fold_run_readopted(event: ev.RunReadopted, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, incarnation=event.incarnation, daemons=session.run.daemons + 1))


def _fold_outputs_staged(event: ev.OutputsStaged, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, staged=event))


def _fold_outputs_landed(event: ev.OutputsLanded, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, landed=event))


# -- the steps of its agent --------------------------------------------------------------------


def _fold_agent_step(event: TurnEvent, session: Session, at: int, author: str, seq: int) -> Session:
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
    """Fold a step of a sub-agent: it is charged to the run, and does not change the session's own conversation."""
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


# -- its end -----------------------------------------------------------------------------------


def _fold_run_finished(event: ev.RunFinished, session: Session, at: int, author: str, seq: int) -> Session:
    run = session.run
    assert run is not None
    was_suspect = session.marks.is_suspect
    # A request that was still unanswered is charged at its worst case.
    if run.progress.reserved_tokens:
        session = _settle_unanswered(session, run, at, event.periods)
    last = LastRun(
        run=run.run,
        outcome=event.outcome,
        reason=event.reason,
        started_at=run.started_at,
        finished_at=at,
        causes=run.causes,
        chain=run.chain,
        exit_code=event.exit_code,
        written=event.written,
        usage=event.usage,
        daemons=run.daemons,
        kept=run.landed.kept if run.landed is not None else (),
        seq=seq,
        trace=run.trace,
        attempt=run.attempt,
        failed_on=run.versions if event.outcome == "failed" and event.is_final else None,
    )
    session = replace(
        session,
        run=None,
        last_run=last,
        last_active_at=at,
        tally=replace(session.tally, spent=_charge_run(session, run, event, at)),
    )
    if event.is_final:
        session = _move_marks(session, run, event, seq)
    else:
        session = replace(session, marks=replace(session.marks, is_suspect=True), wake=_keep_open(session, event))
    # A run aside only answers a question. Its success does not complete the outputs of an earlier run, and an attempt
    # that is retried does not make them suspect.
    if run.is_aside and (not event.is_final or event.outcome in ("succeeded", "cancelled")):
        return replace(session, marks=replace(session.marks, is_suspect=was_suspect))
    return session


def _charge_run(session: Session, run: OpenRun, event: ev.RunFinished, at: int) -> dict[str, Spent]:
    if run.spec.budget is None:
        return session.tally.spent
    # The tokens and the money of an agent's turns were charged with each answer.
    known = ("runs",) if run.agent is None else ("runs", "tokens", "usd")
    used = {name: amount for name in UNITS if name not in known and (amount := getattr(event.usage, name))}
    return charge(session.tally.spent, run.spec.budget, at, event.periods, **used)


def _keep_open(session: Session, event: ev.RunFinished) -> OpenWake | None:
    """Return the wake after a run that is retried, replaced or lost. It stays open; no mark moves (rules 15, 22)."""
    wake = session.wake
    if wake is None or not session.declaration.is_declared:
        return None
    match event.outcome:
        case "failed":
            return replace(
                wake,
                attempt=wake.attempt + 1,
                failures=wake.failures + 1,
                retry_at=event.retry_at,
                backoff_seconds=event.backoff_seconds,
            )
        case "lost":
            return replace(wake, lost=wake.lost + 1)
        case _:
            return wake


def _move_marks(session: Session, run: OpenRun, event: ev.RunFinished, seq: int) -> Session:
    """Move the marks after a run that ended for good (rules 15-17): seen moves to its start versions, and good too if
    the run succeeded."""
    known = session.knowledge
    succeeded = event.outcome == "succeeded"
    left = {
        binding.identity: event.written[binding.name] for binding in run.spec.files if binding.name in event.written
    }
    versions = {**run.versions, **left}
    seen = advance_marks(session.marks.seen, versions)
    for key in event.touched:
        seen.pop(key, None)
    return replace(
        session,
        knowledge=replace(
            known,
            conversation=known.conversation.keep_late(),
            # A run in a person's own conversation has not handled the messages to the session itself.
            dealt_from=run.seq if known.asker is None else known.dealt_from,
            dealt_until=seq,
        ),
        marks=replace(
            session.marks,
            seen=seen,
            good=advance_marks(session.marks.good, versions) if succeeded else session.marks.good,
            touched=event.touched,
            self_fed=_count_self_fed(session, run, event),
            conflicted=event.conflicts,
            is_first_taken=session.marks.is_first_taken or not run.is_aside,
            is_suspect=event.outcome not in ("succeeded", "cancelled"),
        ),
        tally=replace(
            session.tally,
            successes=session.tally.successes + succeeded,
            failures=session.tally.failures + (event.outcome == "failed"),
        ),
        wake=None,
    )


def _count_self_fed(session: Session, run: OpenRun, event: ev.RunFinished) -> dict[str, SelfFed]:
    """Count the runs in a row during which each input changed (rule 34 b).

    The count starts again if the input also changed between the last run's end and this run's start.
    """
    # A run aside handles none of the inputs.
    if run.is_aside:
        return session.marks.self_fed
    known = {key: before.runs for key, before in session.marks.self_fed.items() if run.versions.get(key) == before.left}
    return {key: SelfFed(known.get(key, 0) + 1, left) for key, left in event.self_fed.items()}


# The function for each kind of event.
RUN_FOLDS: dict[type[ev.Event], Fold] = {
    ev.RunStarted: _fold_run_started,
    ev.RunStopRequested: _fold_run_stop_requested,
    ev.RunReadopted: _fold_run_readopted,
    ev.OutputsStaged: _fold_outputs_staged,
    ev.OutputsLanded: _fold_outputs_landed,
    ev.PromptAssembled: _fold_agent_step,
    ev.TurnRequested: _fold_agent_step,
    ev.TurnAnswered: _fold_agent_step,
    ev.TurnMetered: _fold_agent_step,
    ev.TurnFailed: _fold_agent_step,
    ev.ToolCalled: _fold_agent_step,
    ev.ToolReturned: _fold_agent_step,
    ev.QuestionAsked: _fold_agent_step,
    ev.WorkHalted: _fold_agent_step,
    ev.SubagentHalted: _fold_agent_step,
    ev.RunFinished: _fold_run_finished,
}
