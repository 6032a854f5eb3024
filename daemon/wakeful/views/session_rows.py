"""The rows of `list`: one per session, with exactly the fields that docs/http.md promises.

`list_row` is one row as a value. `Rows` encodes rows and caches those that cannot have changed, so that 10,000 rows do
not block the loop noticeably. One encoded row serves the list, `top` and every live stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from wakeful.core.deciding.holds import find_doubt, find_hold_words
from wakeful.core.deciding.may_start import QueueReason, find_queue_reason, say_queue_reason
from wakeful.core.deciding.owed import owed_names
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.targets import ServiceTarget
from wakeful.core.record.events import HoldWord
from wakeful.core.record.lifecycle_stages import StateWord, name_state
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Archived, Session
from wakeful.core.spec.session import AnyRun, CommandRun, ScriptRun, find_template
from wakeful.views.causes import view_last_run
from wakeful.views.times import show_time, show_time_or_none
from wakeful.views.why_not import NextWord, find_next_slot

# The reasons why `list` leaves a session out, unless the caller asks for such sessions.
GoneWord = Literal["terminated", "undeclared"]
# The filters of `list`: a state, `undeclared` (a reason to sleep), a failed last run, or an open question.
WANTED_WORDS = (*get_args(StateWord), "undeclared", "failed", "asks")
FAILURES = ("failed", "lost")


# Holds that end when a person acts.
_FOR_A_PERSON: tuple[HoldWord, ...] = ("failed", "loop", "crashing")
_ROWS_AT_ONCE = 500
_LONGEST_COMMAND = 120
_LONGEST_QUESTION = 500


class DayCost(NamedTuple):
    """The cost of a session's runs that ended today (UTC)."""

    runs: int = 0
    failed: int = 0
    tokens: int = 0
    usd: float = 0.0


def list_row(core: Core, session: Session, moment: Moment, today: DayCost | None = None) -> dict[str, Any]:
    slot = find_next_slot(core, session)
    queue = find_queue_reason(core, session, moment)
    return _build_row(core, session, moment, queue, slot.at if slot is not None else None, today)


def _build_row(
    core: Core, session: Session, moment: Moment, queue: QueueReason | None, slot_at: int | None, today: DayCost | None
) -> dict[str, Any]:
    state, hold_words = _find_state(core, session, moment)
    spec, run = session.spec, session.run
    row: dict[str, Any] = {
        "name": session.name,
        "id": session.id,
        "state": state,
        "reason": hold_words if state == "sleeping" else None,
        "agent": session.owner,
        "priority": spec.priority if spec is not None else None,
        "queued": say_queue_reason(queue, moment) if queue is not None else None,
        "owed": _find_owed(core, session),
        "runs": session.tally.runs,
        "last_run": view_last_run(session.last_run),
    }
    next_word, next_at = _find_next(row, session, queue, slot_at) or (None, None)
    row |= {
        "seq": session.seq,
        "run": None if run is None else {"run": run.run, "started_at": show_time(run.started_at)},
        "command": _say_command(spec.run) if spec is not None else None,
        "folder": session.name.rpartition("/")[0] or None,
        "template": find_template(session.name),
        "tags": list(spec.tags) if spec is not None else [],
        "needs": _find_need(core, session),
        "next": None if next_at is None else {"what": next_word, "at": show_time(next_at)},
        "remark": _remark(row, session, queue, core.settings.limits.tokens.warn),
        "gone": find_gone(session),
        "today": None if today is None else today._asdict(),
    }
    return row


def _say_command(run: AnyRun | None) -> str | None:
    """Show the command in one line. None if an agent works, or nothing runs."""
    match run:
        case CommandRun(argv=argv):
            words = " ".join(argv)
        case ScriptRun(text=text):
            words = text.strip().partition("\n")[0]
        case _:
            return None
    return words if len(words) <= _LONGEST_COMMAND else f"{words[: _LONGEST_COMMAND - 1]}…"


