"""Constructs the daemon. Only this package constructs edges.

Every part gets its collaborators when it is constructed. After the construction no code of this module runs.
"""

from __future__ import annotations

import functools

from wakeful.api.live_answers import LiveWords
from wakeful.core.spec.http_settings import HttpSettings, choose_http
from wakeful.core.spec.session import Settings
from wakeful.errors import OperatorError
from wakeful.eventlog.contract import DaemonLog
from wakeful.history.stored_sessions import load_sessions
from wakeful.monitoring.measures import Measures, Monitoring
from wakeful.run_files.capture import find_limits
from wakeful.run_files.content_recorder import Keeper
from wakeful.run_files.replay import ReplayEnds, Replays
from wakeful.runners.isolation.bubblewrap import StrictnessWatch
from wakeful.runners.isolation.written_places import list_writable
from wakeful.runners.outputs.undeclared_changes import Writers
from wakeful.runners.process.process_mark import ProcessMark
from wakeful.runners.run.orders import make_replay_order
from wakeful.service.api_service import ApiService, Edges
from wakeful.service.daemon import Daemon, StartProgress
from wakeful.service.log_printer import Narrator, Style
from wakeful.service.lookups import list_loaded, list_specs
from wakeful.service.otel_traces import OtelTraces
from wakeful.service.reactor import Reactor, ReactorPorts, Signal
from wakeful.service.reports import (
    DefectReports,
    DelayedLooks,
    DiskSpaceReports,
    ProgramTrust,
    RunReports,
    SessionReports,
)
from wakeful.service.shutdown import Shutdown
from wakeful.service.wiring.notifications import NotificationReport, build_notifications
from wakeful.service.wiring.run_edges import (
    build_landing,
    build_runner,
    build_starter,
)
from wakeful.service.wiring.shared_parts import build_shared_parts
from wakeful.service.wiring.source_edges import (
    build_bound_repositories,
    build_checks,
    build_file_sources,
    build_spec_reader,
    build_specs,
)
from wakeful.settings import Places, read_settings
from wakeful.sources.all_sources import AllSources
from wakeful.sources.clock import Clock, read_wall
from wakeful.sources.contract import Defects
from wakeful.sources.disk_space import DiskSpaceWatch
from wakeful.sources.files.look_pool import Lanes
from wakeful.sources.git.checkouts import Checkouts
from wakeful.specs.problem import Problem
from wakeful.system.journal import WARNING
from wakeful.system.systemd import HandedOver, Supervisor
from wakeful.trust.ledger import Ledger
from wakeful.trust.possible_writers import PossibleWriters
from wakeful.trust.trust_review import TrustReview
from wakeful.workspaces.fork_workspaces import Workspaces


