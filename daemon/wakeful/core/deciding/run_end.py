"""The end of a run: its outcome, its outputs and touched inputs, and the last looks (rules 14-17, 22-24, 28, 29).

Called by `dispatch` for sessions with an open run. A run is closed only after its outputs and its
dirty inputs were looked at, so that `run_finished` lists what was written and what was touched.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec.structs import replace

from wakeful.core.deciding.decision import DAEMON, Decision
from wakeful.core.deciding.loop_guard import could_commit, list_self_fed
from wakeful.core.deciding.outputs import (
    find_conflicts,
    has_succeeded,
    is_attributed,
    is_left_alone,
    judge_change,
    stage_outputs,
)
from wakeful.core.deciding.owed import TOUCHED, is_owed
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import Bound, Ended, TargetLook
from wakeful.core.record import events as ev
from wakeful.core.record.fold_runs import add_spent
from wakeful.core.record.observations import ProcessEnded, Usage
from wakeful.core.record.state import OpenRun, Session, Stop
from wakeful.core.spec.bindings import CommitsBinding, CronBinding, EveryBinding
from wakeful.core.spec.session import SessionSpec

# Seconds until a run is closed without the answer of a source that hangs. Normally every source answers.
LONGEST_LAST_LOOK_SECONDS = 30.0
LOST_RUNS_OF_A_WAKE = 3
FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 300.0


def try_finish_run(core: Core, decision: Decision, session: Session) -> None:
    """Close the run if its process has ended, the last looks are done and the outputs are saved. After
    LONGEST_LAST_LOOK_SECONDS the run is closed anyway."""
    ended = core.looked.ended.get(session.id)
    if ended is None:
        # While staged outputs are being put in place, `overlap` no longer applies: the run has succeeded.
        if session.run is not None and session.run.staged is None:
            _apply_overlap(core, decision, session)
        return
    deadline = ended.mono + LONGEST_LAST_LOOK_SECONDS
    is_complete = are_looked_at(core, ended.awaited) and not ended.is_keeping
    if is_complete or decision.moment.mono >= deadline:
        finish_run(core, decision, session, ended)
    else:
        core.mono.add(deadline, "end", session.id)


def begin_run_end(core: Core, decision: Decision, session: Session, report: ProcessEnded) -> None:
    """Begin the end of a run whose process has ended: look at its outputs and its dirty inputs first (rule 29)."""
    # A repeated report changes nothing.
    if session.id in core.looked.ended:
        return
    if stage_outputs(core, decision, session, report):
        return
    if session.run is not None and session.run.staged is not None and session.run.landed is None:
        # Reported again while its outputs are being put in place.
        return
    awaited = {}
    for bound in core.looked.bounds.get(session.id, ()):
        look = core.looked.target(bound)
        if look is None or not _is_last_looked_at(session, bound, look):
            continue
        look.mark_dirty(decision.moment.mono, urgent=True)
        # An input that is still being written counts as touched, whatever its final content. The run's own outputs
        # are complete, even if still open.
        look.takes_open = bound.is_written or bound.is_both
        core.want_look(decision, look)
        awaited[look.target.key] = look.generation
    core.looked.ended[session.id] = Ended(report, decision.moment.mono, awaited, report.is_keeping)
    decision.touch(session.id)


def _is_last_looked_at(session: Session, bound: Bound, look: TargetLook) -> bool:
    """Is this binding looked at before the run is closed?

    True for outputs, dirty inputs, and a repository that the run may have committed to (rule 34 b).
    """
    if isinstance(bound.binding, CommitsBinding):
        return session.run is not None and could_commit(session.run.spec, bound.binding)
    return bound.is_file and (bound.is_written or bound.is_both or look.is_dirty)


def are_looked_at(core: Core, awaited: dict[str, int]) -> bool:
    """Was each of these targets looked at since the process ended: has it an answer of the given generation or a newer
    one? A target that is held counts as answered."""
    looks = ((core.looked.targets.get(key), generation) for key, generation in awaited.items())
    return all(look is None or look.applied >= generation or look.held is not None for look, generation in looks)


def _apply_overlap(core: Core, decision: Decision, session: Session) -> None:
    """Apply `overlap` to the slots that fell due while the run is under way (rule 36)."""
    run = session.run
    assert run is not None
    for bound in core.looked.bounds.get(session.id, ()):
        binding = bound.binding
        if not isinstance(binding, CronBinding | EveryBinding):
            continue
        clock = core.looked.clocks.get((session.id, bound.key))
        latest = clock.latest if clock is not None else None
        if latest is None or latest <= max(run.versions.get(bound.key, ""), session.marks.seen.get(bound.key, "")):
            continue
        if binding.overlap == "skip":
            event = ev.SlotSkipped(
                binding=bound.name, key=bound.key, slot=latest, count=1, reason="the last run is still under way"
            )
            session = core.emit(decision, session.id, event)
        elif binding.overlap == "replace" and run.stop is None:
            session = core.emit(decision, session.id, ev.RunStopRequested(run=run.run, why="replace"))


def finish_run(core: Core, decision: Decision, session: Session, ended: Ended | None) -> None:
    """Close the open run. `ended` is None if the run was lost with an earlier daemon."""
    run = session.run
    assert run is not None
    event = _judge_end(session, run, ended, decision.moment.wall)
    event = _add_findings(core, session, run, event, ended.awaited if ended is not None else {})
    stop = run.stop
    session = core.emit(decision, session.id, event, run=run.run)
    if core.looked.ended.pop(session.id, None) is not None:
        core.mono.drop("end", session.id)
    core.looked.stamps.pop(session.id, None)
    core.looked.doubts.pop(session.id, None)
    if event.is_final and event.outcome in ("succeeded", "failed"):
        core.looked.fairness.note_end(session.id, is_success=event.outcome == "succeeded")
    decision.finished.append(session.id)
    dirty_readers(core, decision, session, run.spec, ended.awaited if ended is not None else {})
    if stop is not None and stop.why == "terminate":
        # After the run's end, in the same transaction (rule 24).
        terminated = ev.SessionTerminated(reason=stop.reason or f"terminated by {stop.by} while it ran")
        session = core.emit(decision, session.id, terminated, author=stop.by, run=run.run)
    if session.is_shut or not session.declaration.is_declared:
        core.detach(decision, session)
        return
    _sleep_if_needed(core, decision, session, event, run)


def _say_kept(run: OpenRun) -> str | None:
    kept = run.landed.kept if run.landed is not None else ()
    if not kept:
        return None
    more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    return f"conflict: {kept[0].path}{more} was not put in place: {kept[0].words}"


def _say_shutdown(stop: Stop) -> str:
    return "the daemon stopped" if stop.by == DAEMON else f"brake: sleep --all by {stop.by}"


def _judge_end(session: Session, run: OpenRun, ended: Ended | None, wall: int) -> ev.RunFinished:
    """Decide the outcome. The strongest reason counts: a logged stop, then a crash, then the exit of the process."""
    report = ended.report if ended is not None else None
    is_success = report is not None and has_succeeded(run, report)
    facts = _gather_facts(run, ended)
    stop = run.stop
    if run.staged is not None:
        # A termination that comes now follows the success (rule 23).
        return ev.RunFinished(
            outcome="succeeded",
            is_final=True,
            reason=_say_kept(run),
            conflicts=tuple(sorted(find_conflicts(run))),
            **facts,
        )
    match stop:
        case Stop(why="terminate" | "cancel" as why, by=by):
            return ev.RunFinished(outcome="cancelled", is_final=True, by=by, reason=f"{why} by {by}", **facts)
        case Stop(why="interrupt", by=by):
            return ev.RunFinished(outcome="interrupted", is_final=True, by=by, reason=f"interrupted by {by}", **facts)
        case Stop(why="suspend", by=by) if not is_success:
            return ev.RunFinished(outcome="interrupted", is_final=True, by=by, reason=f"suspended by {by}", **facts)
        case Stop(why="replace") if not is_success:
            return ev.RunFinished(
                outcome="interrupted", is_final=False, by="clock", reason="replaced: its next slot came due", **facts
            )
        case Stop(why="shutdown", by=by) if not is_success:
            return ev.RunFinished(outcome="interrupted", is_final=False, by=by, reason=_say_shutdown(stop), **facts)
    if run.halt is not None and run.halt.kind != "failed":
        # The wake stays open: the next run continues from the last step when the hold is over.
        return ev.RunFinished(outcome="interrupted", is_final=False, by=DAEMON, reason=run.halt.words, **facts)
    if report is None:
        return ev.RunFinished(outcome="lost", is_final=False, reason="the daemon ended while it ran", **facts)
    if is_success:
        return ev.RunFinished(outcome="succeeded", is_final=True, **facts)
    if run.agent is not None and report.signal is not None and run.halt is None and report.problem is None:
        # The daemon did not send this signal. The next run continues from the last step, so no recorded step is done
        # or paid for twice.
        return ev.RunFinished(
            outcome="lost", is_final=False, reason=f"its process was killed by signal {report.signal}", **facts
        )
    return _judge_failure(session, run, report, facts, wall)


def _gather_facts(run: OpenRun, ended: Ended | None) -> dict[str, Any]:
    """Collect the fields of `RunFinished` that do not depend on the outcome."""
    if ended is None:
        facts: dict[str, Any] = {"run": run.run, "exit_code": None, "signal": None}
    else:
        report = ended.report
        facts = {
            "run": run.run,
            "exit_code": report.exit_code,
            "signal": report.signal,
            "usage": report.usage,
            "output": report.output,
            "files": ended.files,
            "isolation": report.isolation,
            "undeclared": report.undeclared,
            "hint": report.hint,
            "assumed": report.staged is None,
            "trace": report.trace,
            "workspace": report.workspace,
        }
    if run.agent is None:
        return facts
    done, usage = run.progress, facts.get("usage", Usage())
    guessed = done.estimated_tokens + done.reserved_tokens
    facts["usage"] = replace(usage, tokens=done.spent_tokens, estimated_tokens=guessed, usd=done.spent_usd)
    # A request that was never answered counts at its worst case, also for the sub-agent that made it.
    facts["subagents"] = (
        add_spent(done, done.reserved_tokens, done.reserved_tokens, done.reserved_usd)
        if done.reserved_tokens
        else done.subs
    )
    return facts


def _judge_failure(
    session: Session, run: OpenRun, report: ProcessEnded, facts: dict[str, Any], wall: int
) -> ev.RunFinished:
    reason = (
        (run.halt.words if run.halt is not None else None)
        or report.problem
        or (f"killed by signal {report.signal}" if report.signal else f"exit code {report.exit_code}")
    )
    retries = run.spec.run.retries if run.spec.run is not None else 0
    # A session whose file is gone is not retried (rule 26), nor is a traced run, whose result a person reads.
    if run.attempt >= retries or not session.declaration.is_declared or run.trace is not None:
        return ev.RunFinished(outcome="failed", is_final=True, reason=reason, **facts)
    failures = session.wake.failures if session.wake is not None else 0
    seconds = backoff_seconds(failures, run.run_id)
    return ev.RunFinished(
        outcome="failed",
        is_final=False,
        reason=reason,
        retry_at=wall + int(seconds * 1e6),
        backoff_seconds=seconds,
        **facts,
    )


def backoff_seconds(failures: int, run_id: str) -> float:
    """Return the wait before a retry: 1 s, doubling up to 5 min. The jitter depends on the run's id, so that a replay
    waits equally long."""
    base: float = min(FIRST_BACKOFF_SECONDS * 2**failures, LONGEST_BACKOFF_SECONDS)
    share = hashlib.blake2b(run_id.encode(), digest_size=2).digest()
    return round(base * (1 + int.from_bytes(share) / 65535 / 4), 3)


def _add_findings(
    core: Core, session: Session, run: OpenRun, event: ev.RunFinished, awaited: dict[str, int]
) -> ev.RunFinished:
    """Add the outputs as found at the end of the run (rule 28), and the inputs touched meanwhile (rule 17)."""
    known = {binding.identity for binding in run.spec.bindings}
    written: dict[str, str] = {}
    touched: list[str] = []
    conflicted = find_conflicts(run)
    is_own = is_attributed(run)
    # A write call that began and did not return has an unknown result.
    is_known = is_certain = is_own and not run.progress.writing
    for bound in core.looked.bounds.get(session.id, ()):
        look = core.looked.target(bound)
        # A run aside handles none of the inputs.
        if look is None or (run.is_aside and not bound.is_written):
            continue
        # `judged` is None if the version is unknown, or if the target was not looked at since the process ended, as
        # during a rebase or when a look hangs.
        judged = look.version if look.applied >= awaited.get(look.target.key, 0) else None
        whose = judge_change(look, run, bound.key) if is_own and (bound.is_written or bound.is_both) else "unknown"
        if bound.is_written:
            is_known = is_known and whose != "unknown"
            # An output that is known to be unchanged, or changed by others, is not the run's writing (rule 28).
            if (
                bound.key in known
                and judged is not None
                and bound.key not in conflicted
                and (whose in ("own", "unknown") or not is_certain)
            ):
                written[bound.name] = judged
        elif bound.is_both and bound.key in conflicted:
            # Seen stays at the start version, so the version of the others wakes the session (rule 27).
            continue
        elif bound.is_both and judged is not None and run.staged is not None and is_left_alone(look, run, bound.key):
            written[bound.name] = judged
        elif bound.is_both and judged is not None and whose == "own":
            # Only the run wrote here: the present version is the one it left (rules 7, 15).
            written[bound.name] = judged
        elif _is_touched(core, session, run, bound, look, is_judged=judged is not None):
            touched.append(bound.key)
    if is_own:
        event = replace(
            event,
            assumed=not is_known or event.outcome == "lost",
            wrote={path: own.digest for path, own in run.progress.wrote.items()},
        )
    if not event.is_final:
        return replace(event, written=written)
    return replace(event, written=written, touched=tuple(touched), self_fed=list_self_fed(core, session, run, touched))


def _is_touched(core: Core, session: Session, run: OpenRun, bound: Bound, look: TargetLook, *, is_judged: bool) -> bool:
    """Did this input change during the run, or is that unknown (rule 17)?"""
    key = bound.key
    is_unknown = key not in run.versions and not bound.is_ordered and not bound.is_condition
    if is_unknown and any(key == binding.identity for binding in run.spec.bindings):
        # An activation started the run although this input was unknown (rule 5), so the version it saw is unknown.
        return True
    if run.daemons > 1 and bound.is_file and key in run.versions and look.is_moved:
        # The stamp from the start of the run is lost with the earlier daemon. The time of the last change is not.
        return True
    stamp = core.looked.stamps.get(session.id, {}).get(key)
    if stamp is not None and (stamp != look.stamp or not is_judged):
        return True
    # Only the stat changed, and the contents are equal. This causes one follow-up run, and never a second one.
    doubt = core.looked.doubts.get(session.id, {}).get(key)
    return doubt is not None and doubt != look.doubt and not _is_follow_up(run, key)


def _is_follow_up(run: OpenRun, key: str) -> bool:
    """Is this run the follow-up of a run during which the same input was touched?"""
    return any(cause.key == key and cause.reason == TOUCHED for cause in run.causes)


def dirty_readers(
    core: Core, decision: Decision, session: Session, spec: SessionSpec, looked_at: dict[str, int]
) -> None:
    """Mark the inputs of all readers of the written files as dirty, and look at them without settle (rule 29)."""
    for reader, pattern in core.graph.fed_by(spec):
        reader_id = core.state.ids.get(reader)
        if reader_id is None:
            continue
        for bound in core.looked.bounds.get(reader_id, ()):
            look = core.looked.target(bound)
            if look is None or bound.is_written or getattr(bound.binding, "pattern", None) != pattern:
                continue
            # Writer and reader share this target, and a look since the end of the process was taken already.
            if look.target.key in looked_at and not look.is_dirty:
                continue
            look.mark_dirty(decision.moment.mono, urgent=True)
            core.want_look(decision, look)
        decision.touch(reader_id)
    followers = core.graph.readers.get(session.name, set()) | core.graph.failure_readers.get(session.name, set())
    core.touch_named(decision, sorted(followers))


def _sleep_if_needed(core: Core, decision: Decision, session: Session, event: ev.RunFinished, run: OpenRun) -> None:
    if run.halt is not None and event.outcome == "interrupted" and not event.is_final:
        core.emit(decision, session.id, ev.SessionSlept(hold=run.halt), run=run.run)
        return
    if event.outcome == "lost" and session.wake is not None and session.wake.lost >= LOST_RUNS_OF_A_WAKE:
        how = " with the daemon" if run.agent is None else f"; of the last, {event.reason}"
        words = f"crashing: {session.wake.lost} runs of this wake were lost{how}"
        core.emit(decision, session.id, ev.SessionSlept(hold=ev.Hold(kind="crashing", words=words)), run=run.run)
        return
    if event.outcome != "failed" or not event.is_final or not session.declaration.is_declared:
        return
    # The session sleeps unless something newer came during the run, which is tried at once (rule 21).
    if session.hold is None and not is_owed(core.state, core.looked, session):
        words = f"failed: {event.reason}"
        core.emit(decision, session.id, ev.SessionSlept(hold=ev.Hold(kind="failed", words=words)), run=run.run)
