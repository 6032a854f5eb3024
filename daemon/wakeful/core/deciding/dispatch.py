"""dispatch: decides the wakes, starts and sleeps of one session from state and looked (rule 2).

Called after every observation for the sessions that it touched, and again until nothing changes any
more. It acts on state, not on changes, so a second call does nothing. A session that may start waits in
the ready queue. `offer_slots` starts sessions in order, after all touched sessions were dispatched.
"""

from __future__ import annotations

from typing import Any, assert_never

from wakeful.core.deciding.acting_agent import find_acting
from wakeful.core.deciding.clock_bindings import record_skipped_slots
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.holds import find_hold_deadline, find_hold_words, find_retry_deadline, say_length
from wakeful.core.deciding.may_start import (
    Ready,
    Sleeps,
    WaitsForFedInput,
    WaitsForOther,
    WaitsForSlot,
    WaitsForTime,
    WaitsForUpstream,
    YieldsToReader,
    find_time_wait,
    judge_start,
)
from wakeful.core.deciding.owed import (
    describe_causes,
    has_other_news,
    is_activation_owed,
    is_new,
    is_owed,
    start_versions,
    takes_first_run,
)
from wakeful.core.deciding.run_end import try_finish_run
from wakeful.core.deciding.run_start import make_start
from wakeful.core.deciding.working_state import Core, Lane
from wakeful.core.deciding.written_files import try_finish_writing
from wakeful.core.looking.observed_state import Looked
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import FileBinding

# Waiting raises the priority by one every two seconds, so nothing starves (rule 35).
SECONDS_PER_PRIORITY = 2.0


def dispatch(core: Core, decision: Decision, session_id: str) -> None:
    session = core.state.get(session_id)
    if session.run is not None:
        try_finish_run(core, decision, session)
        session = core.state.get(session_id)
    if session_id in core.looked.writing:
        if not try_finish_writing(core, decision, session):
            return
        session = core.state.get(session_id)
    # If a session has no bounds, this incarnation has not read its spec yet, so nothing is known about it.
    if session.run is not None or not session.is_armed or session_id not in core.looked.bounds:
        return
    session = _adopt_first_versions(core, decision, session)
    session = record_skipped_slots(core, decision, session)
    session = _skip_empty_slots(core, decision, session)
    _look_for_next_commits(core, decision, session)
    session = _end_hold(core, decision, session)
    session, is_due = _update_wake(core, decision, session)
    if is_due:
        _queue_or_hold(core, decision, session)


def _adopt_first_versions(core: Core, decision: Decision, session: Session) -> Session:
    """Adopt the present versions as seen for `first: adopt`, once all bindings were looked at (rule 25)."""
    assert session.spec is not None
    if session.marks.is_first_taken or takes_first_run(session.spec):
        return session
    bounds = core.looked.bounds[session.id]
    looks = (core.looked.target(bound) for bound in bounds if not bound.is_condition)
    if not all(look is None or (look.is_looked and look.version is not None) for look in looks):
        return session
    versions = start_versions(core.state, core.looked, session)
    # Clocks, the mailbox, webhooks and failures start at their declaration; anything later is owed.
    taken = [bound.key for bound in bounds if bound.key in versions and not bound.starts_at_declaration]
    return core.emit(decision, session.id, ev.SessionAdopted(versions={key: versions[key] for key in taken}))


def _skip_empty_slots(core: Core, decision: Decision, session: Session) -> Session:
    """Record slots as skipped if nothing else is new and the spec has `when: changed`. Such slots cause no run."""
    assert session.spec is not None
    if session.spec.when != "changed" or session.wake is not None or not session.marks.is_first_taken:
        return session
    if has_other_news(core.state, core.looked, session) or not _is_all_clear(core.looked, session):
        return session
    for bound in core.looked.bounds[session.id]:
        if bound.is_clock and bound.wake and is_new(core.state, core.looked, session, bound):
            latest = core.looked.clocks[(session.id, bound.key)].latest
            assert latest is not None
            event = ev.SlotSkipped(binding=bound.name, key=bound.key, slot=latest, count=1, reason="nothing changed")
            session = core.emit(decision, session.id, event)
    return session


def _is_all_clear(looked: Looked, session: Session) -> bool:
    """Are all read bindings looked at and clean, also those that do not wake?"""
    looks = (
        looked.target(bound) for bound in looked.bounds[session.id] if not bound.is_condition and not bound.is_written
    )
    return all(look is None or look.is_clear for look in looks)


