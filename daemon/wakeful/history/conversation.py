"""The conversation of a session, read from the log along its line, and its compression.

Messages are those that people and sessions sent, the answers of agents, the hand-offs of runs, and the summaries of
merged forks. A `Summariser` makes a summary of old messages: without a model (`SummaryWithoutModel`), or from the text
of the session's agent (`GivenSummary`). Only reads the log. Blocking: the API calls it off the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from wakeful.core.agents.rule_summary import Message, digest_messages
from wakeful.core.calls.call_types import Compress
from wakeful.core.deciding.owed import find_new_messages
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import RecordRange, count_bytes, split_stretches
from wakeful.core.record.state import OpenRun, Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader, Record
from wakeful.text.display import count

MESSAGE_KINDS = ("message_added", "note_added", "session_merged", "turn_answered")
# The kinds of record that count towards the size of the conversation.
SAID_KINDS = (*MESSAGE_KINDS, "tool_returned")
# The kinds among these that belong to the conversation of their run.
RUN_KINDS = ("turn_answered", "tool_returned")


# The most messages that a run receives, the newest first. `history` has all of them.
MOST_RECEIVED = 100


class SummaryRequest(Struct, frozen=True, kw_only=True):
    """The input of a summary. The summary must contain the objective verbatim."""

    objective: str | None
    earlier: str | None
    messages: tuple[Message, ...]


class Summariser(Protocol):
    """Makes summaries. `name` is recorded with the summary as its author."""

    @property
    def name(self) -> str: ...

    def summarise(self, request: SummaryRequest) -> str: ...


class GivenSummary(Struct, frozen=True):
    """A summary that exists already. `name` is the model that made it."""

    name: str
    summary: str

    def summarise(self, request: SummaryRequest) -> str:
        return self.summary


class SummaryWithoutModel:
    name = "rule"

    def summarise(self, request: SummaryRequest) -> str:
        return digest_messages(request.messages, objective=request.objective, earlier=request.earlier)


def read_conversation(log: LogReader, session: Session) -> list[Message]:
    """Read the messages that the assembled context would have, oldest first."""
    return [message for record in _read_said(log, session, MESSAGE_KINDS) for message in _make_message(record)]


def read_messages(log: LogReader, stretch: RecordRange) -> Iterator[Message]:
    """Yield all messages of a stretch, also those of other people's separate conversations."""
    for record in log.read(stretch.session, from_seq=stretch.first, to_seq=stretch.last, kinds=MESSAGE_KINDS):
        yield from _make_message(record)


def _make_message(record: Record) -> Iterator[Message]:
    text = _read_text(record)
    if text:
        yield Message(session=record.session, seq=record.seq, at=record.at, author=record.author, text=text)


def _read_said(
    log: LogReader, session: Session, kinds: tuple[str, ...], stretches: Sequence[RecordRange] | None = None
) -> Iterator[Record]:
    """Yield the records of the present conversation.

    A stretch may also have questions of other people and the answers to them. These are left out.
    """
    for stretch in find_stretches(session) if stretches is None else stretches:
        others: set[int | None] = set()
        for record in log.read(
            stretch.session, from_seq=stretch.first, to_seq=stretch.last, kinds=(*kinds, "run_started")
        ):
            match (
                decode(record.kind, record.payload)
                if record.payload is not None and record.kind in ("run_started", "message_added")
                else None
            ):
                case ev.RunStarted(run=run, asker=asker):
                    if asker != session.knowledge.asker:
                        others.add(run)
                    continue
                case ev.MessageAdded(asker=str() as asker) if session.needs_own_conversation(asker):
                    continue
            if record.kind != "run_started" and (record.kind not in RUN_KINDS or record.run not in others):
                yield record


def _read_text(record: Record) -> str | None:
    # The payload was erased. The log still has the record, but not its text.
    if record.payload is None:
        return None
    match decode(record.kind, record.payload):
        case ev.MessageAdded(text=text) | ev.NoteAdded(text=text) | ev.SessionMerged(summary=text):
            return text
        case ev.TurnAnswered(answer=answer, purpose="work", sub=None):
            return answer.words
        case _:
            return None


