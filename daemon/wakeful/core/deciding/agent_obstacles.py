"""The obstacles that keep a session's agent from answering: a file that is missing or wrong, no model, no key.

The holds and the search for secrets call these functions, as do changes of agents or secrets. The module acting_agent
finds the agent of a run. A session that runs a command needs nothing from its agent's file.
"""

from __future__ import annotations

from wakeful.core.deciding.acting_agent import find_acting, find_owner
from wakeful.core.deciding.attribution import find_ambiguous_binding
from wakeful.core.deciding.core import Core
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import prefer_model
from wakeful.core.spec.session import PromptRun


def list_signing(session: Session) -> tuple[str, ...]:
    """List the secrets that sign deliveries to the session's webhooks. Runs do not get them or wait for them."""
    bindings = session.spec.webhooks if session.spec is not None else ()
    return tuple(dict.fromkeys(name for binding in bindings for name in binding.secrets))


def find_owner_problem(core: Core, session: Session) -> str | None:
    """Say why no agent can answer this session's prompt, with the remedy. None if one can, or there is no prompt."""
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
            f"its model {session.declaration.model} is none that is known: "
            f"wakeful migrate {session.name} --model PROVIDER:NAME"
        )
    if session.declaration.model is None and not agent.can_answer:
        return f"its agent {name} has neither a model nor acp: add model: PROVIDER:NAME to agents/{name}.yaml"
    if (
        session.spec is not None
        and (blurred := find_ambiguous_binding(session.spec, find_owner(core, session) or agent)) is not None
    ):
        return f"{blurred[0]}: {blurred[1]}; take that from it, or use isolation: strict"
    return None


def list_keys(core: Core, session: Session) -> tuple[str, ...]:
    """List the secrets that the agent of the next run needs to answer, without the secrets of the spec."""
    # The usual case: a command, and no messages that an agent must answer.
    if not session.mailbox.unread and not has_prompt(session):
        return ()
    agent, _ = find_acting(core, session)
    return agent.secrets if agent is not None else ()


def list_needed(core: Core, session: Session) -> tuple[str, ...]:
    """List all secrets without which no run of the session starts: those in its spec, and the keys of its agent."""
    own = session.spec.secrets if session.spec is not None else ()
    return tuple(dict.fromkeys((*own, *list_keys(core, session))))


def has_prompt(session: Session) -> bool:
    return session.spec is not None and isinstance(session.spec.run, PromptRun)
