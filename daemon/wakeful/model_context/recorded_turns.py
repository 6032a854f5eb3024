"""The conversation with a model, read from the log along a session's line: what was asked, answered,
called and brought back.

A run that was cut short leaves calls without an end. A call that had begun is answered "interrupted, effect unknown". A
call that had not begun is left to the run that goes on, or is closed where another run's opening follows. So every
answer has all its returns, and a session is never stuck on one. The reader also notes what openings have told already:
causes, messages by their positions, notes. Reads the log and the blobs, and blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.agents.quoting import quote_line
from wakeful.core.agents.steps import STOPPED
from wakeful.core.agents.turns import DELEGATE, INTERRUPTED, Answered, Asked, Entry, Returned, SubWork, ToolCall
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import Stretch
from wakeful.core.record.payloads import ERASED
from wakeful.core.record.state import OpenRun, Session
from wakeful.eventlog.codec import decode, gather_stand_ins
from wakeful.eventlog.contract import LogReader, Record
from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob

NOT_BEGUN = "not carried out: the run ended before this call began; call it again if it is still wanted"
REFUSED = "refused: a person said no to this call"
UNANSWERED = "a person was asked, and nobody answered in time: it was denied"
# The key of a session's own mailbox, among versions.
MAILBOX = "message"
REMEMBER = "remember"
GONE = "[what was asked here is not kept any more]"
_KINDS = (
    "run_started", "prompt_assembled", "turn_answered", "tool_called", "tool_returned", "question_asked",
    "question_answered",
    "note_added", "session_merged", "conversation_compressed",
)  # fmt: skip


class Word(Struct, frozen=True, kw_only=True):
    """A message, a note or a merge that a model may have to be told of. `untrusted_by`: strangers may speak in it."""

    session: str
    seq: int
    at: int
    author: str
    text: str
    kind: str
    untrusted_by: str | None = None


class Turns(Struct, frozen=True, kw_only=True):
    """A conversation so far. `pending` are the calls of the last answer that are to be carried out."""

    entries: tuple[Entry, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    # The pieces of work among these that a sub-agent had begun, by the ids of their calls.
    # A run that goes on takes them up again.
    begun: frozenset[str] = frozenset()
    # A person's answers to pending calls that need a yes.
    permissions: dict[str, bool] = {}
    # Notes and merges that no opening of this conversation has told, oldest first.
    notes: tuple[Word, ...] = ()
    # Up to which of its own messages they have told.
    told_position: int = 0
    # The causes openings have told: what each binding is, and its version.
    told: frozenset[tuple[str, str | None]] = frozenset()
    # The session and record of the last start whose opening was told; None where it may not be in sight any more.
    told_at: tuple[str, int] | None = None
    # No opening since the last compression: facts, open questions and hand-off stood in what may be gone.
    is_shortened: bool = False
    # Facts that calls in sight have set.
    remembered: dict[str, str] = {}
    # Open conflicts that no opening of this conversation has told, by their numbers.
    new_conflicts: frozenset[int] = frozenset()
    # The runs that have their opening, each with the session it is a run of.
    opened: frozenset[tuple[str, int]] = frozenset()
    # The session's work has left a hand-off since this conversation of a person was last told one.
    has_new_handoff: bool = False
    # Texts that were asked since the last answer, while its calls are pending. They come after the returns of those
    # calls.
    later: tuple[Asked, ...] = ()

    def shorten(self) -> Turns:
        """The same where not all of it is shown: what its openings told is told again."""
        return replace(self, told_at=None, is_shortened=True)

    def close(self) -> Turns:
        """The same for a run that does not go on from there: what was pending is not carried out."""
        if not self.pending:
            return self
        returns = (make_return(call, self._say_closed(call.id)) for call in self.pending)
        return replace(
            self,
            entries=(*self.entries, *returns, *self.later),
            pending=(),
            begun=frozenset(),
            permissions={},
            later=(),
        )

    def _say_closed(self, call_id: str) -> str:
        if call_id in self.begun:
            return INTERRUPTED
        return REFUSED if self.permissions.get(call_id) is False else NOT_BEGUN


def read_turns(log: LogReader, blobs: Blobs, session: Session, *, is_fresh: bool = False) -> Turns:
    """Blocks. The present conversation: none of what a rewind left, a compression replaced, or a fresh start put aside.

    `is_fresh`: such a start follows, and no record says so."""
    acting = session.run.agent if session.run is not None else None
    reader = _Reader(blobs, acting.name if acting is not None else None)
    erasures = _Erasures(log)
    for record in _read_records(log, session):
        # Erased: what stands in for it keeps the conversation whole, call by call. Archived: it is not here.
        payload = record.payload if record.payload is not None else erasures.find(record)
        if payload is not None:
            reader.take(record, decode(record.kind, payload))
    if is_fresh:
        reader.begin_anew()
    turns = reader.finish(session.id)
    return replace(turns, has_new_handoff=session.knowledge.asker is not None and _has_new_handoff(log, session, turns))


def _has_new_handoff(log: LogReader, session: Session, turns: Turns) -> bool:
    """Also of runs whose records are not in this conversation: the work has one of its own."""
    if turns.told_at is None or turns.told_at[0] != session.id:
        return True
    newest = next(
        iter(log.read(session.id, to_seq=session.seq, kinds=("note_added",), newest_first=True, limit=1)), None
    )
    return newest is not None and newest.seq > turns.told_at[1]


def read_sub_turns(log: LogReader, blobs: Blobs, session: Session, call_id: str) -> Turns:
    """Blocks.

    The conversation of a sub-agent: what is on record of the work that answers this call, of whichever run.
    """
    reader = _Reader(blobs, None)
    erasures = _Erasures(log)
    for record in _read_records(log, session):
        payload = record.payload if record.payload is not None else erasures.find(record)
        event = decode(record.kind, payload) if payload is not None else None
        match event:
            case ev.TurnAnswered(sub=None, answer=answer) if any(call.id == call_id for call in answer.calls):
                # Some providers use an id again: this is another call.
                reader = _Reader(blobs, None)
            case ev.PromptAssembled() | ev.TurnAnswered() | ev.ToolCalled() | ev.ToolReturned() if (
                event.sub is not None and event.sub.call == call_id
            ):
                reader.take(record, replace(event, sub=None))
    return reader.finish(session.id)


class _Erasures:
    """The replacements of erased payloads. A session on the line is read when its first erased payload is met."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._known: dict[str, dict[int, bytes]] = {}

    def find(self, record: Record) -> bytes | None:
        if record.session not in self._known:
            self._known[record.session] = gather_stand_ins(self._log.read(record.session, kinds=("payload_erased",)))
        return self._known[record.session].get(record.seq)


