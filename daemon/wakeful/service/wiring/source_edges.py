"""Constructs the edges that look: files, commits, probes, services, and the specs."""

from __future__ import annotations

import functools
import os

from wakeful.notifications.delivery_loop import Notifications
from wakeful.run_files.content_recorder import Keeper
from wakeful.runners.isolation.bubblewrap import StrictnessWatch
from wakeful.runners.run.probe_launch import ProbePlaces
from wakeful.runners.run.runner import CommandRunner
from wakeful.service.daemon import StartProgress
from wakeful.service.lookups import find_filed_text, find_git_writer, find_mcp_server
from wakeful.service.program_reach import ProgramReach
from wakeful.service.reactor import Signal
from wakeful.service.reports import (
    FileReports,
    SpecReading,
    SpecReports,
)
from wakeful.service.wiring.shared_parts import SharedParts
from wakeful.settings import SETTINGS_FILE
from wakeful.sources.checks.probes import ProbeSource
from wakeful.sources.checks.services import ServiceSource
from wakeful.sources.contract import Defects
from wakeful.sources.declarations import Declarations, DeclarationsWatch
from wakeful.sources.files.look_pool import Lanes
from wakeful.sources.files.source import FileSource
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.git.bound_repositories import BoundRepositories
from wakeful.sources.git.source import CommitSource
from wakeful.trust.ledger import Ledger
from wakeful.trust.possible_writers import PossibleWriters
from wakeful.trust.spec_reader import DaemonLookups, SpecFolderReader

KEPT_SPECS = "specs.cache"
REPOSITORIES_FILE = "repositories.json"


def build_file_sources(
    shared: SharedParts, keeper: Keeper, lanes: Lanes, bound: BoundRepositories, defects: Defects
) -> tuple[FileSource, CommitSource]:
    report, make_hints = FileReports(shared.observe, keeper).report, shared.hints.make
    files = FileSource(
        report,
        shared.loop,
        shared.state,
        make_hints,
        StatCache(shared.places.state, shared.known.has_secret),
        defects=defects,
        lanes=lanes,
        find_since=shared.core.inherited_since,
    )
    return files, CommitSource(report, shared.loop, make_hints, bound=bound, defects=defects)


def build_bound_repositories(shared: SharedParts) -> BoundRepositories:
    find_writer = functools.partial(find_git_writer, shared.core)
    return BoundRepositories(shared.places.state / REPOSITORIES_FILE, find_writer)


def build_checks(shared: SharedParts, runner: CommandRunner, defects: Defects) -> tuple[ProbeSource, ServiceSource]:
    launch = functools.partial(runner.launch_probe, places=ProbePlaces(f"{shared.state}/temporary", shared.run_folders))
    find_server = functools.partial(find_mcp_server, shared.core)
    return (
        ProbeSource(shared.observe, shared.loop, launch, shared.known.redact_tail, defects=defects),
        ServiceSource(shared.observe, shared.loop, find_server, defects=defects),
    )


def build_spec_reader(
    shared: SharedParts, ledger: Ledger, possible_writers: PossibleWriters, progress: StartProgress
) -> SpecFolderReader:
    closed = (shared.state, *shared.protected.hidden)
    programs = ProgramReach(os.environ, shared.written.places, closed)
    around = DaemonLookups(
        runs=possible_writers,
        find_known=functools.partial(find_filed_text, shared.core),
        find_reach=programs.list_places,
    )
    kept = shared.places.state / KEPT_SPECS
    return SpecFolderReader(shared.places.specs, ledger, kept=kept, around=around, report_progress=progress.tell_read)


def build_specs(
    shared: SharedParts,
    spec_reader: SpecFolderReader,
    possible_writers: PossibleWriters,
    strictness: StrictnessWatch,
    runner: CommandRunner,
    notifications: Notifications,
    settings_read: Signal,
) -> DeclarationsWatch:
    reports = SpecReports(
        shared.observe,
        shared.core,
        shared.known,
        strictness,
        shared.hints,
        shared.printer,
        spec_reader,
        runner,
        notifications,
        settings_read,
    )
    declarations = Declarations(SpecReading(spec_reader, possible_writers), reports.report, reports.guard_projects)
    return DeclarationsWatch(
        declarations, shared.loop, shared.hints.make, str(shared.places.specs), SETTINGS_FILE, reports.keep_parsed
    )
