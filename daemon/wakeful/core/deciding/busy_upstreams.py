"""Busy marks: is a session still going to change its outputs? A reader starts only if no upstream is busy (rule 30).

The mark is kept for each session with readers, and passed on to them only when it changes (rule 42). So the
cost of an observation depends on the sessions that it touches.
"""

from __future__ import annotations

from collections.abc import Iterator

from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.holds import find_sleep_words
from wakeful.core.deciding.owed import is_first_owed, is_owed
from wakeful.core.deciding.working_state import BusyReason, Core
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session


def refresh_busy(core: Core, decision: Decision, session_id: str) -> None:
    session = core.state.get(session_id)
    readers = core.graph.readers.get(session.name)
    before = core.busy.get(session.name)
    # A session without readers needs no mark. A new reader touches the session, which sets the mark.
    now = _find_busy_reason(core, session, decision.moment) if readers else None
    if now == before:
        return
    if now is None:
        del core.busy[session.name]
    else:
        core.busy[session.name] = now
    if before is not None and now is not None and before.is_stuck == now.is_stuck:
        return
    core.touch_named(decision, sorted(readers or ()))


def _find_busy_reason(core: Core, session: Session, moment: Moment) -> BusyReason | None:
    own = find_own_busy_reason(core, session, moment)
    # A run ends by itself, whatever holds the upstreams.
    if session.run is not None or (own is not None and own.is_stuck):
        return own
    holding = [core.busy[upstream] for upstream in find_holding_upstreams(core, session)]
    if any(business.is_stuck for business in holding):
        return BusyReason(own.words if own is not None else None, is_stuck=True)
    return own or (BusyReason(None) if holding else None)


def find_own_busy_reason(core: Core, session: Session, moment: Moment) -> BusyReason | None:
    """Say why this session itself is busy, or None. A sleeping session that owes nothing is not busy (rule 31)."""
    if session.run is not None:
        return BusyReason("is running")
    # This also applies to a session that never runs, because its readers must see all of its files at once (rule 44).
    if session.id in core.looked.writing:
        return BusyReason(f"has files written by {core.looked.writing[session.id].words}")
    if not session.is_live:
        return None
    unclear = _find_unclear(core, session)
    if unclear is not None:
        return unclear
    is_asleep = find_sleep_words(core, session, moment) is not None
    # The first run is still owed. A session that only clocks wake has no first run.
    if is_first_owed(session):
        return BusyReason("has not run yet", is_stuck=is_asleep)
    is_coming = session.wake is not None or is_owed(core.state, core.looked, session)
    if session.marks.is_suspect:
        return BusyReason(_outcome_words(session), is_stuck=is_asleep or not is_coming)
    if is_coming:
        return BusyReason("sleeps with changes" if is_asleep else "has changes to take in", is_stuck=is_asleep)
    return None


def _find_unclear(core: Core, session: Session) -> BusyReason | None:
    bounds = core.looked.bounds.get(session.id)
    if bounds is None:
        return BusyReason("is not looked at yet")
    unclear = None
    for bound in bounds:
        if bound.target is None or not bound.wake or bound.is_condition:
            continue
        look = core.looked.targets[bound.target]
        if look.is_looked and look.version is None:
            return BusyReason(f"cannot see {bound.name}", is_stuck=True)
        if not look.is_looked:
            unclear = unclear or BusyReason(f"is not looked at yet ({look.held or bound.name})")
        elif look.is_dirty:
            unclear = unclear or BusyReason(f"is changing ({look.held or bound.name})")
    return unclear


def _outcome_words(session: Session) -> str:
    outcome = session.last_run.outcome if session.last_run is not None else "unfinished"
    return {"lost": "was lost in a crash", "interrupted": "was interrupted"}.get(outcome, outcome)


def find_holding_upstreams(core: Core, session: Session) -> Iterator[str]:
    """Yield the direct upstreams that are busy. A stuck upstream does not count if `stale: allow` is set (rule 31)."""
    for upstream, is_stale_allowed in core.graph.upstreams.get(session.name, {}).items():
        business = core.busy.get(upstream)
        if business is not None and not (is_stale_allowed and business.is_stuck):
            yield upstream


def find_root_words(core: Core, upstream: str) -> str:
    """Name the root cause: the session at the start of the chain of busy upstreams, as in `upstream payroll failed`."""
    passed = {upstream}
    while (business := core.busy.get(upstream)) is not None and business.words is None:
        session = core.state.find_named(upstream)
        above = find_holding_upstreams(core, session) if session is not None else ()
        further = next((name for name in above if name not in passed), None)
        if further is None:
            break
        passed.add(upstream := further)
    words = business.words if business is not None and business.words is not None else "is busy"
    return f"upstream {upstream} {words}"
