"""The conversations of a session: its own, and one for each person who asks it something.

The session itself holds the present conversation. The others wait in `talks`, as their last runs left them. A run that
works in another conversation than the last run exchanges the two. Pure. Called by the reducer at the start of a run,
and by the functions that decide on a start.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.record.events import RunStarted
from wakeful.core.record.knowledge import Conversation, RecordRange, StoredConversation, close_line
from wakeful.core.record.state import Session

# The key of the session's own conversation in `talks`.
OWN = ""
# The most conversations of persons that are kept. The oldest is dropped, and its person begins a new one.
MOST_TALKS = 32


def find_interrupted_run(session: Session) -> int | None:
    """Return the number of the last run if it was interrupted or lost."""
    last = session.last_run
    return last.run if last is not None and last.outcome in ("interrupted", "lost") else None


def enter_talk(session: Session, event: RunStarted, seq: int) -> Session:
    """Return the session with the conversation that a run works in as the present one.

    `seq` is the record that starts the run.
    """
    if event.asker == session.knowledge.asker and not (event.asker is not None and event.is_fresh):
        return session
    if event.asker == session.knowledge.asker:
        return _open(session, StoredConversation(), event, seq)
    left = StoredConversation(
        conversation=replace(
            session.knowledge.conversation,
            stretches=close_line(session.knowledge.conversation.stretches, session.id, seq - 1),
        ),
        memory=session.knowledge.memory,
        size_tokens=session.knowledge.size_tokens,
        cut_run=find_interrupted_run(session),
    )
    talks = {**session.knowledge.talks, session.knowledge.asker or OWN: left}
    found = talks.pop(event.asker or OWN, StoredConversation())
    oldest = next((asker for asker in talks if asker != OWN), None)
    if len(talks) > MOST_TALKS and oldest is not None:
        del talks[oldest]
    is_anew = event.asker is not None and event.is_fresh
    return _open(
        replace(session, knowledge=replace(session.knowledge, asker=event.asker, talks=talks)),
        StoredConversation() if is_anew else found,
        event,
        seq,
    )


def _open(session: Session, talk: StoredConversation, event: RunStarted, seq: int) -> Session:
    """Enter a conversation with the questions of this run. Each question is a stretch of its own,
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
