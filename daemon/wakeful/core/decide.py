"""decide: one observation becomes events. Take first, then dispatch until nothing more follows (rule 2)."""

from __future__ import annotations

import heapq

from wakeful.core.busy import refresh_busy
from wakeful.core.calls import Called
from wakeful.core.decision import Decision
from wakeful.core.dispatch import dispatch, settle_finished
from wakeful.core.machine import Core
from wakeful.core.observation import (
    ClockTicked,
    DaemonStarted,
    DaemonStopping,
    Moment,
    ProcessEnded,
    RunRecovered,
    SettingsRead,
    SpecsRead,
    TargetLooked,
    TargetsHinted,
)
from wakeful.core.take import take

Observation = (
    DaemonStarted
    | DaemonStopping
    | SpecsRead
    | SettingsRead
    | TargetsHinted
    | TargetLooked
    | ClockTicked
    | ProcessEnded
    | RunRecovered
    | Called
)


def decide(core: Core, observation: Observation, moment: Moment) -> Decision:
    decision = Decision(moment)
    take(observation, core, decision)
    _dispatch_affected(core, decision)
    while _offer_slots(core, decision):
        _dispatch_affected(core, decision)
    settle_finished(core, decision)
    return decision


def _dispatch_affected(core: Core, decision: Decision) -> None:
    while decision.affected:
        session_id = next(iter(decision.affected))
        del decision.affected[session_id]
        refresh_busy(core, decision, session_id)
        dispatch(core, decision, session_id)


def _offer_slots(core: Core, decision: Decision) -> bool:
    """Dispatch waiting sessions in order while slots are free; True if that led to anything (rule 35)."""
    full: list[tuple[float, str]] = []
    while core.ready and core.has_slot(None):
        entry = heapq.heappop(core.ready)
        if core.ranks.get(entry[1]) != entry[0]:
            continue
        session = core.state.get(entry[1])
        if session.spec is not None and not core.has_slot(session.spec.pool):
            full.append(entry)
            continue
        del core.ranks[session.id]
        dispatch(core, decision, session.id)
    for entry in full:
        heapq.heappush(core.ready, entry)
    return bool(decision.affected)
