"""dispatch: state + looked give wakes, starts and sleeps for one session (rule 2).

Runs after every observation for the sessions it touched, and again until nothing more follows.
Level, not edge: called twice it does nothing the second time.
"""

from __future__ import annotations

import heapq
from typing import assert_never

from wakeful.core import events as ev
from wakeful.core.busy import refresh_busy
from wakeful.core.decision import Decision
from wakeful.core.finish import attend_run
from wakeful.core.looked import Bound
from wakeful.core.machine import Core
from wakeful.core.owed import (
    describe_causes,
    has_other_news,
    is_activation_owed,
    is_new,
    is_owed,
    start_versions,
    takes_first_run,
)
from wakeful.core.state import Session
from wakeful.core.verdict import Loops, Ready, Waits, find_hold_words, judge_start

# Waiting raises the priority by one every two seconds, so nothing starves (rule 35).
SECONDS_PER_PRIORITY = 2.0


def dispatch(core: Core, decision: Decision, session_id: str) -> None:
    session = core.state.get(session_id)
    if session.run is not None:
        attend_run(core, decision, session)
        session = core.state.get(session_id)
    if session.run is not None or not session.is_armed:
        return
    session = _take_first_sight(core, decision, session)
    session = _skip_empty_slots(core, decision, session)
    session = _lift_spent_hold(core, decision, session)
    session = _settle_wake(core, decision, session)
    if session.wake is not None:
        _try_start(core, decision, session)


def _take_first_sight(core: Core, decision: Decision, session: Session) -> Session:
    """`first: adopt` takes what is there as seen, once all of it was looked at (rule 25)."""
    assert session.spec is not None
    if session.is_first_taken or takes_first_run(session.spec):
        return session
    bounds = core.looked.bounds.get(session.id, ())
    looks = [look for bound in bounds if (look := core.looked.target(bound)) is not None]
    if not all(look.is_looked and look.version is not None for look in looks if look.target.key.split("\x1f")[0] != "service"):
        return session
    versions = start_versions(core.state, core.looked, session)
    ordered = {bound.key for bound in bounds if bound.is_clock or bound.kind == "message"} | {"activation"}
    adopted = {key: version for key, version in versions.items() if key not in ordered}
    return core.emit(decision, session.id, ev.SessionAdopted(versions=adopted))


def _skip_empty_slots(core: Core, decision: Decision, session: Session) -> Session:
    """`when: changed`: a slot that finds nothing new is accounted for, and costs no run."""
    assert session.spec is not None
    if session.spec.when != "changed" or session.wake is not None or not session.is_first_taken:
        return session
    bounds = core.looked.bounds.get(session.id, ())
    if has_other_news(core.state, core.looked, session) or any(_is_unclear(core, bound) for bound in bounds):
        return session
    for bound in bounds:
        if bound.is_clock and bound.wake and is_new(core.state, core.looked, session, bound):
            latest = core.looked.clocks[(session.id, bound.key)].latest
            assert latest is not None
            event = ev.SlotSkipped(binding=bound.name, key=bound.key, slot=latest, count=1, reason="nothing changed")
            session = core.emit(decision, session.id, event)
    return session


def _is_unclear(core: Core, bound: Bound) -> bool:
    look = core.looked.target(bound)
    return look is not None and (look.is_dirty or not look.is_looked)


def _lift_spent_hold(core: Core, decision: Decision, session: Session) -> Session:
    """A snooze that ran out, and `failed` when something newer came, end by themselves (rule 21)."""
    hold = session.hold
    if hold is None:
        return session
    if hold.until is not None and core.has_run_out(session.id, hold.until, hold.length_seconds, decision.moment):
        return core.emit(decision, session.id, ev.SessionResumed(reason="its time came"))
    if hold.kind == "failed" and is_owed(core.state, core.looked, session):
        return core.emit(decision, session.id, ev.SessionResumed(reason="something newer came"))
    return session


def _settle_wake(core: Core, decision: Decision, session: Session) -> Session:
    owed = is_owed(core.state, core.looked, session)
    if session.wake is None:
        return _request_wake(core, decision, session) if owed else _forget_owed(core, session)
    if owed:
        return _extend_wake(core, decision, session)
    # Undone before it started. After a failed try the outputs may be half written: it runs (rule 18).
    if session.wake.tried is None:
        return core.emit(decision, session.id, ev.WakeWithdrawn(wake=session.wake.wake, reason="undone"))
    return session


def _forget_owed(core: Core, session: Session) -> Session:
    core.looked.owed_since.pop(session.id, None)
    return session


def _request_wake(core: Core, decision: Decision, session: Session) -> Session:
    if not is_activation_owed(session) and _is_settling(core, decision, session):
        return session
    core.looked.owed_since.pop(session.id, None)
    core.looked.held_marks.pop(session.id, None)
    causes, chain = describe_causes(core.state, core.looked, session, decision.moment.wall)
    return core.emit(decision, session.id, ev.WakeRequested(wake=session.wakes + 1, causes=causes, chain=chain))


