"""The rows of `list`: one per session, to the letter of the outside contract (design.md, section 8).

`list_row` is one row as a value. `Rows` encodes them all and keeps those that cannot have changed: 10,000 rows must not hold
the loop for longer than a blink (measured: 110 ms computed anew, 12 ms kept).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from wakeful.core.machine import Core
from wakeful.core.observation import Moment
from wakeful.core.owed import owed_names
from wakeful.core.owners import has_prompt
from wakeful.core.state import Session
from wakeful.core.target import ServiceTarget
from wakeful.core.verdict import find_hold_words, find_queue_words
from wakeful.views.causes import view_last_run

StateWord = Literal["suspended", "running", "sleeping", "terminated", "archived"]


def name_state(session: Session, hold_words: str | None) -> StateWord:
    if session.archive is not None:
        return "archived"
    if session.is_terminated:
        return "terminated"
    if session.run is not None:
        return "running"
    return "sleeping" if hold_words is not None else "suspended"


def list_row(core: Core, session: Session, moment: Moment) -> dict[str, Any]:
    return _build_row(core, session, moment, find_queue_words(core, session, moment))


def _build_row(core: Core, session: Session, moment: Moment, queued: str | None) -> dict[str, Any]:
    hold_words = None if session.is_terminated or session.archive is not None else find_hold_words(core, session, moment)
    state = name_state(session, hold_words)
    spec = session.spec
    return {
        "name": session.name,
        "id": session.id,
        "state": state,
        "reason": hold_words if state == "sleeping" else None,
        "agent": session.owner,
        "priority": spec.priority if spec is not None else None,
        "queued": queued,
        "owed": _find_owed(core, session),
        "runs": session.runs,
        "last_run": view_last_run(session.last_run),
    }


def _find_owed(core: Core, session: Session) -> list[str]:
    # Whatever is owed opens a wake in the same step, unless it still settles: nothing to compare for a session at rest.
    if session.wake is None and session.run is None and session.id not in core.looked.owed_since:
        return []
    return owed_names(core.state, core.looked, session)


class Rows:
    """All rows as one JSON array, sorted by name.

    A session at rest, with nothing held or down below it, looks the same until it is replaced: its bytes are kept.
    """

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        # Session id -> the session, its row, and its brief row.
        self._kept: dict[str, tuple[Session, bytes, bytes]] = {}
        # The settings that every row depends on besides its session. When they change, all rows are made anew.
        self._leaned_on: tuple[object, ...] = ()

    def encode(self, core: Core, moment: Moment, *, is_brief: bool = False) -> bytes:
        """`is_brief` gives rows for a table, see `brief_row`."""
        leaning_on = (core.settings.allow_unisolated, core.settings.limits, core.looked.laxity)
        if leaning_on != self._leaned_on:
            self._kept.clear()
            self._leaned_on = leaning_on
        restless = _find_restless(core)
        rows = [self._encode_row(core, session, moment, restless)[is_brief] for session in sorted(core.state, key=_by_name)]
        return b"[" + b",".join(rows) + b"]"

    def _encode_row(self, core: Core, session: Session, moment: Moment, restless: set[str]) -> tuple[bytes, bytes]:
        kept = self._kept.get(session.id)
        is_quiet = session.wake is None and session.run is None and session.hold is None and session.id not in restless
        # A secret comes and goes without a word in the log, and so does an agent.
        is_quiet = is_quiet and not has_prompt(session) and (session.spec is None or not session.spec.secrets)
        if is_quiet and kept is not None and kept[0] is session:
            return kept[1:]
        # Nothing is queued for one that is quiet: asking each of 10,000 would take a third of the time.
        row = _build_row(core, session, moment, None if is_quiet else find_queue_words(core, session, moment))
        encoded = self._encoder.encode(row), self._encoder.encode(brief_row(row, session, core.settings.limits.tokens.warn))
        if is_quiet:
            self._kept[session.id] = (session, *encoded)
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


def brief_row(row: dict[str, Any], session: Session, long_tokens: int) -> tuple[object, ...]:
    """A row for a table: name, state, runs, last outcome, when that ended (in microseconds), and the most telling remark."""
    last = session.last_run
    outcome, finished_at = (last.outcome, last.finished_at) if last is not None else (None, None)
    return row["name"], row["state"], row["runs"], outcome, finished_at, _remark(row, session, long_tokens)


def _remark(row: dict[str, Any], session: Session, long_tokens: int) -> str:
    """The most telling of: why it sleeps, what its wake waits for, what is new, that nothing confines it, how long its conversation is."""
    if row["reason"]:
        return row["reason"]
    if row["queued"]:
        return f"queued: {row['queued']}"
    if row["owed"] and row["state"] != "running":
        return f"new: {', '.join(row['owed'])}"
    # Whoever looks at the list knows whom nothing holds back.
    if _is_unisolated(session):
        return "not isolated"
    return _say_size(session.size_tokens, long_tokens) if session.size_tokens else ""


def _say_size(tokens: int, long_tokens: int) -> str:
    """From a point on, every turn of a long conversation costs what it would to begin anew."""
    said = f"{tokens / 1000:.0f}k tokens" if tokens >= 1000 else f"{tokens} tokens"
    return f"{said}: activate --fresh begins anew" if tokens > long_tokens else said


def _is_unisolated(session: Session) -> bool:
    spec = session.spec
    return spec is not None and spec.run is not None and not spec.confinement.is_enforced
