"""plan(session, incarnation, attached) -> actions: compare state with the processes there are.

Level, not edge: actions follow from durable state alone, so after a crash the same plan appears
again by itself (rules 2 and 3).
"""

from __future__ import annotations

from wakeful.core.action import Action, LandOutputs, RecoverRun, StartProcess, StopProcess
from wakeful.core.state import Session


def plan(session: Session, incarnation: str, attached: frozenset[str] | set[str]) -> list[Action]:
    run = session.run
    if run is None:
        return []
    # Whoever started it: it has succeeded, and landing twice is landing once (rule 27).
    if run.staged is not None:
        return [LandOutputs(session=session.id, run=run)]
    # Started by a daemon that is no more: nothing may be alive before the wake is tried again.
    if run.incarnation != incarnation:
        return [RecoverRun(session=session.id, run=run)]
    if run.run_id not in attached:
        return [StartProcess(session=session.id, run=run)]
    if run.stop is None:
        return []
    match run.stop.why:
        # A command's only safe point is its end (rule 24).
        case "suspend":
            return []
        case "interrupt" | "shutdown":
            return [StopProcess(session=session.id, run=run, how="interrupt")]
        case "replace" | "cancel" | "terminate":
            return [StopProcess(session=session.id, run=run, how="terminate")]