def make_compress(log: LogReader, session: Session, keep: int, summariser: Summariser) -> Compress:
    """Make the call that replaces all messages except the newest by a summary.

    Raises CallerError if there are no older messages.
    """
    messages = read_conversation(log, session)
    old, kept = (messages[:-keep], messages[-keep:]) if keep else (messages, [])
    if not old:
        raise CallerError(
            f"{session.name} has {count(len(messages), 'message')} and keeps the newest {keep}; "
            "there is nothing to compress"
        )
    spec = session.spec
    request = SummaryRequest(
        objective=spec.objective if spec is not None else None,
        earlier=session.knowledge.conversation.summary,
        messages=tuple(old),
    )
    first = (kept[0].session, kept[0].seq) if kept else (session.id, session.seq + 1)
    replaced, left = split_stretches(find_stretches(session), *first)
    return Compress(
        name=session.name,
        at=session.seq,
        replaced=replaced,
        kept=left,
        summary=_ensure_objective(summariser.summarise(request), request.objective),
        messages=len(old),
        kept_messages=len(kept),
        kept_bytes=sum(map(_count_record, _read_said(log, session, SAID_KINDS, left))),
        by=summariser.name,
    )


def choose_kept(log: LogReader, session: Session, most_bytes: int) -> int:
    """Count the newest messages that fit into `most_bytes`, together with the tool results between them.

    If all messages fit, the answer is half of them, because the caller still has to make room. The openings of runs
    also take room, and this function does not count them.
    """
    kept, total, used = 0, 0, 0
    for record in reversed(list(_read_said(log, session, SAID_KINDS))):
        used += _count_record(record)
        is_message = bool(record.kind in MESSAGE_KINDS and _read_text(record))
        kept += is_message and used <= most_bytes
        total += is_message
    return kept if kept < total else total // 2


def find_stretches(session: Session) -> tuple[RecordRange, ...]:
    return session.knowledge.conversation.stretches or (RecordRange(session.id, 1),)


def _count_record(record: Record) -> int:
    """Count the bytes of a record in the conversation, in the same way as the fold does."""
    if record.payload is not None and record.kind == "tool_returned":
        returned = decode(record.kind, record.payload)
        return count_bytes(returned.text) if isinstance(returned, ev.ToolReturned) and returned.sub is None else 0
    return count_bytes(_read_text(record) or "")


def _ensure_objective(summary: str, objective: str | None) -> str:
    """Add the objective if the model left it out. Without it, later runs would not know their purpose."""
    return summary if not objective or objective in summary else f"Objective: {objective}\n\n{summary}"


def summarise_fork(log: LogReader, fork: Session, since: int, between: Sequence[RecordRange] = ()) -> str:
    """Summarise the conversation of a merged fork. The result is a hand-off; the single messages are not copied.

    `between` are the records of the sessions between the fork and the session it is merged into, nearest first."""
    stretches = (*reversed(between), RecordRange(fork.id, since + 1, fork.seq))
    own = [message for stretch in stretches for message in read_messages(log, stretch)]
    parts = [f"From the fork {fork.name}, its records {since + 1} to {fork.seq}:"]
    if own:
        parts.append(digest_messages(own, objective=None))
    if fork.knowledge.handoff and not _was_inherited(own, fork):
        parts.append(f"Its hand-off:\n{fork.knowledge.handoff}")
    return "\n\n".join(parts) if len(parts) > 1 else ""


def _was_inherited(own: Sequence[Message], fork: Session) -> bool:
    return all(message.text != fork.knowledge.handoff for message in own)


def read_received(log: LogReader, session: Session, run: OpenRun) -> list[tuple[int, ev.MessageAdded]]:
    """Read the newest messages that no run before this one dealt with, oldest first, each with its time.

    If no message arrived, nothing is read.
    """
    seen, until = find_new_messages(session, run)
    received: list[tuple[int, ev.MessageAdded]] = []
    if until <= seen:
        return received
    # Also read the messages that arrived after this run was decided, which are then left out.
    most = MOST_RECEIVED + max(0, session.mailbox.position - until)
    for record in log.read(session.id, kinds=("message_added",), to_seq=session.seq, newest_first=True, limit=most):
        message = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(message, ev.MessageAdded) and seen < message.position <= until:
            received.append((record.at, message))
    return received[::-1]
