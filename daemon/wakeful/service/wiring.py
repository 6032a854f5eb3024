"""Puts the daemon together, and is the only place that constructs edges.

`run_daemon` is `wakeful daemon`: lock the state folder, open the log, fold it, construct the edges and their reports,
and await `Daemon.live` (daemon.py). Every part gets its collaborators when it is made. Nothing here runs after that.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import resource
import subprocess
import sys
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket as Socket
from typing import Any

from wakeful.api.live_words import LiveWords
from wakeful.bundles.blob_archive import BlobArchive
from wakeful.bundles.scratch_files import remove_unfinished
from wakeful.core.deciding.agent_obstacles import list_needed, list_signing
from wakeful.core.deciding.machine import Core
from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.record.state import DamagedSession, OpenRun, Session
from wakeful.core.spec.agent import McpServer
from wakeful.core.spec.http import HttpSettings, choose_http
from wakeful.core.spec.session import SessionSpec, Settings
from wakeful.errors import OperatorError
from wakeful.eventlog.contract import DaemonLog
from wakeful.eventlog.sqlite import open_log
from wakeful.eventlog.state_lock import StateLock, lock_state
from wakeful.history.conversation import read_received
from wakeful.history.stored_sessions import load_sessions
from wakeful.monitoring.measures import Measures
from wakeful.monitoring.monitoring import Monitoring
from wakeful.notifications.desk import NotificationDesk
from wakeful.run_files.capture import Limits as ContentLimits
from wakeful.run_files.keeper import Keeper
from wakeful.run_files.replay import MakeOrder as MakeReplayOrder
from wakeful.run_files.replay import ReplayEnds, Replays
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import StrictnessWatch
from wakeful.runners.isolation.reach import Protected, resolve_protected
from wakeful.runners.isolation.written_places import could_replace_git, list_writable
from wakeful.runners.outputs.landing import Landing
from wakeful.runners.outputs.writers import Writers
from wakeful.runners.prepare.warm_server import WarmServer
from wakeful.runners.process.cgroup import find_delegated
from wakeful.runners.process.children import Children, become_subreaper
from wakeful.runners.process.environment import select_inherited
from wakeful.runners.process.mark import Sign, mark_of
from wakeful.runners.process.orphans import end_strays
from wakeful.runners.process.proc import can_tell_ends
from wakeful.runners.run.kept_runs import KeptRuns
from wakeful.runners.run.orders import Premises, make_order
from wakeful.runners.run.probe_launch import ProbePlaces
from wakeful.runners.run.run_folders import empty, open_run_folders
from wakeful.runners.run.runner import CommandRunner
from wakeful.secrets.known import KnownSecrets, RedactingFormatter
from wakeful.secrets.store import SecretPlaces, take_places
from wakeful.service.daemon import Daemon, StartProgress
from wakeful.service.ending import Ending
from wakeful.service.facade import Edges, Facade
from wakeful.service.notification_desk import build_desk
from wakeful.service.notification_report import NotificationReport
from wakeful.service.otel_traces import OtelTraces
from wakeful.service.program_reach import ProgramReach
from wakeful.service.reactor import Outside, Reactor, Signal
from wakeful.service.reports import (
    DefectReports,
    FileReports,
    LooksAfterReading,
    ObservationPort,
    ProgramTrust,
    RoomReports,
    RunReports,
    SessionReports,
    SpecReading,
    SpecReports,
    StoreReports,
    WrittenSpecs,
)
from wakeful.service.run_starter import RunStarter
from wakeful.service.voice import Narrator, Style, Voice
from wakeful.settings import SETTINGS_FILE, Places, find_settings_file, read_settings, resolve_places, settings_home
from wakeful.sources.all_sources import AllSources
from wakeful.sources.checks.probes import ProbeSource
from wakeful.sources.checks.services import ServiceSource
from wakeful.sources.clock import Clock
from wakeful.sources.contract import Defects
from wakeful.sources.declarations.declarations import Declarations
from wakeful.sources.declarations.watch import DeclarationsWatch
from wakeful.sources.disk_room import RoomWatch
from wakeful.sources.files.look_pool import Lanes
from wakeful.sources.files.source import FileSource
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.git.bound_repositories import BoundRepositories, FindWriter
from wakeful.sources.git.checkouts import Checkouts
from wakeful.sources.git.source import CommitSource
from wakeful.sources.hints.choice import HintsSwitch
from wakeful.specs.problem import Problem
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool
from wakeful.system.journal import WARNING, find_journal
from wakeful.system.process_tuning import bound_allocator
from wakeful.system.state_folder import find_project
from wakeful.system.systemd import HandedOver, Supervisor, find_keeper, take_handed_over
from wakeful.text.repeated_lines import Repeats, RepeatsFilter
from wakeful.trust.desk import TrustDesk
from wakeful.trust.ledger import Ledger
from wakeful.trust.possible_writers import PossibleWriters
from wakeful.trust.spec_reader import DaemonLookups, HouseReader
from wakeful.views.narration import visible
from wakeful.workspaces.fork_workspaces import Workspaces
from wakeful.workspaces.run_workspaces import RunPlaces

KEPT_SPECS = "specs.cache"
# Threads for blocking work that has none of its own: reading the log for people, bundles, copies of files, specs.
_BLOCKING_CALLS = 8
STAGED = "staged"
REPOSITORIES_FILE = "repositories.json"
# Isolated: neither the environment nor the folder it runs in brings code of its own.
AGENT_PROGRAM = (sys.executable, "-I", "-m", "wakeful.agents")
WARM_PROGRAM = (sys.executable, "-I", "-m", "wakeful.agents.warm")


def run_daemon(
    *,
    specs: str | None,
    state: str | None,
    socket: str | None,
    once: bool,
    log: Style | None = None,
    http: str | None = None,
) -> int:
    """`wakeful daemon`: returns the exit code."""
    handed_over = take_handed_over()
    places = _place_socket(
        resolve_places({"specs": specs, "state": state, "socket": socket, "http": http}, os.environ, Path.cwd()),
        handed_over.listener,
        socket,
    )
    if not (state or os.environ.get("WAKEFUL_STATE") or os.environ.get("STATE_DIRECTORY")):
        _tell_other_project(places)
    _find_specs(places.specs, is_named=bool(specs or os.environ.get("WAKEFUL_SPECS")))
    # A core dump would hold every secret the daemon knows. Runs may raise it again for themselves.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    lock = lock_state(places.state)
    bound_allocator()
    # A start makes a million lasting objects: looking among them for cycles again and again took a fifth of it.
    gc.disable()
    try:
        origin = become_subreaper()
        _watch_children()
        return asyncio.run(_live(places, lock, handed_over, once, log, origin))
    finally:
        lock.release()


def _watch_children() -> None:
    """Watch children by descriptors: before 3.12 Python starts a thread for each child of asyncio,
    and there may be none."""
    if sys.version_info < (3, 12) and can_tell_ends():
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def _place_socket(places: Places, handed_over: Socket | None, named: str | None) -> Places:
    """Use the path that systemd listens on; another one that was named would have no listener."""
    if handed_over is None:
        return places
    path = handed_over.getsockname()
    if named and os.path.realpath(places.socket) != os.path.realpath(path):
        raise OperatorError(
            f"systemd listens on {path} for this daemon, and --socket says {places.socket}: leave --socket out, "
            "or change ListenStream="
        )
    return replace(places, socket=Path(path))


def _tell_other_project(places: Places) -> None:
    """Tell that commands given here look for another daemon:
    a project's state folder is used if it is named (design.md, section 8)."""
    project = find_project().folder
    if project is not None and Path(project) != places.state:
        words = (
            f"wakeful: the log of this daemon is in {places.state}. Commands given here look for the daemon of "
            f"{project}: to start that one, add --state {project}"
        )
        print(visible(words, 1000), file=sys.stderr, flush=True)