def _find_need(core: Core, session: Session) -> dict[str, Any] | None:
    """Find what a session needs from a person: an answer, a permission, an approval, trust, a decision after a failure,
    or the end of a conflict. None if it needs nothing.
    """
    if session.is_shut:
        return None
    hold, question = session.hold, session.question
    if hold is not None and hold.kind == "asking":
        kind = "approval" if question is None else "permission" if question.is_permission else "question"
        text = hold.words if question is None else question.text
        return _view_need(kind, text, hold.until)
    if (doubt := find_doubt(core, session)) is not None:
        return _view_need("trust", doubt)
    if hold is not None and hold.kind in _FOR_A_PERSON:
        return _view_need("decision", hold.words, hold.until)
    if session.lineage.conflicts:
        first = session.lineage.conflicts[0]
        return _view_need("conflict", f"{first.key} was changed here and in {first.fork}")
    return None


def _view_need(kind: str, text: str, until: int | None = None) -> dict[str, Any]:
    return {"kind": kind, "text": text[:_LONGEST_QUESTION], "until": show_time_or_none(until)}


def _find_state(core: Core, session: Session, moment: Moment) -> tuple[StateWord, str | None]:
    """Find the state of a session, and why it sleeps if it does."""
    is_over = session.is_terminated or isinstance(session.closed, Archived)
    hold_words = None if is_over else find_hold_words(core, session, moment)
    return name_state(session, is_held=hold_words is not None), hold_words


def _find_owed(core: Core, session: Session) -> list[str]:
    # An owed change opens a wake in the same step, unless it still settles. So a session at rest owes nothing.
    if session.wake is None and session.run is None and session.id not in core.looked.owed_since:
        return []
    return owed_names(core.state, core.looked, session)


class EncodedRow(NamedTuple):
    """One session as JSON: for lists, for the table that people read, and for live streams.

    A live row has no countdown, so that it changes only with its session.
    """

    whole: bytes
    brief: bytes
    live: bytes


class _Kept(NamedTuple):
    session: Session
    slot_at: int | None
    today: DayCost | None
    row: EncodedRow


class Rows:
    """All rows as one JSON array, sorted by name.

    A session is an immutable value, and each of its records replaces it. Until then, the row of a session at rest stays
    the same, unless one of its targets is held or failed. So the bytes of the row are cached. `find_today` returns the
    cost of a session's runs that ended today.
    """

    def __init__(self, find_today: Callable[[str], DayCost | None] = lambda session_id: None) -> None:
        self.find_today = find_today
        self.encoder = msgspec.json.Encoder()
        self.kept: dict[str, _Kept] = {}
        # The settings that every row depends on, in addition to its session. When they change, all rows are encoded
        # again.
        self._inputs_then: tuple[object, ...] = ()
        # If this number has changed, any row may have changed.
        self.generation = 0

    def begin(self, core: Core, moment: Moment) -> Round:
        """Begin a round of rows at this moment. They are encoded one by one, on request."""
        # A secret or an agent may appear or vanish without a record in the log.
        inputs_now = (
            core.settings.allow_unisolated,
            core.settings.limits,
            core.looked.strict_problem,
            core.looked.secrets,
            core.agents,
            core.agent_problems,
        )
        if inputs_now != self._inputs_then:
            self.kept.clear()
            self._inputs_then = inputs_now
            self.generation += 1
        return Round(self, core, moment)

    async def warm(self, core: Core, moment: Moment) -> None:
        """Encode the rows that are not cached, in slices that let other tasks run in between. Thousands of rows take a
        third of a second the first time.
        """
        generation = self.begin(core, moment).generation
        if len(core.state.sessions) - len(self.kept) < _ROWS_AT_ONCE:
            return
        missing = [session for session in core.state if session.id not in self.kept]
        for start in range(0, len(missing), _ROWS_AT_ONCE):
            now = self.begin(core, moment)
            if now.generation != generation:
                return
            for session in missing[start : start + _ROWS_AT_ONCE]:
                if now.is_quiet(session):
                    now.encode(session)
            await asyncio.sleep(0)

    def encode(
        self,
        core: Core,
        moment: Moment,
        sessions: Iterable[Session] | None = None,
        *,
        is_brief: bool = False,
        present: Mapping[str, Sequence[object]] | None = None,
    ) -> bytes:
        """Encode the rows of these sessions, or of all by name. `is_brief` selects rows for a table, see `brief_row`.

        `present` holds the people who are present, by session. It is added to whole rows, but not cached.
        """
        now = self.begin(core, moment)
        rows = ((session.id, now.encode(session)) for session in (list_by_name(core) if sessions is None else sessions))
        if is_brief or present is None:
            told = [row.brief if is_brief else row.whole for _, row in rows]
        else:
            people = {session_id: self.encoder.encode(found) for session_id, found in present.items()}
            told = [b'%b,"present":%b}' % (row.whole[:-1], people.get(one, b"[]")) for one, row in rows]
        return b"[" + b",".join(told) + b"]"


