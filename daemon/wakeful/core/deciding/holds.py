"""The reasons why a session sleeps, as text: a person, its spec, a failure, its agent, a secret or a service.

Called by the verdict on a start, by the busy marks of the graph and by the views.
A question to a person is a hold with an end (`ask_timeout`), and the hold is in the log. So it survives a restart, and
a clock that is set back does not prolong it (rule 37). `dispatch` denies a question that nobody answers in time.
"""

from __future__ import annotations

from wakeful.core.deciding.acting_agent import (
    find_acting,
    find_ambiguous_binding,
    find_owner,
    has_prompt,
    list_agent_keys,
)
from wakeful.core.deciding.owed import is_activation_owed
from wakeful.core.deciding.working_state import Core, Deadline
from wakeful.core.record.events import Hold
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import DamagedSession, OpenWake, Session
from wakeful.core.spec.agent import AgentSpec, prefer_model
from wakeful.core.spec.session import SessionSpec, say_missing

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def find_hold_words(core: Core, session: Session, moment: Moment) -> str | None:
    """Say why the session sleeps. None if it does not."""
    return find_sleep_words(core, session, moment) or _find_backoff(core, session, moment)


def find_hold_of_start(core: Core, session: Session, moment: Moment) -> str | None:
    """Say why the session may not start. None if it may.

    The fold of an activation lifts the holds failed, loop, crashing and the back-off. Holds that its runs caused since
    then count again; otherwise the session would be tried without pause for ever (rules 20-22).
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
    """Say why the session sleeps. None if it does not sleep. Backing off does not count here, because it ends by
    itself."""
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
            f"a fork without its own files: {', '.join(session.lineage.detached)} would overwrite what its "
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


def find_owner_problem(core: Core, session: Session) -> str | None:
    """Say why no agent can answer this session's prompt, with the remedy. None if an agent can, or without a prompt."""
    if not has_prompt(session) or find_acting(core, session)[1]:
        return None
    name = session.owner
    agent = core.agents.get(name or "")
    if agent is None:
        why = core.agent_problems.get(name or "")
        # The first line is enough here; `wakeful check` prints all lines.
        return (
            f"its agent {name} cannot be used: {why.splitlines()[0]}"
            if why
            else f"its agent {name} does not exist: write agents/{name}.yaml"
        )
    if session.declaration.model is not None and prefer_model(agent, session.declaration.model) is None:
        return (
            f"its model {session.declaration.model} is not known: wakeful migrate {session.name} --model PROVIDER:NAME"
        )
    if session.declaration.model is None and not agent.can_answer:
        return f"its agent {name} has neither a model nor acp: add model: PROVIDER:NAME to agents/{name}.yaml"
    if (
        session.spec is not None
        and (blurred := find_ambiguous_binding(session.spec, find_owner(core, session) or agent)) is not None
    ):
        return f"{blurred[0]}: {blurred[1]}; change that, or use isolation: strict"
    return None


def _find_missing_secret(core: Core, session: Session) -> str | None:
    """Say which secret is missing. A secret that was not looked for yet counts as missing too, because a run never
    starts without its secrets."""
    for name in session.spec.secrets if session.spec is not None else ():
        words = core.looked.secrets.get(name, say_missing(name))
        if words is not None:
            return words
    for name in list_agent_keys(core, session):
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
        return core.looked.strict_problem
    # The level `observe` denies nothing, so it counts as no isolation.
    if spec.confinement.is_enforced or core.settings.allow_unisolated:
        return None
    return (
        f"isolation: {spec.confinement.level} is not allowed here; remove it from the spec, or set "
        "allow_unisolated: true in wakeful.yaml"
    )


def _find_service_down(core: Core, session: Session) -> str | None:
    for bound in core.looked.bounds.get(session.id, ()):
        if not bound.is_condition:
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


def find_ask_timeout(spec: SessionSpec, agent: AgentSpec | None) -> float | None:
    """Return the time limit of a session's questions: the spec's, else the agent's. None if there is no limit."""
    return (
        spec.ask_timeout_seconds
        if spec.ask_timeout_seconds is not None
        else agent.ask_timeout_seconds
        if agent is not None
        else None
    )


def make_question_hold(seconds: float | None, words: str, wall: int) -> Hold:
    """Build the hold of a session that asks. With `seconds` None the question waits without a limit."""
    return Hold(
        kind="asking",
        words=words,
        until=None if seconds is None else wall + round(seconds * 1e6),
        length_seconds=seconds,
    )


def say_ask_timeout(seconds: float | None) -> str:
    """Return the end of a question's text, which says when it is denied. Empty without a limit."""
    return f"; denied if nobody answers within {say_length(seconds)}" if seconds is not None else ""


def say_length(seconds: float) -> str:
    """Format a duration as specs write it: 90 minutes are `90m`, two hours `2h`."""
    whole = next(((size, unit) for size, unit in _UNITS if seconds >= size and seconds % size == 0), None)
    return f"{seconds / whole[0]:g}{whole[1]}" if whole is not None else f"{seconds:g}s"
