"""The agent of a session's next run: its own, the one it was migrated to, or the one a message is addressed to.

Also the keys, tools and servers that it has in the session, and whether each of its writes is on record. Agents are
declared in files and are not in the log; a run records the agent it began with. The start of a run, the holds, the
search for secrets and the views call this module. The obstacles that keep an agent from answering are in `holds.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.agents.steps import ASKED_BY, HandOffRule
from wakeful.core.agents.turns import DELEGATE
from wakeful.core.deciding.owed import list_addressed
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.state import ACTIVATION, OpenRun, Session
from wakeful.core.spec.agent import AgentSpec, ToolPolicy, prefer_model
from wakeful.core.spec.bindings import ServiceBinding
from wakeful.core.spec.session import PromptRun, SessionSpec

# Tools that an agent has only if its own file names them.
GIVEN_BY_NAME: dict[str, ToolPolicy] = {"shell": "deny"}
# Tools that only the run's own agent has, not its sub-agents.
_NOT_FOR_SUBS = ("ask_person", "hand_off", "todo", DELEGATE)
_STRICTNESS: dict[ToolPolicy, int] = {"allow": 0, "ask": 1, "deny": 2}


def find_owner(core: Core, session: Session) -> AgentSpec | None:
    """Return the agent that owns the session, with the model it was migrated to. None if no file declares the agent."""
    agent = core.agents.get(session.owner or "")
    if agent is not None and session.spec is not None:
        agent = gather_team(core, select_servers(session.spec, agent))
    if agent is None or session.declaration.model is None:
        return agent
    return prefer_model(agent, session.declaration.model) or agent


def find_acting(core: Core, session: Session) -> tuple[AgentSpec | None, bool]:
    """Return the agent of the next run, or None for a program; and whether the next run is a run aside.

    A run aside only answers messages that are addressed to an agent by name, or questions of a person.
    """
    asked = next(iter(list_addressed(session)), None)
    if (
        asked is not None
        and asked.agent is not None
        and (agent := core.agents.get(asked.agent)) is not None
        and agent.can_answer
    ):
        return gather_team(core, select_servers(session.spec, agent) if session.spec is not None else agent), True
    if not has_prompt(session):
        return None, False
    return find_owner(core, session), asked is not None and asked.asker is not None


def has_prompt(session: Session) -> bool:
    return session.spec is not None and isinstance(session.spec.run, PromptRun)


def list_agent_keys(core: Core, session: Session) -> tuple[str, ...]:
    """List the secrets that the agent of the next run needs to answer, without the secrets of the spec."""
    # The usual case: a command, and no messages that an agent must answer.
    if not session.mailbox.unread and not has_prompt(session):
        return ()
    agent, _ = find_acting(core, session)
    return agent.secrets if agent is not None else ()


def list_secrets_of_start(core: Core, session: Session) -> tuple[str, ...]:
    """List all secrets without which no run of the session starts: those in its spec, and the keys of its agent."""
    own = session.spec.secrets if session.spec is not None else ()
    return tuple(dict.fromkeys((*own, *list_agent_keys(core, session))))


def list_signing_secrets(session: Session) -> tuple[str, ...]:
    """List the secrets that sign deliveries to the session's webhooks. Runs do not get them or wait for them."""
    bindings = session.spec.webhooks if session.spec is not None else ()
    return tuple(dict.fromkeys(name for binding in bindings for name in binding.secrets))


def select_servers(spec: SessionSpec, agent: AgentSpec) -> AgentSpec:
    """Return the agent with the MCP servers that the session binds. If it binds none, the agent has all of its own."""
    bound = {
        binding.server
        for binding in spec.bindings
        if isinstance(binding, ServiceBinding) and binding.server is not None
    }
    if not bound or all(server.name in bound for server in agent.mcp):
        return agent
    return replace(agent, mcp=tuple(server for server in agent.mcp if server.name in bound))


def gather_team(core: Core, agent: AgentSpec) -> AgentSpec:
    """Return the agent with its declared sub-agents as a team. A sub-agent has no servers, skills or sub-agents."""
    named = (core.agents.get(name) for name in agent.subagents)
    team = tuple(
        replace(one, mcp=(), skills=(), subagents=(), team=()) for one in named if one is not None and one.models
    )
    return agent if team == agent.team else replace(agent, team=team)


def merge_tools(own: dict[str, ToolPolicy], narrowed: dict[str, ToolPolicy]) -> dict[str, ToolPolicy]:
    """Return the tool policies of an agent in a session: the stricter of the two policies counts.

    A session cannot give a tool of GIVEN_BY_NAME that the agent's own file does not give.
    """
    merged = dict(own)
    for name, policy in narrowed.items():
        merged[name] = max(policy, own.get(name, GIVEN_BY_NAME.get(name, policy)), key=_STRICTNESS.__getitem__)
    return merged


def narrow_for_sub(given: dict[str, ToolPolicy], agent: AgentSpec) -> dict[str, ToolPolicy]:
    """Return the tools of a sub-agent: its own, as far as the agent of the run has them (`given`).

    A tool that needs permission is denied, because a sub-agent cannot ask a person.
    """
    merged = merge_tools(agent.tools, {**GIVEN_BY_NAME, **given})
    policies: dict[str, ToolPolicy] = {name: "deny" if policy == "ask" else policy for name, policy in merged.items()}
    return policies | dict.fromkeys(_NOT_FOR_SUBS, "deny")


def find_hand_off_rule(session: Session, run: OpenRun) -> HandOffRule:
    """Decide what a run does with the session's hand-off, which belongs to the owner's own work.

    Another agent must not leave one. A question to the owner keeps the present hand-off.
    """
    if run.is_aside:
        return "kept" if run.agent is not None and run.agent.name == session.owner else "withheld"
    is_question = any(cause.kind == ACTIVATION and (cause.reason or "").startswith(ASKED_BY) for cause in run.causes)
    return "kept" if is_question and all(cause.kind in (ACTIVATION, "message") for cause in run.causes) else "replaced"


def find_unattributed_writer(spec: SessionSpec, agent: AgentSpec) -> str | None:
    """Describe a program in this agent's runs that could write without our tools.

    None if there is none, so that each write of the agent is known.
    """
    if agent.acp:
        return f"agent {agent.name} is an external program"
    if merge_tools(agent.tools, spec.tools).get("shell", "deny") != "deny":
        return f"agent {agent.name} has a shell"
    if (server := next((one.name for one in select_servers(spec, agent).mcp if one.argv), None)) is not None:
        return f"the server {server} of agent {agent.name} is a program"
    if spec.run is not None and spec.run.check is not None:
        return "run.check is a program"
    return None


def find_ambiguous_binding(spec: SessionSpec, agent: AgentSpec) -> tuple[str, str] | None:
    """Find a binding with `access: both` whose writers could not be told apart, and why. None if there is none."""
    name = next((binding.name for binding in spec.files if binding.access == "both"), None)
    if name is None or spec.is_staged or (hand := find_unattributed_writer(spec, agent)) is None:
        return None
    return name, f"access 'both' needs a run whose own writes can be told apart from others, and {hand}"
