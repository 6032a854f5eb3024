"""The participants of a session: the authors of its records, how much each did, and when last;
and whose role its spec says by uid.

The log is counted once, and then only the records since: a cache, kept while the daemon lives. Records that the daemon
itself writes as runs come and go do not count and are not read. Blocks while it reads: called off the loop.
"""

from __future__ import annotations

from threading import Lock

from wakeful.api.gate.callers import Caller, name_person
from wakeful.core.calls.roles import find_called, refuse_by_role
from wakeful.core.calls.values import Call
from wakeful.core.deciding.machine import Core
from wakeful.core.record.state import Session
from wakeful.eventlog.codec import KINDS
from wakeful.eventlog.contract import LogReader
from wakeful.views.session_page import Part, add_part

# Nearly all records of a long log, and never a person's.
_OF_THE_DAEMON = (
    "wake_requested",
    "wake_extended",
    "run_started",
    "run_readopted",
    "run_finished",
    "session_suspended",
    "slot_skipped",
    "clock_rebased",
)
_ASKED = tuple(kind for kind in KINDS.values() if kind not in _OF_THE_DAEMON)


def refuse_by_uid(core: Core, call: Call, caller: Caller) -> None:
    """Raise CallerError where `people` gives this user's uid a role that does not reach that far.

    The core judges by the author's name. Asked right before a call is handed over: nothing is awaited in between.
    """
    for session in find_called(core, call):
        refuse_by_role(session, call, caller.judged_as, caller.uid)


def find_accounts(session: Session) -> dict[str, int]:
    """The authors that uids of the spec's `people` stand for: a person is one participant,
    however the spec names them."""
    people = session.spec.people if session.spec is not None else {}
    return {name_person(int(key)): int(key) for key in people if key.isdecimal()}


class Roster:
    """The parts of every session that was asked about, each up to some seq."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, dict[str, Part]]] = {}
        self._turn = Lock()

    def parts(self, log: LogReader, session_id: str, seq: int) -> dict[str, Part]:
        with self._turn:
            reached, parts = self._known.get(session_id, (0, {}))
            for record in log.read(session_id, from_seq=reached + 1, to_seq=seq, kinds=_ASKED):
                add_part(parts, record.author, record.at)
            self._known[session_id] = (max(reached, seq), parts)
            return dict(parts)
