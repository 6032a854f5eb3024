"""Finds the participants of a session: the authors of its records, with the number and the time of their actions. Also
checks the roles that a spec gives by uid.

The counts are cached while the daemon lives, so only new records are read. Records that the daemon itself writes do not
count, and are not read. Reading is blocking: called off the loop.
"""

from __future__ import annotations

from threading import Lock

from wakeful.api.gate.callers import Caller, name_person
from wakeful.core.calls.call_rules import refuse_by_role
from wakeful.core.calls.call_types import Call
from wakeful.core.calls.roles import find_called
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.state import Session
from wakeful.eventlog.codec import KINDS
from wakeful.eventlog.contract import LogReader
from wakeful.views.session_page import Part, add_part

# The kinds that only the daemon writes: nearly all records of a long log.
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
    """Raise CallerError if `people` of the spec gives the caller's uid a role that is not enough for the call.

    The core itself judges by the author's name only. Called right before the call is passed to the core, without an
    await in between.
    """
    for session in find_called(core, call):
        refuse_by_role(session, call, caller.judged_as, caller.uid)


def find_accounts(session: Session) -> dict[str, int]:
    """Find the author of each uid in the spec's `people`. A person is one participant, whether the spec names them by
    account or by uid."""
    people = session.spec.people if session.spec is not None else {}
    return {name_person(int(key)): int(key) for key in people if key.isdecimal()}


class ParticipantCache:
    """A cache of the participants of each session, counted up to some seq."""

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