def build_daemon(
    places: Places,
    log: DaemonLog,
    handed_over: HandedOver = HandedOver(),
    *,
    is_once: bool,
    style: Style | None = None,
    origin: ProcessMark | None = None,
) -> Daemon:
    """Construct the daemon, inside the loop in which it will run.

    `style` is the form of its messages. None means journal entries if there is a journal, else text. `origin` is the
    sign of the run that started this daemon, if one did. The edges are made first and report to a port. The reactor is
    made last, and connected to the port.
    """
    settings, _, problems = read_settings(places.specs)
    _refuse_open_port(places, settings, problems)
    sessions, snapshots = load_sessions(log)
    shared = build_shared_parts(places, log, sessions, handed_over, settings, style)
    core, observe, known, printer = shared.core, shared.observe, shared.known, shared.printer
    supervisor, decided, recorded, settings_read = Supervisor(), Signal(), Signal(), Signal()
    progress = StartProgress(printer, supervisor)
    ending = Shutdown(observe, decided, known.redact_text)
    lanes, bound = Lanes(), build_bound_repositories(shared)
    limits = functools.partial(find_limits, core)
    keeper = Keeper(core, shared.blobs, observe, printer.say, limits, lists=shared.kept, is_looking=lanes.is_near_taken)
    defects = Defects(DefectReports(printer, shared.loop).tell)
    files, commits = build_file_sources(shared, keeper, lanes, bound, defects)
    possible_writers = PossibleWriters(core, list_writable, read_wall)
    writers, replay_ends = Writers(), ReplayEnds()
    reports = RunReports(observe, replay_ends, files, possible_writers, keeper)
    runner = build_runner(shared, reports, writers, origin)
    sources = AllSources(files, commits, *build_checks(shared, runner, defects))
    ledger = Ledger(places.state / "trust", known.find)
    spec_reader = build_spec_reader(shared, ledger, possible_writers, progress)
    strictness = StrictnessWatch(observe, functools.partial(list_specs, core))
    notifications = build_notifications(places, core, log, known, printer, observe, shared.written.places)
    specs = build_specs(shared, spec_reader, possible_writers, strictness, runner, notifications, settings_read)
    landing = build_landing(shared, runner, writers)
    starter = build_starter(shared, sources, runner, keeper, ProgramTrust(spec_reader, specs, observe), bound)
    live_words = LiveWords(known.find_redactor)
    session_reports = SessionReports(core, shared.written, starter, landing, live_words)
    edges = Edges(
        sources=sources,
        specs=specs,
        landing=landing,
        strictness=strictness,
        room=DiskSpaceWatch(shared.state, DiskSpaceReports(observe, core, printer).report),
        clock=Clock(observe, shared.loop, read_wall, on_jump=printer.say),
        runner=runner,
        starter=starter,
        blobs=shared.blobs,
        keeper=keeper,
        replays=Replays(shared.blobs, shared.state, functools.partial(make_replay_order, core), runner, replay_ends),
        workspaces=Workspaces(shared.blobs, shared.state, Checkouts(bound)),
        trust=TrustReview(ledger, spec_reader, functools.partial(list_loaded, core)),
        printer=printer,
        secrets=known,
        notifications=notifications,
        log=log,
        handed_over=handed_over.listener,
    )
    traces = OtelTraces(core, log, places.state, recorded, functools.partial(printer.say, priority=WARNING))
    monitoring = Monitoring(core, (NotificationReport(notifications), traces))
    outside = _join_edges(edges, session_reports, monitoring.measures, decided, recorded, ending)
    reactor = Reactor(core, log, outside, snapshots=snapshots, redact=known.redact)
    observe.connect(reactor.observe)
    api_service = ApiService(places, reactor, edges, live_words, monitoring, decided, recorded, ending)
    narrator = Narrator(core, log, shared.blobs, printer, shared.state, quotes_failures=is_once)
    return Daemon(
        api_service, reactor, edges, settings, narrator, supervisor, progress, ending, decided, recorded, settings_read,
        session_reports.failed, traces, is_once=is_once,
    )  # fmt: skip


def _refuse_open_port(places: Places, settings: Settings, problems: tuple[Problem, ...]) -> None:
    """Refuse to start if `http` is wrong. Going on without it would hide that the port is not open as configured."""
    wrong = next((one for one in problems if one.text.startswith(("http", "listen"))), None)
    if wrong is not None:
        raise OperatorError(str(wrong))
    http = choose_http(places.http, settings.http)
    if isinstance(http, HttpSettings) and (obstacle := http.find_obstacle()) is not None:
        raise OperatorError(obstacle)


def _join_edges(
    edges: Edges,
    session_reports: SessionReports,
    measures: Measures,
    decided: Signal,
    recorded: Signal,
    ending: Shutdown,
) -> ReactorPorts:
    return ReactorPorts(
        follow=edges.sources.follow,
        forget=edges.sources.forget,
        look=DelayedLooks(edges.sources, edges.specs).look,
        prepare=edges.starter.prepare,
        start=edges.starter.start,
        land=edges.landing.land,
        readopted=edges.starter.readopt,
        redeclared=session_reports.redeclared,
        wake_at=edges.clock.wake_at,
        runner=edges.runner,
        finished=session_reports.finished,
        noted=measures.note,
        flushed=measures.note_flush,
        decided=decided.tell,
        recorded=recorded.tell,
        fatal=ending.end_at_once,
    )