def _look_for_next_commits(core: Core, decision: Decision, session: Session) -> None:
    """Look for the next commit of each_commit bindings whenever their base has moved (rules 11, 38)."""
    for bound in core.looked.bounds[session.id]:
        if not bound.is_each_commit or bound.target is None:
            continue
        look = core.looked.targets[bound.target]
        if look.is_clear and look.base != session.marks.seen.get(bound.key):
            look.mark_dirty(decision.moment.mono, urgent=True)
            core.want_look(decision, look)


def _end_hold(core: Core, decision: Decision, session: Session) -> Session:
    """End a hold whose time is over, or a hold `failed` when something newer is owed (rule 21).

    A question whose time is over is denied.
    """
    hold = session.hold
    if hold is None:
        return session
    deadline = find_hold_deadline(hold)
    if deadline is not None and core.has_passed(session.id, deadline, decision.moment):
        if hold.kind == "asking":
            return _deny_unanswered(core, decision, session)
        return core.emit(decision, session.id, ev.SessionResumed(reason="the time of the hold is over"))
    _await_end_of_hold(core, decision, session.id, hold)
    if hold.kind == "failed" and is_owed(core.state, core.looked, session):
        return core.emit(decision, session.id, ev.SessionResumed(reason="a newer version came"))
    return session


def _await_end_of_hold(core: Core, decision: Decision, session_id: str, hold: ev.Hold) -> None:
    deadline = find_hold_deadline(hold)
    if deadline is not None:
        core.await_deadline(session_id, deadline, decision.moment)


def _deny_unanswered(core: Core, decision: Decision, session: Session) -> Session:
    """Deny a question that no person answered in time."""
    hold, wake, question = session.hold, session.wake, session.question
    within = say_length(hold.length_seconds) if hold is not None and hold.length_seconds is not None else "its time"
    if wake is None:
        return core.emit(decision, session.id, ev.SessionResumed(reason=f"nobody answered within {within}"))
    if question is None:
        told: dict[str, Any] = {cause.key: cause.new for cause in wake.causes if cause.new is not None}
        versions = told | start_versions(core.state, core.looked, session)
        return core.emit(
            decision,
            session.id,
            ev.WakeWithdrawn(
                wake=session.tally.wakes, reason=f"denied: nobody answered within {within}", versions=versions
            ),
        )
    text = (
        "no"
        if question.is_permission
        else f"nobody answered within {within}; go on without an answer, or say what is missing and end"
    )
    return core.emit(
        decision, session.id, ev.QuestionAnswered(wake=wake.wake, text=text, call=question.call, is_unanswered=True)
    )


# -- wakes ------------------------------------------------------------------------------------


def _update_wake(core: Core, decision: Decision, session: Session) -> tuple[Session, bool]:
    """Bring the wake up to date with the owed causes. Returns the session, and whether its wake is due."""
    wake = session.wake
    if wake is None:
        # Without a wake, for example after a person gave it up, upstreams no longer yield to this session.
        _release_upstreams(core, decision, session)
    if is_owed(core.state, core.looked, session):
        session = _extend_wake(core, decision, session) if wake is not None else _request_wake(core, decision, session)
        return session, session.wake is not None
    core.looked.owed_since.pop(session.id, None)
    if wake is None:
        return session, False
    # The change was undone. After a failed try the outputs may be half written, so the session runs anyway (rule 18).
    if wake.tried is not None:
        return session, True
    # A binding that is dirty or cannot be seen may still be the cause of the wake.
    if not core.looked.is_clear(session.id):
        return session, False
    session = core.emit(decision, session.id, ev.WakeWithdrawn(wake=wake.wake, reason="undone"))
    _release_upstreams(core, decision, session)
    return session, False


def _request_wake(core: Core, decision: Decision, session: Session) -> Session:
    if not is_activation_owed(session) and _await_quiet(core, decision, session):
        return session
    if core.looked.owed_since.pop(session.id, None) is not None:
        core.mono.drop("settle", session.id)
    causes, chain = describe_causes(core.state, core.looked, session, decision.moment.wall)
    chain = max(chain, _find_feeding_chain(core, session, causes), key=len)
    return core.emit(decision, session.id, ev.WakeRequested(wake=session.tally.wakes + 1, causes=causes, chain=chain))


