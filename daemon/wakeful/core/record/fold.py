"""fold(session, event) -> session: the only function that makes state.

The daemon and a replay run the same code, so a snapshot may be taken at any record. The reducer
trusts the log: it never refuses an event, never looks at the outside world and never decides.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.record import events as ev
from wakeful.core.record.fold_history import HISTORY_FOLDS, Fold, recall_past
from wakeful.core.record.fold_runs import RUN_FOLDS
from wakeful.core.record.knowledge import Fact
from wakeful.core.record.state import (
    ACTIVATION,
    OpenWake,
    Session,
    Terminated,
    Unread,
    advance_marks,
)
from wakeful.core.record.webhook_deliveries import add_delivery


def fold(session: Session | None, event: ev.Event, *, seq: int, at: int, author: str) -> Session:
    if isinstance(event, ev.SessionOpened):
        return _open(event, at, seq)
    assert session is not None, "the first record of a session is session_opened"
    return replace(FOLDS[type(event)](event, session, at, author, seq), seq=seq)


def _open(event: ev.SessionOpened, at: int, seq: int) -> Session:
    session = Session(id=event.id, name=event.name, opened_at=at, last_active_at=at, seq=seq)
    if event.recollection is None:
        return session
    session = replace(
        session,
        lineage=replace(session.lineage, origin=event.origin, detached=event.detached, workspace=event.workspace),
        marks=replace(session.marks, seen=event.seen, is_first_taken=event.is_first_taken),
        declaration=replace(session.declaration, is_filed=False, needs_trust=event.needs_trust),
    )
    return recall_past(session, event.recollection, seq)


def _fold_session_renamed(event: ev.SessionRenamed, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, name=event.new)


def _fold_spec_declared(event: ev.SpecDeclared, session: Session, at: int, author: str, seq: int) -> Session:
    marks, declaration, lineage = session.marks, session.declaration, session.lineage
    return replace(
        session,
        spec=event.spec,
        declaration=replace(
            declaration,
            is_declared=True,
            version=event.version,
            text_digest=event.text_digest,
            is_filed=event.is_filed,
            # A spec from a file on this host replaces the bundle's spec, and with it the need for trust.
            needs_trust=None if event.is_filed else declaration.needs_trust,
        ),
        marks=replace(
            marks, seen={**marks.seen, **event.positions}, good={**marks.good, **event.positions}, self_fed={}
        ),
        lineage=replace(lineage, detached=()) if event.is_filed and lineage.detached else lineage,
        # A new spec ends all holds (rules 21, 34), except those that a person set (`snoozed`) or must end (`apart`).
        hold=session.hold if session.hold is not None and session.hold.kind in ("snoozed", "apart") else None,
        wake=_forgive(session.wake),
    )


def _fold_spec_removed(event: ev.SpecRemoved, session: Session, at: int, author: str, seq: int) -> Session:
    # A run under way ends under its spec. The wake, its back-off and the edges are removed (rule 26). No owed change
    # is lost: seen did not move, so if the same file is declared again, the change is owed again.
    return replace(
        session, declaration=replace(session.declaration, is_declared=False), wake=session.wake if session.run else None
    )


def _fold_spec_trusted(event: ev.SpecTrusted, session: Session, at: int, author: str, seq: int) -> Session:
    # For a spec in a file the event is only a record. Trust in files is kept outside of the log, because a bundle could
    # bring a log from anywhere. For the spec of a bundle, `needs_trust` was set by a record that this host made after
    # the records of the bundle.
    return replace(session, declaration=replace(session.declaration, needs_trust=None))


def _fold_session_adopted(event: ev.SessionAdopted, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        marks=replace(
            session.marks,
            seen={**session.marks.seen, **event.versions},
            good={**session.marks.good, **event.versions},
            is_first_taken=True,
        ),
    )


def _fold_activation_requested(
    event: ev.ActivationRequested, session: Session, at: int, author: str, seq: int
) -> Session:
    # An activation lifts neither a spent budget nor an open question. A snooze stays too, but does not hold this
    # activation.
    hold = session.hold if session.hold is not None and session.hold.kind in ("snoozed", "budget", "asking") else None
    return replace(
        session,
        activation=replace(
            session.activation,
            position=event.position,
            note=event.note,
            is_fresh=session.activation.is_fresh or event.fresh,
            trace=event.trace or session.activation.trace,
        ),
        hold=hold,
        wake=_forgive(session.wake),
        marks=replace(session.marks, self_fed={}),
        last_active_at=at,
    )


def _fold_message_added(event: ev.MessageAdded, session: Session, at: int, author: str, seq: int) -> Session:
    session = replace(
        session,
        mailbox=replace(session.mailbox, position=event.position),
        knowledge=replace(session.knowledge, conversation=session.knowledge.conversation.add(event.text)),
        last_active_at=at,
    )
    if event.untrusted_by is not None:
        session = replace(session, mailbox=replace(session.mailbox, untrusted_by=event.untrusted_by))
    if not event.wake:
        return session
    return replace(
        session,
        mailbox=replace(
            session.mailbox, waking=event.position, chain=event.chain, unread=_add_unread(session, event, seq)
        ),
    )


def _add_unread(session: Session, event: ev.MessageAdded, seq: int) -> tuple[Unread, ...]:
    seen = int(session.marks.seen.get("message", "0"))
    unread = session.list_unread()
    if not unread and event.agent is None and event.asker is None:
        return ()
    if not unread and session.mailbox.waking > seen:
        # Earlier messages are not addressed to an agent by name.
        unread = (Unread(session.mailbox.waking),)
    return (*unread, Unread(event.position, event.agent, event.asker, event.activation, event.is_fresh, seq))


def _fold_message_sent(event: ev.MessageSent, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, last_active_at=at)


def _fold_delivery_received(event: ev.DeliveryReceived, session: Session, at: int, author: str, seq: int) -> Session:
    seen = int(session.marks.seen.get(event.key, "0"))
    after = add_delivery(session.find_webhook(event.key), event, seen=seen, at=at, seq=seq)
    return replace(session, webhooks={**session.webhooks, event.key: after}, last_active_at=at)


def _fold_note_added(event: ev.NoteAdded, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        knowledge=replace(
            session.knowledge, handoff=event.text, conversation=session.knowledge.conversation.add(event.text)
        ),
        last_active_at=at,
    )


def _fold_fact_set(event: ev.FactSet, session: Session, at: int, author: str, seq: int) -> Session:
    fact = Fact(
        key=event.key,
        value=event.value,
        author=author,
        seq=seq,
        rationale=event.rationale,
        confidence=event.confidence,
        source=event.source,
    )
    return replace(
        session,
        knowledge=replace(session.knowledge, facts={**session.knowledge.facts, event.key: fact}),
        last_active_at=at,
    )


def _fold_fact_retracted(event: ev.FactRetracted, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        knowledge=replace(
            session.knowledge, facts={key: fact for key, fact in session.knowledge.facts.items() if key != event.key}
        ),
    )


def _fold_memory_set(event: ev.MemorySet, session: Session, at: int, author: str, seq: int) -> Session:
    memory = {key: value for key, value in session.knowledge.memory.items() if key != event.key}
    if event.value is not None:
        memory[event.key] = event.value
    return replace(session, knowledge=replace(session.knowledge, memory=memory), last_active_at=at)


def _fold_todo_set(event: ev.TodoSet, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, knowledge=replace(session.knowledge, todo=event.items), last_active_at=at)


def _fold_wake_requested(event: ev.WakeRequested, session: Session, at: int, author: str, seq: int) -> Session:
    wake = OpenWake(wake=event.wake, requested_at=at, causes=event.causes, chain=event.chain, seq=seq)
    return replace(session, wake=wake, tally=replace(session.tally, wakes=event.wake))


def _fold_wake_extended(event: ev.WakeExtended, session: Session, at: int, author: str, seq: int) -> Session:
    assert session.wake is not None
    return replace(session, wake=replace(session.wake, causes=event.causes, chain=event.chain))


def _fold_wake_withdrawn(event: ev.WakeWithdrawn, session: Session, at: int, author: str, seq: int) -> Session:
    # A question about a wake ends with the wake.
    hold = session.hold if session.hold is not None and session.hold.kind != "asking" else None
    if not event.versions:
        return replace(session, wake=None, hold=hold, question=None)
    return replace(
        session,
        wake=None,
        question=None,
        marks=replace(
            session.marks,
            seen=advance_marks(session.marks.seen, event.versions),
            touched=tuple(key for key in session.marks.touched if key not in event.versions),
            is_first_taken=True,
            is_suspect=session.marks.is_suspect and not event.is_cancelled,
        ),
        activation=replace(session.activation, trace=None),
        hold=None if event.is_cancelled and hold is not None and hold.kind != "snoozed" else hold,
    )


def _fold_slot_skipped(event: ev.SlotSkipped, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(
        session,
        marks=replace(
            session.marks,
            seen={**session.marks.seen, event.key: max(event.slot, session.marks.seen.get(event.key, ""))},
        ),
    )


def _fold_clock_rebased(event: ev.ClockRebased, session: Session, at: int, author: str, seq: int) -> Session:
    run = session.run
    if run is not None and event.key in run.versions:
        # The slot of the run becomes seen when the run ends, and must not be ahead of the clock then.
        run = replace(run, versions={**run.versions, event.key: event.run_slot or event.new})
    return replace(
        session,
        run=run,
        marks=replace(
            session.marks,
            seen={**session.marks.seen, event.key: event.new},
            good={**session.marks.good, event.key: event.new},
        ),
    )


def _fold_session_suspended(event: ev.SessionSuspended, session: Session, at: int, author: str, seq: int) -> Session:
    return session


def _fold_session_slept(event: ev.SessionSlept, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, hold=event.hold)


def _fold_session_resumed(event: ev.SessionResumed, session: Session, at: int, author: str, seq: int) -> Session:
    if not event.is_forgiven:
        return replace(session, hold=None)
    return replace(
        session,
        hold=None,
        wake=_forgive(session.wake),
        tally=replace(session.tally, starts=(), paced=0),
        marks=replace(session.marks, self_fed={}),
    )


def _fold_session_braked(event: ev.SessionBraked, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, brake=event.words)


def _fold_session_released(event: ev.SessionReleased, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, brake=None)


def _fold_question_answered(event: ev.QuestionAnswered, session: Session, at: int, author: str, seq: int) -> Session:
    if session.question is not None:
        return replace(session, hold=None, question=None, last_active_at=at)
    return replace(
        session, hold=None, approved=event.wake, mailbox=replace(session.mailbox, untrusted_by=None), last_active_at=at
    )


def _fold_session_terminated(event: ev.SessionTerminated, session: Session, at: int, author: str, seq: int) -> Session:
    # Termination uses up open activations: a reopened session does not run for an old one.
    seen = (
        {**session.marks.seen, ACTIVATION: str(session.activation.position)}
        if session.activation.position
        else session.marks.seen
    )
    return replace(
        session,
        closed=Terminated(),
        wake=None,
        hold=None,
        brake=None,
        question=None,
        marks=replace(session.marks, seen=seen),
    )


def _fold_session_reopened(event: ev.SessionReopened, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, closed=None)


def _fold_notification(
    event: ev.NotificationDelivered | ev.NotificationAbandoned, session: Session, at: int, author: str, seq: int
) -> Session:
    # Only a record. The notifier keeps the list of messages that are still to be delivered (notifications/ledger.py).
    return session


def _forgive(wake: OpenWake | None) -> OpenWake | None:
    """Reset the chain, the back-off and the count of lost runs when a person or a new spec lets the session go on."""
    if wake is None:
        return None
    return replace(wake, chain=(), lost=0, retry_at=None, attempt=0, failures=0)


# The function for each kind of event. `session_opened` is missing here: `fold` itself handles it.
FOLDS: dict[type[ev.Event], Fold] = {
    ev.SessionRenamed: _fold_session_renamed,
    ev.SpecDeclared: _fold_spec_declared,
    ev.SpecRemoved: _fold_spec_removed,
    ev.SpecTrusted: _fold_spec_trusted,
    ev.SessionAdopted: _fold_session_adopted,
    ev.ActivationRequested: _fold_activation_requested,
    ev.MessageAdded: _fold_message_added,
    ev.MessageSent: _fold_message_sent,
    ev.DeliveryReceived: _fold_delivery_received,
    ev.NoteAdded: _fold_note_added,
    ev.FactSet: _fold_fact_set,
    ev.FactRetracted: _fold_fact_retracted,
    ev.MemorySet: _fold_memory_set,
    ev.TodoSet: _fold_todo_set,
    ev.WakeRequested: _fold_wake_requested,
    ev.WakeExtended: _fold_wake_extended,
    ev.WakeWithdrawn: _fold_wake_withdrawn,
    ev.SlotSkipped: _fold_slot_skipped,
    ev.ClockRebased: _fold_clock_rebased,
    ev.SessionSuspended: _fold_session_suspended,
    ev.SessionSlept: _fold_session_slept,
    ev.SessionResumed: _fold_session_resumed,
    ev.SessionBraked: _fold_session_braked,
    ev.SessionReleased: _fold_session_released,
    ev.QuestionAnswered: _fold_question_answered,
    ev.SessionTerminated: _fold_session_terminated,
    ev.SessionReopened: _fold_session_reopened,
    ev.NotificationDelivered: _fold_notification,
    ev.NotificationAbandoned: _fold_notification,
    **RUN_FOLDS,
    **HISTORY_FOLDS,
}