def _is_settling(core: Core, decision: Decision, session: Session) -> bool:
    """One save of several files is one wake: wait while other waking bindings are still dirty, within bounds (rule 12)."""
    looks = [core.looked.target(b) for b in core.looked.bounds.get(session.id, ()) if b.wake]
    dirty = [look for look in looks if look is not None and look.is_dirty and look.held is None]
    if not dirty:
        return False
    now = decision.moment.mono
    since = core.looked.owed_since.setdefault(session.id, now)
    limit = since + max(look.target.settle_max_seconds for look in dirty)
    if now >= limit:
        return False
    core.mono.add(limit, "session", session.id)
    return True


def _extend_wake(core: Core, decision: Decision, session: Session) -> Session:
    wake = session.wake
    assert wake is not None
    known = {(cause.key, cause.new) for cause in wake.causes}
    causes, chain = describe_causes(core.state, core.looked, session, decision.moment.wall)
    if all((cause.key, cause.new) in known for cause in causes):
        return session
    # Ordered causes are never withdrawn (rule 18); level causes are told anew, since good.
    extended = ev.WakeExtended(wake=wake.wake, causes=causes, chain=max(chain, wake.chain, key=len))
    return core.emit(decision, session.id, extended)


def _try_start(core: Core, decision: Decision, session: Session) -> None:
    verdict = judge_start(core, session, decision.moment)
    match verdict:
        case Ready(is_mixed=is_mixed):
            _start(core, decision, session, is_mixed)
        case Loops(words=words):
            core.emit(decision, session.id, ev.SessionSlept(hold=ev.Hold(kind="loop", words=words)))
        case Waits(for_slot=True):
            _queue(core, session)
        case Waits(for_upstream=True):
            _mark_held(core, decision, session)
        case Waits():
            pass
        case _:
            assert_never(verdict)


def _queue(core: Core, session: Session) -> None:
    rank = _rank(core, session)
    if core.ranks.get(session.id) != rank:
        core.ranks[session.id] = rank
        heapq.heappush(core.ready, (rank, session.id))


def _rank(core: Core, session: Session) -> float:
    """Everyone ages alike, so the order of the queue never changes: a static rank, smallest first."""
    assert session.wake is not None and session.spec is not None
    priority = session.spec.priority
    for reader in core.graph.all_readers(session.name):
        reader_id = core.state.ids.get(reader)
        other = core.state.get(reader_id) if reader_id is not None else None
        # An upstream takes the highest priority of those it holds (rule 35).
        if other is not None and other.wake is not None and other.spec is not None:
            priority = max(priority, other.spec.priority)
    return session.wake.requested_at / 1e6 / SECONDS_PER_PRIORITY - priority


def _mark_held(core: Core, decision: Decision, session: Session) -> None:
    """Remember how often its upstreams had succeeded when they began to hold it (rule 32)."""
    upstreams = core.graph.all_upstreams(session.name)
    if session.id not in core.looked.held_marks:
        ids = {name: core.state.ids[name] for name in upstreams if name in core.state.ids}
        core.looked.held_marks[session.id] = {name: core.state.get(one).successes for name, one in ids.items()}
    for name in upstreams:
        one = core.state.ids.get(name)
        if one is not None and one in core.ranks:
            _queue(core, core.state.get(one))


def _start(core: Core, decision: Decision, session: Session, is_mixed: bool) -> None:
    wake = session.wake
    assert wake is not None
    versions = start_versions(core.state, core.looked, session)
    # Attempts belong to the start versions; changed versions begin anew (rule 21).
    attempt = wake.attempt if wake.tried == versions else 0
    event = ev.RunStarted(
        run=session.runs + 1,
        run_id=f"{session.id}.{session.runs + 1}",
        wake=wake.wake,
        attempt=attempt,
        incarnation=core.incarnation,
        versions=versions,
        causes=wake.causes,
        chain=wake.chain,
        mixed=is_mixed,
        resumed_from=_resumed_from(session),
    )
    bounds = core.looked.bounds.get(session.id, ())
    core.looked.stamps[session.id] = {b.target: look.stamp for b in bounds if b.target and (look := core.looked.target(b))}
    core.looked.held_marks.pop(session.id, None)
    core.ranks.pop(session.id, None)
    core.emit(decision, session.id, event)
    refresh_busy(core, decision, session.id)


def _resumed_from(session: Session) -> int | None:
    """The run this one goes on from: the last, if it did not come to its end."""
    last = session.last_run
    return last.run if last is not None and last.outcome in ("interrupted", "lost") else None


def settle_finished(core: Core, decision: Decision) -> None:
    """A run that ended and was followed by nothing leaves its session at rest, and the log says so."""
    for session_id in decision.finished:
        session = core.state.get(session_id)
        is_open = session.run is not None or session.is_terminated or not session.is_declared
        if is_open or find_hold_words(core, session, decision.moment) is not None:
            continue
        assert session.last_run is not None
        core.emit(decision, session_id, ev.SessionSuspended(reason=session.last_run.outcome))
    decision.affected.clear()