def _await_quiet(core: Core, decision: Decision, session: Session) -> bool:
    """Wait while other waking bindings are still dirty, up to their `settle_max` (rule 12). True while it waits.

    Otherwise one save of several files would cause several wakes.
    """
    longest = -1.0
    for bound in core.looked.bounds[session.id]:
        if bound.target is None or not bound.wake:
            continue
        look = core.looked.targets[bound.target]
        # A new binding has already been quiet for its own settle time.
        if look.is_dirty and look.held is None and not is_new(core.state, core.looked, session, bound):
            longest = max(longest, look.target.settle_max_seconds)
    if longest < 0:
        return False
    now = decision.moment.mono
    limit = core.looked.owed_since.setdefault(session.id, now) + longest
    if now >= limit:
        return False
    core.mono.add(limit, "settle", session.id)
    return True


def _extend_wake(core: Core, decision: Decision, session: Session) -> Session:
    """Add later causes to the wake. An undone cause is removed, unless it was tried already or cannot be seen now."""
    wake = session.wake
    assert wake is not None
    causes, chain = gather_causes(core, session, decision.moment.wall)
    if {(cause.key, cause.new) for cause in causes} == {(cause.key, cause.new) for cause in wake.causes}:
        return session
    # A binding that changes every second is recorded again when the wake may start, not every second (rule 34 c).
    is_told = {cause.key for cause in causes} == {cause.key for cause in wake.causes}
    if is_told and find_time_wait(core, session, decision.moment) is not None:
        return session
    chain = max(chain, wake.chain, _find_feeding_chain(core, session, causes), key=len)
    return core.emit(decision, session.id, ev.WakeExtended(wake=wake.wake, causes=causes, chain=chain))


def gather_causes(core: Core, session: Session, wall: int) -> tuple[tuple[ev.Cause, ...], tuple[str, ...]]:
    """Return the causes that an open wake has now, recorded or not, and the longest chain of runs that led to them by
    messages and `session` bindings."""
    wake = session.wake
    assert wake is not None
    causes, chain = describe_causes(core.state, core.looked, session, wall)
    known = {(cause.key, cause.new): cause for cause in wake.causes}
    told = {cause.key for cause in causes}
    looks = {bound.key: core.looked.target(bound) for bound in core.looked.bounds[session.id] if bound.key not in told}
    for cause in wake.causes:
        if cause.key in looks and (
            wake.tried is not None or ((look := looks[cause.key]) is not None and look.version is None)
        ):
            causes += (cause,)
    # Causes that were recorded before a restart have their paths; causes described again may not.
    return tuple(known.get((cause.key, cause.new), cause) for cause in causes), chain


def _find_feeding_chain(core: Core, session: Session, causes: tuple[ev.Cause, ...]) -> tuple[str, ...]:
    """Return the longest chain of runs that wrote the changed files.

    Only runs that ended since this session's last start count.
    """
    if session.name not in core.graph.upstreams:
        return ()
    since = session.last_run.started_at if session.last_run is not None else 0
    changed = {cause.key for cause in causes}
    longest: tuple[str, ...] = ()
    for bound in core.looked.bounds[session.id]:
        if bound.key not in changed or not isinstance(bound.binding, FileBinding):
            continue
        for writer in sorted(core.graph.feeders(session.name, bound.binding.pattern)):
            other = core.state.find_named(writer)
            if other is not None and other.last_run is not None and other.last_run.finished_at >= since:
                longest = max(longest, (*other.last_run.chain, other.id), key=len)
    return longest


# -- starts -----------------------------------------------------------------------------------


def _queue_or_hold(core: Core, decision: Decision, session: Session) -> None:
    """Act on the verdict for a session whose wake is due: queue it, put it to sleep, or let it wait."""
    if core.state.braked and session.brake is None:
        # The session was declared, forked or opened after the brake was set, so it sleeps as well.
        words = core.state.get(min(core.state.braked)).brake
        core.emit(decision, session.id, ev.SessionBraked(words=words or ""))
        return
    retry = find_retry_deadline(session.wake) if session.wake is not None else None
    if retry is not None and not core.has_passed(session.id, retry, decision.moment):
        core.await_deadline(session.id, retry, decision.moment)
    verdict = judge_start(core, session, decision.moment)
    match verdict:
        case Ready() | WaitsForSlot():
            _queue(core, session)
        case Sleeps(hold=hold):
            core.emit(decision, session.id, ev.SessionSlept(hold=hold))
            _await_end_of_hold(core, decision, session.id, hold)
            _release_upstreams(core, decision, session)
        case WaitsForUpstream() | WaitsForFedInput():
            _mark_held(core, session)
        case YieldsToReader(reader_id=reader):
            core.looked.fairness.giving_way.setdefault(reader, {})[session.id] = None
            decision.touch(reader)
        case WaitsForTime(deadline=deadline):
            core.await_deadline(session.id, deadline, decision.moment)
            _release_upstreams(core, decision, session)
        case WaitsForOther():
            _release_upstreams(core, decision, session)
        case _:
            assert_never(verdict)


