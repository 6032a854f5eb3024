"""The fields that `Core.emit` adds to an event before it is recorded: its causal parent, and its budget periods.

The parent is the record that led to the event, as "session:seq". A start follows from its wake, an end from its start,
and rest from the end. Adopted outputs follow from the call that wrote them. A wake follows from the run that wrote or
sent its cause, or from the record just before it. An event from the outside world has no parent.
Finding the periods needs the zone database. A fold reads them from the event, so a log folds the same on a machine
without that database.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.deciding.decision import Entry
from wakeful.core.record import events as ev
from wakeful.core.record.events import Event, RunFinished, RunStarted, TurnAnswered, TurnFailed
from wakeful.core.record.state import Session, State
from wakeful.core.spec.budget import find_periods

# Calls that are recorded in one transaction with the wake that they lead to (rule 39).
CALLS_FOR_A_WAKE = (
    ev.ActivationRequested,
    ev.MessageAdded,
    ev.DeliveryReceived,
    ev.SpecDeclared,
    ev.SessionResumed,
)
# Sets of types, because a lookup is faster than trying patterns one by one, and every record needs its parent.
_OF_ITS_WAKE = frozenset({ev.RunStarted, ev.WakeWithdrawn})
_OF_ITS_RUN = frozenset({
    ev.RunFinished, ev.RunStopRequested, ev.RunReadopted, ev.OutputsStaged, ev.OutputsLanded,
    ev.PromptAssembled, ev.TurnRequested, ev.TurnAnswered, ev.TurnMetered, ev.TurnFailed, ev.ToolCalled,
    ev.ToolReturned, ev.QuestionAsked, ev.WorkHalted, ev.SubagentHalted,
})  # fmt: skip
_OTHERS = frozenset({ev.SessionSuspended, ev.OutputsAdopted, ev.WakeRequested, ev.WakeExtended, ev.MessageAdded})


def find_parent(state: State, session: Session | None, event: ev.Event, entries: list[Entry]) -> str | None:
    kind = type(event)
    if session is None:
        return None
    if kind in _OF_ITS_WAKE:
        return f"{session.id}:{session.wake.seq}" if session.wake is not None else None
    if kind in _OF_ITS_RUN:
        return f"{session.id}:{session.run.seq}" if session.run is not None else None
    return _find_other(state, session, event, entries) if kind in _OTHERS else None


def _find_other(state: State, session: Session, event: ev.Event, entries: list[Entry]) -> str | None:
    match event:
        case ev.MessageAdded(chain=()):
            return None
        case ev.SessionSuspended() if session.last_run is not None:
            return f"{session.id}:{session.last_run.seq}"
        case ev.OutputsAdopted(position=position):
            return f"{session.id}:{position}"
        case ev.WakeRequested(chain=(*_, last)) | ev.WakeExtended(chain=(*_, last)) | ev.MessageAdded(chain=(*_, last)):
            return _find_run(state, last)
        case ev.WakeRequested() | ev.WakeExtended():
            beside = entries[-1] if entries else None
            if beside is not None and beside.session == session.id and isinstance(beside.event, CALLS_FOR_A_WAKE):
                return f"{session.id}:{beside.seq}"
    return None


def _find_run(state: State, session_id: str) -> str | None:
    """Find the record of the last run in a chain: its start while it runs, else its end."""
    session = state.sessions.get(session_id)
    if session is None:
        return None
    run = session.run or session.last_run
    return f"{session_id}:{run.seq}" if run is not None else None


def note_periods(session: Session | None, event: Event, at: int) -> Event:
    """Add the periods of the budgets that the event is charged to. An event without such budgets stays unchanged."""
    if session is None or not isinstance(event, RunStarted | RunFinished | TurnAnswered | TurnFailed):
        return event
    if isinstance(event, RunStarted):
        spec, agent = session.spec, event.agent
    else:
        spec, agent = (session.run.spec, session.run.agent) if session.run is not None else (session.spec, None)
    members = (agent, *agent.team) if agent is not None else ()
    budgets = (spec.budget if spec is not None else None, *(one.budget for one in members))
    periods = find_periods(budgets, at)
    return replace(event, periods=periods) if periods is not None else event
