"""The outcome of a run that a call asked for: it started, is queued,
or is held by something that an activation does not lift (rule 20).

`decide` calls this once everything that follows from a call is decided,
because only then is it known whether the run started.
"""

from __future__ import annotations

from wakeful.core.calls.values import Activate, Ask, Call, Trace
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.holds import find_hold_of_start
from wakeful.core.deciding.machine import Core
from wakeful.core.deciding.may_start import find_queue_words
from wakeful.core.deciding.owed import is_activation_owed


def answer_activation(core: Core, decision: Decision, call: Call) -> None:
    """Add to the reply of a call that asks for a run what keeps that run from starting."""
    if not isinstance(call, Activate | Ask | Trace) or decision.reply is None:
        return
    session = core.state.by_name(call.name)
    if session.run is not None or not is_activation_owed(session):
        return
    if session.brake is not None:
        decision.reply += ": it runs when `wakeful resume --all` releases the brake"
        return
    decision.held = find_hold_of_start(core, session, decision.moment)
    if decision.held is not None:
        decision.held_until = session.hold.until if session.hold is not None else None
        decision.reply += f" but held: {decision.held}"
    elif (words := find_queue_words(core, session, decision.moment)) is not None and words != "starting":
        decision.reply += f" and queued: {words}"
