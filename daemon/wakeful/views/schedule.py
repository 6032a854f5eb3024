"""When a session goes on by itself: the end of its hold, the next start of its queued wake, or the next slot of its clock bindings.

Told from state and looked alone, for `list` and `why`. A session that waits for something other than time has no such moment.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from wakeful.core.cron import next_slot_after, slot_us
from wakeful.core.looked import Bound
from wakeful.core.machine import Core
from wakeful.core.spec import CronBinding, EveryBinding
from wakeful.core.state import Session

# What happens at the moment: a hold ends, a queued wake starts, a slot falls due.
NextWord = Literal["goes on", "next start", "next slot"]


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
    slots = [NextSlot(bound.name, due) for bound in clocks if (due := _find_due(core, session, bound)) is not None]
    return min(slots, key=lambda slot: slot.at, default=None)


def _find_due(core: Core, session: Session, bound: Bound) -> int | None:
    clock, seen = core.looked.clocks.get((session.id, bound.key)), session.seen.get(bound.key)
    due = clock.next_due if clock is not None else None
    # The clock was set back: slots up to the one last seen never run again (rule 37).
    if due is not None and seen is not None and slot_us(seen) >= due:
        assert isinstance(bound.binding, CronBinding | EveryBinding)
        following = next_slot_after(bound.binding, seen, session.id)
        return following.due_us if following is not None else None
    return due