def _find_specs(folder: Path, *, is_named: bool) -> None:
    """Make the default folder of specs if it is missing. A named one must exist:
    a missing folder would undeclare every session."""
    if folder.is_dir():
        return
    if is_named:
        raise OperatorError(
            f"{folder} is not a folder; name the one that holds your specs with --specs, or make it first"
        )
    folder.mkdir(parents=True)


async def _live(
    places: Places, lock: StateLock, handed_over: HandedOver, is_once: bool, style: Style | None, origin: Sign | None
) -> int:
    loop = asyncio.get_running_loop()
    try:
        loop.set_default_executor(Pool(_BLOCKING_CALLS, "blocking"))
    except OSError as error:
        words = "end some programs, or raise the limit of processes (TasksMax=, ulimit -u) or memory"
        raise OperatorError(
            f"the system gives the daemon no threads to work with ({error.strerror}): {words}"
        ) from error
    store = StoreReports(loop)
    log = open_log(places.state, lock=lock, on_fatal=store.end, tell=store.warn)
    if log.read_only is not None:
        raise OperatorError(
            f"{places.state}: {log.read_only}; nothing is written to it. "
            "Look at it with: wakeful doctor; go back to a backup with: wakeful restore BACKUP"
        )
    daemon = build_daemon(places, log, handed_over, is_once=is_once, style=style, origin=origin)
    store.connect(daemon)
    return await daemon.live()


