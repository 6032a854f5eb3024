"""Clock bindings: the last slot that fell due, the next slot, and slots that will not run.

A binding is due if its latest slot is after seen. So `cron` needs no special case for downtime, suspend and a jump of
the clock.
The slots of `every` move with the clock when it is set. Every slot is accounted for: it runs, it is coalesced into a
slot that runs, or its skip is recorded (rules 36, 37).
"""

from __future__ import annotations

from datetime import UTC, datetime

from wakeful.core.deciding.clock_slots import jitter_us, latest_slot, move_slot, next_slot_after, period_us, slot_us
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.owed import find_following_slot, upstream_position
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import Bound, ClockLook
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session, State
from wakeful.core.spec.bindings import (
    AnyBinding,
    ClockBinding,
    CronBinding,
    EveryBinding,
    SessionBinding,
)
from wakeful.core.spec.session import SessionSpec

DAY_US = 86_400_000_000
# The smallest change of the clock that counts as set. NTP slews all clocks alike, and a smaller difference can be the
# time between two readings on a busy machine.
LEAST_STEP_US = 2_000_000
# The most missed slots that are counted.
MOST_SLOTS_COUNTED = 1000


def first_positions(state: State, spec: SessionSpec, session: Session, wall: int) -> dict[str, str]:
    """Return the start positions of new or changed bindings (rule 8).

    A clock binding starts at the latest slot before the edit. A binding `on: failed` or `on: finished` starts after the
    last run that ended before the edit.
    """
    before = session.spec.bindings if session.spec is not None else ()
    known = {binding.identity for binding in before} & session.marks.seen.keys()
    positions = {}
    for binding in spec.bindings:
        if binding.identity in known:
            continue
        if isinstance(binding, CronBinding | EveryBinding):
            positions[binding.identity] = latest_slot(binding, wall, session.id) or moment_slot(wall)
        elif isinstance(binding, SessionBinding) and binding.counts_failures:
            positions[binding.identity] = str(upstream_position(state, binding))
    return positions


