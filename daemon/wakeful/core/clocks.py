"""Clock bindings: which slot fell due last, which comes next, and what becomes of slots nobody runs.

Due iff the latest slot is after seen: downtime, suspend and clock jumps are then one case. Every
slot is accounted for: it runs, it is coalesced into one that runs, or its skip is recorded (rules 36, 37).
"""

from __future__ import annotations

from datetime import UTC, datetime

from wakeful.core import events as ev
from wakeful.core.cron import latest_slot, next_slot_after, slot_us, slots_between
from wakeful.core.decision import Decision
from wakeful.core.looked import Bound, ClockLook
from wakeful.core.machine import Core
from wakeful.core.spec import ClockBinding, CronBinding, EveryBinding, SessionSpec
from wakeful.core.state import Session

DAY_US = 86_400_000_000
# More missed slots than anyone wants listed; counted beyond.
MOST_SLOTS_COUNTED = 1000


def first_positions(spec: SessionSpec, session: Session | None, session_id: str, wall: int) -> dict[str, str]:
    """New or changed clock bindings start at the latest slot before the edit (rule 8)."""
    known = session.seen if session is not None else {}
    positions = {}
    for binding in spec.bindings:
        if isinstance(binding, CronBinding | EveryBinding) and binding.identity not in known:
            positions[binding.identity] = latest_slot(binding, wall, session_id) or moment_slot(wall)
    return positions


def moment_slot(wall: int) -> str:
    return datetime.fromtimestamp(wall // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ring_clocks(core: Core, decision: Decision, session_id: str) -> None:
    """Bring all clock bindings of a session up to the moment, and set the next ring."""
    for bound in core.looked.bounds.get(session_id, ()):
        if bound.is_clock:
            _ring(core, decision, core.state.get(session_id), bound)


def _ring(core: Core, decision: Decision, session: Session, bound: Bound) -> None:
    binding = bound.binding
    assert isinstance(binding, CronBinding | EveryBinding)
    wall = decision.moment.wall
    clock = core.looked.clocks.setdefault((session.id, bound.key), ClockLook(None, None))
    clock.latest = latest_slot(binding, wall, session.id)
    following = next_slot_after(binding, wall, session.id)
    clock.next_due = following.due_us if following is not None else None
    if clock.next_due is not None:
        core.wall.add(clock.next_due, "clock", session.id)
    session = _rebase(core, decision, session, bound, clock.latest or moment_slot(wall))
    _account_missed(core, decision, session, bound, clock)


def _rebase(core: Core, decision: Decision, session: Session, bound: Bound, latest: str) -> Session:
    """The clock was set back by more than a day: slots up to seen would block for ever (rule 37)."""
    seen = session.seen.get(bound.key)
    if seen is None or slot_us(seen) - decision.moment.wall <= DAY_US:
        return session
    return core.emit(decision, session.id, ev.ClockRebased(binding=bound.name, key=bound.key, old=seen, new=latest))


def _account_missed(core: Core, decision: Decision, session: Session, bound: Bound, clock: ClockLook) -> None:
    binding, seen = bound.binding, session.seen.get(bound.key)
    assert isinstance(binding, CronBinding | EveryBinding)
    clock.oldest_owed = None
    if clock.latest is None or seen is None or clock.latest <= seen:
        return
    wall = decision.moment.wall
    if wall - slot_us(clock.latest) > binding.catch_up_window_seconds * 1e6:
        _skip(core, decision, session, bound, clock.latest, "older than catch_up_window")
        return
    match binding.catch_up:
        case "once":
            return
        case "none":
            _skip_all_but_newest(core, decision, session, bound, binding, seen, clock.latest)
        case "all":
            missed = slots_between(binding, seen, wall, 1, session.id)
            clock.oldest_owed = missed[0] if missed else None


def _skip_all_but_newest(
    core: Core, decision: Decision, session: Session, bound: Bound, binding: ClockBinding, seen: str, latest: str
) -> None:
    if session.run is not None:
        return
    missed = [slot for slot in slots_between(binding, seen, decision.moment.wall, MOST_SLOTS_COUNTED, session.id) if slot < latest]
    if missed:
        _skip(core, decision, session, bound, missed[-1], "catch_up: none", len(missed))


def _skip(core: Core, decision: Decision, session: Session, bound: Bound, slot: str, reason: str, count: int = 1) -> None:
    core.emit(decision, session.id, ev.SlotSkipped(binding=bound.name, key=bound.key, slot=slot, count=count, reason=reason))
