"""When a session goes on by itself: the end of its hold, the next start of its queued wake,
or the next slot of its clock bindings.

Told from state and looked alone, for `list` and `why`.
A session that waits for something other than time has no such moment.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from wakeful.core.deciding.machine import Core
from wakeful.core.record.state import Session

# The change that comes with the moment: a hold ends, a question counts as denied, a queued wake starts,
# a slot falls due.
NextWord = Literal["goes on", "denied", "next start", "next slot"]


class NextSlot(NamedTuple):
    """A slot to come: its binding, and the moment it falls due, in microseconds."""

    binding: str
    at: int


def find_next_slot(core: Core, session: Session) -> NextSlot | None:
    """The first slot that wakes the session; None while a hold keeps slots from waking it."""
    # A newer version, such as a slot, ends `failed` and no other hold (rule 21).
    is_held = session.brake is not None or (session.hold is not None and session.hold.kind != "failed")
    if is_held or not session.is_armed or session.run is not None or session.wake is not None:
        return None
    clocks = (bound for bound in core.looked.bounds.get(session.id, ()) if bound.is_clock and bound.wake)
    looks = ((bound.name, core.looked.clocks.get((session.id, bound.key))) for bound in clocks)
    slots = [
        NextSlot(name, clock.next_due) for name, clock in looks if clock is not None and clock.next_due is not None
    ]
    return min(slots, key=lambda slot: slot.at, default=None)
