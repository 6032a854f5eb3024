"""The lifecycle of a session: its stages as variants, and the table of events that lead from one stage to another.

A stage follows from the log alone (`find_stage`). A session is either closed (`Session.closed` says how) or open, and
an open session is suspended, running or sleeping. `name_state` maps the stages to the five states that people see.
The daemon also looks outside of the log: a suspended session whose service is down is shown as sleeping
(`deciding/holds.py`). `make docs` draws `docs/lifecycle.md` from the table. Pure.
"""

from __future__ import annotations

from typing import Literal, assert_never

from msgspec import Struct

from wakeful.core.record import events as ev
from wakeful.core.record.state import Archived, Closed, Departed, Moving, OpenRun, OpenWake, Session, Terminated

StateWord = Literal["suspended", "running", "sleeping", "terminated", "archived"]
StageWord = Literal["suspended", "running", "sleeping", "moving", "departed", "terminated", "archived"]
# The recorded reason why a session sleeps: the kind of its hold, or one of these words.
SleepWord = ev.HoldWord | Literal["brake", "trust", "undeclared", "disabled", "detached", "backing off"]


class Suspended(Struct, frozen=True):
    """The session is at rest, and wakes when something changes. With an open wake it is queued."""

    wake: OpenWake | None


class Running(Struct, frozen=True):
    """A run is under way."""

    run: OpenRun


class Sleeping(Struct, frozen=True):
    """The session is at rest and held. Changes are remembered."""

    by: SleepWord
    # The hold, if a hold is the reason.
    hold: ev.Hold | None = None


Open = Suspended | Running | Sleeping
Stage = Open | Closed


def find_stage(session: Session) -> Stage:
    if session.closed is not None:
        return session.closed
    if session.run is not None:
        return Running(session.run)
    return _find_sleep(session) or Suspended(session.wake)


def _find_sleep(session: Session) -> Sleeping | None:
    """Find the reason why the session sleeps. If there are several, return the one that is shown to people."""
    if session.brake is not None:
        return Sleeping("brake")
    if session.declaration.needs_trust is not None:
        return Sleeping("trust")
    if not session.declaration.is_declared:
        return Sleeping("undeclared")
    if session.spec is not None and not session.spec.enabled:
        return Sleeping("disabled")
    if session.lineage.detached:
        return Sleeping("detached")
    if session.hold is not None:
        return Sleeping(session.hold.kind, session.hold)
    return Sleeping("backing off") if session.wake is not None and session.wake.retry_at is not None else None


def name_stage(stage: Stage) -> StageWord:
    match stage:
        case Suspended():
            return "suspended"
        case Running():
            return "running"
        case Sleeping():
            return "sleeping"
        case Moving():
            return "moving"
        case Departed():
            return "departed"
        case Terminated():
            return "terminated"
        case Archived():
            return "archived"
        case _:
            assert_never(stage)


def name_state(session: Session, *, is_held: bool) -> StateWord:
    """Return the state that people see. `is_held`: something, on record or outside, keeps the session from starting."""
    stage = find_stage(session)
    match stage:
        case Archived():
            return "archived"
        case Running():
            return "running"
        case Suspended() | Sleeping():
            return "sleeping" if is_held else "suspended"
        case Terminated():
            return "terminated"
        case Moving(before=before) | Departed(before=before):
            # If the session went on at another host, its log here can end in the middle of a run.
            return "terminated" if before is not None else "running" if session.run is not None else "sleeping"
        case _:
            assert_never(stage)


class Transition(Struct, frozen=True):
    """An event that can lead from `sources` to `targets`. Every event may also leave the stage as it is."""

    event: type[ev.Event]
    sources: tuple[StageWord, ...]
    targets: tuple[StageWord, ...]


# Events without a row never change the stage. `session_opened` creates the session, which sleeps until it has a spec.
TRANSITIONS = (
    Transition(ev.RunStarted, ("suspended", "sleeping"), ("running",)),
    Transition(ev.RunFinished, ("running",), ("suspended", "sleeping")),
    Transition(ev.SpecDeclared, ("suspended",), ("sleeping",)),
    Transition(ev.SpecDeclared, ("sleeping",), ("suspended",)),
    Transition(ev.SpecRemoved, ("suspended",), ("sleeping",)),
    Transition(ev.SpecTrusted, ("sleeping",), ("suspended",)),
    Transition(ev.ActivationRequested, ("sleeping",), ("suspended",)),
    Transition(ev.WakeWithdrawn, ("sleeping",), ("suspended",)),
    Transition(ev.SessionSlept, ("suspended",), ("sleeping",)),
    Transition(ev.SessionResumed, ("sleeping",), ("suspended",)),
    Transition(ev.SessionBraked, ("suspended",), ("sleeping",)),
    Transition(ev.SessionReleased, ("sleeping",), ("suspended",)),
    Transition(ev.QuestionAnswered, ("sleeping",), ("suspended",)),
    Transition(ev.SessionTerminated, ("suspended", "sleeping"), ("terminated",)),
    Transition(ev.SessionReopened, ("terminated",), ("suspended", "sleeping")),
    Transition(ev.SessionFrozen, ("suspended", "sleeping"), ("moving",)),
    Transition(ev.SessionThawed, ("moving",), ("suspended", "sleeping")),
    Transition(ev.SessionDeparted, ("moving",), ("departed",)),
    Transition(ev.SessionArrived, ("moving", "departed"), ("sleeping",)),
    Transition(ev.SessionArchived, ("suspended", "sleeping", "departed", "terminated"), ("archived",)),
    Transition(ev.SessionRestored, ("archived",), ("suspended", "sleeping", "departed", "terminated")),
)
_ALLOWED = {(row.event, source, target) for row in TRANSITIONS for source in row.sources for target in row.targets}


def is_allowed(event: type[ev.Event], source: StageWord, target: StageWord) -> bool:
    """May this kind of event lead from `source` to `target`?"""
    return source == target or (event, source, target) in _ALLOWED
