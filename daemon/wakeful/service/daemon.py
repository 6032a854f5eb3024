"""The daemon's life: start, look at everything once, print `ready`, keep all parts running, stop in good order.

The wiring constructs it over edges that are ready to use, and `startup.py` awaits `live`. It decides nothing itself:
the core decides, through the reactor. `api_service.py` answers the calls of the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from wakeful.api.operations.bundles import BundleWork
from wakeful.api.operations.retention import archive_due, archive_outputs, find_due, find_outputs
from wakeful.api.server import ControlSocket
from wakeful.api.tcp_port import PortRefused
from wakeful.core.deciding.decision import DAEMON
from wakeful.core.record.observations import DaemonStarted, DaemonStopping
from wakeful.core.record.state import DamagedSession, Session
from wakeful.core.spec.http_settings import HttpSettings, choose_http
from wakeful.core.spec.session import Settings
from wakeful.errors import OperatorError, WakefulError
from wakeful.eventlog.contract import StoreShort
from wakeful.service.api_service import ApiService, Edges
from wakeful.service.log_printer import LogPrinter, Narrator
from wakeful.service.otel_traces import OtelTraces
from wakeful.service.reactor import Reactor, Signal
from wakeful.service.shutdown import Shutdown
from wakeful.settings import Places
from wakeful.system.journal import ERROR, WARNING
from wakeful.system.process_tuning import Affinity
from wakeful.system.state_folder import remove_address, write_address
from wakeful.system.systemd import Supervisor, is_restarting
from wakeful.text.display import count, ignore_progress

# The kinds of holds after failed runs. A session with such a hold sleeps until a newer version comes or a person acts.
FAILED_HOLDS = ("failed", "crashing", "loop")
NAMES_TOLD = 5
# Seconds until a failed part of the daemon begins again: at first, and at most after repeated failures.
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60.0
# The most seconds of a stop after the last run and its `stop_grace`: records are flushed, folders removed, files
# closed.
_LONGEST_END_SECONDS = 60
# The thresholds of garbage collection: new objects until a young collection, and young collections until an older one.
# With Python's defaults, 700 and 10, collections took 0.3 s of a burst of 100,000 files. The cycles that live longer
# because of this are a few hundred objects.
_COLLECTED_AFTER = (20_000, 10)
# Seconds between full collections. A collection takes 5 ms with a dozen sessions, because the objects of the start are
# left out. The pause is at least COLLECTING_PAUSES times as long as the last collection.
COLLECTING_SECONDS = 30.0
COLLECTING_PAUSES = 1000
# The most seconds that a daemon with `--once` waits until messages to people are sent.
ONCE_SECONDS = 30.0
# Seconds between two rounds of retention. Each round archives sessions. Once a day it also archives the outputs of old
# runs.
ARCHIVING_SECONDS = 3600.0
ARCHIVINGS_A_DAY = 24


class StartProgress:
    """Reports the progress of a start, once per second after the first second, at a terminal and to systemd. Any
    thread.
    """

    def __init__(self, printer: LogPrinter, supervisor: Supervisor) -> None:
        self._printer = printer
        self._supervisor = supervisor
        self._began = time.monotonic()
        self._told_seconds = 0
        self.is_over = False

    def tell(self, words: str) -> None:
        seconds = int(time.monotonic() - self._began)
        if not self.is_over and seconds > self._told_seconds:
            self._told_seconds = seconds
            self._printer.show(f"starting, {seconds} s: {words}")
            self._supervisor.status(f"starting: {words}")

    def tell_read(self, done: int, total: int) -> None:
        """Report how many specs were read."""
        self.tell(f"{done:,} of {count(total, 'spec')} read")


class Daemon:
    """The daemon, from its start to its end.

    `settings` are those at the start. `failed` are the sessions of which a run failed for good; `--once` reads them.
    """

    def __init__(
        self,
        api_service: ApiService,
        reactor: Reactor,
        edges: Edges,
        settings: Settings,
        narrator: Narrator,
        supervisor: Supervisor,
        progress: StartProgress,
        ending: Shutdown,
        decided: Signal,
        recorded: Signal,
        settings_read: Signal,
        failed: set[str],
        traces: OtelTraces,
        *,
        is_once: bool,
    ) -> None:
        self.core = reactor.core
        self.log = edges.log
        self._api_service = api_service
        self._reactor = reactor
        self._edges = edges
        self._specs = edges.specs
        self._printer = edges.printer
        self._settings = settings
        self._narrator = narrator
        self._supervisor = supervisor
        self._progress = progress
        self._ending = ending
        self._decided = decided
        self._recorded = recorded
        self._settings_read = settings_read
        self._failed = failed
        self._traces = traces
        self._is_once = is_once
        self._has_begun = False
        self._is_leaving = False
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._affinity = Affinity()
        self._reload: asyncio.Task[None] | None = None

    @property
    def _places(self) -> Places:
        return self._api_service.places

    # -- life ---------------------------------------------------------------------------------

    async def live(self) -> int:
        """Live from the first look to the last run. Returns the exit code."""
        try:
            return await self._live()
        except Exception as error:
            # If the log is gone or can no longer be read, this is reported as a message, and the runs are ended.
            if self._ending.abandoned is None and (words := self.log.find_loss() or _find_words(error)) is not None:
                self.abandon(words)
            if self._ending.abandoned is None:
                raise
            await self._close()
            return 1
        finally:
            signal.alarm(0)

    async def _live(self) -> int:
        self._catch_signals()
        # Nothing is decided before the specs are read. Otherwise a run could start on an older text of a spec file.
        first, _ = await asyncio.gather(self._specs.look(), self._edges.runner.settle())
        self._edges.clock.start()
        self._reactor.observe(DaemonStarted(incarnation=secrets.token_hex(8), settings=self._settings))
        self._edges.room.look()
        self._edges.secrets.look()
        must_read_again = self._specs.take(first)
        self._has_begun = True
        if must_read_again:
            await self._specs.read()
        await self._open_notifying()
        async with (
            ControlSocket(self._api_service, self._places.socket, self._edges.handed_over) as control,
            self._noted_address(),
            asyncio.TaskGroup() as keepers,
        ):
            self._follow_http(control, is_start=True)
            self._edges.notifications.find_dashboard_url = functools.partial(self._find_dashboard_url, control)
            keep_control = functools.partial(control.keep, self._printer.say)
            keeping = [
                keepers.create_task(self._keep_on(self._keep_narrating), name="keep narrating"),
                keepers.create_task(self._keep_on(keep_control), name="keep the control socket"),
                keepers.create_task(self._keep_on(self._edges.room.keep), name="keep room"),
                keepers.create_task(self._keep_on(self._keep_notifying), name="keep notifying"),
            ]
            if left := self._list_left():
                keepers.create_task(self._edges.runner.recover(left), name="end runs of damaged sessions")
            await self._edges.strictness.settle()
            await self._first_look()
            _spare_collections()
            if not self._ending.stopping.is_set():
                self._tell_ready(control.tcp.url)
            keeping += [
                keepers.create_task(self._keep_on(keep), name=name)
                for name, keep in (
                    ("keep specs", self._specs.keep),
                    ("keep secrets", self._edges.secrets.keep),
                    ("keep strictness", self._edges.strictness.keep),
                    ("keep watchdog", self._keep_watchdog),
                    ("keep collecting", self._keep_collecting),
                    ("keep archiving", self._keep_archiving),
                    ("keep traces", self._traces.keep),
                    ("keep the TCP port", functools.partial(self._keep_http, control)),
                )
            ]
            code = await self._run_once() if self._is_once else await self._wait_for_stop()
            await self._wind_down()
            for keeper in keeping:
                keeper.cancel()
        await self._end_notifying()
        if self._ending.abandoned is None:
            self._narrator.narrate()
        await self._close()
        return code

    @contextlib.asynccontextmanager
    async def _noted_address(self) -> AsyncIterator[None]:
        """Write the address of the socket to the state folder while the daemon listens, so that a command in the
        project finds it.
        """
        state, is_systemd = str(self._places.state), self._edges.handed_over is not None
        try:
            write_address(state, str(self._places.socket), is_systemd=is_systemd)
        except OSError as error:
            words = (
                f"cannot write down in {state} where it listens: {error.strerror}; "
                f"commands need --socket {self._places.socket}"
            )
            self._printer.say(words, priority=WARNING)
        yield
        # The socket of systemd outlives the daemon: a client that connects to it waits for the next daemon.
        if not is_systemd:
            remove_address(state)

    def _list_left(self) -> dict[str, str]:
        """List the runs of damaged sessions that an earlier daemon may have left. No plan contains them."""
        damaged = (session for session in self.core.state if isinstance(session, DamagedSession))
        return {session.left_run: session.id for session in damaged if session.left_run is not None}

    async def _keep_on(self, keep: Callable[[], Awaitable[None]]) -> None:
        """Run a part of the daemon until cancelled.

        If it fails, the error is reported and the part begins again, because a shortage that lasts a second must not
        end the daemon.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            began = self._loop.time()
            try:
                return await keep()
            except Exception as error:
                # An error that a person must act on ends the daemon with a message. A shortage passes by itself.
                if isinstance(error, OperatorError) and not isinstance(error, StoreShort):
                    raise
                self._loop.call_exception_handler(
                    {"message": "a part of the daemon failed, and begins again", "exception": error}
                )
            has_lasted = self._loop.time() - began > _LONGEST_PAUSE_SECONDS
            pause = _FIRST_PAUSE_SECONDS if has_lasted else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def _first_look(self) -> None:
        """Wait until every target is watched and looked at, as READY promises.

        Before that, a change could still be missed.
        """
        unseen = list(self.core.looked.targets.values())
        total = len(unseen)

        def is_over() -> bool:
            while unseen and (unseen[-1].is_looked or unseen[-1].held is not None or not unseen[-1].subscribers):
                unseen.pop()
            return not unseen or self._ending.stopping.is_set()

        while not await self._decided.wait_until(is_over, 1.0):
            self._progress.tell(f"{total - len(unseen):,} of {total:,} looked at")
        await self._reactor.recorded_so_far()

    def _tell_ready(self, url: str | None) -> None:
        self._progress.is_over = True
        http = f"; http {url}" if url is not None else ""
        self._printer.print(f"ready: {self._summary()}; specs {self._places.specs}; socket {self._places.socket}{http}")
        self._supervisor.ready(self._summary())

    def _follow_http(self, control: ControlSocket, *, is_start: bool = False) -> None:
        """Listen on TCP according to the settings. A failure at the start ends the daemon with a message."""
        before = control.tcp.url
        try:
            control.follow_http(choose_http(self._places.http, self.core.settings.http))
        except PortRefused as refusal:
            if is_start:
                raise
            self._printer.say(f"{refusal}; the TCP port stays as it was", priority=WARNING)
            return
        if is_start:
            if (problem := control.reopen_for_browsers()) is not None:
                self._printer.say(problem, priority=WARNING)
        elif control.tcp.url != before:
            self._printer.say(f"listening on {control.tcp.url}" if control.tcp.url else "the TCP port is closed")

    def _find_dashboard_url(self, control: ControlSocket) -> str | None:
        """Find the address of the dashboard for links in messages.

        A person on another machine reaches it by the name in `hosts`.
        """
        http = self.core.settings.http
        if control.tcp.url is not None and isinstance(http, HttpSettings) and http.hosts:
            return f"https://{http.hosts[0]}"
        return control.tcp.url

    async def _keep_http(self, control: ControlSocket) -> None:
        """Follow `http` of wakeful.yaml, until cancelled."""
        while True:
            await self._wait_for_other_http(self.core.settings.http)
            self._follow_http(control)

    async def _wait_for_other_http(self, seen: HttpSettings | str | None) -> None:
        await self._settings_read.wait_until(lambda: self.core.settings.http != seen)

    async def _wait_for_stop(self) -> int:
        await self._ending.stopping.wait()
        return 0 if self._ending.abandoned is None else 1

    def warn(self, words: str) -> None:
        """Print a warning for the operator."""
        self._printer.say(words, priority=WARNING)

    def abandon(self, gone: OperatorError) -> None:
        """End in order, as far as possible without the log, because it is gone."""
        self._ending.abandon(gone)
        self._reactor.close()

    # -- `--once` -----------------------------------------------------------------------------

    async def _run_once(self) -> int:
        """Run until nothing is owed any more, including retries, for `--once`.

        Returns 1 if a run failed, now or before, if a spec was refused, or if there is no disk space.
        """
        await self._decided.wait_until(
            lambda: self._ending.stopping.is_set() or not self._is_wave_going() or self._find_shortage() is not None
        )
        if not self._ending.stopping.is_set() and (shortage := self._find_shortage()) is not None:
            self._printer.say(f"owed runs wait for {shortage}; free some disk space and start again")
            return 1
        await self._reactor.recorded_so_far()
        if self._ending.abandoned is not None:
            return 1
        self._narrator.narrate()
        held = self._tell_failed_before()
        failed = sorted({*held, *(self.core.state.get(one).name for one in self._failed)})
        groups = ((sorted(self._api_service.problems()), "refused spec"), (failed, "failed session"))
        wrong = [
            f"{count(len(names), what)} ({', '.join(names[:NAMES_TOLD])}{', …' * (len(names) > NAMES_TOLD)})"
            for names, what in groups
            if names
        ]
        if wrong:
            self._printer.say(f"exit 1: {'; '.join(wrong)}", priority=WARNING)
        return 1 if wrong else 0

    def _find_shortage(self) -> str | None:
        """Return why owed runs would wait forever.

        The reason is that there is no disk space, and nothing runs that could free some. None if they would not wait
        forever.
        """
        return None if self.core.state.running or not self._is_wave_going() else self.core.looked.shortage

    def _tell_failed_before(self) -> list[str]:
        """List the sessions that sleep because their runs failed.

        For those that did not fail now, print this and the output of their last run.
        """
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
                self._printer.say(words, name=session.name, priority=WARNING)
                if session.last_run is not None:
                    self._narrator.quote_output(session, session.last_run.run)
        return [session.name for session in held]

    def _is_wave_going(self) -> bool:
        core = self.core
        if core.state.running or core.ready:
            return True
        if any(look.is_dirty and look.held is None for look in core.looked.targets.values()):
            return True
        return any(
            s.wake is not None and s.wake.retry_at is not None and s.hold is None for s in core.state if s.is_armed
        )

    # -- the end ------------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """Start no new runs, give those under way `stop_grace`, then interrupt them. Interrupted runs are owed again.

        At a restart, runs that the service manager keeps go on.
        """
        self._supervisor.stopping()
        if self._ending.abandoned is not None:
            self._reactor.close()
            return
        self._reactor.observe(DaemonStopping())
        spared = await self._find_spared()
        self._is_leaving = bool(spared)
        grace = self.core.settings.stop_grace_seconds
        if not await self._until_idle(grace, spared):
            self._reactor.observe(DaemonStopping(is_forced=True, spared=spared))
            ending = (
                session.run
                for session in self._running()
                if session.run is not None and session.run.run_id not in spared
            )
            longest = max((run.spec.run.grace_seconds for run in ending if run.spec.run is not None), default=0.0)
            await self._until_idle(longest + 5.0, spared)
        if self._is_leaving:
            self._printer.say(f"restarting: {len(self.core.state.running)} running, left to the next daemon")
        self._bound_end()
        await self._reactor.recorded_so_far()

    def _bound_end(self) -> None:
        """Limit the rest of the stop, which waits only for disks.

        A disk that hangs must not keep the daemon alive. Every acknowledged record is already on disk.
        """
        words = (
            f"stopping took more than {_LONGEST_END_SECONDS} s, perhaps a disk or a network mount hangs; all "
            "acknowledged records are on disk"
        )
        signal.signal(signal.SIGALRM, lambda number, frame: self._ending.end_at_once(OperatorError(words)))
        signal.alarm(_LONGEST_END_SECONDS)

    async def _find_spared(self) -> frozenset[str]:
        """Find the ids of runs that outlive the daemon, if another daemon is about to continue them."""
        open_runs = (session.run for session in self._running() if session.run is not None)
        kept = frozenset(run.run_id for run in open_runs if self._edges.runner.keeps(run.run_id))
        return kept if kept and await is_restarting() else frozenset()

    def _running(self) -> list[Session]:
        return [self.core.state.get(session_id) for session_id in self.core.state.running]

    async def _until_idle(self, seconds: float, spared: frozenset[str]) -> bool:
        """Wait until only spared runs are left. False when the time is over, or a second stop was requested."""

        def is_idle() -> bool:
            return all(session.run is not None and session.run.run_id in spared for session in self._running())

        def is_hurried() -> bool:
            return self._ending.is_hurried or self._ending.abandoned is not None

        await self._decided.wait_until(lambda: is_idle() or is_hurried(), seconds)
        if not is_idle() and is_hurried():
            # One request ends one wait. The wait for the grace of runs that are being stopped is another one.
            self._ending.is_hurried = False
        return is_idle()

    async def _close(self) -> None:
        """Stop the reactor first, so that nothing is decided while the edges are closed one by one.

        If an edge cannot be closed, the other edges and the log are still closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._reactor.close()
        async with contextlib.AsyncExitStack() as closing:
            # The stack closes in reverse order: the last one registered is closed first.
            closing.callback(self._printer.close)
            closing.callback(self.log.close)
            starter = self._edges.starter
            if not self._is_leaving:
                closing.callback(starter.close)
            closing.push_async_callback(self._edges.sources.close)
            closing.push_async_callback(self._edges.keeper.close)
            closing.push_async_callback(self._edges.landing.close)
            runner = self._edges.runner
            closing.push_async_callback(runner.leave if self._is_leaving else functools.partial(runner.close, 0.0))
            closing.push_async_callback(starter.stop_preparing)
            closing.callback(self._specs.close)
            closing.callback(self._edges.clock.stop)

    def _catch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._ending.stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._begin_reload)

    def _begin_reload(self) -> None:
        if not self._has_begun:
            # The specs are being read for the first time. A file that is saved meanwhile causes a hint, and is read
            # again.
            return
        self._supervisor.reloading()
        self._reload = self._loop.create_task(self._finish_reload(), name="reload")

    async def _finish_reload(self) -> None:
        try:
            await self._specs.read()
        except Exception as error:
            self._loop.call_exception_handler({"message": "specs could not be read", "exception": error})
        # Systemd waits for this message in both cases. If the reading failed, the earlier specs stay in force.
        self._supervisor.ready(self._summary())

    # -- background tasks ---------------------------------------------------------------------

    async def _keep_narrating(self) -> None:
        await self._narrator.keep(self._recorded, lambda: self._progress.is_over and not self._is_wave_going())

    async def _open_notifying(self) -> None:
        """Save a new notifier to disk before anything happens that it must report."""
        try:
            await self._edges.notifications.open_notifiers()
        except OSError as error:
            words = f"the ledgers of notifiers cannot be written: {error.strerror or error}; it is tried again"
            self._printer.say(words, priority=WARNING)

    async def _keep_notifying(self) -> None:
        await self._edges.notifications.keep(self._recorded)

    async def _end_notifying(self) -> None:
        """Send the remaining messages with `--once`, because perhaps no later daemon does so.

        Otherwise the next daemon sends them.
        """
        if self._ending.abandoned is not None:
            return
        if self._is_once:
            await self._edges.notifications.flush(ONCE_SECONDS)
            await self._reactor.recorded_so_far()
        await self._edges.notifications.close()

    async def _keep_watchdog(self) -> None:
        """Report to the watchdog only while the loop turns and the log accepts appends."""
        while True:
            await asyncio.sleep(self._supervisor.watchdog_seconds or 30.0)
            await self._reactor.recorded_so_far()
            if self._affinity.restore():
                # A person who wants other cores sets CPUAffinity= in the unit, or uses taskset at the start.
                self._printer.say(
                    "the daemon was moved to other cores, perhaps by a run; it has its own again", priority=WARNING
                )
            self._supervisor.alive()
            self._supervisor.status(self._summary())

    async def _keep_collecting(self) -> None:
        """Free the cycles that closed connections leave, each with a transport and its socket.

        An ended run leaves no cycles. The collections take at most a thousandth of the time.
        """
        pause = COLLECTING_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            gc.collect()
            pause = max(COLLECTING_SECONDS, COLLECTING_PAUSES * (time.monotonic() - began))

    async def _keep_archiving(self) -> None:
        """Archive the sessions that are due, every hour until cancelled. A failed round is reported."""
        work = BundleWork(self._api_service, DAEMON, ignore_progress)
        for number in itertools.count():
            await asyncio.sleep(ARCHIVING_SECONDS)
            try:
                await archive_due(work, await find_due(self._api_service))
                # Only once a day, because this checks every run of the log.
                if number % ARCHIVINGS_A_DAY == 0:
                    await archive_outputs(work, await find_outputs(work))
            except (WakefulError, OSError) as problem:
                self._printer.say(f"archiving of due sessions and outputs failed: {problem}", priority=ERROR)

    def _summary(self) -> str:
        state = self.core.state
        declared = sum(session.declaration.is_declared for session in state)
        refused = self._api_service.problems()
        problems = f", {count(len(refused), 'spec')} refused" if refused else ""
        targets = len(self.core.looked.targets)
        return (
            f"{count(declared, 'session')}, {count(targets, 'binding')} watched, {len(state.running)} running{problems}"
        )


def _spare_collections() -> None:
    """Exclude the objects of the start from garbage collection, because they live as long as the daemon.

    With 10,000 sessions, each collection that visited them took 0.2 s and delayed wakes.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    gc.enable()


def _find_words(error: BaseException) -> OperatorError | None:
    """Return the error, or the first error of a group, if it is an OperatorError."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, OperatorError) else None
