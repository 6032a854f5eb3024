"""How the calls on history change a session: checkpoints, rewinds, forks, merges, moves and archives.

A part of the reducer in `fold.py`, which trusts the log. Every function takes an event and the session before it, and
returns the session after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from wakeful.core.record import events as ev
from wakeful.core.record.flat_state import group_fields
from wakeful.core.record.knowledge import Checkpoint, Conversation, Fact, Recollection, RecordRange, drop_conflict
from wakeful.core.record.state import Archived, Closed, Departed, Move, Moving, Session, Terminated, keep_kind

# The event, the session before it, the moment, the author and the seq of the record.
Fold = Callable[[Any, Session, int, str, int], Session]


def recall_past(session: Session, past: Recollection, seq: int) -> Session:
    """Continue from the knowledge of a past position. Record `seq`, the rewind or fork, begins a new stretch."""
    here = RecordRange(session.id, seq)
    return replace(
        session,
        knowledge=replace(
            session.knowledge,
            facts=past.facts,
            memory=past.memory,
            todo=past.todo,
            handoff=past.handoff,
            conversation=replace(past.conversation, stretches=(*past.conversation.stretches, here)),
            asker=past.asker,
            talks=past.talks,
        ),
        # Ordered kinds never go back (rules 16, 44).
        marks=replace(
            session.marks,
            good={**keep_kind(session.marks.good, is_ordered=True), **keep_kind(past.good, is_ordered=False)},
        ),
        lineage=replace(session.lineage, conflicts=past.conflicts, merges=past.merges, line=(*past.line, here)),
    )


def _fold_checkpoint_marked(event: ev.CheckpointMarked, session: Session, at: int, author: str, seq: int) -> Session:
    checkpoint = Checkpoint(seq=event.position, at=at, author=author, note=event.note)
    return replace(
        session, lineage=replace(session.lineage, checkpoints={**session.lineage.checkpoints, event.mark: checkpoint})
    )


def _fold_session_rewound(event: ev.SessionRewound, session: Session, at: int, author: str, seq: int) -> Session:
    past = replace(event.recollection, conversation=_find_news(session, event))
    recalled = recall_past(session, past, seq)
    seen = {**session.marks.seen, **event.versions}
    return replace(recalled, marks=replace(recalled.marks, seen=seen, touched=()), last_active_at=at)


def _find_news(session: Session, event: ev.SessionRewound) -> Conversation:
    """Return the conversation of the past position. Only messages that no later run has handled count as recent."""
    past = event.recollection.conversation
    if event.to < session.knowledge.dealt_from:
        return replace(past, recent=0, recent_bytes=0)
    # The position lies inside the last run, which had handled nothing yet.
    return past.keep_late() if event.to < session.knowledge.dealt_until else past


def _fold_outputs_adopted(event: ev.OutputsAdopted, session: Session, at: int, author: str, seq: int) -> Session:
    # Adopted outputs count as written by a run: they do not wake the session, and later changes by others are drift.
    return replace(
        session,
        marks=replace(
            session.marks, seen={**session.marks.seen, **event.versions}, good={**session.marks.good, **event.versions}
        ),
    )


def _fold_session_forked(event: ev.SessionForked, session: Session, at: int, author: str, seq: int) -> Session:
    return session


def _fold_session_merged(event: ev.SessionMerged, session: Session, at: int, author: str, seq: int) -> Session:
    facts = {key: fact for key, fact in session.knowledge.facts.items() if key not in event.retracted}
    # A taken fact gets the seq of this record, and keeps the author who set it in the fork.
    facts |= {fact.key: replace(fact, seq=seq) for fact in event.taken}
    return replace(
        session,
        knowledge=replace(
            session.knowledge,
            facts=facts,
            handoff="\n\n".join(part for part in (session.knowledge.handoff, event.summary) if part) or None,
            conversation=session.knowledge.conversation.add(event.summary)
            if event.summary
            else session.knowledge.conversation,
            todo=session.knowledge.todo if event.todo is None else event.todo,
        ),
        lineage=replace(
            session.lineage,
            conflicts=(*session.lineage.conflicts, *event.conflicts),
            conflicts_opened=max(
                (session.lineage.conflicts_opened, *(conflict.number for conflict in event.conflicts))
            ),
            merges={**session.lineage.merges, event.fork: event.fork_seq},
        ),
        last_active_at=at,
    )


def _fold_conflict_resolved(event: ev.ConflictResolved, session: Session, at: int, author: str, seq: int) -> Session:
    facts = {key: fact for key, fact in session.knowledge.facts.items() if key != event.key}
    if event.value is not None:
        facts[event.key] = Fact(key=event.key, value=event.value, author=author, seq=seq, rationale=event.rationale)
    return replace(
        session,
        knowledge=replace(session.knowledge, facts=facts),
        lineage=replace(session.lineage, conflicts=drop_conflict(session.lineage.conflicts, event.number)),
        last_active_at=at,
    )


def _fold_conversation_compressed(
    event: ev.ConversationCompressed, session: Session, at: int, author: str, seq: int
) -> Session:
    conversation = replace(
        session.knowledge.conversation,
        stretches=event.kept,
        summary=event.summary,
        messages=event.kept_messages,
        size_bytes=event.kept_bytes,
    )
    # The next answer of the model reports the new size.
    return replace(session, knowledge=replace(session.knowledge, conversation=conversation, size_tokens=0))


def _fold_session_migrated(event: ev.SessionMigrated, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, declaration=replace(session.declaration, agent=event.agent, model=event.model))


def _fold_session_frozen(event: ev.SessionFrozen, session: Session, at: int, author: str, seq: int) -> Session:
    # The hold stays: if the move is given up, the session sleeps for the same reason as before.
    before = Terminated() if session.is_terminated else None
    return replace(session, closed=Moving(event.move, event.to, before))


def _fold_session_thawed(event: ev.SessionThawed, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, closed=session.closed.before if isinstance(session.closed, Moving) else session.closed)


def _fold_session_departed(event: ev.SessionDeparted, session: Session, at: int, author: str, seq: int) -> Session:
    move, to = (session.closed.move, session.closed.to) if isinstance(session.closed, Moving) else (None, None)
    return replace(session, closed=Departed(move, to, Terminated() if session.is_terminated else None))


def _fold_session_arrived(event: ev.SessionArrived, session: Session, at: int, author: str, seq: int) -> Session:
    hold = ev.Hold(kind="apart", words=f"came from {event.origin}; activate it to let it go on")
    session = replace(
        session,
        closed=session.closed.before if isinstance(session.closed, Moving | Departed) else session.closed,
        move=Move(home=event.store, arrived_by=event.move),
        hold=hold,
        last_active_at=at,
    )
    if event.is_foreign:
        # The text of the file on the other host was never read here.
        session = replace(session, declaration=replace(session.declaration, foreign_until=seq, text_digest=""))
    # The file that declared the session is on another host.
    return (
        session
        if event.needs_trust is None
        else replace(session, declaration=replace(session.declaration, needs_trust=event.needs_trust, is_filed=False))
    )


def _fold_session_archived(event: ev.SessionArchived, session: Session, at: int, author: str, seq: int) -> Session:
    archived = group_fields(event.state)
    return replace(archived, closed=Archived(event.bundle, _end_archive(archived.closed)))


def _fold_session_restored(event: ev.SessionRestored, session: Session, at: int, author: str, seq: int) -> Session:
    return replace(session, closed=_end_archive(session.closed))


def _end_archive(closed: Closed | None) -> Moving | Departed | Terminated | None:
    return closed.before if isinstance(closed, Archived) else closed


def _fold_payload_erased(event: ev.PayloadErased, session: Session, at: int, author: str, seq: int) -> Session:
    # A replay folds the stand-in instead of the payload. The daemon folds the session again after an erasure.
    return session


HISTORY_FOLDS: dict[type[ev.Event], Fold] = {
    ev.CheckpointMarked: _fold_checkpoint_marked,
    ev.SessionRewound: _fold_session_rewound,
    ev.OutputsAdopted: _fold_outputs_adopted,
    ev.SessionForked: _fold_session_forked,
    ev.SessionMerged: _fold_session_merged,
    ev.ConflictResolved: _fold_conflict_resolved,
    ev.ConversationCompressed: _fold_conversation_compressed,
    ev.SessionMigrated: _fold_session_migrated,
    ev.SessionFrozen: _fold_session_frozen,
    ev.SessionThawed: _fold_session_thawed,
    ev.SessionDeparted: _fold_session_departed,
    ev.SessionArrived: _fold_session_arrived,
    ev.SessionArchived: _fold_session_archived,
    ev.SessionRestored: _fold_session_restored,
    ev.PayloadErased: _fold_payload_erased,
}
