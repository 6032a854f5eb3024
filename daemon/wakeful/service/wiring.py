"""Puts the daemon together, and is the only place that constructs edges.

`run_daemon` is `wakeful daemon`: lock the state folder, open the log, fold it, construct the edges and what they report
to, and hand them to `Daemon`, which lives (daemon.py). Nothing here runs after that.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from socket import socket as Socket
from typing import Any

import msgspec

from wakeful.bundles.blob_archive import BlobArchive
from wakeful.bundles.scratch_files import remove_unfinished
from wakeful.core.deciding.acting_agent import gather_team
from wakeful.core.deciding.agent_obstacles import list_needed
from wakeful.core.deciding.machine import Core
from wakeful.core.record.observations import (
    AgentsRead,
    ProcessEnded,
    RoomSeen,
    RunAttached,
    RunRecovered,
    SettingsRead,
    SpecsRead,
    TargetLooked,
    TargetsHinted,
)
from wakeful.core.record.state import DamagedSession, OpenRun, Session
from wakeful.core.spec.agent import McpServer
from wakeful.core.spec.session import PromptRun, SessionSpec
from wakeful.errors import OperatorError
from wakeful.eventlog.contract import DaemonLog, StoreFailed, StoreGone
from wakeful.eventlog.sqlite import exit_process, open_log
from wakeful.eventlog.state_lock import StateLock, lock_state
from wakeful.history.conversation import read_received
from wakeful.history.stored_sessions import load_sessions
from wakeful.run_files.capture import Limits as ContentLimits
from wakeful.run_files.keeper import Keeper
from wakeful.run_files.replay import MakeOrder as MakeReplayOrder
from wakeful.run_files.replay import Replays
from wakeful.runners.contract import Runner, RunOrder
from wakeful.runners.isolation.bubblewrap import StrictnessWatch
from wakeful.runners.isolation.reach import Protected, resolve_protected
from wakeful.runners.isolation.written_places import WrittenPlaces, could_replace_git, list_writable, list_written_by
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
from wakeful.service.daemon import Daemon, Edges
from wakeful.service.program_reach import ProgramReach
from wakeful.service.reactor import Reactor
from wakeful.service.run_starter import FindDistrust, RunStarter
from wakeful.settings import SETTINGS_FILE, Places, find_settings_file, read_settings, resolve_places, settings_home
from wakeful.sources.all_sources import AllSources
from wakeful.sources.checks.probes import LaunchProbe, ProbeSource
from wakeful.sources.checks.services import ServiceSource
from wakeful.sources.contract import Defects, Sources
from wakeful.sources.declarations.declarations import Declarations
from wakeful.sources.declarations.watch import DeclarationsWatch
from wakeful.sources.files.source import FileSource
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.git.bound_repositories import BoundRepositories, FindWriter
from wakeful.sources.git.checkouts import Checkouts
from wakeful.sources.git.source import CommitSource
from wakeful.sources.hints.choice import HintsSwitch
from wakeful.sources.hints.contract import MakeHints
from wakeful.sources.host import Clock, RoomWatch
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool
from wakeful.system.journal import WARNING, find_journal
from wakeful.system.process_tuning import bound_allocator
from wakeful.system.state_folder import find_project
from wakeful.system.systemd import HandedOver, find_keeper, take_handed_over
from wakeful.text.repeated_lines import Repeats, RepeatsFilter
from wakeful.trust.desk import TrustDesk
from wakeful.trust.ledger import Ledger
from wakeful.trust.possible_writers import PossibleWriters
from wakeful.trust.spec_reader import HouseReader
from wakeful.views.narration import Style, Voice, visible
from wakeful.workspaces.fork_workspaces import Workspaces
from wakeful.workspaces.run_workspaces import RunPlaces

KEPT_SPECS = "specs.cache"
# Threads for what blocks and has none of its own: reading the log for people, bundles, copies of files.
_BLOCKING_CALLS = 8
STAGED = "staged"
REPOSITORIES_FILE = "repositories.json"
# Isolated: neither the environment nor the folder it runs in brings code of its own.
AGENT_PROGRAM = (sys.executable, "-I", "-m", "wakeful.agents")
WARM_PROGRAM = (sys.executable, "-I", "-m", "wakeful.agents.warm")


def run_daemon(
    *, specs: str | None, state: str | None, socket: str | None, once: bool, log: Style | None = None
) -> int:
    """`wakeful daemon`: returns the exit code."""
    handed_over = take_handed_over()
    places = _place_socket(
        resolve_places({"specs": specs, "state": state, "socket": socket}, os.environ, Path.cwd()),
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
    """By descriptors: before 3.12 Python starts a thread for each process that asyncio starts,
    and there may be none."""
    if sys.version_info < (3, 12) and can_tell_ends():
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def _place_socket(places: Places, handed_over: Socket | None, named: str | None) -> Places:
    """Where systemd listens for us is where we are found; another place that was named would have no listener."""
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
    """A project's own state folder is for commands; a daemon uses it where that is said (design.md, section 8)."""
    project = find_project().folder
    if project is not None and Path(project) != places.state:
        words = (
            f"wakeful: the log of this daemon is in {places.state}. Commands given here look for the daemon of "
            f"{project}: to start that one, add --state {project}"
        )
        print(visible(words, 1000), file=sys.stderr, flush=True)


