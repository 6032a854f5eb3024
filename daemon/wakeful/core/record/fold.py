"""fold(session, event) -> session: the only way state comes to be.

Live and replay run the same code, so a snapshot anywhere is harmless. The reducer trusts what is
in the log: it never refuses, never looks, never decides.
"""

from __future__ import annotations

from functools import singledispatch

import msgspec
from msgspec.structs import replace

from wakeful.core.record import events as ev
from wakeful.core.record.conversations import enter_talk
from wakeful.core.record.fold_agent_steps import fold_turn, settle_run
from wakeful.core.record.knowledge import Checkpoint, Conversation, Fact, Recollection, Stretch, cut_line, drop_conflict
from wakeful.core.record.state import ACTIVATION, LastRun, OpenRun, OpenWake, SelfFed, Session, Stop, Unread
from wakeful.core.spec.budget import UNITS, Spent, charge
from wakeful.core.spec.session import PromptRun, SessionSpec, observe_spec

# As many as a command may start in a minute (rule 34 c).
STARTS_REMEMBERED = 120


def fold(session: Session | None, event: ev.Event, *, seq: int, at: int, author: str) -> Session:
    if isinstance(event, ev.SessionOpened):
        return _open(event, at, seq)
    assert session is not None, "the first record of a session is session_opened"
    return replace(_apply(event, session, at, author, seq), seq=seq)


def _open(event: ev.SessionOpened, at: int, seq: int) -> Session:
    session = Session(id=event.id, name=event.name, opened_at=at, last_active_at=at, seq=seq)
    if event.recollection is None:
        return session
    session = replace(
        session,
        origin=event.origin,
        seen=event.seen,
        is_first_taken=event.is_first_taken,
        detached=event.detached,
        workspace=event.workspace,
        is_filed=False,
        needs_trust=event.needs_trust,
    )
    return _recall(session, event.recollection, seq)


@singledispatch
def _apply(event: ev.Event, session: Session, at: int, author: str, seq: int) -> Session:
    raise TypeError(f"no fold for {type(event).__name__}")


@_apply.register
def _(event: ev.SessionRenamed, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, name=event.new)


@_apply.register
def _(event: ev.SpecDeclared, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        spec=event.spec,
        is_declared=True,
        spec_version=event.version,
        text_digest=event.text_digest,
        seen={**session.seen, **event.positions},
        good={**session.good, **event.positions},
        is_filed=event.is_filed,
        # A spec from a file on this host replaces the bundle's spec, and with it the need for trust.
        needs_trust=None if event.is_filed else session.needs_trust,
        detached=() if event.is_filed else session.detached,
        # A new spec ends what only a new spec can mend (rules 21, 34); what a person must say stays to be said.
        hold=session.hold if session.hold is not None and session.hold.kind in ("snoozed", "apart") else None,
        wake=_forgive(session.wake),
        self_fed={},
    )


@_apply.register
def _(event: ev.SpecRemoved, session: Session, at: int, author: str, seq: int) -> Session:
    # The run ends under its spec; the wake, its back-off and the edges go (rule 26). What was
    # owed is not lost: seen did not move, so the same file declared again is owed again.
    return replace(session, is_declared=False, wake=session.wake if session.run else None)


@_apply.register
def _(event: ev.SpecTrusted, session: Session, at: int, author: str, seq: int) -> Session:
    # Of a spec that lies in a file this is a record alone: what is trusted there is kept outside of the log, which a
    # bundle could bring from anywhere. The spec of a bundle is doubted by a record that was made here,
    # after all that the bundle brought.
    return replace(session, needs_trust=None)


@_apply.register
def _(event: ev.SessionAdopted, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        seen={**session.seen, **event.versions},
        good={**session.good, **event.versions},
        is_first_taken=True,
    )


@_apply.register
def _(event: ev.ActivationRequested, session: Session, at: int, author: str, seq: int) -> Session:
    # What was spent, and what a person was asked, is not lifted by asking for a run.
    hold = session.hold if session.hold is not None and session.hold.kind in ("snoozed", "budget", "asking") else None
    return replace(
        session,
        activations=event.position,
        note=event.note,
        hold=hold,
        wake=_forgive(session.wake),
        self_fed={},
        is_fresh_wanted=session.is_fresh_wanted or event.fresh,
        trace_wanted=event.trace or session.trace_wanted,
        last_active_at=at,
    )


