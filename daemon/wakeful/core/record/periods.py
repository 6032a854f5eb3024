"""The periods of budgets, noted in every event that is charged to one.

Called when an event is emitted: the zone database is asked then. A fold takes the answer from the event, so a log folds
the same on a machine without that database, and after its rules changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.record.events import Event, RunFinished, RunStarted, TurnAnswered, TurnFailed
from wakeful.core.record.state import Session
from wakeful.core.spec.budget import find_periods


def note_periods(session: Session | None, event: Event, at: int) -> Event:
    """The event with the periods of the budgets that it is charged to; as it is where no budget counts any."""
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
