"""The rows of `list`: one per session, to the letter of the outside contract (design.md, section 8).

`list_row` is one row as a value. `Rows` encodes them all and keeps those that cannot have changed: 10,000 rows must not
hold the loop for longer than a blink (measured: 110 ms computed anew, 12 ms kept).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from wakeful.core.deciding.agent_obstacles import has_prompt
from wakeful.core.deciding.holds import find_hold_words
from wakeful.core.deciding.machine import Core
from wakeful.core.deciding.may_start import Queue, find_queue, say_queue
from wakeful.core.deciding.owed import owed_names
from wakeful.core.looking.targets import ServiceTarget
from wakeful.core.record.lifecycle import StateWord, name_state
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session
from wakeful.views.causes import view_last_run
from wakeful.views.why_not import NextWord, find_next_slot

# Why a session is not in the table of `list`, unless it is asked for.
GoneWord = Literal["terminated", "undeclared"]
# The filters of `list`: a state, `undeclared`, which is a reason to sleep, how the last run ended, or an open question.
WANTED_WORDS = (*get_args(StateWord), "undeclared", "failed", "asks")
FAILURES = ("failed", "lost")


def list_row(core: Core, session: Session, moment: Moment) -> dict[str, Any]:
    return _build_row(core, session, moment, find_queue(core, session, moment))


def _build_row(core: Core, session: Session, moment: Moment, queue: Queue | None) -> dict[str, Any]:
    state, hold_words = _find_state(core, session, moment)
    spec = session.spec
    return {
        "name": session.name,
        "id": session.id,
        "state": state,
        "reason": hold_words if state == "sleeping" else None,
        "agent": session.owner,
        "priority": spec.priority if spec is not None else None,
        "queued": say_queue(queue, moment) if queue is not None else None,
        "owed": _find_owed(core, session),
        "runs": session.tally.runs,
        "last_run": view_last_run(session.last_run),
    }


def _find_state(core: Core, session: Session, moment: Moment) -> tuple[StateWord, str | None]:
    """Its state, and why it sleeps if it does."""
    hold_words = (
        None if session.is_terminated or session.archive is not None else find_hold_words(core, session, moment)
    )
    return name_state(session, is_held=hold_words is not None), hold_words


def _find_owed(core: Core, session: Session) -> list[str]:
    # A change that is owed opens a wake in the same step, unless it still settles. A session at rest thus owes nothing.
    if session.wake is None and session.run is None and session.id not in core.looked.owed_since:
        return []
    return owed_names(core.state, core.looked, session)


class Rows:
    """All rows as one JSON array, sorted by name.

    A session at rest, with nothing held or down below it, looks the same until it is replaced: its bytes are kept.
    """

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        # Session id -> the session, its next slot, its row, and its brief row.
        self._kept: dict[str, tuple[Session, int | None, bytes, bytes]] = {}
        # The settings that every row depends on besides its session. When they change, all rows are made anew.
        self._leaned_on: tuple[object, ...] = ()

    def encode(self, core: Core, moment: Moment, *, is_brief: bool = False, wanted: Sequence[str] = ()) -> bytes:
        """`is_brief` gives rows for a table, see `brief_row`; `wanted` is what holds of all of them,
        see `is_wanted`."""
        leaning_on = (core.settings.allow_unisolated, core.settings.limits, core.looked.laxity)
        if leaning_on != self._leaned_on:
            self._kept.clear()
            self._leaned_on = leaning_on
        restless = _find_restless(core)
        clocked = {session_id for session_id, _ in core.looked.clocks}
        sessions = sorted(core.state, key=_by_name)
        if wanted:
            sessions = [
                session for session in sessions if all(is_wanted(core, session, moment, word) for word in wanted)
            ]
        rows = []
        for session in sessions:
            slot = find_next_slot(core, session) if session.id in clocked else None
            rows.append(
                self._encode_row(core, session, moment, restless, slot.at if slot is not None else None)[is_brief]
            )
        return b"[" + b",".join(rows) + b"]"

    def _encode_row(
        self, core: Core, session: Session, moment: Moment, restless: set[str], slot_at: int | None
    ) -> tuple[bytes, bytes]:
        kept = self._kept.get(session.id)
        is_quiet = session.wake is None and session.run is None and session.hold is None and session.id not in restless
        # A secret comes and goes without a word in the log, and so does an agent.
        is_quiet = is_quiet and not has_prompt(session) and (session.spec is None or not session.spec.secrets)
        if is_quiet and kept is not None and kept[0] is session and kept[1] == slot_at:
            return kept[2:]
        # Nothing is queued for one that is quiet: asking each of 10,000 would take a third of the time.
        queue = None if is_quiet else find_queue(core, session, moment)
        row = _build_row(core, session, moment, queue)
        brief = brief_row(row, session, queue, slot_at, core.settings.limits.tokens.warn)
        encoded = self._encoder.encode(row), self._encoder.encode(brief)
        if is_quiet:
            self._kept[session.id] = (session, slot_at, *encoded)
        return encoded


def _by_name(session: Session) -> str:
    return session.name


def _find_restless(core: Core) -> set[str]:
    """Sessions whose row can change while they do not: changes that settle, a look that must wait, a service."""
    restless = set(core.looked.owed_since)
    # Trust comes and goes without a word in the log.
    restless |= {core.state.ids[name] for name in core.looked.untrusted if name in core.state.ids}
    for look in core.looked.targets.values():
        if look.held is not None or type(look.target) is ServiceTarget:
            restless |= look.subscribers
    return restless


def brief_row(
    row: dict[str, Any], session: Session, queue: Queue | None, slot_at: int | None, long_tokens: int
) -> tuple[object, ...]:
    """A row for a table. Times are microseconds.

    Name, state, runs, last outcome, when that ended, the most telling remark, what comes next by itself and when,
    why it is gone.
    """
    last = session.last_run
    outcome, finished_at = (last.outcome, last.finished_at) if last is not None else (None, None)
    next_word, next_at = _find_next(row, session, queue, slot_at) or (None, None)
    remark = _remark(row, session, queue, long_tokens)
    return row["name"], row["state"], row["runs"], outcome, finished_at, remark, next_word, next_at, find_gone(session)


def _find_next(
    row: dict[str, Any], session: Session, queue: Queue | None, slot_at: int | None
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
    """Why it will not run again by itself, in a word, where its work is over. A run under way is never passed over."""
    if session.is_terminated:
        return "terminated"
    return "undeclared" if not session.declaration.is_declared and session.run is None else None


def is_wanted(core: Core, session: Session, moment: Moment, word: str) -> bool:
    """Whether a word of `list --state`, `--failed` or `--asks` holds of a session."""
    match word:
        case "undeclared":
            return find_gone(session) == word
        case "failed":
            is_over = session.run is not None or find_gone(session) is not None
            return not is_over and session.last_run is not None and session.last_run.outcome in FAILURES
        case "asks":
            return session.hold is not None and session.hold.kind == "asking"
    return _find_state(core, session, moment)[0] == word


def _remark(row: dict[str, Any], session: Session, queue: Queue | None, long_tokens: int) -> str:
    """The most telling of: why it sleeps, what its wake waits for, what is new, that nothing confines it,
    how long its conversation is."""
    if row["reason"]:
        return str(row["reason"])
    if queue is not None:
        return f"queued: {queue.words}"
    if row["owed"] and row["state"] != "running":
        return f"new: {', '.join(row['owed'])}"
    # So that a reader of the list sees which sessions run without isolation.
    if _is_unisolated(session):
        return "not isolated"
    return _say_size(session.knowledge.size_tokens, long_tokens) if session.knowledge.size_tokens else ""


def _say_size(tokens: int, long_tokens: int) -> str:
    """From a point on, every turn of a long conversation costs what it would to begin anew."""
    said = f"{tokens / 1000:.0f}k tokens" if tokens >= 1000 else f"{tokens} tokens"
    return f"{said}: activate --fresh begins anew" if tokens > long_tokens else said


def _is_unisolated(session: Session) -> bool:
    spec = session.spec
    return spec is not None and spec.run is not None and not spec.confinement.is_enforced