@dataclass(frozen=True, slots=True)
class Ground:
    """The common ground of all edges: the folded state, the port to the reactor, the secrets, the voice."""

    places: Places
    loop: asyncio.AbstractEventLoop
    core: Core
    log: DaemonLog
    observe: ObservationPort
    known: KnownSecrets
    voice: Voice
    hints: HintsSwitch
    blobs: Blobs
    # The sessions as they were folded at the start.
    sessions: tuple[Session, ...]
    run_folders: str
    # Runs that live on beyond the daemon; None: they end with it.
    kept: KeptRuns | None
    written: WrittenSpecs
    protected: Protected

    @property
    def state(self) -> str:
        return str(self.places.state)

    @property
    def left(self) -> frozenset[str]:
        """The runs that an earlier daemon left, and that go on."""
        return self.kept.left if self.kept is not None else frozenset()


def build_daemon(
    places: Places,
    log: DaemonLog,
    handed_over: HandedOver = HandedOver(),
    *,
    is_once: bool,
    style: Style | None = None,
    origin: Sign | None = None,
) -> Daemon:
    """Construct the daemon, inside the loop it will live in.

    `style` is the form of its words; None: journal entries where the journal listens, else text. `origin` is the sign
    of the run that started this daemon, if one did. Edges come first and report to a port. The reactor comes last,
    and is connected to the port.
    """
    settings, _, problems = read_settings(places.specs)
    _refuse_open_port(places, settings, problems)
    sessions, snapshots = load_sessions(log)
    ground = _build_ground(places, log, sessions, handed_over, settings, style)
    core, observe, known, voice = ground.core, ground.observe, ground.known, ground.voice
    supervisor, decided, recorded = Supervisor(), Signal(), Signal()
    progress = StartProgress(voice, supervisor)
    ending = Ending(observe, decided, known.redact_text)
    lanes, bound = Lanes(), BoundRepositories(places.state / REPOSITORIES_FILE, _find_git_writer(core))
    limits = functools.partial(_bound_contents, core)
    keeper = Keeper(
        core, ground.blobs, observe, voice.say, limits, lists=ground.kept, is_looking=lambda: lanes.is_near_taken
    )
    defects = Defects(DefectReports(voice, ground.loop).tell)
    files, commits = _build_file_sources(ground, keeper, lanes, bound, defects)
    possible_writers = PossibleWriters(core, _list_writable, _read_wall)
    writers, replay_ends = Writers(), ReplayEnds()
    reports = RunReports(observe, replay_ends, files, possible_writers, keeper)
    runner = _build_runner(ground, reports, writers, origin)
    sources = AllSources(files, commits, *_build_checks(ground, runner, defects))
    ledger = Ledger(places.state / "trust", lambda content: known.redactor.find(content))
    house = _build_house(ground, ledger, possible_writers, progress)
    strictness = StrictnessWatch(observe, lambda: (session.spec for session in core.state))
    notifications = build_desk(places, core, log, known, voice, observe, ground.written.places)
    specs = _build_specs(ground, house, possible_writers, strictness, runner, notifications)
    landing = _build_landing(ground, runner, writers)
    starter = _build_starter(ground, sources, runner, keeper, ProgramTrust(house, specs, observe), bound)
    live_words = LiveWords(lambda: known.redactor)
    session_reports = SessionReports(core, ground.written, starter, landing, live_words)
    edges = Edges(
        sources=sources,
        specs=specs,
        landing=landing,
        strictness=strictness,
        room=RoomWatch(ground.state, RoomReports(observe, core, voice).report),
        clock=Clock(observe, ground.loop, _read_wall, on_jump=voice.say),
        runner=runner,
        starter=starter,
        blobs=ground.blobs,
        keeper=keeper,
        replays=Replays(ground.blobs, ground.state, _make_replay_order(core), runner, replay_ends),
        workspaces=Workspaces(ground.blobs, ground.state, Checkouts(bound)),
        trust=TrustDesk(ledger, house, functools.partial(_list_loaded, core), core.agents.get),
        voice=voice,
        secrets=known,
        notifications=notifications,
        log=log,
        handed_over=handed_over.listener,
    )
    monitoring = Monitoring(core)
    outside = _join_edges(edges, session_reports, monitoring.measures, decided, recorded, ending)
    reactor = Reactor(core, log, outside, snapshots=snapshots, redact=known.redact)
    observe.connect(reactor.observe)
    facade = Facade(places, reactor, edges, live_words, monitoring, decided, recorded, ending)
    narrator = Narrator(core, log, ground.blobs, voice, ground.state, quotes_failures=is_once)
    traces = OtelTraces(core, log, places.state, recorded, functools.partial(voice.say, priority=WARNING))
    monitoring.reporters += (NotificationReport(notifications), traces)
    return Daemon(
        facade, reactor, edges, settings, narrator, supervisor, progress, ending, decided, recorded,
        session_reports.failed, traces, is_once=is_once,
    )  # fmt: skip