def read_messages(log: LogReader, session: Session, run: OpenRun, told: int) -> list[Word]:
    """Blocks. The messages this run is to deal with, oldest first: those after what runs that ended for good have seen,
    and after what this conversation was told, up to where the run reads. By position:
    a message is told once, whatever else came between."""
    last = int(run.versions.get(MAILBOX, str(session.mailbox.position)))
    seen = max(told, int(session.marks.seen.get(MAILBOX, "0")))
    found: list[Word] = []
    for record in (
        log.read(session.id, to_seq=session.seq, kinds=("message_added",), newest_first=True) if last > seen else ()
    ):
        # Erased: that it was there is in the log, and nowhere else.
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.MessageAdded(position=position) if position <= seen:
                break
            case ev.MessageAdded(position=position, text=text, untrusted_by=untrusted_by) if position <= last:
                found.append(make_word(record, text, untrusted_by))
    return found[::-1]


def has_opened(log: LogReader, session: Session, run: OpenRun) -> bool:
    """Blocks. Was this run's opening made, also where a compression has taken it out of the conversation?"""
    return any(
        record.run == run.run for record in log.read(session.id, from_seq=run.seq, kinds=("prompt_assembled",), limit=1)
    )


def has_handed_off(log: LogReader, session: Session, run: OpenRun) -> bool:
    """Blocks.

    Did this run leave a hand-off, or one that it goes on from? That of a run which had to stop is not the agent's own.
    """
    wanted = run.run
    for record in log.read(session.id, to_seq=session.seq, kinds=("run_started", "note_added"), newest_first=True):
        event = decode(record.kind, record.payload) if record.payload is not None else None
        if record.kind == "note_added" and record.run == wanted:
            return not (isinstance(event, ev.NoteAdded) and event.text.startswith(f"Run {wanted} {STOPPED}"))
        match event:
            case ev.RunStarted(run=number, resumed_from=before) if number == wanted:
                if before is None:
                    return False
                wanted = before
    return False


