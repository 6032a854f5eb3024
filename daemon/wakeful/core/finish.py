"""The end of a run: which outcome, which marks move, who must look (rules 14-17, 22-24, 28, 29).

Called by dispatch for sessions with an open run. A run is closed only after its outputs and its
dirty inputs were looked at, so that `run_finished` tells what was written and what was touched.
"""

from __future__ import annotations

import hashlib

from wakeful.core import events as ev
from wakeful.core.decision import Decision
from wakeful.core.machine import Core
from wakeful.core.observation import ProcessEnded
from wakeful.core.owed import is_owed
from wakeful.core.spec import CronBinding, EveryBinding
from wakeful.core.state import OpenRun, Session

# How long the end of a run waits for its outputs to be looked at.
LAST_LOOK_SECONDS = 2.0
LOST_RUNS_OF_A_WAKE = 3
FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 300.0


def attend_run(core: Core, decision: Decision, session: Session) -> None:
    ended = core.looked.ended.get(session.id)
    if ended is not None:
        if not _is_last_look_done(core, decision, session, ended.mono):
            return
        del core.looked.ended[session.id]
        finish_run(core, decision, session, ended.report)
        return
    _mind_overlap(core, decision, session)


def _is_last_look_done(core: Core, decision: Decision, session: Session, since: float) -> bool:
    looks = (core.looked.target(bound) for bound in core.looked.bounds.get(session.id, ()) if bound.kind in ("file", "program"))
    if all(look is None or not look.is_dirty or look.held is not None for look in looks):
        return True
    deadline = since + LAST_LOOK_SECONDS
    if decision.moment.mono >= deadline:
        return True
    core.mono.add(deadline, "session", session.id)
    return False


def _mind_overlap(core: Core, decision: Decision, session: Session) -> None:
    """A slot came due while the run is under way (rule 36)."""
    run = session.run
    assert run is not None
    for bound in core.looked.bounds.get(session.id, ()):
        binding = bound.binding
        if not isinstance(binding, CronBinding | EveryBinding):
            continue
        latest = core.looked.clocks[(session.id, bound.key)].latest if (session.id, bound.key) in core.looked.clocks else None
        if latest is None or latest <= max(run.versions.get(bound.key, ""), session.seen.get(bound.key, "")):
            continue
        if binding.overlap == "skip":
            event = ev.SlotSkipped(binding=bound.name, key=bound.key, slot=latest, count=1, reason="the last run is still under way")
            session = core.emit(decision, session.id, event)
        elif binding.overlap == "replace" and run.stop is None:
            session = core.emit(decision, session.id, ev.RunStopRequested(run=run.run, why="replace"))


def finish_run(core: Core, decision: Decision, session: Session, report: ProcessEnded | None) -> None:
    """Close the open run. Without a report it was lost with an earlier daemon."""
    run = session.run
    assert run is not None
    decision.causal_parent = None
    event = _judge_end(session, run, report, decision.moment.wall)
    event = _add_findings(core, session, run, event)
    stopped_for = run.stop.why if run.stop is not None else None
    session = core.emit(decision, session.id, event, run=run.run)
    core.looked.stamps.pop(session.id, None)
    decision.finished.append(session.id)
    _dirty_readers(core, decision, session, run)
    _look_onward(core, decision, session)
    if stopped_for == "terminate":
        core.emit(decision, session.id, ev.SessionTerminated(reason="terminated while running"), run=run.run)
        return
    _sleep_if_needed(core, decision, session, event, run)


def _judge_end(session: Session, run: OpenRun, report: ProcessEnded | None, wall: int) -> ev.RunFinished:
    """The outcome, strongest reason first: a stop that was logged, then the crash, then the process's own word."""
    exit_code = report.exit_code if report is not None else None
    has_succeeded = report is not None and report.problem is None and report.exit_code == 0
    facts = {"run": run.run, "exit_code": exit_code, "signal": report.signal if report is not None else None}
    if report is not None:
        facts |= {"usage": report.usage, "output": report.output}
    stop = run.stop
    match stop.why if stop is not None else None:
        case "terminate" | "cancel":
            return ev.RunFinished(outcome="cancelled", is_final=True, by=stop.by, reason=f"{stop.why} by {stop.by}", **facts)
        case "interrupt":
            return ev.RunFinished(outcome="interrupted", is_final=True, by=stop.by, reason=f"interrupted by {stop.by}", **facts)
        case "suspend" if not has_succeeded:
            return ev.RunFinished(outcome="interrupted", is_final=True, by=stop.by, reason=f"suspended by {stop.by}", **facts)
        case "replace":
            return ev.RunFinished(outcome="interrupted", is_final=False, by="clock", reason="replaced: its next slot came due", **facts)
        case "shutdown" if not has_succeeded:
            return ev.RunFinished(outcome="interrupted", is_final=False, by="wakeful", reason="the daemon stopped", **facts)
    if report is None:
        return ev.RunFinished(outcome="lost", is_final=False, reason="the daemon ended while it ran", **facts)
    if has_succeeded:
        return ev.RunFinished(outcome="succeeded", is_final=True, **facts)
    return _judge_failure(session, run, report, facts, wall)