@_apply.register
def _(event: ev.MessageAdded, session: Session, at: int, author: str, seq: int) -> Session:
    session = replace(
        session, mailbox=event.position, conversation=session.conversation.add(event.text), last_active_at=at
    )
    if event.untrusted_by is not None:
        session = replace(session, untrusted_by=event.untrusted_by)
    if not event.wake:
        return session
    return replace(
        session, mailbox_waking=event.position, mailbox_chain=event.chain, unread=_add_unread(session, event, seq)
    )


def _add_unread(session: Session, event: ev.MessageAdded, seq: int) -> tuple[Unread, ...]:
    seen = int(session.seen.get("message", "0"))
    unread = session.list_unread()
    if not unread and event.agent is None and event.asker is None:
        return ()
    if not unread and session.mailbox_waking > seen:
        # Those before it are for whoever works here.
        unread = (Unread(session.mailbox_waking),)
    return (*unread, Unread(event.position, event.agent, event.asker, event.activation, event.is_fresh, seq))


@_apply.register
def _(event: ev.MessageSent, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, last_active_at=at)


@_apply.register
def _(event: ev.NoteAdded, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, handoff=event.text, conversation=session.conversation.add(event.text), last_active_at=at)


@_apply.register
def _(event: ev.FactSet, session: Session, at: int, author: str, seq: int) -> Session:
    fact = Fact(
        key=event.key,
        value=event.value,
        author=author,
        seq=seq,
        rationale=event.rationale,
        confidence=event.confidence,
        source=event.source,
    )
    return replace(session, facts={**session.facts, event.key: fact}, last_active_at=at)


@_apply.register
def _(event: ev.FactRetracted, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, facts={key: fact for key, fact in session.facts.items() if key != event.key})


@_apply.register
def _(event: ev.MemorySet, session: Session, at: int, author: str, seq: int) -> Session:
    memory = {key: value for key, value in session.memory.items() if key != event.key}
    if event.value is not None:
        memory[event.key] = event.value
    return replace(session, memory=memory, last_active_at=at)


@_apply.register
def _(event: ev.TodoSet, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, todo=event.items, last_active_at=at)


@_apply.register
def _(event: ev.WakeRequested, session: Session, at: int, author: str, seq: int) -> Session:
    wake = OpenWake(wake=event.wake, requested_at=at, causes=event.causes, chain=event.chain, seq=seq)
    return replace(session, wake=wake, wakes=event.wake)


@_apply.register
def _(event: ev.WakeExtended, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.wake is not None
    return replace(session, wake=replace(session.wake, causes=event.causes, chain=event.chain))


@_apply.register
def _(event: ev.WakeWithdrawn, session: Session, at: int, author: str, seq: int) -> Session:
    # Nothing is left to be asked about.
    hold = session.hold if session.hold is not None and session.hold.kind != "asking" else None
    if not event.versions:
        return replace(session, wake=None, hold=hold, question=None)
    return replace(
        session,
        wake=None,
        question=None,
        seen=_advance(session.seen, event.versions),
        touched=tuple(key for key in session.touched if key not in event.versions),
        is_first_taken=True,
        trace_wanted=None,
        is_suspect=session.is_suspect and not event.is_cancelled,
        hold=None if event.is_cancelled and hold is not None and hold.kind != "snoozed" else hold,
    )


@_apply.register
def _(event: ev.RunStarted, session: Session, at: int, author: str, seq: int) -> Session:
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
    session = enter_talk(session, event, seq)
    session = _begin_anew(session) if event.is_fresh and event.asker is None else session
    assert session.wake is not None and session.spec is not None
    return replace(
        session,
        run=run,
        trace_wanted=None,
        question=None,
        conversation=replace(session.conversation, late=0, late_bytes=0),
        runs=event.run,
        spent=charge(session.spent, session.spec.budget, at, event.periods, runs=1)
        if session.spec.budget is not None
        else {},
        starts=(*session.starts, at)[-STARTS_REMEMBERED:] if is_counted else session.starts,
        paced=event.paced if is_counted else session.paced,
        last_active_at=at,
        wake=replace(session.wake, attempt=event.attempt, tried=event.versions, retry_at=None),
    )


def _find_run_spec(spec: SessionSpec, event: ev.RunStarted) -> SessionSpec:
    """The spec that a run works by. A session without `run` is asked for nothing but an answer."""
    if spec.run is None:
        return replace(spec, run=PromptRun(prompt=""))
    return observe_spec(spec) if event.trace == "observed" else spec


def _begin_anew(session: Session) -> Session:
    """Memory goes, and the conversation begins with what no run has dealt with yet; facts and hand-off stay.

    What came during a run is news to the next, as its version is (rule 14);
    so is what a run that is tried again had seen.
    """
    came = session.conversation
    if session.dealt_from:
        stretches = cut_line(session.line, session.id, session.dealt_from + 1)
        came = replace(came, stretches=stretches, summary=None, messages=came.recent, size_bytes=came.recent_bytes)
    return replace(session, memory={}, conversation=came, is_fresh_wanted=False, size_tokens=0)


@_apply.register
def _(event: ev.RunStopRequested, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, stop=Stop(event.why, author, event.reason)))


