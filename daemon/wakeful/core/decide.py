"""decide: one observation becomes events. Take first, then dispatch until nothing more follows (rule 2)."""

from __future__ import annotations

from wakeful.core.calls.values import Called
from wakeful.core.deciding.activation import answer_activation
from wakeful.core.deciding.busy import refresh_busy
from wakeful.core.deciding.clock_bindings import follow_set_clock
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.dispatch import dispatch, offer_slots, settle_finished
from wakeful.core.deciding.machine import Core
from wakeful.core.observations import Moment
from wakeful.core.take import Observation, take


def decide(core: Core, observation: Observation, moment: Moment) -> Decision:
    decision = Decision(moment)
    follow_set_clock(core, decision)
    take(observation, core, decision)
    _dispatch_affected(core, decision)
    while offer_slots(core, decision):
        _dispatch_affected(core, decision)
    settle_finished(core, decision)
    if isinstance(observation, Called):
        answer_activation(core, decision, observation.call)
    if decision.forget:
        # Asked for and given up within one decision: nobody follows it any more.
        targets = core.looked.targets
        decision.looks = [look for look in decision.looks if look.target in targets]
        decision.follow = [target for target in decision.follow if target.key in targets]
    return decision


def _dispatch_affected(core: Core, decision: Decision) -> None:
    while decision.affected:
        # A mark passes on to readers, so all of them are set before anybody acts on one.
        while decision.unmarked:
            refresh_busy(core, decision, decision.unmarked.popitem(last=False)[0])
        session_id, _ = decision.affected.popitem(last=False)
        dispatch(core, decision, session_id)
        # What it emitted about itself it has taken into account.
        decision.affected.pop(session_id, None)