class Round:
    """The rows of one moment. `restless` are the sessions whose row can change without a change of the session."""

    def __init__(self, rows: Rows, core: Core, moment: Moment) -> None:
        self._rows = rows
        self._core = core
        self._moment = moment
        self.generation = rows.generation
        self.restless = find_restless(core)
        self._clocked = {session_id for session_id, _ in core.looked.clocks}

    def is_quiet(self, session: Session) -> bool:
        """Does the row stay the same until a new value replaces the session?"""
        hold = session.hold
        is_timed = hold is not None and hold.until is not None
        return session.wake is None and session.run is None and not is_timed and session.id not in self.restless

    def encode(self, session: Session) -> EncodedRow:
        core, moment, rows = self._core, self._moment, self._rows
        slot = find_next_slot(core, session) if session.id in self._clocked else None
        slot_at = slot.at if slot is not None else None
        today = rows.find_today(session.id)
        is_quiet = self.is_quiet(session)
        kept = rows.kept.get(session.id) if is_quiet else None
        if kept is not None and kept.session is session and kept.slot_at == slot_at and kept.today == today:
            return kept.row
        # A quiet session has no queue. Asking each of 10,000 sessions would take a third of the time.
        queue = None if is_quiet else find_queue_reason(core, session, moment)
        row = _build_row(core, session, moment, queue, slot_at, today)
        encode = rows.encoder.encode
        whole = live = encode(row)
        if queue is not None and queue.until is not None:
            live = encode(row | {"queued": queue.words})
        encoded = EncodedRow(whole, encode(brief_row(row, session, queue, slot_at)), live)
        if is_quiet:
            rows.kept[session.id] = _Kept(session, slot_at, today, encoded)
        return encoded


def list_by_name(core: Core) -> list[Session]:
    return sorted(core.state, key=lambda session: session.name)


class Filter(NamedTuple):
    """The sessions that a person asks for. All conditions must hold. `states` are words of WANTED_WORDS."""

    states: Sequence[str] = ()
    tags: Sequence[str] = ()
    folder: str | None = None
    # A text in the name, objective, tags, agent or command. Case is ignored.
    text: str | None = None

    def choose(self, core: Core, sessions: Iterable[Session], moment: Moment) -> Iterable[Session]:
        # An empty filter is skipped, because checking 10,000 sessions takes as long as their cached rows.
        return sessions if self == Filter() else (one for one in sessions if self.holds(core, one, moment))

    def holds(self, core: Core, session: Session, moment: Moment) -> bool:
        spec = session.spec
        if not set(self.tags) <= set(spec.tags if spec is not None else ()):
            return False
        if self.folder is not None and not f"{session.name}/".startswith(f"{self.folder.strip('/')}/"):
            return False
        if self.text is not None and self.text.casefold() not in _say_all(session).casefold():
            return False
        return all(is_wanted(core, session, moment, word) for word in self.states)


