"""The reasons why a session sleeps, as text: a person, its spec, a failure, its agent, a secret or a service.

Called by the verdict on a start, by the busy marks of the graph and by the views.
"""

from __future__ import annotations

from wakeful.core.deciding.agent_obstacles import find_owner_problem, list_keys
from wakeful.core.deciding.core import Core, Deadline
from wakeful.core.deciding.owed import is_activation_owed
from wakeful.core.record.events import Hold
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import DamagedSession, OpenWake, Session
from wakeful.core.spec.session import say_missing


def find_hold_words(core: Core, session: Session, moment: Moment) -> str | None:
    """Say why the session sleeps. None if it does not."""
    return find_sleep_words(core, session, moment) or _find_backoff(core, session, moment)


def find_hold_of_start(core: Core, session: Session, moment: Moment) -> str | None:
    """Say why the session may not start. None if it may.

    The fold of an activation lifts the holds failed, loop, crashing and the back-off. Holds that its runs caused since
    then count again; otherwise it would be tried without pause for ever (rules 20-22).
    """
    if not is_activation_owed(session) or session.brake is not None:
        return find_hold_words(core, session, moment)
    # An activation does not replace trust: a person must review the spec first.
    if (doubt := find_doubt(core, session)) is not None:
        return doubt
    # Only the operator can change `allow_unisolated`.
    if (refused := _find_unisolated(core, session)) is not None:
        return refused
    if session.hold is not None and session.hold.kind != "snoozed":
        return session.hold.words
    # An activation cannot make up for a missing secret or a missing agent.
    return (
        find_owner_problem(core, session) or _find_missing_secret(core, session) or _find_backoff(core, session, moment)
    )


def find_sleep_words(core: Core, session: Session, moment: Moment) -> str | None:
    """Say why the session sleeps, without backing off, which ends by itself. None if it does not sleep."""
    if isinstance(session, DamagedSession):
        return session.damage_words
    if session.move_words is not None:
        return session.move_words
    if session.brake is not None:
        return session.brake
    if (doubt := find_doubt(core, session)) is not None:
        return doubt
    if not session.declaration.is_declared:
        return "undeclared: its file is gone from sessions.d"
    if session.spec is not None and not session.spec.enabled:
        return "disabled in its spec"
    if (refused := _find_unisolated(core, session)) is not None:
        return refused
    if session.lineage.detached:
        return (
            f"a fork without a place of its own: {', '.join(session.lineage.detached)} would overwrite what its "
            "parent writes"
        )
    hold = session.hold
    if hold is not None:
        deadline = find_hold_deadline(hold)
        if deadline is None or not core.has_passed(session.id, deadline, moment):
            return hold.words
    return find_owner_problem(core, session) or _find_missing_secret(core, session) or _find_service_down(core, session)


def find_repair_reason(core: Core, session: Session) -> str | None:
    """Say why the session sleeps until a person repairs something outside of its log.

    That is its trust, its isolation, its agent or a secret. None if nothing is to be repaired.
    """
    if session.is_shut:
        return None
    if (doubt := find_doubt(core, session)) is not None:
        return doubt
    if not session.is_armed:
        return None
    return _find_unisolated(core, session) or find_owner_problem(core, session) or _find_missing_secret(core, session)


def find_hold_deadline(hold: Hold) -> Deadline | None:
    """Return the end of a hold. None if it does not end by itself."""
    return Deadline("hold", hold.until, hold.length_seconds) if hold.until is not None else None


def find_retry_deadline(wake: OpenWake) -> Deadline | None:
    """Return the moment of the next try after a failed one. None if no retry waits."""
    return Deadline("retry", wake.retry_at, wake.backoff_seconds) if wake.retry_at is not None else None


def find_doubt(core: Core, session: Session) -> str | None:
    """Say why a person must review the session first: its file is not trusted, or a bundle brought its spec."""
    return core.looked.untrusted.get(session.name) or session.trust_words


def _find_missing_secret(core: Core, session: Session) -> str | None:
    """Say which secret is missing. A secret that was not looked for yet counts as missing too, because a run never
    starts without its secrets."""
    for name in session.spec.secrets if session.spec is not None else ():
        words = core.looked.secrets.get(name, say_missing(name))
        if words is not None:
            return words
    for name in list_keys(core, session):
        words = core.looked.secrets.get(name, say_missing(name))
        if words is not None:
            return say_missing(name, "key") if words == say_missing(name) else words
    return None


def _find_unisolated(core: Core, session: Session) -> str | None:
    spec = session.spec
    if spec is None or (spec.run is None and not session.is_asked):
        return None
    if spec.confinement.level == "strict":
        # A run never gets weaker isolation than its spec asks for.
        return core.looked.laxity
    # The level `observe` denies nothing, so it counts as no isolation.
    if spec.confinement.is_enforced or core.settings.allow_unisolated:
        return None
    return (
        f"isolation: {spec.confinement.level} is not allowed here; remove it from the spec, or set "
        "allow_unisolated: true in wakeful.yaml"
    )


def _find_service_down(core: Core, session: Session) -> str | None:
    for bound in core.looked.bounds.get(session.id, ()):
        if bound.kind != "service":
            continue
        look = core.looked.target(bound)
        if look is not None and look.is_looked and look.version != "up":
            return f"service {bound.name} is down: {look.problem or 'no answer'}"
    return None


def _find_backoff(core: Core, session: Session, moment: Moment) -> str | None:
    wake = session.wake
    deadline = find_retry_deadline(wake) if wake is not None else None
    if wake is None or deadline is None or session.run is not None or core.has_passed(session.id, deadline, moment):
        return None
    return f"backing off: attempt {wake.attempt + 1} follows after {wake.backoff_seconds:.0f}s"
