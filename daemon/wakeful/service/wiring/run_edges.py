"""Constructs the edges that carry out runs: the runner, the starter, the landing of outputs, replays."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

from wakeful.core.deciding.machine import Core
from wakeful.core.record.state import OpenRun, Session
from wakeful.history.conversation import read_received
from wakeful.run_files.capture import Limits as ContentLimits
from wakeful.run_files.keeper import Keeper
from wakeful.run_files.replay import MakeOrder as MakeReplayOrder
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.reach import resolve_protected
from wakeful.runners.outputs.landing import Landing
from wakeful.runners.outputs.writers import Writers
from wakeful.runners.process.cgroup import find_delegated
from wakeful.runners.process.children import Children
from wakeful.runners.process.mark import Sign, mark_of
from wakeful.runners.process.orphans import end_strays
from wakeful.runners.run.orders import Premises, make_order
from wakeful.runners.run.run_folders import empty
from wakeful.runners.run.runner import CommandRunner
from wakeful.service.reports import (
    ProgramTrust,
    RunReports,
)
from wakeful.service.run_starter import RunStarter
from wakeful.service.wiring.ground import Ground
from wakeful.sources.all_sources import AllSources
from wakeful.sources.git.bound_repositories import BoundRepositories
from wakeful.sources.git.checkouts import Checkouts
from wakeful.workspaces.run_workspaces import RunPlaces

STAGED = "staged"
# Isolated: neither the environment nor the folder it runs in brings code of its own.
AGENT_PROGRAM = (sys.executable, "-I", "-m", "wakeful.agents")


def build_runner(ground: Ground, reports: RunReports, writers: Writers, origin: Sign | None) -> CommandRunner:
    core, kept, cgroups = ground.core, ground.kept, find_delegated()
    running = (core.state.get(session_id).run for session_id in core.state.running)
    left = [run.run_id for run in running if run is not None]
    if kept is not None and cgroups is not None:
        # Nobody ended what an earlier daemon left, since its runs were to live on.
        end_strays(cgroups, {mark_of(os.path.realpath(ground.state), run_id) for run_id in left})
    return CommandRunner(
        report=reports.report,
        blobs=ground.blobs,
        state=ground.state,
        children=Children(),
        cgroups=cgroups,
        protected=ground.protected,
        writers=writers,
        secrets=ground.known,
        kept=kept,
        left=left,
        origin=origin,
    )


def build_starter(
    ground: Ground,
    sources: AllSources,
    runner: CommandRunner,
    keeper: Keeper,
    program_trust: ProgramTrust,
    bound: BoundRepositories,
) -> RunStarter:
    state = ground.state
    # Temporary files of runs of a daemon that died; runs that go on need theirs.
    if os.path.isdir(f"{state}/temporary"):
        empty(f"{state}/temporary", {run_id.rpartition(".")[0] for run_id in ground.left})
    premises = Premises(
        scratch=f"{state}/scratch",
        temporary=f"{state}/temporary",
        run_folders=ground.run_folders,
        staged=f"{state}/{STAGED}",
        socket=str(ground.places.socket),
        agent_program=AGENT_PROGRAM,
        agent_code=_find_code(),
    )

    def order(session: Session, run: OpenRun, **named: Any) -> RunOrder:
        # A session from a bundle was declared on its host of origin, so its written places are declared here.
        ground.written.note(session)
        return make_order(session, run, premises, **named)

    return RunStarter(
        ground.core,
        sources,
        runner,
        order,
        premises.run_folders,
        program_trust.report,
        keeper,
        ground.known,
        program_trust.find_distrust,
        RunPlaces(state, f"{state}/{STAGED}", Checkouts(bound), ground.protected.hidden),
        ground.kept.list_tokens() if ground.kept is not None else {},
        functools.partial(read_received, ground.log),
        ground.blobs,
    )


def _find_code() -> tuple[str, ...]:
    """The folders with the code of the agent's process: the interpreter's own,
    and ours if it is not installed there."""
    # Not all of sys.path: it may name the folder that the daemon was started in.
    packages = (place for place in sys.path if os.path.basename(place) in ("site-packages", "dist-packages"))
    places = (sys.prefix, sys.base_prefix, *packages, str(Path(__file__).parents[2]))
    return tuple(dict.fromkeys(os.path.realpath(place) for place in places))


def build_landing(ground: Ground, runner: CommandRunner, writers: Writers) -> Landing:
    """Remove what runs of a daemon that died had staged, but for what was recorded as staged,
    and where a run goes on."""

    def list_guarded() -> tuple[str, ...]:
        protected = runner.protected
        return (*resolve_protected(protected)[0], *map(os.path.realpath, protected.hidden))

    landing = Landing(f"{ground.state}/{STAGED}", f"{ground.state}/conflicts", ground.observe, list_guarded, writers)
    open_runs = (session.run for session in ground.sessions if session.run is not None)
    landing.sweep((*(run.run_id for run in open_runs if run.staged is not None), *ground.left))
    return landing


def make_replay_order(core: Core) -> MakeReplayOrder:
    def make(session: Session, run: OpenRun, folder: str, *, causes: bytes, exports: dict[str, str]) -> RunOrder:
        # No socket, no token and no secrets: a replay changes nothing, also not by asking,
        # and reaches nobody in our name.
        premises = Premises(
            scratch=f"{folder}/scratch",
            temporary=f"{folder}/temporary",
            run_folders=folder,
            socket=f"{folder}/no-daemon",
        )
        return make_order(
            session,
            run,
            premises,
            token="",
            causes=causes,
            exports=exports,
            output_limit_bytes=core.settings.output_limit_bytes,
            most_processes=core.settings.limits.processes.hard,
        )

    return make


def bound_contents(core: Core) -> ContentLimits | None:
    """The present limits of kept contents, since wakeful.yaml may change. None: nothing is kept."""
    limits = core.settings.limits
    file, run, files = limits.kept_file.hard, limits.kept_run.hard, limits.kept_files.hard
    return ContentLimits(file_bytes=file, run_bytes=run, run_files=files) if file and run and files else None