def _say_all(session: Session) -> str:
    spec = session.spec
    words = [session.name, session.owner]
    if spec is not None:
        words += [spec.objective, _say_command(spec.run), *spec.tags]
    return "\n".join(word for word in words if word)


def find_restless(core: Core) -> set[str]:
    """Find the sessions whose row can change while the session itself does not: a change settles, a look must wait, or
    a service is bound.
    """
    restless = set(core.looked.owed_since)
    # Trust may change without a record in the log.
    restless |= {core.state.ids[name] for name in core.looked.untrusted if name in core.state.ids}
    for look in core.looked.targets.values():
        if look.held is not None or type(look.target) is ServiceTarget:
            restless |= look.subscribers
    return restless


def brief_row(
    row: dict[str, Any], session: Session, queue: QueueReason | None, slot_at: int | None
) -> tuple[object, ...]:
    """Make a row for a table. Times are microseconds.

    Its fields are the name, state, runs, last outcome and its time, the most important remark, the next automatic
    change and its time, and why the session is gone.
    """
    last = session.last_run
    outcome, finished_at = (last.outcome, last.finished_at) if last is not None else (None, None)
    next_word, next_at = _find_next(row, session, queue, slot_at) or (None, None)
    remark, gone = row["remark"], row["gone"]
    return row["name"], row["state"], row["runs"], outcome, finished_at, remark, next_word, next_at, gone


def _find_next(
    row: dict[str, Any], session: Session, queue: QueueReason | None, slot_at: int | None
) -> tuple[NextWord, int] | None:
    hold, wake = session.hold, session.wake
    if row["state"] == "sleeping" and hold is not None and hold.until is not None and row["reason"] == hold.words:
        return "denied" if hold.kind == "asking" else "goes on", hold.until
    if row["state"] == "sleeping" and hold is None and wake is not None and wake.retry_at is not None:
        return "goes on", wake.retry_at
    if queue is not None and queue.until is not None and not row["reason"]:
        return "next start", queue.until
    return ("next slot", slot_at) if slot_at is not None else None


def find_gone(session: Session) -> GoneWord | None:
    """Return the word for a session whose work is over: it will not run again by itself. Otherwise None."""
    if session.is_terminated:
        return "terminated"
    return "undeclared" if not session.declaration.is_declared and session.run is None else None


def is_wanted(core: Core, session: Session, moment: Moment, word: str) -> bool:
    """Does a word of `list --state`, `--failed` or `--asks` apply to a session?"""
    match word:
        case "undeclared":
            return find_gone(session) == word
        case "failed":
            is_over = session.run is not None or find_gone(session) is not None
            return not is_over and session.last_run is not None and session.last_run.outcome in FAILURES
        case "asks":
            return session.hold is not None and session.hold.kind == "asking"
    return _find_state(core, session, moment)[0] == word


def _remark(row: dict[str, Any], session: Session, queue: QueueReason | None, long_tokens: int) -> str:
    """Return the most important remark about a session. In this order: why it sleeps, why its wake waits, which
    bindings are new, that it is not isolated, the size of its conversation.
    """
    if row["reason"]:
        return str(row["reason"])
    if queue is not None:
        return f"queued: {queue.words}"
    if row["owed"] and row["state"] != "running":
        return f"new: {', '.join(row['owed'])}"
    # Shown so that a reader of the list sees which sessions run without isolation.
    if _is_unisolated(session):
        return "not isolated"
    return _say_size(session.knowledge.size_tokens, long_tokens) if session.knowledge.size_tokens else ""


def _say_size(tokens: int, long_tokens: int) -> str:
    """Show the size of a conversation. From some size on, every turn costs as much as a fresh start, so that is
    suggested.
    """
    said = f"{tokens / 1000:.0f}k tokens" if tokens >= 1000 else f"{tokens} tokens"
    return f"{said}: activate --fresh begins anew" if tokens > long_tokens else said


def _is_unisolated(session: Session) -> bool:
    spec = session.spec
    return spec is not None and spec.run is not None and not spec.confinement.is_enforced
