"""decide: turns one observation into events. First `take`, then `dispatch` until nothing changes any more (rule 2)."""

from __future__ import annotations

from wakeful.core.calls.call_rules import CALL_RULES
from wakeful.core.calls.call_types import Call, Called
from wakeful.core.deciding.busy_upstreams import refresh_busy
from wakeful.core.deciding.clock_bindings import follow_set_clock
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.dispatch import dispatch, offer_slots, suspend_finished
from wakeful.core.deciding.holds import find_hold_of_start
from wakeful.core.deciding.may_start import find_queue_words
from wakeful.core.deciding.owed import is_activation_owed
from wakeful.core.deciding.working_state import Core
from wakeful.core.observation_handlers import Observation, take
from wakeful.core.record.observations import Moment


def decide(core: Core, observation: Observation, moment: Moment) -> Decision:
    decision = Decision(moment)
    follow_set_clock(core, decision)
    take(observation, core, decision)
    _dispatch_affected(core, decision)
    while offer_slots(core, decision):
        _dispatch_affected(core, decision)
    suspend_finished(core, decision)
    if isinstance(observation, Called):
        _answer_activation(core, decision, observation.call)
    if decision.forget:
        # Drop the looks at targets that were followed and forgotten within this decision.
        targets = core.looked.targets
        decision.looks = [look for look in decision.looks if look.target in targets]
        decision.follow = [target for target in decision.follow if target.key in targets]
    return decision


def _dispatch_affected(core: Core, decision: Decision) -> None:
    while decision.affected:
        # Busy marks pass on to readers, so all marks are refreshed before a session acts on one.
        while decision.unmarked:
            refresh_busy(core, decision, decision.unmarked.popitem(last=False)[0])
        session_id, _ = decision.affected.popitem(last=False)
        dispatch(core, decision, session_id)
        # The session has already handled the events that it emitted about itself.
        decision.affected.pop(session_id, None)


def _answer_activation(core: Core, decision: Decision, call: Call) -> None:
    """If a call asked for a run that does not start, add the reason to the reply (rule 20).

    Called last, because only then is it known whether the run started."""
    if not CALL_RULES[type(call)].asks_for_run or decision.reply is None:
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