@_apply.register
def _(event: ev.RunReadopted, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, incarnation=event.incarnation, daemons=session.run.daemons + 1))


@_apply.register
def _(event: ev.OutputsStaged, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, staged=event))


@_apply.register
def _(event: ev.OutputsLanded, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.run is not None
    return replace(session, run=replace(session.run, landed=event))


@_apply.register
def _(
    event: ev.PromptAssembled
    | ev.TurnRequested
    | ev.TurnAnswered
    | ev.TurnMetered
    | ev.TurnFailed
    | ev.ToolCalled
    | ev.ToolReturned
    | ev.QuestionAsked
    | ev.WorkHalted
    | ev.SubagentHalted,
    session: Session,
    at: int,
    author: str,
    seq: int,
) -> Session:
    return fold_turn(session, event, at)


@_apply.register
def _(event: ev.RunFinished, session: Session, at: int, author: str, seq: int) -> Session:
    run = session.run
    assert run is not None
    ended = _end_run(session, run, event, at, seq)
    # An answer neither mends what a run before it left half done, nor leaves it so before its last try.
    is_kept = run.is_aside and (not event.is_final or event.outcome in ("succeeded", "cancelled"))
    return replace(ended, is_suspect=session.is_suspect) if is_kept else ended


def _end_run(session: Session, run: OpenRun, event: ev.RunFinished, at: int, seq: int) -> Session:
    session = settle_run(session, run, at, event.periods)
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
    session = replace(session, run=None, last_run=last, last_active_at=at, spent=_charge_run(session, run, event, at))
    if not event.is_final:
        return replace(session, is_suspect=True, wake=_keep_open(session, event))
    before = session.dealt_from
    session = replace(session, conversation=session.conversation.keep_late(), dealt_from=run.seq, dealt_until=seq)
    if session.asker is not None:
        # Messages before an answer in a person's own conversation are still news to the session's work.
        session = replace(session, dealt_from=before)
    return _move_marks(session, run, event)


def _charge_run(session: Session, run: OpenRun, event: ev.RunFinished, at: int) -> dict[str, Spent]:
    if run.spec.budget is None:
        return session.spent
    # What an agent's turns took was charged when each was answered.
    known = ("runs",) if run.agent is None else ("runs", "tokens", "usd")
    used = {name: amount for name in UNITS if name not in known and (amount := getattr(event.usage, name))}
    return charge(session.spent, run.spec.budget, at, event.periods, **used)


def _keep_open(session: Session, event: ev.RunFinished) -> OpenWake | None:
    """Retry, replaced, lost: neither mark moves, the wake stays (rules 15, 22)."""
    wake = session.wake
    if wake is None or not session.is_declared:
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


def _move_marks(session: Session, run: OpenRun, event: ev.RunFinished) -> Session:
    """The end for good: seen moves to what the run saw, good only with success (rules 15-17)."""
    succeeded = event.outcome == "succeeded"
    left = {
        binding.identity: event.written[binding.name] for binding in run.spec.files if binding.name in event.written
    }
    versions = {**run.versions, **left}
    seen = _advance(session.seen, versions)
    for key in event.touched:
        seen.pop(key, None)
    return replace(
        session,
        seen=seen,
        good=_advance(session.good, versions) if succeeded else session.good,
        touched=event.touched,
        self_fed=_count_self_fed(session, run, event),
        conflicted=event.conflicts,
        successes=session.successes + succeeded,
        is_first_taken=session.is_first_taken or not run.is_aside,
        is_suspect=event.outcome not in ("succeeded", "cancelled"),
        wake=None,
    )


def _count_self_fed(session: Session, run: OpenRun, event: ev.RunFinished) -> dict[str, SelfFed]:
    """A row of runs goes on where the input stood still between the last run's end and this one's start (rule 34 b)."""
    # An answer aside deals with none of the inputs.
    if run.is_aside:
        return session.self_fed
    known = {key: before.runs for key, before in session.self_fed.items() if run.versions.get(key) == before.left}
    return {key: SelfFed(known.get(key, 0) + 1, left) for key, left in event.self_fed.items()}


@_apply.register
def _(event: ev.SlotSkipped, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, seen={**session.seen, event.key: max(event.slot, session.seen.get(event.key, ""))})


@_apply.register
def _(event: ev.ClockRebased, session: Session, at: int, author: str, seq: int) -> Session:
    run = session.run
    if run is not None and event.key in run.versions:
        # It counts as seen when the run ends, and must not be ahead of the clock then.
        run = replace(run, versions={**run.versions, event.key: event.run_slot or event.new})
    return replace(
        session, run=run, seen={**session.seen, event.key: event.new}, good={**session.good, event.key: event.new}
    )


@_apply.register
def _(event: ev.SessionSuspended, session: Session, at: int, author: str, seq: int) -> Session:
    return session


@_apply.register
def _(event: ev.SessionSlept, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, hold=event.hold)


@_apply.register
def _(event: ev.SessionResumed, session: Session, at: int, author: str, seq: int) -> Session:
    if not event.is_forgiven:
        return replace(session, hold=None)
    return replace(session, hold=None, wake=_forgive(session.wake), starts=(), paced=0, self_fed={})


@_apply.register
def _(event: ev.SessionBraked, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, brake=event.words)


@_apply.register
def _(event: ev.SessionReleased, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, brake=None)


@_apply.register
def _(event: ev.QuestionAnswered, session: Session, at: int, author: str, seq: int) -> Session:
    if session.question is not None:
        return replace(session, hold=None, question=None, last_active_at=at)
    return replace(session, hold=None, approved=event.wake, untrusted_by=None, last_active_at=at)


@_apply.register
def _(event: ev.SessionTerminated, session: Session, at: int, author: str, seq: int) -> Session:
    # What was asked of it is closed with it: opened again, it does not run by itself for an old activation.
    seen = {**session.seen, ACTIVATION: str(session.activations)} if session.activations else session.seen
    return replace(session, is_terminated=True, wake=None, hold=None, brake=None, question=None, seen=seen)


@_apply.register
def _(event: ev.SessionReopened, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, is_terminated=False)


# -- calls on history -------------------------------------------------------------------------


def _recall(session: Session, past: Recollection, seq: int) -> Session:
    """Go on from what a position of the past knew; the record that says so begins the new stretch of the line."""
    here = Stretch(session.id, seq)
    return replace(
        session,
        facts=past.facts,
        memory=past.memory,
        todo=past.todo,
        handoff=past.handoff,
        conversation=replace(past.conversation, stretches=(*past.conversation.stretches, here)),
        # Ordered kinds never go back (rules 16, 44).
        good={**_only(session.good, is_ordered=True), **_only(past.good, is_ordered=False)},
        conflicts=past.conflicts,
        merges=past.merges,
        asker=past.asker,
        talks=past.talks,
        line=(*past.line, here),
    )


def _only(marks: dict[str, str], *, is_ordered: bool) -> dict[str, str]:
    return {key: mark for key, mark in marks.items() if key.startswith(ORDERED_KEYS) == is_ordered}


@_apply.register
def _(event: ev.CheckpointMarked, session: Session, at: int, author: str, seq: int) -> Session:
    checkpoint = Checkpoint(seq=event.position, at=at, author=author, note=event.note)
    return replace(session, checkpoints={**session.checkpoints, event.mark: checkpoint})


@_apply.register
def _(event: ev.SessionRewound, session: Session, at: int, author: str, seq: int) -> Session:
    seen = {**session.seen, **event.versions}
    past = replace(event.recollection, conversation=_find_news(session, event))
    return replace(_recall(session, past, seq), seen=seen, touched=(), last_active_at=at)


def _find_news(session: Session, event: ev.SessionRewound) -> Conversation:
    """What of the past's conversation no run has dealt with, now that later runs have."""
    past = event.recollection.conversation
    if event.to < session.dealt_from:
        return replace(past, recent=0, recent_bytes=0)
    # While that run was under way it had dealt with nothing yet.
    return past.keep_late() if event.to < session.dealt_until else past


@_apply.register
def _(event: ev.OutputsAdopted, session: Session, at: int, author: str, seq: int) -> Session:
    # As what a run left: it is no news to the session, and what others make of it later is drift.
    return replace(session, seen={**session.seen, **event.versions}, good={**session.good, **event.versions})


@_apply.register
def _(event: ev.SessionForked, session: Session, at: int, author: str, seq: int) -> Session:
    return session


@_apply.register
def _(event: ev.SessionMerged, session: Session, at: int, author: str, seq: int) -> Session:
    facts = {key: fact for key, fact in session.facts.items() if key not in event.retracted}
    # Set here by this record; who said so in the fork stays with it.
    facts |= {fact.key: replace(fact, seq=seq) for fact in event.taken}
    return replace(
        session,
        facts=facts,
        conflicts=(*session.conflicts, *event.conflicts),
        conflicts_opened=max((session.conflicts_opened, *(conflict.number for conflict in event.conflicts))),
        handoff="\n\n".join(part for part in (session.handoff, event.summary) if part) or None,
        conversation=session.conversation.add(event.summary) if event.summary else session.conversation,
        merges={**session.merges, event.fork: event.fork_seq},
        todo=session.todo if event.todo is None else event.todo,
        last_active_at=at,
    )


@_apply.register
def _(event: ev.ConflictResolved, session: Session, at: int, author: str, seq: int) -> Session:
    facts = {key: fact for key, fact in session.facts.items() if key != event.key}
    if event.value is not None:
        facts[event.key] = Fact(key=event.key, value=event.value, author=author, seq=seq, rationale=event.rationale)
    return replace(session, facts=facts, conflicts=drop_conflict(session.conflicts, event.number), last_active_at=at)


@_apply.register
def _(event: ev.ConversationCompressed, session: Session, at: int, author: str, seq: int) -> Session:
    conversation = replace(
        session.conversation,
        stretches=event.kept,
        summary=event.summary,
        messages=event.kept_messages,
        size_bytes=event.kept_bytes,
    )
    # How much the model takes in now is known with its next answer.
    return replace(session, conversation=conversation, size_tokens=0)


@_apply.register
def _(event: ev.SessionMigrated, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, agent=event.agent, model=event.model)


@_apply.register
def _(event: ev.SessionFrozen, session: Session, at: int, author: str, seq: int) -> Session:
    # Why it slept before is not forgotten: given up, the move leaves it as it was.
    return replace(session, move=event.move, moving_to=event.to)


@_apply.register
def _(event: ev.SessionThawed, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, move=None, moving_to=None)


@_apply.register
def _(event: ev.SessionDeparted, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, has_departed=True)


@_apply.register
def _(event: ev.SessionArrived, session: Session, at: int, author: str, seq: int) -> Session:
    hold = ev.Hold(kind="apart", words=f"came from {event.origin}; activate it to let it go on")
    session = replace(
        session,
        move=None,
        moving_to=None,
        has_departed=False,
        hold=hold,
        last_active_at=at,
        home=event.store,
        arrived_by=event.move,
    )
    if event.is_foreign:
        # Nobody here has read the text that its file had there.
        session = replace(session, foreign_until=seq, text_digest="")
    # The file that declared it lies elsewhere.
    return session if event.needs_trust is None else replace(session, needs_trust=event.needs_trust, is_filed=False)


@_apply.register
def _(event: ev.SessionArchived, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(msgspec.convert(event.state, Session), archive=event.bundle)


@_apply.register
def _(event: ev.SessionRestored, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, archive=None)


@_apply.register
def _(event: ev.PayloadErased, session: Session, at: int, author: str, seq: int) -> Session:
    # Whoever replays folds the stand-in at its place; the state in memory is folded anew when the payload went.
    return session


def _forgive(wake: OpenWake | None) -> OpenWake | None:
    """A person or a new spec said go on: the loop's chain, the back-off and the crash count start anew."""
    if wake is None:
        return None
    return replace(wake, chain=(), lost=0, retry_at=None, attempt=0, failures=0)


# Positions that only move forward (rule 4); a binding's identity begins with its kind (rule 8).
ORDERED_KEYS = ("cron ", "every ", "session ", "message", ACTIVATION)


def is_ahead(position: str, than: str | None) -> bool:
    """Order of positions: counters as numbers, clock slots as text whose order is that of time."""
    if than is None:
        return True
    if position.isdigit() and than.isdigit():
        return int(position) > int(than)
    return position > than


def _advance(marks: dict[str, str], versions: dict[str, str]) -> dict[str, str]:
    """Level marks are set; ordered marks never go back (rule 16)."""
    moved = dict(marks)
    for key, version in versions.items():
        if not key.startswith(ORDERED_KEYS) or is_ahead(version, moved.get(key)):
            moved[key] = version
    return moved
