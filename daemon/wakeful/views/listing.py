"""The rows of `list`: one per session, to the letter of the outside contract (design.md, section 8).

`list_row` is one row as a value. `Rows` encodes them all, and keeps what only changes with a session's last run: the causes
are most of the bytes, and 10,000 rows must not hold the loop for longer than a blink.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from wakeful.core.machine import Core
from wakeful.core.observation import Moment
from wakeful.core.owed import owed_names
from wakeful.core.state import LastRun, Session
from wakeful.core.verdict import find_hold_words, find_queue_words
from wakeful.views.causes import view_last_run

StateWord = Literal["suspended", "running", "sleeping", "terminated"]
_NO_RUN = msgspec.Raw(b"null")


def name_state(session: Session, hold_words: str | None) -> StateWord:
    if session.is_terminated:
        return "terminated"
    if session.run is not None:
        return "running"
    return "sleeping" if hold_words is not None else "suspended"


def list_row(core: Core, session: Session, moment: Moment) -> dict[str, Any]:
    return _row(core, session, moment, view_last_run(session.last_run))


def _row(core: Core, session: Session, moment: Moment, last_run: object) -> dict[str, Any]:
    hold_words = None if session.is_terminated else find_hold_words(core, session, moment)
    state = name_state(session, hold_words)
    spec = session.spec
    return {
        "name": session.name,
        "id": session.id,
        "state": state,
        "reason": hold_words if state == "sleeping" else None,
        "agent": spec.agent if spec is not None else None,
        "priority": spec.priority if spec is not None else None,
        "queued": find_queue_words(core, session, moment),
        "owed": _find_owed(core, session),
        "runs": session.runs,
        "last_run": last_run,
    }


def _find_owed(core: Core, session: Session) -> list[str]:
    # Whatever is owed opens a wake in the same step, unless it still settles: nothing to compare for a session at rest.
    if session.wake is None and session.run is None and session.id not in core.looked.owed_since:
        return []
    return owed_names(core.state, core.looked, session)


class Rows:
    """All rows as one JSON array, sorted by name."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        # Session id -> its last run and that run's JSON, whole and without causes.
        self._last_runs: dict[str, tuple[LastRun, msgspec.Raw, msgspec.Raw]] = {}

    def encode(self, core: Core, moment: Moment, *, is_brief: bool = False) -> bytes:
        """`is_brief` leaves the causes out, for those who only print a table."""
        ordered = sorted(core.state, key=lambda session: session.name)
        rows = [_row(core, session, moment, self._last_run(session, is_brief)) for session in ordered]
        return self._encoder.encode(rows)

    def _last_run(self, session: Session, is_brief: bool) -> msgspec.Raw:
        last = session.last_run
        if last is None:
            return _NO_RUN
        known = self._last_runs.get(session.id)
        if known is None or known[0] is not last:
            view = view_last_run(last)
            assert view is not None
            whole = msgspec.Raw(self._encoder.encode(view))
            del view["causes"]
            known = self._last_runs[session.id] = (last, whole, msgspec.Raw(self._encoder.encode(view)))
        return known[2] if is_brief else known[1]
