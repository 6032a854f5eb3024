"""Questions to people: how long a question waits for its answer (`ask_timeout`), and its denial after that time.

A question is a hold with an end, and the hold is in the log. It survives a restart, and a clock that is set back does
not prolong it (rule 37). The daemon records the denial as its own answer:
- A permission that an agent asked for is refused, and an agent's question counts as unanswered.
- A run that a person should have approved does not start, and its causes are parked.
"""

from __future__ import annotations

from typing import Any

from wakeful.core.deciding.core import Core
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.owed import start_versions
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import SessionSpec

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def make_asking(seconds: float | None, words: str, wall: int) -> ev.Hold:
    """Build the hold of a session that asks. With `seconds` None the question waits without a limit."""
    return ev.Hold(
        kind="asking",
        words=words,
        until=None if seconds is None else wall + round(seconds * 1e6),
        length_seconds=seconds,
    )


def say_denial(seconds: float | None) -> str:
    """Return the end of a question's text, which says when it is denied. Empty without a limit."""
    return f"; denied if nobody answers within {say_length(seconds)}" if seconds is not None else ""


def find_timeout(spec: SessionSpec, agent: AgentSpec | None) -> float | None:
    """Return the time limit of a session's questions: the spec's, else the agent's. None if there is no limit."""
    return (
        spec.ask_timeout_seconds
        if spec.ask_timeout_seconds is not None
        else agent.ask_timeout_seconds
        if agent is not None
        else None
    )


def deny_unanswered(core: Core, decision: Decision, session: Session) -> Session:
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


def say_length(seconds: float) -> str:
    """Format a duration as specs write it: 90 minutes are `90m`, two hours `2h`."""
    whole = next(((size, unit) for size, unit in _UNITS if seconds >= size and seconds % size == 0), None)
    return f"{seconds / whole[0]:g}{whole[1]}" if whole is not None else f"{seconds:g}s"