def offer_slots(core: Core, decision: Decision) -> bool:
    """Start ready sessions in order while slots are free (rule 35). True if any session must be dispatched again."""
    while (
        not decision.affected
        and (session_id := core.ready.take(lambda lane: core.has_slot(lane.pool, is_agent=lane.is_agent))) is not None
    ):
        session = core.state.get(session_id)
        if session.wake is None or session.run is not None or not session.is_armed:
            continue
        verdict = judge_start(core, session, decision.moment)
        if isinstance(verdict, Ready):
            _start(core, decision, session, verdict.is_mixed)
        else:
            decision.touch(session.id)
    return bool(decision.affected)


def _queue(core: Core, session: Session) -> None:
    """Queue the session by its rank, smallest first. All sessions age at the same rate, so a rank stays valid."""
    assert session.wake is not None and session.spec is not None
    priority = session.spec.priority
    for reader in core.graph.all_readers(session.name):
        other = core.state.find_named(reader)
        # An upstream takes the highest priority among the readers that it holds (rule 35).
        if other is not None and other.wake is not None and other.spec is not None:
            priority = max(priority, other.spec.priority)
    rank = session.wake.requested_at / 1e6 / SECONDS_PER_PRIORITY - priority
    core.ready.put(session.id, rank, Lane(session.spec.pool, is_agent=find_acting(core, session)[0] is not None))


def _mark_held(core: Core, session: Session) -> None:
    """Remember since when the session is held (rule 32), and lend its priority to its queued upstreams."""
    if session.id in core.looked.fairness.held_since:
        return
    core.looked.fairness.hold(session.id)
    if not core.ready:
        return
    for name in sorted(core.graph.all_upstreams(session.name)):
        upstream = core.state.find_named(name)
        if upstream is not None and upstream.id in core.ready and upstream.wake is not None:
            _queue(core, upstream)


def _release_upstreams(core: Core, decision: Decision, session: Session) -> None:
    """Dispatch the upstreams that yielded to this session."""
    for upstream_id in core.looked.fairness.release(session.id):
        decision.touch(upstream_id)


def _start(core: Core, decision: Decision, session: Session, is_mixed: bool) -> None:
    event = make_start(core, session, decision.moment.wall, is_mixed)
    if not event.is_aside:
        _remember_inputs(core, session)
    core.emit(decision, session.id, event)
    _release_upstreams(core, decision, session)


def _remember_inputs(core: Core, session: Session) -> None:
    stamps: dict[str, str] = {}
    doubts: dict[str, str] = {}
    waiting: list[str] = []
    for bound in core.looked.bounds[session.id]:
        if bound.target is None:
            continue
        look = core.looked.targets[bound.target]
        if bound.is_file and not bound.is_written:
            stamps[bound.key] = look.stamp
            doubts[bound.key] = look.doubt
        elif bound.is_each_commit:
            waiting += look.pending
    core.looked.stamps[session.id] = stamps
    core.looked.doubts[session.id] = doubts
    if waiting or session.id in core.looked.backlogs:
        core.looked.backlogs[session.id] = frozenset(waiting)


def suspend_finished(core: Core, decision: Decision) -> None:
    """Record each session as suspended whose run has ended, and which has no new wake and no hold."""
    for session_id in decision.finished:
        session = core.state.get(session_id)
        is_open = (
            session.run is not None
            or session.wake is not None
            or session.is_shut
            or not session.declaration.is_declared
        )
        if is_open or find_hold_words(core, session, decision.moment) is not None:
            continue
        assert session.last_run is not None
        core.emit(decision, session_id, ev.SessionSuspended(reason=session.last_run.outcome))
    decision.affected.clear()
