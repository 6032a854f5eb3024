"""Attribution of file changes to an agent's run or to others (rule 28).

If an agent writes only through our tools, each of its writes is on record, so every other change is by others.
`run_end` asks at the end of a run; `agent_obstacles` and the reading of specs ask before a start. A run with a private
write area does not need attribution (rule 27). The writes of a program cannot be attributed. Pure.
"""

from __future__ import annotations

from typing import Literal

from wakeful.core.agents.steps import OwnFile
from wakeful.core.deciding.acting_agent import merge_tools, select_servers
from wakeful.core.looking.observed_state import TargetLook
from wakeful.core.record.observations import PathChange
from wakeful.core.record.state import OpenRun
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import SessionSpec

# The author of a change. `none`: unchanged. `own`: this run alone. `unknown`: the looks do not cover every change.
Whose = Literal["none", "own", "others", "unknown"]


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
    return name, f"access 'both' needs a run whose own writes are told from those of others, and {hand}"


def is_attributed(run: OpenRun) -> bool:
    """Is every write of this run on record?"""
    return run.agent is not None and not run.spec.is_staged and find_unattributed_writer(run.spec, run.agent) is None


def is_exact(run: OpenRun) -> bool:
    """Is the result of every write of this run known?

    It is not if a write call began and did not return.
    """
    return is_attributed(run) and not run.progress.writing


def judge_change(look: TargetLook, run: OpenRun, key: str) -> Whose:
    """Find the author of the changes since the run started."""
    began = run.versions.get(key)
    if began is None:
        return "unknown"
    if began == look.version:
        return "none"
    changes = look.list_changes_since(began)
    if changes is None:
        return "unknown"
    return "own" if all(_is_own(change, run.progress.wrote.get(change.path)) for change in changes) else "others"


def _is_own(change: PathChange, own: OwnFile | None) -> bool:
    """Did the run alone make this change, from start to end? A change of the x bit always counts as made by others."""
    if own is None or own.is_mixed or change.after is None:
        return False
    (before_kind, before), (after_kind, after) = (_split_digest(digest) for digest in (change.before, change.after))
    return (before, after) == (own.base, own.digest) and (change.before is None or before_kind == after_kind)


def _split_digest(digest: str | None) -> tuple[str, str | None]:
    """Split the digest that a look has for a path into the path's kind and the digest of its content."""
    if digest is None:
        return "", None
    kind, _, content = digest.rpartition(":")
    return kind, content
