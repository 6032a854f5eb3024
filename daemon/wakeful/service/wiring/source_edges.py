"""Constructs the edges that look: files, commits, probes, services, and the specs themselves."""

from __future__ import annotations

import functools
import os

from wakeful.notifications.desk import NotificationDesk
from wakeful.run_files.keeper import Keeper
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
from wakeful.sources.git.bound_repositories import BoundRepositories
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
        StatCache(ground.places.state, ground.known.has_secret),
        defects=defects,
        lanes=lanes,
        find_since=ground.core.inherited_since,
    )
    return files, CommitSource(report, ground.loop, make_hints, bound=bound, defects=defects)


def build_bound_repositories(ground: Ground) -> BoundRepositories:
    find_writer = functools.partial(find_git_writer, ground.core)
    return BoundRepositories(ground.places.state / REPOSITORIES_FILE, find_writer)


def build_checks(ground: Ground, runner: CommandRunner, defects: Defects) -> tuple[ProbeSource, ServiceSource]:
    launch = functools.partial(runner.launch_probe, places=ProbePlaces(f"{ground.state}/temporary", ground.run_folders))
    find_server = functools.partial(find_mcp_server, ground.core)
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


def build_specs(
    ground: Ground,
    house: HouseReader,
    possible_writers: PossibleWriters,
    strictness: StrictnessWatch,
    runner: CommandRunner,
    notifications: NotificationDesk,
    settings_read: Signal,
) -> DeclarationsWatch:
    reports = SpecReports(
        ground.observe,
        ground.core,
        ground.known,
        strictness,
        ground.hints,
        ground.voice,
        house,
        runner,
        notifications,
        settings_read,
    )
    declarations = Declarations(SpecReading(house, possible_writers), reports.report, reports.guard_projects)
    return DeclarationsWatch(
        declarations, ground.loop, ground.hints.make, str(ground.places.specs), SETTINGS_FILE, reports.keep_parsed
    )
