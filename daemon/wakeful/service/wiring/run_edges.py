"""Constructs the edges that carry out runs: the runner, the starter, and the landing of outputs."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from wakeful.history.conversation import read_received
from wakeful.run_files.content_recorder import Keeper
from wakeful.runners.outputs.landing import Landing
from wakeful.runners.outputs.undeclared_changes import Writers
from wakeful.runners.process.cgroup import find_delegated
from wakeful.runners.process.children import Children
from wakeful.runners.process.orphans import end_strays
from wakeful.runners.process.process_mark import ProcessMark, mark_of
from wakeful.runners.run.orders import RunLocations, make_order
from wakeful.runners.run.run_folders import empty
from wakeful.runners.run.runner import CommandRunner
from wakeful.service.reports import (
    ProgramTrust,
    RunReports,
)
from wakeful.service.run_starter import RunStarter
from wakeful.service.wiring.shared_parts import SharedParts
from wakeful.sources.all_sources import AllSources
from wakeful.sources.git.bound_repositories import BoundRepositories
from wakeful.sources.git.checkouts import Checkouts
from wakeful.workspaces.run_workspaces import RunPlaces

STAGED = "staged"
# Isolated (-I), so that neither the environment nor the current folder adds code.
AGENT_PROGRAM = (sys.executable, "-I", "-m", "wakeful.agents")


def build_runner(
    shared: SharedParts, reports: RunReports, writers: Writers, origin: ProcessMark | None
) -> CommandRunner:
    core, kept, cgroups = shared.core, shared.kept, find_delegated()
    running = (core.state.get(session_id).run for session_id in core.state.running)
    left = [run.run_id for run in running if run is not None]
    if kept is not None and cgroups is not None:
        # An earlier daemon left its runs alive on purpose. Processes of that daemon that belong to no such run are
        # ended here.
        end_strays(cgroups, {mark_of(os.path.realpath(shared.state), run_id) for run_id in left})
    return CommandRunner(
        report=reports.report,
        blobs=shared.blobs,
        state=shared.state,
        children=Children(),
        cgroups=cgroups,
        protected=shared.protected,
        writers=writers,
        secrets=shared.known,
        kept=kept,
        left=left,
        origin=origin,
    )


def build_starter(
    shared: SharedParts,
    sources: AllSources,
    runner: CommandRunner,
    keeper: Keeper,
    program_trust: ProgramTrust,
    bound: BoundRepositories,
) -> RunStarter:
    state = shared.state
    # Remove the temporary files that runs of a dead daemon left. Files of runs that go on are kept.
    if os.path.isdir(f"{state}/temporary"):
        empty(f"{state}/temporary", {run_id.rpartition(".")[0] for run_id in shared.left})
    locations = RunLocations(
        scratch=f"{state}/scratch",
        temporary=f"{state}/temporary",
        run_folders=shared.run_folders,
        staged=f"{state}/{STAGED}",
        socket=str(shared.places.socket),
        agent_program=AGENT_PROGRAM,
        agent_code=_find_code(),
    )
    return RunStarter(
        shared.core,
        sources,
        runner,
        functools.partial(make_order, locations=locations),
        shared.written.note,
        locations.run_folders,
        program_trust.report,
        keeper,
        shared.known,
        program_trust.find_distrust,
        RunPlaces(state, f"{state}/{STAGED}", Checkouts(bound), shared.protected.hidden),
        shared.kept.list_tokens() if shared.kept is not None else {},
        functools.partial(read_received, shared.log),
        shared.blobs,
    )


def _find_code() -> tuple[str, ...]:
    """Find the folders with the code of the agent's process.

    These are the interpreter's own folders, and ours if wakeful is not installed there.
    """
    # Not all of sys.path, because it may contain the folder in which the daemon was started.
    packages = (place for place in sys.path if os.path.basename(place) in ("site-packages", "dist-packages"))
    places = (sys.prefix, sys.base_prefix, *packages, str(Path(__file__).parents[2]))
    return tuple(dict.fromkeys(os.path.realpath(place) for place in places))


def build_landing(shared: SharedParts, runner: CommandRunner, writers: Writers) -> Landing:
    """Construct the landing.

    Removes the files that runs of a dead daemon staged, except those that were recorded as staged and those of runs
    that go on.
    """
    landing = Landing(
        f"{shared.state}/{STAGED}", f"{shared.state}/conflicts", shared.observe, runner.list_guarded, writers
    )
    open_runs = (session.run for session in shared.sessions if session.run is not None)
    landing.sweep((*(run.run_id for run in open_runs if run.staged is not None), *shared.left))
    return landing