def _find_specs(folder: Path, *, is_named: bool) -> None:
    """A folder that is not there would undeclare every session: one that was named is missed,
    the default one is made."""
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

    def end(failed: StoreFailed) -> None:
        """Called by the log's writer. A log that was taken away can still be left in good order;
        one whose writes fail cannot."""
        if not isinstance(failed, StoreGone):
            exit_process(failed)
        loop.call_soon_threadsafe(lambda: daemon.abandon(failed))

    def warn(words: str) -> None:
        loop.call_soon_threadsafe(lambda: daemon.warn(words))

    log = open_log(places.state, lock=lock, on_fatal=end, tell=warn)
    if log.read_only is not None:
        raise OperatorError(
            f"{places.state}: {log.read_only}; nothing is written to it. "
            "Look at it with: wakeful doctor; go back to a backup with: wakeful restore BACKUP"
        )
    daemon = build_daemon(places, log, handed_over, is_once=is_once, style=style, origin=origin)
    return await daemon.live()


def build_daemon(
    places: Places,
    log: DaemonLog,
    handed_over: HandedOver = HandedOver(),
    *,
    is_once: bool,
    style: Style | None = None,
    origin: Sign | None = None,
) -> Daemon:
    """Inside the loop it will live in. `style` is how it speaks; unless told, to the journal where that listens,
    else as text.

    `origin` is the sign of the run that started this daemon, if one did."""
    sessions, snapshots = load_sessions(log)
    reactor = Reactor(Core(sessions), log, snapshots=snapshots)
    settings, _, _ = read_settings(places.specs)
    hints = HintsSwitch(settings.hints)
    known = _build_secrets(reactor, take_places(str(settings_home(os.environ) / "wakeful" / "secrets"), os.environ))
    voice = Voice(
        is_terminal=sys.stdout.isatty(), journal=find_journal() if style is None else None, style=style or "text"
    )
    blobs = Blobs(f"{places.state}/blobs", BlobArchive(Path(places.state) / "archive" / "outputs"))
    blobs.remove_unfinished()
    remove_unfinished(Path(places.state) / "scratch")
    blobs.screen = known
    voice.redact = known.redact_text
    if logging.lastResort is not None:
        logging.lastResort.filters[:] = [
            RepeatsFilter(Repeats(time.monotonic), functools.partial(voice.say, priority=WARNING))
        ]
    for damaged in (session for session in sessions if isinstance(session, DamagedSession)):
        voice.say(damaged.damage_words, name=damaged.name, priority=WARNING)
    keeper = Keeper(reactor.core, blobs, reactor.observe, voice.say, functools.partial(_bound_contents, reactor.core))
    kept = _find_kept(handed_over, sessions)
    keeper.lists = kept
    left = kept.left if kept is not None else frozenset()
    run_folders = open_run_folders(str(places.state), os.environ, left)
    probe_places = ProbePlaces(f"{places.state}/temporary", run_folders)
    bound = BoundRepositories(places.state / REPOSITORIES_FILE, _find_git_writer(reactor.core))
    # The runner comes after the sources, which it asks.
    sources = _build_sources(
        places,
        reactor,
        hints.make,
        keeper,
        known,
        bound,
        voice,
        lambda target: runner.launch_probe(target, probe_places),
    )
    replays = Replays(blobs, str(places.state), _make_replay_order(reactor.core))
    reached = PossibleWriters(
        reactor.core,
        lambda spec, is_guarded: list_writable(spec, is_guarded=is_guarded),
        lambda: time.time_ns() // 1000,
    )
    writers, written = Writers(), _Written(sessions)
    protected = msgspec.structs.replace(_find_protected(places, run_folders, known), written=written.places)
    replays.runner = runner = _build_runner(
        places, protected, keeper, replays, sources, blobs, known, reached, writers, reactor, kept, origin
    )
    ledger = Ledger(Path(places.state) / "trust")
    ledger.find_secret = lambda content: known.redactor.find(content)
    house = HouseReader(places.specs, ledger, kept=places.state / KEPT_SPECS)
    _tell_of_runs(house, reached, reactor.core, runner)
    programs = ProgramReach(os.environ, written.places, (str(places.state), *protected.hidden))
    house.find_reach = lambda spec, agent: programs.list_places(spec, agent)
    strictness = StrictnessWatch(reactor.observe, lambda: (session.spec for session in reactor.core.state))
    specs = _build_specs(places, reactor, hints, voice, known, house, strictness)
    edges = Edges(
        log=log,
        sources=sources,
        specs=specs,
        landing=_build_landing(places, reactor, sessions, left, runner, writers),
        strictness=strictness,
        room=RoomWatch(str(places.state), _tell_room(reactor, voice)),
        clock=Clock(reactor.observe, asyncio.get_running_loop(), lambda: time.time_ns() // 1000, on_jump=voice.say),
        runner=runner,
        starter=_build_starter(
            places,
            run_folders,
            reactor,
            sources,
            runner,
            keeper,
            known,
            _watch_programs(house, specs),
            kept,
            bound,
            written,
        ),
        blobs=blobs,
        keeper=keeper,
        replays=replays,
        workspaces=Workspaces(blobs, str(places.state), Checkouts(bound)),
        trust=_build_desk(ledger, house, reactor.core),
        voice=voice,
        secrets=known,
        handed_over=handed_over.listener,
    )
    daemon = Daemon(places, reactor, edges, settings, is_once=is_once)
    reactor.outside.redeclared = _redeclare(reactor, written)
    house.tell(daemon.tell_read)
    return daemon


def _find_kept(handed_over: HandedOver, sessions: list[Session]) -> KeptRuns | None:
    """Who keeps runs beyond the daemon, and what was kept of those that the log knows; None: runs end with it."""
    store = find_keeper()
    if store is None or not can_tell_ends():
        return None
    kept = KeptRuns(store, handed_over.stored)
    kept.drop_others(session.run.run_id for session in sessions if session.run is not None)
    return kept


def _build_secrets(reactor: Reactor, places: SecretPlaces) -> KnownSecrets:
    """Whatever comes in passes it, before anything is made of it;
    also what libraries write to standard error of their own accord."""

    def list_all_needed() -> set[str]:
        return {
            name
            for session in reactor.core.state
            if session.declaration.is_declared
            for name in list_needed(reactor.core, session)
        }

    known = KnownSecrets(places, reactor.observe, list_all_needed)
    reactor.redact = known.redact
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(RedactingFormatter(known))
    return known


def _build_specs(
    places: Places,
    reactor: Reactor,
    hints: HintsSwitch,
    voice: Voice,
    known: KnownSecrets,
    reader: HouseReader,
    strictness: StrictnessWatch,
) -> DeclarationsWatch:

    def report(observation: SpecsRead | SettingsRead | AgentsRead) -> None:
        if isinstance(observation, SpecsRead):
            observation = known.screen(observation, _list_keys(reactor.core, observation))
            strictness.look(one.spec for one in observation.declared)
        if isinstance(observation, AgentsRead):
            screened = known.screen_agents(observation)
            reactor.observe(screened)
            known.look()
            for name in screened.refused.keys() - observation.refused.keys():
                voice.say(screened.refused[name], name=f"agents/{name}", priority=WARNING)
            return
        reactor.observe(observation)
        if isinstance(observation, SettingsRead):
            try:
                hints.choose(observation.settings.hints)
            except OperatorError as problem:
                voice.say(f"{problem}; changes are noticed as before")
        else:
            for name, words in reactor.core.looked.refused.items():
                if name in observation.refused:
                    # A problem a line, as `check` shows them.
                    for line in words.split("\n"):
                        voice.say(line, name=name, priority=WARNING)
            for one in observation.declared:
                if one.needs_trust is not None:
                    voice.say(f"sleeps: {one.needs_trust}", name=one.spec.name, priority=WARNING)

    def keep() -> None:
        if not known.has_outspoken_specs:
            reader.keep()

    declarations = Declarations(reader, report)
    return DeclarationsWatch(
        declarations, asyncio.get_running_loop(), hints.make, str(places.specs), SETTINGS_FILE, keep
    )


def _list_keys(core: Core, read: SpecsRead) -> set[str]:
    """The keys of the agents that these specs ask something."""
    agents = (core.agents.get(one.spec.agent or "") for one in read.declared if isinstance(one.spec.run, PromptRun))
    return {key for agent in agents if agent is not None for key in gather_team(core, agent).secrets}


def _tell_of_runs(house: HouseReader, reached: PossibleWriters, core: Core, runner: CommandRunner) -> None:
    """Who reads specs knows nothing of runs, and of what the log says was declared."""

    def have_read() -> None:
        reached.turn()
        runner.guard(tuple(one.folder for one in house.folders if one.project is not None))

    house.ask_about_runs(
        lambda path, changed_at, is_guarded: reached.find(path, changed_at, is_guarded=is_guarded), reached.find_any
    )
    connect_to_log(house, core)
    house.have_read = have_read


def connect_to_log(house: HouseReader, core: Core) -> None:
    """A bundle's claim about its own spec is not trusted.
    Only the text of a spec file that was in force on this host counts as known."""

    def find_known(name: str) -> str | None:
        session = core.state.by_name(name) if name in core.state.ids else None
        return session.declaration.text_digest if session is not None and session.declaration.is_filed else None

    house.find_known = find_known


def _build_desk(ledger: Ledger, house: HouseReader, core: Core) -> TrustDesk:
    desk = TrustDesk(ledger, house)
    desk.list_loaded = lambda: [
        one
        for one in core.state
        if one.declaration.needs_trust is not None and one.spec is not None and not one.is_shut
    ]
    desk.find_agent = core.agents.get
    return desk


def _watch_programs(house: HouseReader, specs: DeclarationsWatch) -> FindDistrust:
    """Asked before every run. What was found changed is read at once:
    the session is to sleep before its run is told to have failed."""
    loop = asyncio.get_running_loop()

    def find(name: str) -> str | None:
        words = house.find_changed_program(name)
        if words is not None:
            loop.call_soon(specs.read)
        return words

    return find


def _tell_room(reactor: Reactor, voice: Voice) -> Callable[[RoomSeen], None]:
    def report(observation: RoomSeen) -> None:
        was_short = reactor.core.looked.shortage is not None
        reactor.observe(observation)
        if observation.words is not None and not was_short:
            voice.say(f"new runs wait for {observation.words}", priority=WARNING)
        elif observation.words is None:
            voice.say("there is room on disk again; runs go on")

    return report


def _bound_contents(core: Core) -> ContentLimits | None:
    """As they are now: wakeful.yaml is read again while the daemon lives. None: nothing is kept."""
    limits = core.settings.limits
    file, run, files = limits.kept_file.hard, limits.kept_run.hard, limits.kept_files.hard
    return ContentLimits(file_bytes=file, run_bytes=run, run_files=files) if file and run and files else None


def _build_sources(
    places: Places,
    reactor: Reactor,
    make_hints: MakeHints,
    keeper: Keeper,
    known: KnownSecrets,
    bound: BoundRepositories,
    voice: Voice,
    launch_probe: LaunchProbe,
) -> AllSources:
    observe, loop = reactor.observe, asyncio.get_running_loop()

    def tell_defect(words: str, error: BaseException) -> None:
        voice.say(words, priority=WARNING)
        # Its traceback goes where those of libraries go, without the values of secrets.
        loop.call_exception_handler({"message": words, "exception": error})

    def report(observation: TargetsHinted | TargetLooked) -> None:
        observe(observation)
        keeper.attend_soon()

    def find_server(agent: str, name: str) -> McpServer | None:
        found = reactor.core.agents.get(agent)
        return next((server for server in found.mcp if server.name == name), None) if found is not None else None

    cache = StatCache(places.state)
    cache.holds_secret = lambda text: known.find(text) is not None
    defects = Defects(tell_defect)
    files = FileSource(report, loop, str(places.state), make_hints, cache, defects=defects)
    keeper.is_looking = lambda: files.is_looking
    files.find_since = reactor.core.inherited_since
    return AllSources(
        files,
        CommitSource(report, loop, make_hints, bound=bound, defects=defects),
        ProbeSource(observe, loop, launch_probe, known.redact_tail, defects=defects),
        ServiceSource(observe, loop, find_server, defects=defects),
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


def _build_runner(
    places: Places,
    protected: Protected,
    keeper: Keeper,
    replays: Replays,
    sources: Sources,
    blobs: Blobs,
    known: KnownSecrets,
    reached: PossibleWriters,
    writers: Writers,
    reactor: Reactor,
    kept: KeptRuns | None,
    origin: Sign | None,
) -> CommandRunner:
    def report(end: ProcessEnded | RunRecovered | RunAttached) -> None:
        if isinstance(end, RunAttached):
            reactor.observe(end)
            return
        if replays.take(end):
            return
        # A change that came and went during the run lies in the watcher's queue: it is taken in first (rule 17).
        sources.hear()
        reached.end(end.session)
        keeper.end(end)

    cgroups = find_delegated()
    running = (reactor.core.state.get(session_id).run for session_id in reactor.core.state.running)
    left = [run.run_id for run in running if run is not None]
    if kept is not None and cgroups is not None:
        # Nobody ended what an earlier daemon left, since its runs were to live on.
        end_strays(cgroups, {mark_of(os.path.realpath(places.state), run_id) for run_id in left})
    children = Children()
    return CommandRunner(
        report=report,
        blobs=blobs,
        state=str(places.state),
        children=children,
        cgroups=cgroups,
        protected=protected,
        writers=writers,
        secrets=known,
        kept=kept,
        warm=WarmServer(WARM_PROGRAM, select_inherited(os.environ), children),
        left=left,
        origin=origin,
    )


def _build_landing(
    places: Places,
    reactor: Reactor,
    sessions: list[Session],
    left: frozenset[str],
    runner: CommandRunner,
    writers: Writers,
) -> Landing:
    """What runs of a daemon that died had staged goes, but for what was recorded as staged, and where a run goes on."""

    def list_guarded() -> tuple[str, ...]:
        protected = runner.protected
        return (*resolve_protected(protected)[0], *map(os.path.realpath, protected.hidden))

    landing = Landing(f"{places.state}/{STAGED}", f"{places.state}/conflicts", reactor.observe, list_guarded, writers)
    staged = (session.run.run_id for session in sessions if session.run is not None and session.run.staged is not None)
    landing.sweep((*staged, *left))
    return landing


def _find_protected(places: Places, run_folders: str, known: KnownSecrets) -> Protected:
    """What no run may change, wherever it lies: also what starts the daemon, and what tells it what to trust.
    And what none may read."""
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
    )


class _Written:
    """Tells what runs may write, of every session on record:
    what one wrote before it was closed or undeclared lies there still."""

    def __init__(self, sessions: Iterable[Session]) -> None:
        self.places = WrittenPlaces()
        self._specs: dict[str, SessionSpec] = {}
        for session in sessions:
            self.note(session)

    def note(self, session: Session) -> None:
        if session.spec is None or self._specs.get(session.id) is session.spec:
            return
        self._specs[session.id] = session.spec
        # A run that is under way may write what its own spec says.
        specs = (session.spec, *((session.run.spec,) if session.run is not None else ()))
        self.places.declare(session.id, session.name, (place for spec in specs for place in list_written_by(spec)))


def _redeclare(reactor: Reactor, written: _Written) -> Callable[[str], None]:
    def redeclare(session_id: str) -> None:
        written.note(reactor.core.state.get(session_id))

    return redeclare


def _make_replay_order(core: Core) -> MakeReplayOrder:
    def make(session: Session, run: OpenRun, folder: str, *, causes: bytes) -> RunOrder:
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
            exports={},
            output_limit_bytes=core.settings.output_limit_bytes,
            most_processes=core.settings.limits.processes.hard,
        )

    return make


