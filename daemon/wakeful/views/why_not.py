"""Why a session does not run: the changes it has, the things it waits for, and the times of its next try and next slot.

`why` and `list` use this module. It reads only the state and the looks. A session that is disabled, or that waits for
all of its bindings, is explained together with the changes that came meanwhile. For an undeclared session, the text
says that nothing is looked at. A session that waits for something other than time has no next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from wakeful.core.deciding.may_start import WaitsForTime, judge_start
from wakeful.core.deciding.owed import is_activation_owed, is_new
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import Bound, TargetLook
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session
from wakeful.views.times import say_time, shorten


def explain_no_wake(core: Core, session: Session, moment: Moment, row: dict[str, Any]) -> list[str]:
    """Explain which changes did not wake a session, and why. The session is at rest and has no wake.

    Empty if nothing changed.
    """
    if not session.declaration.is_declared:
        return [
            (
                "Its file is gone from sessions.d, so its bindings are not looked at. "
                "Changes from this time are found when the file is back."
            )
        ]
    changed = [bound.name for bound in find_changed(core, session)]
    settling = list(_say_settling(core, session, moment))
    spec = session.spec
    assert spec is not None
    if not spec.enabled:
        news = (
            f"Changed meanwhile: {', '.join(changed)}; these changes are kept for it."
            if changed
            else "Nothing it waits for has changed meanwhile."
        )
        return [news, "It runs when its spec says `enabled: true` again.", *settling]
    missing = [
        bound.name for bound in _list_waking(core, session) if not bound.is_implied and bound.name not in changed
    ]
    if spec.when == "all" and changed and missing:
        return [
            f"Changed: {', '.join(changed)}; with `when: all` it runs when {', '.join(missing)} changed, too.",
            *settling,
        ]
    if settling:
        return settling
    if row["owed"]:
        return [f"New: {', '.join(row['owed'])}; it waits until they have been quiet for a moment."]
    return list(_say_set_back(core, session))


def _say_set_back(core: Core, session: Session) -> Iterator[str]:
    """Explain clock bindings whose last slot is in the future, because the clock was set back. The slots up to that
    last slot do not run again (rule 37).
    """
    for bound in _list_waking(core, session):
        clock = core.looked.clocks.get((session.id, bound.key))
        if clock is not None and clock.is_set_back:
            yield (
                f"The clock was set back: {bound.name} ran for its slots up to {session.marks.seen[bound.key]} "
                "already, "
                "and goes on after that one."
            )


def find_changed(core: Core, session: Session) -> list[Bound]:
    """Find the waking bindings of a session whose version differs from the version that the session has seen."""
    return [bound for bound in _list_waking(core, session) if is_new(core.state, core.looked, session, bound)]


def _list_waking(core: Core, session: Session) -> list[Bound]:
    return [bound for bound in core.looked.bounds.get(session.id, ()) if bound.wake]


def _say_settling(core: Core, session: Session, moment: Moment) -> Iterator[str]:
    """Explain the bindings that are changing. A binding is looked at after it has been quiet for a while (rule 12)."""
    for bound in _list_waking(core, session):
        look = core.looked.target(bound)
        if look is None or not look.is_dirty or look.held is not None or not look.is_looked:
            continue
        when = moment.wall + round(max(0.0, look.due - moment.mono) * 1e6)
        settle = look.target.settle_seconds
        yield (
            f"{bound.name} is changing: it is looked at when it was quiet for {settle:g} s, that is at "
            f"{say_time(when)}, or later if it goes on changing."
        )


def say_binding(core: Core, session: Session, bound: Bound, moment: Moment) -> str:
    """Explain in a sentence why one binding does not wake its session now."""
    if not bound.wake:
        return (
            "It is written, and does not wake this session."
            if bound.is_written
            else "It never wakes the session: wake: false."
        )
    look, clock = core.looked.target(bound), core.looked.clocks.get((session.id, bound.key))
    if look is not None and look.problem is not None:
        return f"It cannot be looked at: {look.problem}."
    if look is not None and look.held is not None:
        return f"Its look waits: {look.held}."
    if look is not None and not look.is_looked:
        return "It was not looked at yet."
    if look is not None and look.is_dirty:
        next_look = find_next_look(look, moment)
        return "It is changing" + (f"; it is looked at again at {say_time(next_look)}." if next_look else ".")
    if is_new(core.state, core.looked, session, bound):
        return "It changed, and the session has not dealt with that yet."
    if clock is not None:
        return (
            "It has no further slot." if clock.next_due is None else f"Its next slot is at {say_time(clock.next_due)}."
        )
    seen = session.marks.seen.get(bound.key)
    return "Nothing came yet." if seen is None else f"Nothing new: the session has dealt with {shorten(seen)}."


def find_next_look(look: TargetLook, moment: Moment) -> int | None:
    """Return the time of the next planned look at a target, in microseconds. None if no look is planned."""
    if look.held is not None:
        return None
    if look.is_dirty:
        return moment.wall + round(max(0.0, look.due - moment.mono) * 1e6)
    every = getattr(look.target, "check_every_seconds", None)
    return look.looked_at + round(every * 1e6) if every is not None and look.looked_at else None


def find_next_try(core: Core, session: Session, moment: Moment) -> int | None:
    """Return the planned time of a session's next attempt, in microseconds. None if it is unknown, or if the session
    waits for something other than time.
    """
    if session.run is not None or session.is_shut or not session.is_armed:
        return None
    hold, wake, spec = session.hold, session.wake, session.spec
    if session.brake is not None or (hold is not None and hold.until is None):
        return None
    if hold is not None and not (hold.kind == "snoozed" and is_activation_owed(session)):
        return hold.until
    if wake is None or spec is None:
        dirty = [
            look.due
            for bound in _list_waking(core, session)
            if (look := core.looked.target(bound)) is not None and look.is_dirty and look.held is None
        ]
        return moment.wall + round(max(0.0, min(dirty) - moment.mono) * 1e6) if dirty else None
    if wake.retry_at is not None and wake.retry_at > moment.wall:
        return wake.retry_at
    verdict = judge_start(core, session, moment)
    return verdict.deadline.until if isinstance(verdict, WaitsForTime) else None


# The change at the next moment: a hold ends, a question counts as denied, a queued wake starts, a slot is due.
NextWord = Literal["goes on", "denied", "next start", "next slot"]


class NextSlot(NamedTuple):
    """A future slot: its binding, and the moment when it is due, in microseconds."""

    binding: str
    at: int


def find_next_slot(core: Core, session: Session) -> NextSlot | None:
    """Find the next slot that wakes the session. None if it runs, has a wake, or has a hold that slots do not end."""
    # A newer version, such as a slot, ends only the hold `failed` (rule 21).
    is_held = session.brake is not None or (session.hold is not None and session.hold.kind != "failed")
    if is_held or not session.is_armed or session.run is not None or session.wake is not None:
        return None
    clocks = (bound for bound in core.looked.bounds.get(session.id, ()) if bound.is_clock and bound.wake)
    looks = ((bound.name, core.looked.clocks.get((session.id, bound.key))) for bound in clocks)
    slots = [
        NextSlot(name, clock.next_due) for name, clock in looks if clock is not None and clock.next_due is not None
    ]
    return min(slots, key=lambda slot: slot.at, default=None)