def _refuse_open_port(places: Places, settings: Settings, problems: tuple[Problem, ...]) -> None:
    """Refuse to start where `http` is wrong. To go on without it would hide that the port is not open as asked."""
    wrong = next((one for one in problems if one.text.startswith(("http", "listen"))), None)
    if wrong is not None:
        raise OperatorError(str(wrong))
    http = choose_http(places.http, settings.http)
    if isinstance(http, HttpSettings) and (obstacle := http.find_obstacle()) is not None:
        raise OperatorError(obstacle)


def _build_ground(
    places: Places,
    log: DaemonLog,
    sessions: list[Session],
    handed_over: HandedOver,
    settings: Settings,
    style: Style | None,
) -> Ground:
    core, observe = Core(sessions), ObservationPort()
    known = _build_secrets(
        core, observe, take_places(str(settings_home(os.environ) / "wakeful" / "secrets"), os.environ)
    )
    voice = Voice(
        is_terminal=sys.stdout.isatty(),
        journal=find_journal() if style is None else None,
        style=style or "text",
        redact=known.redact_text,
    )
    if logging.lastResort is not None:
        say = functools.partial(voice.say, priority=WARNING)
        logging.lastResort.filters[:] = [RepeatsFilter(Repeats(time.monotonic), say)]
    for damaged in (session for session in sessions if isinstance(session, DamagedSession)):
        voice.say(damaged.damage_words, name=damaged.name, priority=WARNING)
    blobs = Blobs(f"{places.state}/blobs", BlobArchive(places.state / "archive" / "outputs"), known)
    blobs.remove_unfinished()
    remove_unfinished(places.state / "scratch")
    kept, written = _find_kept(handed_over, sessions), WrittenSpecs(sessions)
    run_folders = open_run_folders(str(places.state), os.environ, kept.left if kept is not None else frozenset())
    return Ground(
        places=places,
        loop=asyncio.get_running_loop(),
        core=core,
        log=log,
        observe=observe,
        known=known,
        voice=voice,
        hints=HintsSwitch(settings.hints),
        blobs=blobs,
        sessions=tuple(sessions),
        run_folders=run_folders,
        kept=kept,
        written=written,
        protected=_find_protected(places, run_folders, known, written),
    )