def _find_code() -> tuple[str, ...]:
    """Where the code of the process that thinks lies: the interpreter's own folders,
    and ours where it is not installed there."""
    # Not all of sys.path: the folder somebody stood in may be on it.
    packages = (place for place in sys.path if os.path.basename(place) in ("site-packages", "dist-packages"))
    places = (sys.prefix, sys.base_prefix, *packages, str(Path(__file__).parent))
    return tuple(dict.fromkeys(os.path.realpath(place) for place in places))


def _build_starter(
    places: Places,
    run_folders: str,
    reactor: Reactor,
    sources: Sources,
    runner: Runner,
    keeper: Keeper,
    known: KnownSecrets,
    find_distrust: FindDistrust,
    kept: KeptRuns | None,
    bound: BoundRepositories,
    written: _Written,
) -> RunStarter:
    state = str(places.state)
    # What runs of a daemon that died left there; those that go on need theirs.
    if os.path.isdir(f"{state}/temporary"):
        empty(f"{state}/temporary", {run_id.rpartition(".")[0] for run_id in (kept.left if kept is not None else ())})
    premises = Premises(
        scratch=f"{state}/scratch",
        temporary=f"{state}/temporary",
        run_folders=run_folders,
        staged=f"{state}/{STAGED}",
        socket=str(places.socket),
        agent_program=AGENT_PROGRAM,
        agent_code=_find_code(),
    )

    def order(session: Session, run: OpenRun, **named: Any) -> RunOrder:
        # A session from a bundle was declared on its host of origin, so its written places are declared here.
        written.note(session)
        return make_order(session, run, premises, **named)

    run_places = RunPlaces(
        state, f"{state}/{STAGED}", Checkouts(bound), _find_protected(places, run_folders, known).hidden
    )
    tokens = kept.list_tokens() if kept is not None else {}
    return RunStarter(
        reactor.core,
        sources,
        runner,
        order,
        premises.run_folders,
        reactor.observe,
        keeper,
        known,
        find_distrust,
        run_places,
        tokens,
        functools.partial(read_received, reactor.log),
    )