def _read_records(log: LogReader, session: Session) -> Iterator[Record]:
    for stretch in session.knowledge.conversation.stretches or (Stretch(session.id, 1),):
        yield from log.read(stretch.session, from_seq=stretch.first, to_seq=stretch.last, kinds=_KINDS)


@dataclass(slots=True)
class _Turn:
    """One answer and what has come of its calls. Ids are those of this answer alone: some providers use them again."""

    answer: Answered
    begun: set[str] = field(default_factory=set)
    returned: dict[str, Returned] = field(default_factory=dict)
    permissions: dict[str, bool] = field(default_factory=dict)
    asked: dict[str, ev.QuestionAsked] = field(default_factory=dict)
    # Openings that came before its calls had all come to an end.
    openings: list[Asked] = field(default_factory=list)

    def close(self) -> list[Entry]:
        """With a return for every call, in their order, and then what was asked meanwhile."""
        return [self.answer, *map(self._find_return, self.answer.calls), *self.openings]

    def leave(self) -> tuple[list[Entry], tuple[ToolCall, ...]]:
        """As it stands, and the calls that nobody has begun: what was asked meanwhile comes after these."""
        pending = tuple(
            call
            for call in self.answer.calls
            if call.id not in self.returned and (call.id not in self.begun or call.name == DELEGATE)
        )
        if not pending:
            return self.close(), ()
        return [self.answer, *(self._find_return(call) for call in self.answer.calls if call not in pending)], pending

    def _find_return(self, call: ToolCall) -> Returned:
        known = self.returned.get(call.id)
        if known is not None:
            return known
        if call.id in self.begun:
            return make_return(call, INTERRUPTED)
        return make_return(call, REFUSED if self.permissions.get(call.id) is False else NOT_BEGUN)


class _Start(Struct, frozen=True, kw_only=True):
    """The things a run saw when it started: its causes, where that stands, the notes and conflicts before it,
    the newest message it reads."""

    causes: frozenset[tuple[str, str | None]]
    place: tuple[str, int]
    words: int
    conflicts: int
    position: int


class _Remembered(Struct, frozen=True):
    """The arguments of a call of `remember`."""

    key: str
    value: str