def _join_edges(
    edges: Edges,
    session_reports: SessionReports,
    measures: Measures,
    decided: Signal,
    recorded: Signal,
    ending: Ending,
) -> Outside:
    return Outside(
        follow=edges.sources.follow,
        forget=edges.sources.forget,
        look=LooksAfterReading(edges.sources, edges.specs).look,
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


def _read_wall() -> int:
    return time.time_ns() // 1000


def _list_writable(spec: SessionSpec, is_guarded: bool) -> tuple[str, ...] | None:
    return list_writable(spec, is_guarded=is_guarded)


def _list_loaded(core: Core) -> list[Session]:
    """Sessions that a bundle brought and nobody has looked at."""
    return [
        one
        for one in core.state
        if one.declaration.needs_trust is not None and one.spec is not None and not one.is_shut
    ]


def _find_kept(handed_over: HandedOver, sessions: list[Session]) -> KeptRuns | None:
    """The keeper of runs that outlive the daemon, with those that the log knows; None: runs end with the daemon."""
    store = find_keeper()
    if store is None or not can_tell_ends():
        return None
    kept = KeptRuns(store, handed_over.stored)
    kept.drop_others(session.run.run_id for session in sessions if session.run is not None)
    return kept


def _build_secrets(core: Core, observe: ObservationPort, places: SecretPlaces) -> KnownSecrets:
    """Build the screen for secrets: every observation and call passes it,
    and so does what libraries write to standard error."""

    def list_all_needed() -> set[str]:
        declared = [session for session in core.state if session.declaration.is_declared]
        return {name for session in declared for name in (*list_needed(core, session), *list_signing(session))}

    known = KnownSecrets(places, observe, list_all_needed)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(RedactingFormatter(known))
    return known


def _build_house(
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


def _build_specs(
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


def _bound_contents(core: Core) -> ContentLimits | None:
    """The present limits of kept contents, since wakeful.yaml may change. None: nothing is kept."""
    limits = core.settings.limits
    file, run, files = limits.kept_file.hard, limits.kept_run.hard, limits.kept_files.hard
    return ContentLimits(file_bytes=file, run_bytes=run, run_files=files) if file and run and files else None


def _build_file_sources(
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


def _build_checks(ground: Ground, runner: CommandRunner, defects: Defects) -> tuple[ProbeSource, ServiceSource]:
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


def _build_runner(ground: Ground, reports: RunReports, writers: Writers, origin: Sign | None) -> CommandRunner:
    core, kept, cgroups, children = ground.core, ground.kept, find_delegated(), Children()
    running = (core.state.get(session_id).run for session_id in core.state.running)
    left = [run.run_id for run in running if run is not None]
    if kept is not None and cgroups is not None:
        # Nobody ended what an earlier daemon left, since its runs were to live on.
        end_strays(cgroups, {mark_of(os.path.realpath(ground.state), run_id) for run_id in left})
    return CommandRunner(
        report=reports.report,
        blobs=ground.blobs,
        state=ground.state,
        children=children,
        cgroups=cgroups,
        protected=ground.protected,
        writers=writers,
        secrets=ground.known,
        kept=kept,
        warm=WarmServer(WARM_PROGRAM, select_inherited(os.environ), children),
        left=left,
        origin=origin,
    )


def _build_landing(ground: Ground, runner: CommandRunner, writers: Writers) -> Landing:
    """Remove what runs of a daemon that died had staged, but for what was recorded as staged,
    and where a run goes on."""

    def list_guarded() -> tuple[str, ...]:
        protected = runner.protected
        return (*resolve_protected(protected)[0], *map(os.path.realpath, protected.hidden))

    landing = Landing(f"{ground.state}/{STAGED}", f"{ground.state}/conflicts", ground.observe, list_guarded, writers)
    open_runs = (session.run for session in ground.sessions if session.run is not None)
    landing.sweep((*(run.run_id for run in open_runs if run.staged is not None), *ground.left))
    return landing


def _find_protected(places: Places, run_folders: str, known: KnownSecrets, written: WrittenSpecs) -> Protected:
    """The places that no run may change, wherever they lie: also what starts the daemon, and what tells it what to
    trust. `hidden` none may read."""
    settings = find_settings_file(places.specs)
    own = settings_home(os.environ)
    return Protected(
        specs=str(places.specs),
        state=str(places.state),
        hidden=tuple(
            place for place in (known.places.folder, known.places.credentials, run_folders) if place is not None
        ),
        rest=(
            run_folders,
            str(places.socket),
            str(settings),
            str(own / "wakeful"),
            str(own / "systemd"),
            "/etc/systemd",
        ),
        written=written.places,
    )


def _make_replay_order(core: Core) -> MakeReplayOrder:
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


def _find_code() -> tuple[str, ...]:
    """The folders with the code of the agent's process: the interpreter's own,
    and ours if it is not installed there."""
    # Not all of sys.path: it may name the folder that the daemon was started in.
    packages = (place for place in sys.path if os.path.basename(place) in ("site-packages", "dist-packages"))
    places = (sys.prefix, sys.base_prefix, *packages, str(Path(__file__).parent))
    return tuple(dict.fromkeys(os.path.realpath(place) for place in places))


def _build_starter(
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
