"""Lookups in the core that edges use while the daemon lives.

The wiring passes each of them to an edge as a `functools.partial`, so that the edge does not know the core or another
edge. Called on the loop unless a docstring says otherwise. They change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from wakeful.core.deciding.acting_agent import list_secrets_of_start, list_signing_secrets
from wakeful.core.deciding.working_state import Core
from wakeful.core.spec.agent import McpServer
from wakeful.core.spec.session import SessionSpec
from wakeful.runners.isolation.written_places import could_replace_git
from wakeful.trust.trust_review import LoadedSession


def list_specs(core: Core) -> Iterator[SessionSpec | None]:
    """List the spec of every session. None for a session without one."""
    return (session.spec for session in core.state)


def list_needed_secrets(core: Core) -> set[str]:
    """List the names of all secrets that declared sessions need."""
    declared = [session for session in core.state if session.declaration.is_declared]
    return {
        name for session in declared for name in (*list_secrets_of_start(core, session), *list_signing_secrets(session))
    }


def list_loaded(core: Core) -> list[LoadedSession]:
    """List the sessions that a bundle brought and that wait for a person's trust, each with its agent."""
    return [
        LoadedSession(one, core.agents.get(one.spec.agent) if one.spec.agent is not None else None)
        for one in core.state
        if one.declaration.needs_trust is not None and one.spec is not None and not one.is_shut
    ]


def find_git_writer(core: Core, top: str, *, was_there: bool, is_running: bool) -> str | None:
    """Find the name of a session whose runs could have replaced the `.git` in `top`. None if there is none.

    With `is_running`, only runs under way count.
    """
    for session in core.state:
        spec = session.run.spec if session.run is not None else None if is_running else session.spec
        if spec is not None and could_replace_git(spec, top, was_there=was_there):
            return session.name
    return None


def find_mcp_server(core: Core, agent: str, name: str) -> McpServer | None:
    """Find the MCP server of this name that an agent declares."""
    found = core.agents.get(agent)
    return next((server for server in found.mcp if server.name == name), None) if found is not None else None


def find_filed_text(core: Core, name: str) -> str | None:
    """Find the digest of the spec file that was in force for a session on this host. None if there was none.

    Any thread. A bundle's statement about its own spec is not trusted: only the text of a spec file counts as known.
    """
    session = core.state.sessions.get(core.state.ids.get(name, ""))
    return session.declaration.text_digest if session is not None and session.declaration.is_filed else None
