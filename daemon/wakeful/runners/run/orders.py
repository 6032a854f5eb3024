"""Makes the order that a runner carries out from a session's open run. specs.md describes the environment of a run.

Pure functions. Paths in causes are relative to the session's root, as in the spec.
"""

from __future__ import annotations

import posixpath

import msgspec
from msgspec.structs import replace

from wakeful.core.deciding.working_state import Core
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.bindings import (
    CommitsBinding,
)
from wakeful.core.spec.budget import Amounts, find_allowance
from wakeful.core.spec.session import (
    CommandRun,
    Confinement,
    PromptRun,
    RunSpec,
    ScriptRun,
    SessionSpec,
)
from wakeful.errors import InternalError
from wakeful.runners.contract import RunOrder, WorkspaceOrder
from wakeful.secrets.store import Secret


class RunLocations(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of runs, and how runs reach the daemon."""

    # Scratch folders are kept. The folders of single runs (`run_folders`) are in memory if the system has such a place.
    scratch: str
    temporary: str
    run_folders: str
    # The folder in which outputs are staged. None if nothing would put them in place.
    staged: str | None = None
    socket: str
    # The program of an agent's run, and the folders that hold its code.
    agent_program: tuple[str, ...] = ()
    agent_code: tuple[str, ...] = ()


def make_order(
    session: Session,
    run: OpenRun,
    locations: RunLocations,
    *,
    token: str,
    causes: bytes,
    exports: dict[str, str],
    output_limit_bytes: int,
    most_processes: int,
    secrets: tuple[Secret, ...] = (),
    workspace: WorkspaceOrder | None = None,
) -> RunOrder:
    """Make the order of a run.

    `causes` is the document that WAKEFUL_CAUSES names. `exports` maps each binding with `export` to its folder. With a
    `workspace`, the spec of `run` must be the one whose paths were moved into it.
    """
    spec = run.spec
    argv, script = _find_program(session, run, locations)
    assert spec.run is not None
    return RunOrder(
        session=session.id,
        name=session.name,
        run=run.run,
        run_id=run.run_id,
        attempt=run.attempt,
        argv=argv,
        script=script,
        root=spec.root,
        cwd=posixpath.join(spec.root, spec.run.cwd) if spec.run.cwd else spec.root,
        env=spec.run.env,
        timeout_seconds=spec.run.timeout_seconds,
        grace_seconds=spec.run.grace_seconds,
        check=spec.run.check,
        scratch=posixpath.join(locations.scratch, session.id),
        temporary=posixpath.join(locations.temporary, session.id),
        folder=posixpath.join(locations.run_folders, run.run_id),
        staging=posixpath.join(locations.staged, run.run_id) if locations.staged is not None else None,
        workspace=workspace,
        causes=causes,
        changed=tuple(dict.fromkeys(path.path for cause in run.causes for path in cause.paths)),
        bindings=binding_paths(spec) | exports,
        secrets=secrets,
        socket=locations.socket,
        token=token,
        output_limit_bytes=output_limit_bytes,
        limits=spec.run.limits,
        most_processes=most_processes,
        confinement=spec.confinement if run.agent is None else _open_for_agent(spec, run.agent, locations),
        reads=(*(binding.pattern for binding in spec.files if binding.access == "read"), *exports.values()),
        writes=spec.written_patterns,
        repositories=tuple(
            (binding.repo, binding.path) for binding in spec.bindings if isinstance(binding, CommitsBinding)
        ),
        program=spec.program,
        servers=tuple(server.argv for server in run.agent.mcp if server.argv) if run.agent is not None else (),
        is_traced=run.trace is not None,
        allowance=find_allowance(spec.budget, session.tally.spent, run.started_at)
        if spec.budget is not None
        else Amounts(),
    )


def make_replay_order(
    core: Core, session: Session, run: OpenRun, folder: str, *, causes: bytes, exports: dict[str, str]
) -> RunOrder:
    """Make the order of a replay. The scratch and private folders of the replay lie in `folder`.

    A replay gets no socket, no token and no secrets, so it can neither ask the daemon nor use a key."""
    locations = RunLocations(
        scratch=f"{folder}/scratch",
        temporary=f"{folder}/temporary",
        run_folders=folder,
        socket=f"{folder}/no-daemon",
    )
    return make_order(
        session,
        run,
        locations,
        token="",
        causes=causes,
        exports=exports,
        output_limit_bytes=core.settings.output_limit_bytes,
        most_processes=core.settings.limits.processes.hard,
    )


def _find_program(session: Session, run: OpenRun, locations: RunLocations) -> tuple[tuple[str, ...], str | None]:
    """Return the command line of a run and None, or an empty command line and a script."""
    match run.spec.run:
        case RunSpec() if run.agent is not None:
            # Add the command line of an external agent, so that the programs it names come within the run's reach.
            return (*locations.agent_program, *run.agent.acp), None
        case CommandRun(argv=argv):
            return argv, None
        case ScriptRun(text=text):
            return (), text
        case PromptRun():
            raise InternalError(f"run {run.run} of {session.name} is a prompt, but has no agent to work on it")
        case None:
            raise InternalError(f"{session.name} has an open run {run.run} but its spec has no `run`")


def _open_for_agent(spec: SessionSpec, agent: AgentSpec, locations: RunLocations) -> Confinement:
    """Widen a confinement for the agent's process.

    The process may read its own code, reach its models and servers, and fetch. Its tools keep the spec's confinement.
    """
    confinement = spec.confinement
    network = confinement.network
    if network is not True:
        network = (*(network or ()), *agent.addresses, *spec.fetch) or False
    return replace(confinement, network=network, allow_read=(*confinement.allow_read, *locations.agent_code))


def binding_paths(spec: SessionSpec) -> dict[str, str]:
    """Map the name of each binding that has a path to that path. For a glob, it is the absolute pattern."""
    paths = {binding.name: binding.find_path(spec.root) for binding in spec.bindings}
    return {name: path for name, path in paths.items() if path is not None}