class _Reader:
    """Takes records in their order."""

    def __init__(self, blobs: Blobs, agent: str | None) -> None:
        self._blobs = blobs
        # The name of the agent that reads the conversation.
        self._agent = agent
        self._entries: list[Entry] = []
        self._turn: _Turn | None = None
        self._words: list[Word] = []
        self._starts: dict[tuple[str, int], _Start] = {}
        # By session: a fork has a mailbox of its own.
        self._told_positions: dict[str, int] = {}
        self._told_words = 0
        # Conflicts by their numbers, and how many of them openings have told.
        self._conflicts: list[int] = []
        self._told_conflicts = 0
        self._is_shortened = False
        # Openings whose text is not kept any more, so the facts in them are unknown.
        self._has_gone = False
        self._remembered: dict[str, str] = {}
        self._told: set[tuple[str, str | None]] = set()
        self._told_at: tuple[str, int] | None = None
        self._opened: set[tuple[str, int]] = set()

    def take(self, record: Record, event: ev.Event) -> None:
        match event:
            case (
                ev.PromptAssembled(sub=SubWork())
                | ev.TurnAnswered(sub=SubWork())
                | ev.ToolCalled(sub=SubWork())
                | ev.ToolReturned(sub=SubWork())
            ):
                # The conversation of a sub-agent: the answer it came to is the result of a call.
                return
            case ev.RunStarted():
                self._start(record, event)
            case ev.PromptAssembled():
                self._open(record, event)
            case ev.ConversationCompressed():
                self._is_shortened = True
            case ev.TurnAnswered(purpose="summary"):
                # The finished summary stands before the conversation.
                return
            case ev.TurnAnswered(answer=answer):
                self._close_turn()
                self._turn = _Turn(answer)
            case ev.NoteAdded(text=text):
                self._add_word(record, text)
            case ev.SessionMerged(summary=text, conflicts=conflicts):
                self._conflicts += [conflict.number for conflict in conflicts]
                self._add_word(record, text)
            case _ if self._turn is not None:
                self._take_step(self._turn, record, event)

    def _add_word(self, record: Record, text: str) -> None:
        if text and text != ERASED:
            self._words.append(make_word(record, text))

    def finish(self, session: str) -> Turns:
        pending: tuple[ToolCall, ...] = ()
        permissions: dict[str, bool] = {}
        later: tuple[Asked, ...] = ()
        begun: frozenset[str] = frozenset()
        if self._turn is not None:
            left, pending = self._turn.leave()
            self._entries += left
            if pending:
                begun = frozenset(call.id for call in pending if call.id in self._turn.begun)
                permissions = {
                    call.id: self._turn.permissions[call.id] for call in pending if call.id in self._turn.permissions
                }
                later = tuple(self._turn.openings)
        return Turns(
            entries=tuple(self._entries),
            pending=pending,
            begun=begun,
            permissions=permissions,
            later=later,
            notes=tuple(self._words[self._told_words :]),
            told_position=self._told_positions.get(session, 0),
            told=frozenset(self._told),
            told_at=self._told_at if not (self._is_shortened or self._has_gone) else None,
            is_shortened=self._is_shortened,
            remembered=self._remembered,
            new_conflicts=frozenset(self._conflicts[self._told_conflicts :]),
            opened=frozenset(self._opened),
        )

    def begin_anew(self) -> None:
        """Forget what openings have told, since the model no longer sees it.

        The next opening tells it again, unless a run that ended for good has dealt with it.
        """
        self._entries, self._turn, self._told_words, self._told_at = [], None, 0, None
        self._told_conflicts, self._is_shortened, self._has_gone = 0, False, False
        self._told.clear()
        self._remembered.clear()
        self._told_positions.clear()
        self._opened.clear()

    def _start(self, record: Record, event: ev.RunStarted) -> None:
        if event.is_fresh:
            self.begin_anew()
        self._starts[record.session, event.run] = _Start(
            causes=frozenset((cause.key, cause.new) for cause in event.causes),
            place=(record.session, record.seq),
            words=len(self._words),
            conflicts=len(self._conflicts),
            position=int(event.versions.get(MAILBOX, "0")),
        )

    def _open(self, record: Record, event: ev.PromptAssembled) -> None:
        start = self._starts.get((record.session, event.run))
        if start is not None:
            self._told |= start.causes
            self._told_words, self._told_conflicts = start.words, start.conflicts
            self._told_positions[record.session] = max(start.position, self._told_positions.get(record.session, 0))
        self._told_at = start.place if start is not None else (record.session, record.seq)
        self._opened.add((record.session, event.run))
        if event.opening is None:
            return
        self._is_shortened = False
        told = self._read_opening(event.opening)
        self._has_gone = self._has_gone or told == GONE
        asked = Asked(text=told + self._say_whose(event.agent))
        if self._turn is None:
            self._entries.append(asked)
        else:
            self._turn.openings.append(asked)

    def _say_whose(self, agent: str) -> str:
        """Say that another agent gave the answer, so that the reading agent does not take it for its own.

        The note stands with the question, for an answer stays as its model gave it.
        """
        if self._agent is None or agent == self._agent:
            return ""
        return (
            f"\n\n(This was put to the agent {quote_line(agent)}. What follows, until you are asked again, is its "
            "work and its words, not yours.)"
        )

    def _read_opening(self, address: str) -> str:
        # Erased.
        if not address:
            return GONE
        try:
            return self._blobs.get(address).decode()
        except (UnknownBlob, DamagedBlob, UnicodeDecodeError):
            return GONE

    def _take_step(self, turn: _Turn, record: Record, event: ev.Event) -> None:
        """Take a step of a call of the present answer. Steps of other calls are ignored, since those are not shown."""
        known = {call.id for call in turn.answer.calls}
        match event:
            case ev.ToolCalled(call=call) if call.id in known:
                turn.begun.add(call.id)
            case ev.ToolReturned(call=call_id, name=name, text=text, is_error=is_error, images=images) if (
                call_id in known
            ):
                turn.returned[call_id] = Returned(call=call_id, name=name, text=text, is_error=is_error, images=images)
                if name == REMEMBER and not is_error:
                    self._remembered |= _read_remembered(turn.answer, call_id)
            case ev.QuestionAsked(call=call_id) if call_id in known:
                turn.asked[call_id] = event
            case ev.QuestionAnswered(call=str() as call_id, is_unanswered=True) if (
                call_id in turn.asked and turn.asked[call_id].is_permission
            ):
                turn.returned[call_id] = Returned(
                    call=call_id, name=turn.asked[call_id].name, text=UNANSWERED, is_error=True
                )
            case ev.QuestionAnswered(call=str() as call_id, text=text, rationale=str() as why) if (
                call_id in turn.asked and turn.asked[call_id].is_permission and text.strip().lower() in ("no", "n")
            ):
                # With the reason, so that the agent can do better than try the same again.
                turn.returned[call_id] = Returned(
                    call=call_id,
                    name=turn.asked[call_id].name,
                    text=f"a person was asked, and said no: {why}",
                    is_error=True,
                )
            case ev.QuestionAnswered(call=str() as call_id, text=text) if call_id in turn.asked:
                self._take_answer(turn, turn.asked[call_id], record.author, text)

    def _take_answer(self, turn: _Turn, question: ev.QuestionAsked, author: str, text: str) -> None:
        if question.is_permission:
            turn.permissions[question.call] = text.strip().lower() in ("yes", "y")
        else:
            turn.returned.setdefault(
                question.call, Returned(call=question.call, name=question.name, text=f"{author} answered: {text}")
            )

    def _close_turn(self) -> None:
        if self._turn is not None:
            self._entries += self._turn.close()
            self._turn = None


def _read_remembered(answer: Answered, call_id: str) -> dict[str, str]:
    """The fact that a call has set, from the words of the model; none where these cannot be read any more."""
    for call in answer.calls:
        if call.id == call_id:
            try:
                given = msgspec.json.decode(call.arguments, type=_Remembered)
            except msgspec.MsgspecError:
                return {}
            return {given.key: given.value}
    return {}


def make_word(record: Record, text: str, untrusted_by: str | None = None) -> Word:
    return Word(
        session=record.session, seq=record.seq, at=record.at, author=record.author, text=text, kind=record.kind,
        untrusted_by=untrusted_by
    )  # fmt: skip


def make_return(call: ToolCall, words: str) -> Returned:
    return Returned(call=call.id, name=call.name, text=words, is_error=True)