def moment_slot(wall: int) -> str:
    return datetime.fromtimestamp(wall // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def follow_set_clock(core: Core, decision: Decision) -> None:
    """Notice that the wall clock was set. Then move the slots of `every` by the same step, and check all clock bindings
    again (rule 37)."""
    moment = decision.moment
    offset = moment.wall - round(moment.boot * 1e6)
    step = offset - core.clock_offset if core.clock_offset is not None else 0
    if core.clock_offset is None or abs(step) >= LEAST_STEP_US:
        core.clock_offset = offset
    if abs(step) < LEAST_STEP_US:
        return
    for session_id in sorted({session_id for session_id, _ in core.looked.clocks}):
        for bound in core.looked.bounds[session_id]:
            if isinstance(bound.binding, EveryBinding):
                _move_slots(core, decision, core.state.get(session_id), bound, step)
        update_clocks(core, decision, session_id)
        decision.touch(session_id)


def _move_slots(core: Core, decision: Decision, session: Session, bound: Bound, step: int) -> None:
    """Move the slots of an `every` binding by `step`, so that its next slot stays as far away as before."""
    assert isinstance(bound.binding, EveryBinding)
    seen = session.marks.seen.get(bound.key)
    if seen is None:
        return
    started = session.run.versions.get(bound.key) if session.run is not None else None
    run_slot = move_slot(bound.binding, started, step) if started is not None else None
    new = move_slot(bound.binding, seen, step)
    core.emit(
        decision, session.id, ev.ClockRebased(binding=bound.name, key=bound.key, old=seen, new=new, run_slot=run_slot)
    )


def update_clocks(core: Core, decision: Decision, session_id: str) -> None:
    """Update the latest slot of all clock bindings of a session, and set the alarm for the next slot."""
    for bound in core.looked.bounds.get(session_id, ()):
        if bound.is_clock:
            _update_clock(core, decision, core.state.get(session_id), bound)


def _update_clock(core: Core, decision: Decision, session: Session, bound: Bound) -> None:
    binding = bound.binding
    assert isinstance(binding, CronBinding | EveryBinding)
    moment = decision.moment
    clock = core.looked.clocks.setdefault((session.id, bound.key), ClockLook(None, None))
    taken = _find_taken(session, bound)
    clock.latest = latest_slot(binding, moment.wall, session.id, taken)
    taken = _rebase(core, decision, session, bound, taken, clock.latest or moment_slot(moment.wall))
    clock.is_set_back = taken is not None and slot_us(taken) - moment.wall >= LEAST_STEP_US
    following = next_slot_after(
        binding, taken if clock.is_set_back and taken is not None else moment.wall, session.id, taken
    )
    clock.next_due = following.due_us if following is not None else None
    if clock.next_due is None:
        return
    core.wall.add(clock.next_due, "clock", session.id)
    if isinstance(binding, EveryBinding):
        # An alarm of the wall clock comes late if the clock is set back.
        core.mono.add(moment.mono + (clock.next_due - moment.wall) / 1e6, "clock", session.id)


def _find_taken(session: Session, bound: Bound) -> str | None:
    """Return the last slot that must not run again.

    The slot of a run under way counts, because it becomes seen when the run ends.
    """
    seen = session.marks.seen.get(bound.key)
    started = session.run.versions.get(bound.key) if session.run is not None else None
    return started if started is not None and (seen is None or started > seen) else seen


def _rebase(
    core: Core, decision: Decision, session: Session, bound: Bound, taken: str | None, latest: str
) -> str | None:
    """Count from an earlier slot if the clock was set back so far that the taken slot would block for long (rule 37).

    Returns the slot that is taken now.
    """
    new = _find_nearer(bound.binding, taken, latest, decision.moment.wall) if taken is not None else None
    if taken is None or new is None:
        return taken
    core.emit(decision, session.id, ev.ClockRebased(binding=bound.name, key=bound.key, old=taken, new=new))
    return new


def _find_nearer(binding: AnyBinding | None, taken: str, latest: str, wall: int) -> str | None:
    """Return the slot to count from, if the taken slot is too far ahead. None if the taken slot may stay.

    For an `every` binding that happens if the clock was set back while no daemon ran. The time that passed is not
    known, so whole periods are subtracted, and the next run is one to two periods away.
    """
    ahead_us = slot_us(taken) - wall
    if isinstance(binding, EveryBinding):
        periods = ahead_us // period_us(binding)
        return (
            move_slot(binding, taken, -periods * period_us(binding))
            if periods > 0 and ahead_us >= LEAST_STEP_US
            else None
        )
    return latest if ahead_us > DAY_US else None


def record_skipped_slots(core: Core, decision: Decision, session: Session) -> Session:
    """Record the slots that will not run: too old, or overtaken under `catch_up: none` (rule 36)."""
    for bound in core.looked.bounds[session.id]:
        if not bound.is_clock:
            continue
        clock, seen = core.looked.clocks.get((session.id, bound.key)), session.marks.seen.get(bound.key)
        if clock is None or clock.latest is None or seen is None or clock.latest <= seen:
            continue
        skipped = _find_skipped(bound.binding, session, seen, clock.latest, decision.moment.wall)
        if skipped is not None:
            slot, count, reason = skipped
            event = ev.SlotSkipped(binding=bound.name, key=bound.key, slot=slot, count=count, reason=reason)
            session = core.emit(decision, session.id, event)
        _cache_following_slot(session, bound, clock)
    return session


def _cache_following_slot(session: Session, bound: Bound, clock: ClockLook) -> None:
    """Cache the slot after seen for `catch_up: all` (rule 36), because it is needed often."""
    seen = session.marks.seen.get(bound.key)
    assert isinstance(bound.binding, CronBinding | EveryBinding)
    if seen is None or bound.binding.catch_up != "all" or (clock.following is not None and clock.following[0] == seen):
        return
    following = find_following_slot(bound.binding, seen, session.id)
    clock.following = (seen, following) if following is not None else None


def _find_skipped(
    binding: AnyBinding | None, session: Session, seen: str, latest: str, wall: int
) -> tuple[str, int, str] | None:
    """Return the newest slot that will not run, the number of such slots since seen, and the reason."""
    assert isinstance(binding, CronBinding | EveryBinding)
    opens = wall - int(binding.catch_up_window_seconds * 1e6)
    if slot_us(latest) < opens:
        return latest, _count_slots(binding, session, seen, latest), "older than catch_up_window"
    if binding.catch_up == "none":
        before = latest_slot(binding, _due_us(binding, session, latest) - 1, session.id, seen)
        if before is not None and before > seen:
            return before, _count_slots(binding, session, seen, before), "catch_up: none"
    if binding.catch_up == "all" and slot_us(seen) < opens:
        before = latest_slot(binding, opens + jitter_us(binding, session.id) - 1, session.id, seen)
        if before is not None and before > seen:
            return before, _count_slots(binding, session, seen, before), "older than catch_up_window"
    return None


def _due_us(binding: ClockBinding, session: Session, slot: str) -> int:
    return slot_us(slot) + jitter_us(binding, session.id)


def _count_slots(binding: ClockBinding, session: Session, seen: str, until: str) -> int:
    count, slot = 0, seen
    while slot < until and count < MOST_SLOTS_COUNTED:
        coming = next_slot_after(binding, slot, session.id)
        if coming is None:
            break
        count, slot = count + 1, coming.slot
    return count
