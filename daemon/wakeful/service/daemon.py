"""The running daemon: its life from the first look to the last run, and the facade the API is built on.

Wiring constructs it over edges that are ready to use and awaits `live`: start, look at everything once, say `ready`,
keep specs read and the supervisor told, stop in good order. It decides nothing itself: that is the core's,
through the reactor.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wakeful import __version__
from wakeful.api.live_words import LiveWords
from wakeful.api.routes.follow import follow_records
from wakeful.api.server import ControlSocket
from wakeful.api.service import FollowLine, LiveLine, PathVerdict, RunIdentity
from wakeful.core.calls.values import Call, Reply, Work
from wakeful.core.deciding.decision import Entry
from wakeful.core.looking.path_reports import Bounds, Compared
from wakeful.core.record.events import RunFinished
from wakeful.core.record.observations import (
    DaemonStarted,
    DaemonStopping,
    Enforceable,
    FilesWritten,
    Moment,
    ProcessOwner,
    Usage,
)
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.session import Settings
from wakeful.errors import OperatorError, WakefulError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import DaemonLog, Record, StoreGone, StoreShort
from wakeful.history.positions import fold_at
from wakeful.history.run_output import read_output, take_tail
from wakeful.run_files.keeper import Keeper
from wakeful.run_files.replay import Replays
from wakeful.runners.contract import LevelWatch, OutputLanding, Runner
from wakeful.secrets.known import Known, KnownSecrets
from wakeful.service.reactor import Outside, Reactor, read_moment
from wakeful.service.retention_rounds import keep_archiving
from wakeful.service.run_starter import RunStarter
from wakeful.settings import Places
from wakeful.sources.contract import DiskWatch, Sources, SpecWatch, WallClock
from wakeful.system.blobs import Blobs
from wakeful.system.journal import ERROR, WARNING
from wakeful.system.process_tuning import Affinity
from wakeful.system.state_folder import remove_address, write_address
from wakeful.system.systemd import Supervisor, is_restarting
from wakeful.text.display import count
from wakeful.trust.desk import TrustDesk
from wakeful.views.narration import Voice, grade, narrate, suggest_edit
from wakeful.workspaces.fork_workspaces import Workspaces

NARRATED_AT_ONCE = 500
_NARRATED_BYTES = 1 << 20
# The holds of a session whose runs went wrong: it stays so until something newer comes or a person acts.
FAILED_HOLDS = ("failed", "crashing", "loop")
NAMES_TOLD = 5
# How long after a part of the daemon failed it begins again.
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60.0
# After the last run, and `stop_grace` with it: records are flushed, folders removed, files closed.
_LONGEST_END_SECONDS = 60
# How long a daemon whose log was taken away may take to end its runs.
ABANDONING_SECONDS = 15.0
# Objects that young collections wait for, and how many of these older ones do. As Python has it, 700 and 10, they took
# 0.3 s of a burst of 100,000 files; what refers to itself, and is held so much longer, is a few hundred objects.
_COLLECTED_AFTER = (20_000, 10)
# A whole collection now and then: 5 ms with a dozen sessions, since the objects of the start are left out.
COLLECTING_SECONDS = 30.0
COLLECTING_PAUSES = 1000


@dataclass(frozen=True, slots=True)
class Edges:
    """What the daemon reaches the outside through, each known by its contract alone."""

    log: DaemonLog
    sources: Sources
    specs: SpecWatch
    landing: OutputLanding
    strictness: LevelWatch
    room: DiskWatch
    clock: WallClock
    runner: Runner
    starter: RunStarter
    blobs: Blobs
    keeper: Keeper
    replays: Replays
    workspaces: Workspaces
    trust: TrustDesk
    voice: Voice
    secrets: KnownSecrets
    # What systemd listens on for us, if it does.
    handed_over: socket.socket | None = None


class Daemon:
    """The living daemon and the facade the API is built on. `settings` are those it starts with."""

    def __init__(self, places: Places, reactor: Reactor, edges: Edges, settings: Settings, *, is_once: bool) -> None:
        self.places = places
        self.blobs = edges.blobs
        self.reactor = reactor
        self.core = reactor.core
        self.log = edges.log
        self.replays = edges.replays
        self.workspaces = edges.workspaces
        self.trust = edges.trust
        self.version = __version__
        self.pid = os.getpid()
        self.started_at = time.time_ns() // 1000
        self._edges = edges
        self._specs = edges.specs
        self._starter = edges.starter
        self._voice = edges.voice
        self._settings = settings
        self._is_once = is_once
        self._is_ready = False
        self._began = time.monotonic()
        self._told_seconds = 0
        self._is_hurried = False
        self._is_hinted = is_once
        self._is_leaving = False
        self._is_closed = False
        # Why nothing can be recorded any more.
        self._abandoned: OperatorError | None = None
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._listeners: set[asyncio.Event] = set()
        self.live_words = LiveWords(lambda: edges.secrets.redactor)
        self._narrated = self.log.position()
        self._failed: set[str] = set()
        self._supervisor = Supervisor()
        self._affinity = Affinity()
        reactor.outside = Outside(
            follow=edges.sources.follow,
            forget=edges.sources.forget,
            look=edges.sources.look,
            prepare=edges.starter.prepare,
            start=edges.starter.start,
            land=edges.landing.land,
            readopted=edges.starter.readopt,
            wake_at=edges.clock.wake_at,
            runner=edges.runner,
            finished=self._after_run,
            recorded=self._after_record,
            fatal=self._end_at_once,
        )

    # -- life ---------------------------------------------------------------------------------

    async def live(self) -> int:
        """From the first look to the last run; returns the exit code."""
        try:
            return await self._live()
        except Exception as error:
            # A log that is gone, or cannot be read any more, is told in words, and the runs are ended.
            if self._abandoned is None and (words := self.log.find_loss() or _find_words(error)) is not None:
                self.abandon(words)
            if self._abandoned is None:
                raise
            await self._close()
            return 1
        finally:
            signal.alarm(0)

    async def _live(self) -> int:
        self._catch_signals()
        self._edges.clock.start()
        self.reactor.observe(DaemonStarted(incarnation=secrets.token_hex(8), settings=self._settings))
        self._edges.room.look()
        self._edges.secrets.look()
        self._specs.read()
        async with (
            ControlSocket(self, self.places.socket, self._edges.handed_over) as control,
            self._noted_address(),
            asyncio.TaskGroup() as keepers,
        ):
            keeping = [
                keepers.create_task(self._keep_on(self._keep_narrating), name="keep narrating"),
                keepers.create_task(
                    self._keep_on(functools.partial(control.keep, self._voice.say)), name="keep the control socket"
                ),
                keepers.create_task(self._keep_on(self._edges.room.keep), name="keep room"),
            ]
            if left := self._list_left():
                keepers.create_task(self._edges.runner.recover(left), name="end runs of damaged sessions")
            await self._edges.strictness.settle()
            await self._first_look()
            _spare_collections()
            if not self._stopping.is_set():
                self._tell_ready()
            keeping.append(keepers.create_task(self._keep_on(self._specs.keep), name="keep specs"))
            keeping.append(keepers.create_task(self._keep_on(self._edges.secrets.keep), name="keep secrets"))
            keeping.append(keepers.create_task(self._keep_on(self._edges.strictness.keep), name="keep strictness"))
            keeping.append(keepers.create_task(self._keep_on(self._keep_watchdog), name="keep watchdog"))
            keeping.append(keepers.create_task(self._keep_on(self._keep_collecting), name="keep collecting"))
            keeping.append(keepers.create_task(self._keep_on(self._keep_archiving), name="keep archiving"))
            code = await self._run_once() if self._is_once else await self._wait_for_stop()
            await self._wind_down()
            for keeper in keeping:
                keeper.cancel()
        if self._abandoned is None:
            self._narrate()
        await self._close()
        return code

    @contextlib.asynccontextmanager
    async def _noted_address(self) -> AsyncIterator[None]:
        """While it listens elsewhere, the state folder says where: a command given in the project finds it there."""
        state, is_systemd = str(self.places.state), self._edges.handed_over is not None
        try:
            write_address(state, str(self.places.socket), is_systemd=is_systemd)
        except OSError as error:
            words = (
                f"cannot write down in {state} where it listens: {error.strerror}; "
                f"commands need --socket {self.places.socket}"
            )
            self._voice.say(words, priority=WARNING)
        yield
        # The socket of systemd outlives us: who connects there waits for the next daemon.
        if not is_systemd:
            remove_address(state)

    def _list_left(self) -> dict[str, str]:
        """Runs of damaged sessions that a daemon which died may have left: no plan knows of them."""
        damaged = (session for session in self.core.state if isinstance(session, DamagedSession))
        return {session.left_run: session.id for session in damaged if session.left_run is not None}

    async def _keep_on(self, keep: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled. An error that ends a keeper is told, and the keeper begins again: a shortage of a
        second must not end the daemon."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            began = self._loop.time()
            try:
                return await keep()
            except Exception as error:
                # An error that a person must act upon ends the daemon in words. A shortage passes by itself.
                if isinstance(error, OperatorError) and not isinstance(error, StoreShort):
                    raise
                self._loop.call_exception_handler(
                    {"message": "a part of the daemon failed, and begins again", "exception": error}
                )
            pause = (
                _FIRST_PAUSE_SECONDS
                if self._loop.time() - began > _LONGEST_PAUSE_SECONDS
                else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            )
            await asyncio.sleep(pause)

    def _tell_ready(self) -> None:
        self._is_ready = True
        self._voice.print(f"ready: {self._summary()}; specs {self.places.specs}; socket {self.places.socket}")
        self._supervisor.ready(self._summary())

    async def _wait_for_stop(self) -> int:
        await self._stopping.wait()
        return 0 if self._abandoned is None else 1

    def warn(self, words: str) -> None:
        """Tell an operator to look at something."""
        self._voice.say(words, priority=WARNING)

    def abandon(self, gone: OperatorError) -> None:
        """The log was taken away, or cannot be read: say so, decide nothing more, end the runs and exit with 1. The
        service manager starts the next daemon."""
        if self._abandoned is not None:
            return
        self._abandoned = gone
        say_end(gone, self._edges.secrets.redact_text)
        # The process ends, even if something hangs then.
        overdue = threading.Timer(ABANDONING_SECONDS, os._exit, (1,))
        overdue.daemon = True
        overdue.start()
        self.reactor.close()
        self._stopping.set()

    def tell_read(self, done: int, total: int) -> None:
        """How far the reading of specs is; it blocks the loop."""
        self._tell_start(f"{done:,} of {count(total, 'spec')} read")

    def _tell_start(self, words: str) -> None:
        """To who waits at a terminal or asks systemd, from the first second on, once a second."""
        seconds = int(time.monotonic() - self._began)
        if not self._is_ready and seconds > self._told_seconds:
            self._told_seconds = seconds
            self._voice.show(f"starting, {seconds} s: {words}")
            self._supervisor.status(f"starting: {words}")

    async def _first_look(self) -> None:
        """READY means armed and looked: until then a change could still be missed by whoever waits for it."""
        unseen = list(self.core.looked.targets.values())
        total = len(unseen)
        while unseen and not self._stopping.is_set():
            await asyncio.sleep(0.005)
            self._tell_start(f"{total - len(unseen):,} of {total:,} looked at")
            unseen = [look for look in unseen if not look.is_looked and look.held is None and look.subscribers]
        await self.reactor.recorded_so_far()

    async def _run_once(self) -> int:
        """`--once`: to the end of the wave, retries included. 1 if a run failed, now or before, if a spec was
        refused, or for want of room."""
        while not self._stopping.is_set() and self._is_wave_going():
            shortage = self.core.looked.shortage
            if shortage is not None and not self.core.state.running:
                self._voice.say(f"what is owed waits for {shortage}; make room and start again")
                return 1
            await self._next_record(0.1)
        await self.reactor.recorded_so_far()
        if self._abandoned is not None:
            return 1
        self._narrate()
        held = self._tell_failed_before()
        failed = sorted({*held, *(self.core.state.get(one).name for one in self._failed)})
        groups = ((sorted(self.problems()), "refused spec"), (failed, "failed session"))
        wrong = [
            f"{count(len(names), what)} ({', '.join(names[:NAMES_TOLD])}{', …' * (len(names) > NAMES_TOLD)})"
            for names, what in groups
            if names
        ]
        if wrong:
            self._voice.say(f"exit 1: {'; '.join(wrong)}", priority=WARNING)
        return 1 if wrong else 0

    def _tell_failed_before(self) -> list[str]:
        """The sessions that sleep because their runs went wrong. Of those that did not fail now, say so,
        and quote what they printed."""
        held = [
            one for one in self.core.state if one.is_armed and one.hold is not None and one.hold.kind in FAILED_HOLDS
        ]
        for session in held:
            if session.id not in self._failed:
                assert session.hold is not None
                words = (
                    f"still sleeps: {session.hold.words}; it runs when an input changes, or by: "
                    f"wakeful activate {session.name}"
                )
                self._voice.say(words, name=session.name, priority=WARNING)
                if session.last_run is not None:
                    self._quote_output(session, session.last_run.run)
        return [session.name for session in held]

    def _quote_output(self, session: Session, run: int) -> None:
        """The end of what a failed run printed. Only for `--once`:
        its state folder may be gone with the machine it ran on."""
        try:
            found = read_output(self.log, self._edges.blobs, session, run)
        except WakefulError as gone:
            self._voice.say(str(gone), name=session.name)
            return
        tail = take_tail(found)
        more = (
            ""
            if tail.is_whole
            else f", the end of {count(found.total_bytes, 'byte')}; `wakeful output {session.name} --state "
            f"{self.places.state}` has more"
        )
        self._voice.say(f"run {run} printed{more}:" if tail.lines else f"run {run} printed nothing", name=session.name)
        self._voice.quote(tail.lines, name=session.name, run=run)

    def _is_wave_going(self) -> bool:
        core = self.core
        if core.state.running or core.ready:
            return True
        if any(look.is_dirty and look.held is None for look in core.looked.targets.values()):
            return True
        return any(
            s.wake is not None and s.wake.retry_at is not None and s.hold is None for s in core.state if s.is_armed
        )

    async def _wind_down(self) -> None:
        """No new runs, `stop_grace` for those under way, then interrupt: they are owed again.
        At a restart those go on that somebody keeps."""
        self._supervisor.stopping()
        if self._abandoned is not None:
            return
        self.reactor.observe(DaemonStopping())
        spared = await self._find_spared()
        self._is_leaving = bool(spared)
        grace = self.core.settings.stop_grace_seconds
        if not await self._until_idle(grace, spared):
            self.reactor.observe(DaemonStopping(is_forced=True, spared=spared))
            ending = (
                session.run
                for session in self._running()
                if session.run is not None and session.run.run_id not in spared
            )
            longest = max((run.spec.run.grace_seconds for run in ending if run.spec.run is not None), default=0.0)
            await self._until_idle(longest + 5.0, spared)
        if self._is_leaving:
            self._voice.say(f"restarting: {len(self.core.state.running)} running, left to the next daemon")
        self._bound_end()
        await self.reactor.recorded_so_far()

    def _bound_end(self) -> None:
        """From here on the end waits for disks alone. One that hangs must not keep the daemon:
        what was acknowledged is on disk."""
        words = (
            f"stopping took more than {_LONGEST_END_SECONDS} s, perhaps a disk or a network mount hangs; what was "
            "acknowledged is on record"
        )
        signal.signal(signal.SIGALRM, lambda number, frame: self._end_at_once(OperatorError(words)))
        signal.alarm(_LONGEST_END_SECONDS)

    async def _find_spared(self) -> frozenset[str]:
        """The ids of runs that would outlive us, if somebody is about to go on with them."""
        open_runs = (session.run for session in self._running() if session.run is not None)
        kept = frozenset(run.run_id for run in open_runs if self._edges.runner.keeps(run.run_id))
        return kept if kept and await is_restarting() else frozenset()

    def _running(self) -> list[Session]:
        return [self.core.state.get(session_id) for session_id in self.core.state.running]

    async def _until_idle(self, seconds: float, spared: frozenset[str]) -> bool:
        """Until nothing runs but what is spared; False when the time is over, or somebody is in a hurry."""
        deadline = self._loop.time() + seconds
        while any(session.run is None or session.run.run_id not in spared for session in self._running()):
            left = deadline - self._loop.time()
            if left <= 0 or self._is_hurried or self._abandoned is not None:
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
        """Stop the reactor first, so that nothing is decided while the edges are closed one by one. If one fails,
        the others and the log are still closed."""
        if self._is_closed:
            return
        self._is_closed = True
        self.reactor.close()
        async with contextlib.AsyncExitStack() as closing:
            # The stack closes them in reverse order: the last one registered is closed first.
            closing.callback(self._voice.close)
            closing.callback(self.log.close)
            if not self._is_leaving:
                closing.callback(self._starter.close)
            closing.push_async_callback(self._edges.sources.close)
            closing.push_async_callback(self._edges.keeper.close)
            closing.push_async_callback(self._edges.landing.close)
            runner = self._edges.runner
            closing.push_async_callback(runner.leave if self._is_leaving else functools.partial(runner.close, 0.0))
            closing.push_async_callback(self._starter.stop_preparing)
            closing.callback(self._specs.close)
            closing.callback(self._edges.clock.stop)

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
        self._specs.read()
        self._supervisor.ready(self._summary())

    async def _keep_watchdog(self) -> None:
        """Only a loop that turns and a log that takes appends may say that it is alive."""
        while True:
            await asyncio.sleep(self._supervisor.watchdog_seconds or 30.0)
            await self.reactor.recorded_so_far()
            if self._affinity.restore():
                # CPUAffinity= of a unit, and taskset around its start, are how a person chooses cores.
                self._voice.say(
                    "somebody moved the daemon to other cores, perhaps a run; it has its own again", priority=WARNING
                )
            self._supervisor.alive()
            self._supervisor.status(self._summary())

    async def _keep_collecting(self) -> None:
        """Free the cycles that closed connections leave, a transport and its socket each; an ended run leaves none.
        Takes a thousandth of the time at most."""
        pause = COLLECTING_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            gc.collect()
            pause = max(COLLECTING_SECONDS, COLLECTING_PAUSES * (time.monotonic() - began))

    async def _keep_archiving(self) -> None:
        await keep_archiving(self, functools.partial(self._voice.say, priority=ERROR))

    def _summary(self) -> str:
        state = self.core.state
        declared = sum(session.declaration.is_declared for session in state)
        problems = f", {count(len(self.problems()), 'spec')} refused" if self.problems() else ""
        targets = len(self.core.looked.targets)
        return (
            f"{count(declared, 'session')}, {count(targets, 'binding')} watched, {len(state.running)} running{problems}"
        )

    # -- what the reactor reports back --------------------------------------------------------

    def _after_run(self, entry: Entry) -> None:
        self._starter.forget(entry.session, entry.run)
        self.live_words.close_run(entry.session, entry.run or 0)
        self._edges.landing.discard(f"{entry.session}.{entry.run}")
        if isinstance(entry.event, RunFinished) and entry.event.outcome == "failed" and entry.event.is_final:
            self._failed.add(entry.session)

    def _after_record(self) -> None:
        for listener in self._listeners:
            listener.set()

    def _end_at_once(self, error: BaseException) -> None:
        if isinstance(error, StoreGone):
            self.abandon(error)
            return
        end_at_once(error, self._edges.secrets.redact_text)

    # -- telling people -----------------------------------------------------------------------

    async def _keep_narrating(self) -> None:
        heard = asyncio.Event()
        self._listeners.add(heard)
        try:
            while True:
                # Off the hot path: a run's start is not to wait for a terminal.
                await asyncio.sleep(0.05)
                heard.clear()
                self._narrate()
                if not self._is_hinted and self._is_ready and not self._is_wave_going():
                    self._is_hinted = True
                    self._voice.say(
                        f"all sessions rest; {suggest_edit(list(self.core.state)) or 'wakeful list shows them'}"
                    )
                await heard.wait()
        finally:
            self._listeners.discard(heard)

    def _narrate(self) -> None:
        """Print what was recorded since the last time."""
        while True:
            self._narrated, records = self.log.read_after(self._narrated, NARRATED_AT_ONCE, most_bytes=_NARRATED_BYTES)
            if not records:
                return
            for record in records:
                session = self.core.state.sessions.get(record.session)
                # What a bundle brought in happened elsewhere.
                if record.payload is None or session is None:
                    continue
                event = decode(record.kind, record.payload)
                line = narrate(event)
                if line is not None:
                    self._voice.say(line, name=session.name, at=record.at, priority=grade(event), fields=_label(record))
                if self._is_once and isinstance(event, RunFinished) and event.outcome == "failed" and event.is_final:
                    self._quote_output(session, event.run)

    # -- the facade of the API ----------------------------------------------------------------

    def moment(self) -> Moment:
        return read_moment()

    async def recorded_so_far(self) -> None:
        await self.reactor.recorded_so_far()

    async def call(self, call: Call, *, author: str, key: str | None = None, run: int | None = None) -> Reply:
        return await self.reactor.call(call, author=author, key=key, run=run)

    def submit(self, call: Work, *, author: str, key: str | None, run: int | None) -> Awaitable[Reply]:
        return self.reactor.submit(call, author=author, key=key, run=run)

    async def report_written(self, session_id: str, paths: Iterable[str]) -> None:
        # Reports of the last files may still be in the watcher's queue: without them the look finds half of the
        # writing, and readers start on it.
        self._edges.sources.hear()
        self.reactor.observe(FilesWritten(session=session_id, paths=tuple(paths)))
        # Looks take milliseconds, and the core gives up on one that hangs.
        while session_id in self.core.looked.writing and not self._stopping.is_set():
            await self._next_record(0.01)
        await self.reactor.recorded_so_far()

    def refold(self, session_id: str) -> None:
        self.reactor.refold(fold_at(self.log, session_id, self.core.state.get(session_id).seq))

    def forget_contents(self) -> None:
        self._edges.keeper.forget()

    def read_specs(self) -> None:
        self._specs.read()

    def report_spec_again(self, name: str) -> None:
        self._specs.report_again(name)

    def problems(self) -> dict[str, str]:
        return dict(self.core.looked.refused)

    def defects(self) -> dict[str, int]:
        return self._edges.sources.list_defects()

    def redact(self, value: Any) -> Any:
        return self._edges.secrets.redact(value)

    def redact_part(self, before: str, text: str, after: str) -> str:
        return self._edges.secrets.redact_part(before, text, after)

    def secrets(self) -> tuple[list[Known], str]:
        return self._edges.secrets.list_known(), self._edges.secrets.places.folder

    def explain_path(self, path: str) -> list[PathVerdict]:
        verdicts = []
        for key, meaning in self._edges.sources.explain(path):
            look = self.core.looked.targets.get(key)
            for session_id in sorted(look.subscribers) if look is not None else ():
                session = self.core.state.get(session_id)
                for bound in self.core.looked.bounds.get(session_id, ()):
                    if bound.target == key:
                        verdicts.append(PathVerdict(session.name, bound.name, meaning, look.looked_at if look else 0))
        return verdicts

    def describe_target(self, key: str) -> str | None:
        return self._edges.sources.describe(key)

    async def compare_commits(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        return await self._edges.sources.compare(key, old, new, bounds)

    def usage(self, session_id: str) -> Usage | None:
        run = self.core.state.get(session_id).run
        return self._edges.runner.usage(run.run_id) if run is not None else None

    def output(self, session_id: str, run: int) -> tuple[bytes, bytes, int]:
        found = read_output(self.log, self._edges.blobs, self.core.state.get(session_id), run)
        return found.head, found.tail, found.total_bytes

    def follow_output(self, session_id: str) -> AsyncIterator[bytes]:
        run = self.core.state.get(session_id).run
        return self._edges.runner.follow(run.run_id if run is not None else "")

    def follow(self, names: set[str] | None, *, is_live: bool = False) -> AsyncIterator[FollowLine | LiveLine]:
        return follow_records(self, self._listeners, names, is_live=is_live)

    def enforceable(self) -> Enforceable:
        return self._edges.runner.enforceable()

    def find_tracing_obstacle(self) -> str | None:
        return self._edges.runner.find_tracing_obstacle()

    def owner_of_process(self, pid: int) -> ProcessOwner | None:
        return self._edges.runner.owner(pid)

    def run_identity(self, token: str) -> RunIdentity | None:
        return self._starter.identity(token)

    def _spec_file(self, name: str) -> Path:
        return self.places.specs / f"{name}.yaml"

    def find_rename_obstacle(self, old: str, new: str) -> str | None:
        source, target = self._spec_file(old), self._spec_file(new)
        if target.exists():
            return f"{target} exists already; choose a free name"
        if old in self.core.state.ids and not source.exists():
            return (
                f"{old} has no file of its own to be renamed; write {source} first, or rename what its template finds"
            )
        return None

    def rename_spec(self, old: str, new: str) -> None:
        """The file follows the name; the session keeps its identity and history."""
        source, target = self._spec_file(old), self._spec_file(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        self.read_specs()


def _label(record: Record) -> dict[str, str]:
    """Where in the log it stands: what the journal can be asked for."""
    about = {
        "WAKEFUL_SESSION_ID": record.session,
        "WAKEFUL_SEQ": str(record.seq),
        "WAKEFUL_EVENT": record.kind,
        "WAKEFUL_AUTHOR": record.author,
    }
    return about if record.run is None else about | {"WAKEFUL_RUN": str(record.run)}


def _spare_collections() -> None:
    """What a start made, lasts: collections that go through it took 0.2 s each with 10,000 sessions,
    in the way of a wake."""
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    gc.enable()


def _find_words(error: BaseException) -> OperatorError | None:
    """Of an error, or of a group of them, the first that is for people."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, OperatorError) else None


def say_end(error: BaseException, redact: Callable[[str], str]) -> None:
    # Read as the entry's priority where standard error is the journal (sd-daemon(3)).
    prefix = "<2>" if "JOURNAL_STREAM" in os.environ else ""
    print(redact(f"{prefix}wakeful: stopping at once: {error or type(error).__name__}"), file=sys.stderr, flush=True)


def end_at_once(error: BaseException, redact: Callable[[str], str]) -> None:
    """The log failed, or state and log may disagree: nothing may be acknowledged any more."""
    try:
        say_end(error, redact)
        if not isinstance(error, OperatorError):
            print(redact("".join(traceback.format_exception(error))), file=sys.stderr, flush=True)
    finally:
        # Also where there is no memory for words, or nobody reads them.
        os._exit(1)
