"""Constructs the edges that look: files, commits, probes, services, and the specs themselves."""

from __future__ import annotations

import functools
import os
import subprocess
from contextlib import AbstractAsyncContextManager

from wakeful.core.deciding.machine import Core
from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.spec.agent import McpServer
from wakeful.notifications.desk import NotificationDesk
from wakeful.run_files.keeper import Keeper
from wakeful.runners.isolation.bubblewrap import StrictnessWatch
from wakeful.runners.isolation.written_places import could_replace_git
from wakeful.runners.run.probe_launch import ProbePlaces
from wakeful.runners.run.runner import CommandRunner
from wakeful.service.daemon import StartProgress
from wakeful.service.program_reach import ProgramReach
from wakeful.service.reports import (
    FileReports,
    SpecReading,
    SpecReports,
)
from wakeful.service.wiring.ground import Ground
from wakeful.settings import SETTINGS_FILE
from wakeful.sources.checks.probes import ProbeSource
from wakeful.sources.checks.services import ServiceSource
from wakeful.sources.contract import Defects
from wakeful.sources.declarations.declarations import Declarations
from wakeful.sources.declarations.watch import DeclarationsWatch
from wakeful.sources.files.look_pool import Lanes
from wakeful.sources.files.source import FileSource
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.git.bound_repositories import BoundRepositories, FindWriter
from wakeful.sources.git.source import CommitSource
from wakeful.trust.ledger import Ledger
from wakeful.trust.possible_writers import PossibleWriters
from wakeful.trust.spec_reader import DaemonLookups, HouseReader

KEPT_SPECS = "specs.cache"
REPOSITORIES_FILE = "repositories.json"


def build_file_sources(
    ground: Ground, keeper: Keeper, lanes: Lanes, bound: BoundRepositories, defects: Defects
) -> tuple[FileSource, CommitSource]:
    report, make_hints = FileReports(ground.observe, keeper).report, ground.hints.make
    files = FileSource(
        report,
        ground.loop,
        ground.state,
        make_hints,
        StatCache(ground.places.state, lambda text: ground.known.find(text) is not None),
        defects=defects,
        lanes=lanes,
        find_since=ground.core.inherited_since,
    )
    return files, CommitSource(report, ground.loop, make_hints, bound=bound, defects=defects)


def build_bound_repositories(ground: Ground) -> BoundRepositories:
    return BoundRepositories(ground.places.state / REPOSITORIES_FILE, _find_git_writer(ground.core))


def _find_git_writer(core: Core) -> FindWriter:
    """Make the lookup for a session that could have replaced a `.git`.
    The code that reads repositories knows nothing of runs."""

    def find(top: str, *, was_there: bool, is_running: bool) -> str | None:
        for session in core.state:
            spec = session.run.spec if session.run is not None else None if is_running else session.spec
            if spec is not None and could_replace_git(spec, top, was_there=was_there):
                return session.name
        return None

    return find


def build_checks(ground: Ground, runner: CommandRunner, defects: Defects) -> tuple[ProbeSource, ServiceSource]:
    places = ProbePlaces(f"{ground.state}/temporary", ground.run_folders)

    def launch(target: ProbeTarget) -> AbstractAsyncContextManager[subprocess.Popen[bytes]]:
        return runner.launch_probe(target, places)

    def find_server(agent: str, name: str) -> McpServer | None:
        found = ground.core.agents.get(agent)
        return next((server for server in found.mcp if server.name == name), None) if found is not None else None

    return (
        ProbeSource(ground.observe, ground.loop, launch, ground.known.redact_tail, defects=defects),
        ServiceSource(ground.observe, ground.loop, find_server, defects=defects),
    )


def build_house(
    ground: Ground, ledger: Ledger, possible_writers: PossibleWriters, progress: StartProgress
) -> HouseReader:
    closed = (ground.state, *ground.protected.hidden)
    programs = ProgramReach(os.environ, ground.written.places, closed)
    around = DaemonLookups(
        runs=possible_writers,
        find_known=functools.partial(find_filed_text, ground.core),
        find_reach=programs.list_places,
    )
    kept = ground.places.state / KEPT_SPECS
    return HouseReader(ground.places.specs, ledger, kept=kept, around=around, tell_far=progress.tell_read)


def find_filed_text(core: Core, name: str) -> str | None:
    """The digest of the text that was in force for a session on this host; None: there was none. Asked in any thread.

    A bundle's claim about its own spec is not trusted: only the text of a spec file counts as known."""
    session = core.state.sessions.get(core.state.ids.get(name, ""))
    return session.declaration.text_digest if session is not None and session.declaration.is_filed else None


def build_specs(
    ground: Ground,
    house: HouseReader,
    possible_writers: PossibleWriters,
    strictness: StrictnessWatch,
    runner: CommandRunner,
    notifications: NotificationDesk,
) -> DeclarationsWatch:
    reports = SpecReports(
        ground.observe, ground.core, ground.known, strictness, ground.hints, ground.voice, house, runner, notifications
    )

    def keep() -> None:
        if not ground.known.has_outspoken_specs:
            house.keep()

    declarations = Declarations(SpecReading(house, possible_writers), reports.report, reports.guard_projects)
    return DeclarationsWatch(
        declarations, ground.loop, ground.hints.make, str(ground.places.specs), SETTINGS_FILE, keep
    )
