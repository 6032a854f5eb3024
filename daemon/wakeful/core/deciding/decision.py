"""One decision while it is made: the events of one observation, folded as they are emitted.

`take` and `dispatch` fill it. The reactor appends the entries as one transaction (rule 39). It carries
out looks at once, and everything else after the entries are durable.
`Core.emit` calls the functions at the end. They add two things to an event before it is recorded:
- Its causal parent: the record that led to it, as "session:seq". A start follows from its wake, an end from its start,
  and a suspension from the end. Adopted outputs follow from the call that wrote them. A wake follows from the run that
  wrote or sent its cause, or from the record just before it. An event from the outside world has no parent.
- Its budget periods, which need the zone database. A fold reads them from the event, so a log folds the same on a
  machine without that database.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec.structs import replace

from wakeful.core.deciding.plan import Look
from wakeful.core.looking.targets import Target
from wakeful.core.record import events as ev
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session, State
from wakeful.core.spec.budget import find_periods

DAEMON = "wakeful"


@dataclass(slots=True, frozen=True)
class Entry:
    """One event to be appended to the log, with the seq that it will have."""

    session: str
    seq: int
    event: ev.Event
    author: str
    run: int | None = None
    parent: str | None = None
    key: str | None = None


@dataclass(slots=True)
class Decision:
    moment: Moment
    entries: list[Entry] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    follow: list[Target] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    # `affected`: sessions still to be dispatched, in the order in which they were touched. `unmarked`: sessions whose
    # busy mark may have changed. The marks are refreshed first, so that no session starts because of a stale mark
    # (rule 30).
    # Ordered dictionaries, because finding the first key of a plain dictionary gets slow after many removals (10,000).
    affected: OrderedDict[str, None] = field(default_factory=OrderedDict)
    unmarked: OrderedDict[str, None] = field(default_factory=OrderedDict)
    # Sessions whose plan may have changed.
    planned: dict[str, None] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    # The answer to the call, as text.
    reply: str | None = None
    # The reason why the run that a call asked for does not start, and when that reason ends, if known.
    held: str | None = None
    held_until: int | None = None

    def touch(self, session_id: str) -> None:
        self.affected[session_id] = None
        self.unmarked[session_id] = None


# Events that are recorded in one transaction with the wake that they lead to (rule 39).
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
    # The match below is slower than this lookup, and most records have no parent of these kinds.
    if kind not in _OTHERS:
        return None
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


def note_periods(session: Session | None, event: ev.Event, at: int) -> ev.Event:
    """Add the periods of the budgets that the event is charged to. An event without such budgets stays unchanged."""
    if session is None or not isinstance(event, ev.RunStarted | ev.RunFinished | ev.TurnAnswered | ev.TurnFailed):
        return event
    if isinstance(event, ev.RunStarted):
        spec, agent = session.spec, event.agent
    else:
        spec, agent = (session.run.spec, session.run.agent) if session.run is not None else (session.spec, None)
    owners = (spec, agent, *agent.team) if agent is not None else (spec,)
    budgets = [one.budget for one in owners if one is not None and one.budget is not None]
    periods = find_periods(budgets, at) if budgets else None
    return replace(event, periods=periods) if periods is not None else event
