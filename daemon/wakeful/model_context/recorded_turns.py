"""Rebuilds the conversation with a model from the log: what was asked, answered, called and returned.

A run that was cut short leaves calls without a return. A call that had begun is answered "interrupted, effect unknown".
A call that had not begun is left to the run that continues, or is closed if another run's opening follows. So every
call gets a return, and no session is stuck. The reader also notes what earlier openings already contained: causes,
messages by position, hand-offs. Reads the log and the blobs. Blocking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.agents.model_text import quote_line
from wakeful.core.agents.steps import STOPPED
from wakeful.core.agents.turns import DELEGATE, INTERRUPTED, Answered, Asked, Entry, Returned, SubWork, ToolCall
from wakeful.core.record import events as ev
from wakeful.core.record.erased_payloads import ERASED
from wakeful.core.record.knowledge import RecordRange
from wakeful.core.record.state import OpenRun, Session
from wakeful.eventlog.codec import decode, gather_stand_ins
from wakeful.eventlog.contract import LogReader, Record
from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob

NOT_BEGUN = "not carried out: the run ended before this call began; call it again if it is still wanted"
REFUSED = "refused: a person said no to this call"
UNANSWERED = "a person was asked, and nobody answered in time: it was denied"
# The key of the session's own mailbox among the versions of a run.
MAILBOX = "message"
REMEMBER = "remember"
GONE = "[this text is no longer kept]"
_KINDS = (
    "run_started", "prompt_assembled", "turn_answered", "tool_called", "tool_returned", "question_asked",
    "question_answered",
    "note_added", "session_merged", "conversation_compressed",
)  # fmt: skip


class Word(Struct, frozen=True, kw_only=True):
    """A message, a hand-off or a merge that an opening may have to contain.

    `untrusted_by` names the binding through which strangers may have written the text.
    """

    session: str
    seq: int
    at: int
    author: str
    text: str
    kind: str
    untrusted_by: str | None = None


class Turns(Struct, frozen=True, kw_only=True):
    """A conversation so far. `pending` has the calls of the last answer that are still to be carried out."""

    entries: tuple[Entry, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    # The ids of the pending calls whose work a sub-agent had begun. A run that continues takes that work up again.
    begun: frozenset[str] = frozenset()
    # A person's answers to pending calls that need permission, by the ids of the calls. True is yes.
    permissions: dict[str, bool] = {}
    # Hand-offs and merges that no opening of this conversation contains, oldest first.
    notes: tuple[Word, ...] = ()
    # The position of the newest message of this session that an opening contains.
    told_position: int = 0
    # The causes that openings contain, as pairs of the cause's key and the new version.
    told: frozenset[tuple[str, str | None]] = frozenset()
    # The session and seq of the last run start that has an opening. None if the model may no longer see that opening.
    told_at: tuple[str, int] | None = None
    # There is no opening since the last compression. The next one must repeat facts, conflicts and hand-off.
    is_shortened: bool = False
    # Facts that were set by calls which the model still sees.
    remembered: dict[str, str] = {}
    # The numbers of the open conflicts that no opening of this conversation contains.
    new_conflicts: frozenset[int] = frozenset()
    # The runs that have an opening, as pairs of session and run number.
    opened: frozenset[tuple[str, int]] = frozenset()
    # Only for a conversation with a person: has the session's work left a hand-off since the last opening here?
    has_new_handoff: bool = False
    # Texts asked since the last answer, while its calls are pending. They come after the returns of those calls.
    later: tuple[Asked, ...] = ()

    def shorten(self) -> Turns:
        """Return a copy for a model that is not shown all turns.

        The next opening repeats the contents of the earlier openings.
        """
        return replace(self, told_at=None, is_shortened=True)

    def close(self) -> Turns:
        """Return a copy for a run that does not continue: each pending call gets an error as its return."""
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
    """Read the present conversation. Blocking.

    Turns before a fresh start, turns that a compression replaced, and branches that a rewind abandoned are left out.
    `is_fresh` is for a fresh start that is not recorded yet.
    """
    acting = session.run.agent if session.run is not None else None
    reader = _Reader(blobs, acting.name if acting is not None else None)
    erasures = _Erasures(log)
    for record in _read_records(log, session):
        # An erased record has a replacement, so that every call still has its return. An archived record has none.
        payload = record.payload if record.payload is not None else erasures.find(record)
        if payload is not None:
            reader.take(record, decode(record.kind, payload))
    if is_fresh:
        reader.begin_anew()
    turns = reader.finish(session.id)
    return replace(turns, has_new_handoff=session.knowledge.asker is not None and _has_new_handoff(log, session, turns))


def _has_new_handoff(log: LogReader, session: Session, turns: Turns) -> bool:
    """Is there a hand-off newer than the last opening?

    Hand-offs of the session's work count too, although that work is another conversation.
    """
    if turns.told_at is None or turns.told_at[0] != session.id:
        return True
    newest = next(
        iter(log.read(session.id, to_seq=session.seq, kinds=("note_added",), newest_first=True, limit=1)), None
    )
    return newest is not None and newest.seq > turns.told_at[1]


def read_sub_turns(log: LogReader, blobs: Blobs, session: Session, call_id: str) -> Turns:
    """Read the conversation of the sub-agent whose work answers this call, from all runs. Blocking."""
    reader = _Reader(blobs, None)
    erasures = _Erasures(log)
    for record in _read_records(log, session):
        payload = record.payload if record.payload is not None else erasures.find(record)
        event = decode(record.kind, payload) if payload is not None else None
        match event:
            case ev.TurnAnswered(sub=None, answer=answer) if any(call.id == call_id for call in answer.calls):
                # Some providers reuse ids. This is a newer call, so forget the work for the older one.
                reader = _Reader(blobs, None)
            case ev.PromptAssembled() | ev.TurnAnswered() | ev.ToolCalled() | ev.ToolReturned() if (
                event.sub is not None and event.sub.call == call_id
            ):
                reader.take(record, replace(event, sub=None))
    return reader.finish(session.id)


class _Erasures:
    """Finds the replacements of erased payloads. The replacements of a session are read when they are first needed."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._known: dict[str, dict[int, bytes]] = {}

    def find(self, record: Record) -> bytes | None:
        if record.session not in self._known:
            self._known[record.session] = gather_stand_ins(self._log.read(record.session, kinds=("payload_erased",)))
        return self._known[record.session].get(record.seq)


