"""Who takes part in a session: the authors of its records, how much each did, and when last.

Counted from the log, once, and then only what was recorded since: a cache, kept while the daemon lives. What the daemon
itself records as runs come and go is no part in it and is not read. Blocks while it reads: called off the loop.
"""

from __future__ import annotations

from threading import Lock

from wakeful.eventlog.codec import KINDS
from wakeful.eventlog.contract import EventLog
from wakeful.views.people import Part, add_part

# Nearly all records of a long log, and never a person's.
_OF_THE_DAEMON = ("wake_requested", "wake_extended", "run_started", "run_finished", "session_suspended", "slot_skipped", "clock_rebased")
_ASKED = tuple(kind for kind in KINDS.values() if kind not in _OF_THE_DAEMON)


class Roster:
    """The parts of every session that was asked about, each up to some seq."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, dict[str, Part]]] = {}
        self._turn = Lock()

    def parts(self, log: EventLog, session_id: str, seq: int) -> dict[str, Part]:
        with self._turn:
            reached, parts = self._known.get(session_id, (0, {}))
            for record in log.read(session_id, from_seq=reached + 1, to_seq=seq, kinds=_ASKED):
                add_part(parts, record.author, record.at)
            self._known[session_id] = (max(reached, seq), parts)
            return dict(parts)