def _judge_failure(session: Session, run: OpenRun, report: ProcessEnded, facts: dict[str, object], wall: int) -> ev.RunFinished:
    reason = report.problem or (f"killed by signal {report.signal}" if report.signal else f"exit code {report.exit_code}")
    retries = run.spec.run.retries if run.spec.run is not None else 0
    # A session whose file is gone has nothing to try again for (rule 26).
    if run.attempt >= retries or not session.is_declared:
        return ev.RunFinished(outcome="failed", is_final=True, reason=reason, **facts)
    failures = session.wake.failures if session.wake is not None else 0
    seconds = backoff_seconds(failures, run.run_id)
    return ev.RunFinished(
        outcome="failed", is_final=False, reason=reason, retry_at=wall + int(seconds * 1e6), backoff_seconds=seconds, **facts
    )


def backoff_seconds(failures: int, run_id: str) -> float:
    """1 s doubling to 5 m; the jitter comes from the run's id, so that a replay waits the same."""
    base = min(FIRST_BACKOFF_SECONDS * 2**failures, LONGEST_BACKOFF_SECONDS)
    share = hashlib.blake2b(run_id.encode(), digest_size=2).digest()
    return round(base * (1 + int.from_bytes(share) / 65535 / 4), 3)


def _add_findings(core: Core, session: Session, run: OpenRun, event: ev.RunFinished) -> ev.RunFinished:
    """What was written, as found at the end (rule 28), and which inputs were touched meanwhile (rule 17)."""
    stamps = core.looked.stamps.get(session.id, {})
    written, touched = dict[str, str](), []
    for bound in core.looked.bounds.get(session.id, ()):
        look = core.looked.target(bound)
        if look is None or look.version is None:
            continue
        if bound.is_written:
            written[bound.name] = look.version
        elif bound.target in stamps and stamps[bound.target] != look.stamp and look.version == run.versions.get(bound.key):
            touched.append(bound.key)
    return _with(event, written=written, touched=tuple(touched) if event.is_final else ())


def _with(event: ev.RunFinished, **changes: object) -> ev.RunFinished:
    return ev.RunFinished(**{name: getattr(event, name) for name in event.__struct_fields__} | changes)


def _dirty_readers(core: Core, decision: Decision, session: Session, run: OpenRun) -> None:
    """In the same step every reader of what was written is dirty, and looked at without settle (rule 29)."""
    chain = (*run.chain, session.id)
    for reader, pattern in core.graph.fed_by(session.name):
        reader_id = core.state.ids.get(reader)
        if reader_id is None:
            continue
        for bound in core.looked.bounds.get(reader_id, ()):
            look = core.looked.target(bound)
            if look is None or bound.is_written or getattr(bound.binding, "pattern", None) != pattern.text:
                continue
            look.dirty(decision.moment.mono, urgent=True)
            look.chain = chain
            core.want_look(decision, look)
        decision.touch(reader_id)
    for reader in core.graph.readers.get(session.name, ()):
        if reader in core.state.ids:
            decision.touch(core.state.ids[reader])


def _look_onward(core: Core, decision: Decision, session: Session) -> None:
    """each_commit asks for the next commit from its new base (rule 38)."""
    for bound in core.looked.bounds.get(session.id, ()):
        look = core.looked.target(bound)
        if bound.is_each_commit and look is not None and look.base != session.seen.get(bound.key):
            look.dirty(decision.moment.mono, urgent=True)
            core.want_look(decision, look)


def _sleep_if_needed(core: Core, decision: Decision, session: Session, event: ev.RunFinished, run: OpenRun) -> None:
    if event.outcome == "lost" and session.wake is not None and session.wake.lost >= LOST_RUNS_OF_A_WAKE:
        words = f"crashing: {session.wake.lost} runs of this wake were lost with the daemon"
        core.emit(decision, session.id, ev.SessionSlept(hold=ev.Hold(kind="crashing", words=words)), run=run.run)
        return
    if event.outcome != "failed" or not event.is_final or not session.is_declared:
        return
    # Something newer came during the run: that is tried at once (rule 21).
    if session.hold is None and not is_owed(core.state, core.looked, session):
        words = f"failed: {event.reason}"
        core.emit(decision, session.id, ev.SessionSlept(hold=ev.Hold(kind="failed", words=words)), run=run.run)