def read_messages(log: LogReader, session: Session, run: OpenRun, told: int) -> list[Word]:
    """Read the messages that this run must handle, oldest first. Blocking.

    They begin after the last message that a finished run has seen or this conversation contains (`told`). They end with
    the last message of the run's mailbox version. Comparing positions ensures that a message is shown only once.
    """
    last = int(run.versions.get(MAILBOX, str(session.mailbox.position)))
    seen = max(told, int(session.marks.seen.get(MAILBOX, "0")))
    found: list[Word] = []
    for record in (
        log.read(session.id, to_seq=session.seq, kinds=("message_added",), newest_first=True) if last > seen else ()
    ):
        # An erased message is skipped. Only the log shows that it existed.
        match decode(record.kind, record.payload) if record.payload is not None else None:
            case ev.MessageAdded(position=position) if position <= seen:
                break
            case ev.MessageAdded(position=position, text=text, untrusted_by=untrusted_by) if position <= last:
                found.append(make_word(record, text, untrusted_by))
    return found[::-1]


def has_opened(log: LogReader, session: Session, run: OpenRun) -> bool:
    """Does the log have an opening of this run, even if a compression removed it from the conversation? Blocking."""
    return any(
        record.run == run.run for record in log.read(session.id, from_seq=run.seq, kinds=("prompt_assembled",), limit=1)
    )


