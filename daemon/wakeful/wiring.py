"""Puts the daemon together, and is the only place that constructs edges.

`run_daemon` is `wakeful daemon`: lock the state folder, open the log, fold it, start sources and the
control socket, look at everything once, say `ready`, and live until told to stop. `Daemon` is what the
API is built on (api/service.py); it decides nothing itself.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import shutil
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec

from wakeful import __version__
from wakeful.api.server import ControlSocket
from wakeful.api.service import FollowLine, PathVerdict, RunIdentity
from wakeful.blobs import Blobs
from wakeful.core.action import Look
from wakeful.core.calls import Call, Open, Rename
from wakeful.core.decision import Entry
from wakeful.core.machine import Core
from wakeful.core.observation import DaemonStarted, DaemonStopping, Moment, ProcessEnded, RunRecovered, SettingsRead, SpecsRead
from wakeful.core.reducer import fold
from wakeful.core.spec import CommitsBinding
from wakeful.core.state import OpenRun, Session
from wakeful.core.target import CommitsTarget, FileTarget, ProbeTarget, ServiceTarget, Target, target_of
from wakeful.errors import CallerError, OperatorError, WakefulError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import EventLog
from wakeful.eventlog.sqlite import open_log
from wakeful.eventlog.statelock import StateLock, lock_state
from wakeful.narration import Voice, narrate, suggest_edit
from wakeful.reactor import Outside, Reactor, read_moment
from wakeful.runners.cgroup import find_delegated
from wakeful.runners.children import Children, become_subreaper
from wakeful.runners.command import CommandRunner
from wakeful.runners.orders import Premises, make_order
from wakeful.runners.place import open_run_folders
from wakeful.settings import SETTINGS_FILE, Places, ProjectReader, read_settings, resolve_places
from wakeful.sources.clock import Clock
from wakeful.sources.commits import CommitSource
from wakeful.sources.declarations import Declarations
from wakeful.sources.files import FileSource
from wakeful.sources.hints.choice import choose_hints
from wakeful.sources.hints.contract import Dirt, Dirty
from wakeful.sources.probes import ProbeSource
from wakeful.sources.services import ServiceSource
from wakeful.sources.statcache import StatCache
from wakeful.supervision import Supervisor
from wakeful.views.causes import view_causes_file

SPECS_SETTLE_SECONDS = 0.05
KEPT_SPECS = "specs.cache"
FOLLOW_BATCH = 500


def load_sessions(log: EventLog) -> tuple[list[Session], dict[str, int]]:
    """Fold every session from its newest snapshot and the records after it; also the seqs of the snapshots."""
    sessions, snapshots = [], {}
    decoder = msgspec.json.Decoder(Session)
    for session_id, snapshot, records in log.tails():
        session = decoder.decode(snapshot.state) if snapshot is not None else None
        if snapshot is not None:
            snapshots[session_id] = snapshot.seq
        for record in records:
            session = fold(session, decode(record.kind, record.payload), seq=record.seq, at=record.at, author=record.author)
        if session is not None:
            sessions.append(session)
    return sessions, snapshots


class Sources:
    """All sources behind one door: targets find theirs by kind."""

    def __init__(self, files: FileSource, commits: CommitSource, probes: ProbeSource, services: ServiceSource) -> None:
        self.files = files
        self.commits = commits
        self._by_kind = {FileTarget: files, CommitsTarget: commits, ProbeTarget: probes, ServiceTarget: services}
        self._kinds: dict[str, type] = {}

    def follow(self, targets: Iterable[Target]) -> None:
        for kind, source in self._by_kind.items():
            own = [target for target in targets if type(target) is kind]
            self._kinds.update((target.key, kind) for target in own)
            if own:
                source.follow(own)

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            kind = self._kinds.pop(key, None)
            if kind is not None:
                self._by_kind[kind].forget([key])

    def look(self, look: Look) -> None:
        kind = self._kinds.get(look.target)
        if kind is None:
            return
        if kind is CommitsTarget:
            self.commits.look(look.target, look.generation, look.base)
        else:
            self._by_kind[kind].look(look.target, look.generation)

    async def close(self) -> None:
        for source in self._by_kind.values():
            await source.close()


class Daemon:
    """The living daemon and the facade the API is built on."""

    def __init__(self, places: Places, log: EventLog, *, is_once: bool) -> None:
        self.places = places
        self.log = log
        self.version = __version__
        self.pid = os.getpid()
        self.started_at = time.time_ns() // 1000
        self._is_once = is_once
        self._is_ready = False
        self._is_hurried = False
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._listeners: set[asyncio.Event] = set()
        self._narrated = log.position()
        self._runs: dict[str, RunIdentity] = {}
        self._failures = 0
        self._supervisor = Supervisor()
        self._voice = Voice(is_terminal=sys.stdout.isatty())
        sessions, snapshots = load_sessions(log)
        self.core = Core(sessions)
        self.reactor = Reactor(self.core, log, snapshots=snapshots)
        self._build_edges()

    def _build_edges(self) -> None:
        observe, loop, state = self.reactor.observe, self._loop, str(self.places.state)
        children = Children()
        self._settings, _, _ = read_settings(self.places.specs)
        make_hints = choose_hints(self._settings.hints)
        self._reader = ProjectReader(self.places.specs, kept=self.places.state / KEPT_SPECS)
        self.declarations = Declarations(self._reader, self._take_specs)
        self._spec_hints = make_hints(loop, self._hear_of_specs)
        # Known before anything was read, so that most starts read once.
        self._spec_folders: set[str] = set()
        specs = os.path.abspath(self.places.specs)
        self._arm_specs({specs, os.path.dirname(specs)})
        self._spec_reading: asyncio.TimerHandle | None = None
        files = FileSource(observe, loop, state, make_hints, StatCache(self.places.state))
        commits = CommitSource(observe, loop, make_hints)
        self.sources = Sources(files, commits, ProbeSource(observe, loop), ServiceSource(observe, loop))
        self.blobs = Blobs(os.path.join(state, "blobs"))
        self.runner = CommandRunner(report=self._take_end, blobs=self.blobs, state=state, children=children, cgroups=find_delegated())
        self._premises = Premises(
            scratch=os.path.join(state, "scratch"),
            run_folders=open_run_folders(state, os.environ),
            socket=str(self.places.socket),
        )
        self._exporting: set[asyncio.Task[None]] = set()
        self._clock = Clock(lambda tick: observe(tick), loop, lambda: time.time_ns() // 1000, on_jump=self._voice.say)
        self.reactor.outside = Outside(
            follow=self.sources.follow,
            forget=self.sources.forget,
            look=self.sources.look,
            start=self._start_run,
            wake_at=self._clock.wake_at,
            runner=self.runner,
            finished=self._after_run,
            recorded=self._after_record,
            fatal=self._end_at_once,
        )

    # -- life ---------------------------------------------------------------------------------

    async def live(self) -> int:
        """From the first look to the last run; returns the exit code."""
        self._catch_signals()
        self._clock.start()
        self.reactor.observe(DaemonStarted(incarnation=secrets.token_hex(8), settings=self._settings))
        self.read_specs()
        async with ControlSocket(self, self.places.socket), asyncio.TaskGroup() as keepers:
            keeping = [keepers.create_task(self._keep_narrating(), name="keep narrating")]
            await self._first_look()
            _spare_collections()
            if not self._stopping.is_set():
                self._tell_ready()
            keeping.append(keepers.create_task(self._keep_specs(), name="keep specs"))
            keeping.append(keepers.create_task(self._keep_watchdog(), name="keep watchdog"))
            code = await self._run_once() if self._is_once else await self._wait_for_stop()
            await self._wind_down()
            for keeper in keeping:
                keeper.cancel()
        self._narrate()
        await self._close()
        return code

    def _tell_ready(self) -> None:
        self._is_ready = True
        self._voice.print(f"ready: {self._summary()}; specs {self.places.specs}; socket {self.places.socket}")
        self._supervisor.ready(self._summary())

    async def _wait_for_stop(self) -> int:
        await self._stopping.wait()
        return 0

    async def _first_look(self) -> None:
        """READY means armed and looked: until then a change could still be missed by whoever waits for it."""
        unseen = list(self.core.looked.targets.values())
        while unseen and not self._stopping.is_set():
            await asyncio.sleep(0.005)
            unseen = [look for look in unseen if not look.is_looked and look.held is None and look.subscribers]
        await self.reactor.settled()

    async def _run_once(self) -> int:
        """`--once`: to the end of the wave, retries included; 1 if a run failed."""
        while not self._stopping.is_set() and self._is_wave_going():
            await self._next_record(0.1)
        await self.reactor.settled()
        return 1 if self._failures else 0

    def _is_wave_going(self) -> bool:
        core = self.core
        if core.state.running or core.ready:
            return True
        if any(look.is_dirty and look.held is None for look in core.looked.targets.values()):
            return True
        return any(s.wake is not None and s.wake.retry_at is not None and s.hold is None for s in core.state if s.is_armed)

    async def _wind_down(self) -> None:
        """No new runs, `stop_grace` for those under way, then interrupt: they are owed again."""
        self._supervisor.stopping()
        self.reactor.observe(DaemonStopping())
        grace = self.core.settings.stop_grace_seconds
        if not await self._until_idle(grace):
            self.reactor.observe(DaemonStopping(is_forced=True))
            longest = max((s.run.spec.run.grace_seconds for s in self._running() if s.run and s.run.spec.run), default=0.0)
            await self._until_idle(longest + 5.0)
        await self.reactor.settled()

    def _running(self) -> list[Session]:
        return [self.core.state.get(session_id) for session_id in self.core.state.running]

    async def _until_idle(self, seconds: float) -> bool:
        deadline = self._loop.time() + seconds
        while self.core.state.running:
            left = deadline - self._loop.time()
            if left <= 0 or self._is_hurried:
                self._is_hurried = False
                return False
            await self._next_record(min(left, 0.1))
        return True

    async def _next_record(self, seconds: float) -> None:
        """Until something more is recorded, or for so long."""
        heard = asyncio.Event()
        self._listeners.add(heard)
        try:
            async with asyncio.timeout(seconds):
                await heard.wait()
        except TimeoutError:
            return
        finally:
            self._listeners.discard(heard)

    async def _close(self) -> None:
        """Nothing may decide any more before its edges are closed one by one."""
        self.reactor.close()
        if self._spec_reading is not None:
            self._spec_reading.cancel()
        self._clock.stop()
        self._spec_hints.close()
        await self.runner.close(0.0)
        await self.sources.close()
        shutil.rmtree(self._premises.run_folders)
        self.log.close()
        self._voice.close()

    def _catch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)

    def stop(self) -> None:
        """Stop in good order; asked a second time, do not wait for runs."""
        self._is_hurried = self._stopping.is_set()
        self._stopping.set()

    def _reload(self) -> None:
        self._supervisor.reloading()
        self.read_specs()
        self._supervisor.ready(self._summary())

    async def _keep_specs(self) -> None:
        """Hints tell sooner; the poll is for folders that cannot be watched."""
        while True:
            await asyncio.to_thread(self._reader.keep)
            await asyncio.sleep(self.declarations.poll_seconds)
            self.read_specs()

    async def _keep_watchdog(self) -> None:
        """Only a loop that turns and a log that takes appends may say that it is alive."""
        while True:
            await asyncio.sleep(self._supervisor.watchdog_seconds or 30.0)
            await self.reactor.settled()
            self._supervisor.alive()
            self._supervisor.status(self._summary())

    def _summary(self) -> str:
        state = self.core.state
        declared = sum(session.is_declared for session in state)
        problems = f", {len(self.problems())} specs refused" if self.problems() else ""
        sessions = "1 session" if declared == 1 else f"{declared} sessions"
        return f"{sessions}, {len(self.core.looked.targets)} bindings watched, {len(state.running)} running{problems}"

    # -- what the reactor reports back --------------------------------------------------------

    def _take_specs(self, observation: SpecsRead | SettingsRead) -> None:
        self.reactor.observe(observation)
        if isinstance(observation, SpecsRead):
            for name, words in self.core.looked.refused.items():
                if name in observation.refused:
                    self._voice.say(words, name=name)

    def _start_run(self, session: Session, run: OpenRun) -> None:
        token = secrets.token_urlsafe(24)
        self._runs[token] = RunIdentity(session.id, session.name, run.run)
        exports = [b for b in run.spec.bindings if isinstance(b, CommitsBinding) and b.export and b.identity in run.versions]
        if not exports:
            self._start_process(session, run, token, {})
            return
        exporting = self._loop.create_task(self._export_and_start(session, run, token, exports), name=f"export for {run.run_id}")
        self._exporting.add(exporting)
        exporting.add_done_callback(self._exporting.discard)

    async def _export_and_start(self, session: Session, run: OpenRun, token: str, bindings: list[CommitsBinding]) -> None:
        """A clean copy of each new tree, in a folder of this run that goes with it."""
        folder = f"{self._premises.run_folders}/{run.run_id}.trees"
        exports = {binding.name: f"{folder}/{binding.name}" for binding in bindings}
        try:
            os.makedirs(folder, 0o700)
            for binding in bindings:
                target = target_of(run.spec, binding)
                assert target is not None
                await self.sources.commits.export(target.key, run.versions[binding.identity], exports[binding.name])
        except (WakefulError, OSError) as error:
            problem = f"the tree of a binding could not be exported: {error}"
            self.reactor.observe(ProcessEnded(session=session.id, run_id=run.run_id, problem=problem))
            return
        present = self.core.state.get(session.id).run
        if present is not None and present.stop is not None and present.stop.why != "suspend":
            # Stopped before there was a process to signal.
            self.reactor.observe(ProcessEnded(session=session.id, run_id=run.run_id, problem="stopped before it began"))
            return
        self._start_process(session, run, token, exports)

    def _start_process(self, session: Session, run: OpenRun, token: str, exports: dict[str, str]) -> None:
        causes = msgspec.json.encode(view_causes_file(session, run))
        limit = self.core.settings.output_limit_bytes
        self.runner.start(make_order(session, run, self._premises, token=token, causes=causes, exports=exports, output_limit_bytes=limit))

    def _take_end(self, report: ProcessEnded | RunRecovered) -> None:
        """A change that came and went during the run lies in the watcher's queue: it is taken in first (rule 17)."""
        self.sources.files.hear()
        self.reactor.observe(report)

    def _after_run(self, entry: Entry) -> None:
        self._runs = {token: one for token, one in self._runs.items() if (one.session_id, one.run) != (entry.session, entry.run)}
        if entry.event.outcome == "failed" and entry.event.is_final:
            self._failures += 1
        trees = f"{self._premises.run_folders}/{entry.session}.{entry.run}.trees"
        if os.path.isdir(trees):
            self._loop.run_in_executor(None, shutil.rmtree, trees)

    def _after_record(self) -> None:
        for listener in self._listeners:
            listener.set()

    def _end_at_once(self, error: BaseException) -> None:
        """The log failed, or state and log may disagree: nothing may be acknowledged any more."""
        print(f"wakeful: stopping at once: {error}", file=sys.stderr, flush=True)
        if not isinstance(error, OperatorError):
            traceback.print_exception(error)
        os._exit(1)

    # -- telling people -----------------------------------------------------------------------

    async def _keep_narrating(self) -> None:
        is_hinted = self._is_once
        heard = asyncio.Event()
        self._listeners.add(heard)
        while True:
            # Off the hot path: a run's start is not to wait for a terminal.
            await asyncio.sleep(0.05)
            heard.clear()
            self._narrate()
            if not is_hinted and self._is_ready and not self._is_wave_going():
                is_hinted = True
                self._voice.say(f"all sessions rest; {suggest_edit(list(self.core.state)) or 'wakeful list shows them'}")
            await heard.wait()

    def _narrate(self) -> None:
        """Print what was recorded since the last time."""
        records = [None]
        while records:
            self._narrated, records = self.log.read_after(self._narrated, FOLLOW_BATCH)
            for record in records:
                line = narrate(decode(record.kind, record.payload)) if record.payload is not None else None
                if line is not None:
                    self._voice.say(line, name=self.core.state.get(record.session).name, at=record.at)

    # -- the facade of the API ----------------------------------------------------------------

    def moment(self) -> Moment:
        return read_moment()

    async def call(self, call: Call, *, author: str, key: str | None = None, run: int | None = None) -> str:
        if isinstance(call, Rename) and self._spec_file(call.new).exists():
            raise CallerError(f"{self._spec_file(call.new)} exists already; choose a free name")
        reply = await self.reactor.call(call, author=author, key=key, run=run)
        if isinstance(call, Open):
            self.declarations.report_again(call.name)
        return reply

    def read_specs(self) -> None:
        """Arm, then read: what is saved in between gives a hint."""
        self._spec_reading = None
        self.declarations.read()
        folders = set(self.declarations.folders())
        if folders != self._spec_folders:
            is_unheard = not folders <= self._spec_folders
            self._arm_specs(folders)
            if is_unheard:
                self.declarations.read()

    def _arm_specs(self, folders: set[str]) -> None:
        self._spec_hints.disarm(self._spec_folders - folders)
        self._spec_hints.arm(folders)
        self._spec_folders = folders

    def _hear_of_specs(self, batch: tuple[Dirt, ...]) -> None:
        """An editor saves in several steps: read when it has been quiet for a moment, at most once per moment."""
        if self._spec_reading is None and any(self._is_about_specs(dirt) for dirt in batch):
            self._spec_reading = self._loop.call_later(SPECS_SETTLE_SECONDS, self.read_specs)

    def _is_about_specs(self, dirt: Dirt) -> bool:
        """Beside sessions.d/ runs may write as often as they like: a reading costs a stat for each of 10,000 files."""
        if not isinstance(dirt, Dirty) or dirt.names is None:
            return True
        specs = os.path.abspath(self.places.specs)
        return f"{dirt.folder}/".startswith(f"{specs}/") or not {SETTINGS_FILE, os.path.basename(specs)}.isdisjoint(dirt.names)

    def problems(self) -> dict[str, str]:
        return dict(self.core.looked.refused)

    def explain_path(self, path: str) -> list[PathVerdict]:
        verdicts = []
        for key, words in self.sources.files.explain(path):
            look = self.core.looked.targets.get(key)
            for session_id in sorted(look.subscribers) if look is not None else ():
                session = self.core.state.get(session_id)
                for bound in self.core.looked.bounds.get(session_id, ()):
                    if bound.target == key:
                        verdicts.append(PathVerdict(session.name, bound.name, words, look.looked_at if look else 0))
        return verdicts

    def describe_target(self, key: str) -> str | None:
        found = self.sources.files.describe(key)
        return f"{found.files} files, {found.watched_folders} folders watched" if found is not None else None

    def output(self, session_id: str, run: int) -> tuple[bytes, bytes, int]:
        for record in self.log.read(session_id, kinds=("run_finished",), run=run):
            finished = decode(record.kind, record.payload)
            kept = finished.output
            head = self.blobs.get(kept.head) if kept.head else b""
            return head, self.blobs.get(kept.tail) if kept.tail else b"", kept.total_bytes
        raise CallerError(f"run {run} has no output yet")

    def follow_output(self, session_id: str) -> AsyncIterator[bytes]:
        run = self.core.state.get(session_id).run
        return self.runner.follow(run.run_id if run is not None else "")

    async def follow(self, names: set[str] | None) -> AsyncIterator[FollowLine]:
        position = self.log.position()
        heard = asyncio.Event()
        self._listeners.add(heard)
        try:
            while True:
                await heard.wait()
                heard.clear()
                position, records = self.log.read_after(position, FOLLOW_BATCH)
                if len(records) == FOLLOW_BATCH:
                    heard.set()
                for record in records:
                    name = self.core.state.get(record.session).name
                    if names is None or name in names:
                        yield FollowLine(name, record)
        finally:
            self._listeners.discard(heard)

    def run_identity(self, token: str) -> RunIdentity | None:
        return self._runs.get(token)

    def _spec_file(self, name: str) -> Path:
        return self.places.specs / f"{name}.yaml"

    def rename_spec(self, old: str, new: str) -> None:
        """The file follows the name; the session keeps its identity and history."""
        source, target = self._spec_file(old), self._spec_file(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        self.read_specs()


def run_daemon(*, specs: str | None, state: str | None, socket: str | None, once: bool) -> int:
    """`wakeful daemon`: returns the exit code."""
    places = resolve_places({"specs": specs, "state": state, "socket": socket}, os.environ, Path.cwd())
    _find_specs(places.specs, is_named=bool(specs or os.environ.get("WAKEFUL_SPECS")))
    lock = lock_state(places.state)
    # A start makes a million lasting objects: looking among them for cycles again and again took a fifth of it.
    gc.disable()
    try:
        become_subreaper()
        return asyncio.run(_live(places, lock, once))
    finally:
        lock.release()


def _spare_collections() -> None:
    """What a start made, lasts: collections that go through it took 0.2 s each with 10,000 sessions, in the way of a wake."""
    gc.freeze()
    gc.enable()


def _find_specs(folder: Path, *, is_named: bool) -> None:
    """A folder that is not there would undeclare every session: one that was named is missed, the default one is made."""
    if folder.is_dir():
        return
    if is_named:
        raise OperatorError(f"{folder} is not a folder; name the one that holds your specs with --specs, or make it first")
    folder.mkdir(parents=True)


async def _live(places: Places, lock: StateLock, is_once: bool) -> int:
    log = open_log(places.state, lock=lock)
    if log.read_only is not None:
        raise OperatorError(
            f"{places.state}: {log.read_only}; nothing is written to it. "
            "Look at it with: wakeful doctor; go back to a backup with: wakeful restore BACKUP"
        )
    return await Daemon(places, log, is_once=is_once).live()
