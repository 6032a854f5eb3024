"""Questions to people: how long one waits for its answer (`ask_timeout`), and its denial when that time is over.

A question is a hold with an end, which stands in the log: it survives a restart, and a clock that is set back does not
stretch it (rule 37). The denial is recorded as an answer of the daemon's own. An agent's permission counts as no, its
question as unanswered, and a run that was to be approved is not run: its causes are parked.
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
    """The hold of a session that asks, with the moment at which it is denied; None: it waits as long as it takes."""
    return ev.Hold(
        kind="asking",
        words=words,
        until=None if seconds is None else wall + round(seconds * 1e6),
        length_seconds=seconds,
    )


def say_denial(seconds: float | None) -> str:
    """The end of a question's words: what becomes of it without an answer."""
    return f"; denied if nobody answers within {say_length(seconds)}" if seconds is not None else ""


def find_timeout(spec: SessionSpec, agent: AgentSpec | None) -> float | None:
    """The session's own word, else its agent's; None: it waits as long as it takes."""
    return (
        spec.ask_timeout_seconds
        if spec.ask_timeout_seconds is not None
        else agent.ask_timeout_seconds
        if agent is not None
        else None
    )


def deny_unanswered(core: Core, decision: Decision, session: Session) -> Session:
    """The time of the question is over: nobody answered."""
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
    """As specs write it: 90 minutes are `90m`, two hours `2h`."""
    whole = next(((size, unit) for size, unit in _UNITS if seconds >= size and seconds % size == 0), None)
    return f"{seconds / whole[0]:g}{whole[1]}" if whole is not None else f"{seconds:g}s"