def has_handed_off(log: LogReader, session: Session, run: OpenRun) -> bool:
    """Did the agent leave a hand-off in this run, or in an earlier run that this one continues? Blocking.

    The hand-off of a run that had to stop does not count, because the daemon wrote it.
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
    for stretch in session.knowledge.conversation.stretches or (RecordRange(session.id, 1),):
        yield from log.read(stretch.session, from_seq=stretch.first, to_seq=stretch.last, kinds=_KINDS)


@dataclass(slots=True)
class _Turn:
    """One answer and the results of its calls. Call ids are valid in this answer only, as some providers reuse them."""

    answer: Answered
    begun: set[str] = field(default_factory=set)
    returned: dict[str, Returned] = field(default_factory=dict)
    permissions: dict[str, bool] = field(default_factory=dict)
    asked: dict[str, ev.QuestionAsked] = field(default_factory=dict)
    # Openings that were made before all calls of this answer had returned.
    openings: list[Asked] = field(default_factory=list)

    def close(self) -> list[Entry]:
        """Return the answer, a return for every call in the order of the calls, and the openings made meanwhile."""
        return [self.answer, *map(self._find_return, self.answer.calls), *self.openings]

    def leave(self) -> tuple[list[Entry], tuple[ToolCall, ...]]:
        """Return the answer with the returns so far, and the pending calls. Without pending calls, close the turn.

        A begun `delegate` is pending too, because its sub-agent can continue.
        """
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
    """The state when a run started. The run's opening then contains it.

    It has the run's causes, the place of the start in the log, the number of words and conflicts before it, and the
    position of the newest message.
    """

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
    """Builds `Turns` from records, which it takes in log order."""

    def __init__(self, blobs: Blobs, agent: str | None) -> None:
        self._blobs = blobs
        # The name of the agent that reads the conversation.
        self._agent = agent
        self._entries: list[Entry] = []
        self._turn: _Turn | None = None
        self._words: list[Word] = []
        self._starts: dict[tuple[str, int], _Start] = {}
        # The newest message that an opening contains, by session, because a fork has a mailbox of its own.
        self._told_positions: dict[str, int] = {}
        self._told_words = 0
        # The numbers of all conflicts, and how many of these the openings contain.
        self._conflicts: list[int] = []
        self._told_conflicts = 0
        self._is_shortened = False
        # There are openings whose text is no longer kept, so the facts in them are unknown.
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
                # A step of a sub-agent. Only its final answer belongs here, as the return of the `delegate` call.
                return
            case ev.RunStarted():
                self._start(record, event)
            case ev.PromptAssembled():
                self._open(record, event)
            case ev.ConversationCompressed():
                self._is_shortened = True
            case ev.TurnAnswered(purpose="summary"):
                # The finished summary is put before the conversation when the context is assembled.
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
        """Forget the turns and the contents of openings, because the model no longer sees them.

        The next opening repeats the contents, except what a finished run has handled.
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
        """Return a note that another agent gave the answer, so that the reading agent does not take it for its own.

        The note is appended to the question, because an answer is never changed.
        """
        if self._agent is None or agent == self._agent:
            return ""
        return (
            f"\n\n(This was addressed to the agent {quote_line(agent)}. The work and the text that follow, until "
            "you are asked again, are its own and not yours.)"
        )

    def _read_opening(self, address: str) -> str:
        # The opening was erased.
        if not address:
            return GONE
        try:
            return self._blobs.get(address).decode()
        except (UnknownBlob, DamagedBlob, UnicodeDecodeError):
            return GONE

    def _take_step(self, turn: _Turn, record: Record, event: ev.Event) -> None:
        """Take a step of a call of the present answer. Steps of other calls are ignored, as these are not shown."""
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
                # Include the person's reason, so that the agent does not just repeat the call.
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
    """Return the fact that a call of `remember` set, from its arguments. Empty if these cannot be parsed."""
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
