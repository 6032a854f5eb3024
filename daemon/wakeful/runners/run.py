"""One run under way: its command, its check, its time, and what is kept of it when it ends.

`CommandRunner` makes one per order and forgets it when it reports. Everything happens on the loop but two blocking things:
output is saved, and the run's folder removed, in the runner's own threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Mapping

import psutil
from msgspec import Struct, structs

from wakeful.blobs import Blobs
from wakeful.core.observation import Enforced, Output, ProcessEnded, StagedOutput, Traced, Usage
from wakeful.errors import OperatorError
from wakeful.runners import limits, proc
from wakeful.runners.adopted import AdoptedProcess
from wakeful.runners.capture import Capture
from wakeful.runners.contract import LiveUsage, RunOrder, StopWord
from wakeful.runners.environment import build_environment, check_program, program_of, write_folder
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch
from wakeful.runners.isolation.bubblewrap import find_unenforced as find_unenforced_in_view
from wakeful.runners.isolation.confine import ConfinedLaunch, Launch, launch_bare
from wakeful.runners.isolation.judging import Standards
from wakeful.runners.isolation.reach import find_reach, find_view
from wakeful.runners.isolation.tracing import Tracing, find_obstacle
from wakeful.runners.isolation.undeclared import Surveyed, find_undeclared, survey
from wakeful.runners.isolation.writers import Writer
from wakeful.runners.kept import Keepsake, LeftRun
from wakeful.runners.problems import (
    describe_check,
    describe_defect,
    describe_overspent,
    describe_start,
    describe_survivors,
    describe_timeout,
    find_denial,
    refuse_unconfined,
    refuse_unjudged,
)
from wakeful.runners.process import Ending, Process, Spent, Surroundings
from wakeful.runners.staging import Staging
from wakeful.runners.workspace import WorkspaceArea

_STRENGTH: dict[StopWord | None, int] = {None: 0, "interrupt": 1, "terminate": 2, "kill": 3}
_SIGNALS: dict[StopWord, int] = {
    "interrupt": signal.SIGINT,
    "terminate": signal.SIGTERM,
    "kill": signal.SIGKILL,
}


class _Saved(Struct, frozen=True):
    """What is left of a run in files."""

    output: Output = Output()
    undeclared: tuple[str, ...] = ()
    staged: tuple[StagedOutput, ...] | None = None
    trace: Traced | None = None


class LiveRun:
    """From `start` to exactly one call of `ended`."""

    def __init__(
        self,
        order: RunOrder,
        mark: int,
        around: Surroundings,
        blobs: Blobs,
        ended: Callable[[ProcessEnded], None],
        memory: int | None = None,
    ) -> None:
        """`memory` is where its output is captured, if that is to outlive us."""
        self.mark = mark
        self.started_boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.capture = Capture(order.output_limit_bytes, around.find_redactor, memory)
        self._memory = memory
        self._order = order
        self._around = around
        self._blobs = blobs
        self._ended = ended
        self._started = time.monotonic()
        self._spent = Spent()
        self._process: Process | AdoptedProcess | None = None
        self._is_checking = False
        self._is_adopted = False
        self._is_abandoned = False
        self._stopping: StopWord | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._kill: asyncio.TimerHandle | None = None
        self._minding: asyncio.TimerHandle | None = None
        self._problem: str | None = None
        self._launch_as: Launch = launch_bare
        self._isolation: Enforced | None = None
        self._surveyed: tuple[Surveyed, ...] = ()
        self._others: tuple[Writer, ...] = ()
        self._view: BubblewrapLaunch | None = None
        self._staging: Staging | None = None
        self._tracing: Tracing | None = None
        # Why nothing can be traced here, and why this one is not although it should be.
        self._obstacle: str | None = None
        self._untraced: str | None = None
        self._area = _find_area(order)
        self._mounted: frozenset[str] = frozenset()

    def start(self, inherited: Mapping[str, str]) -> None:
        order = self._order
        self._cwd = os.path.join(order.root, order.cwd)
        self._environment = build_environment(order, inherited)
        self._note_writer()
        if order.is_traced or order.confinement.level == "observe":
            # The first time, a program is run.
            trying = self._around.loop.run_in_executor(self._around.pool, find_obstacle)
            trying.add_done_callback(lambda tried: self._go_on(tried.result()))
        else:
            self._go_on(None)

    def _go_on(self, obstacle: str | None) -> None:
        """`obstacle`: why it cannot be traced, where it should be."""
        self._obstacle = obstacle
        if self._order.confinement.level != "strict" and self._area is None:
            self._prepare()
            self._begin()
            return
        # Copies of its outputs, and a look at every place of its view or workspace: not on the loop.
        preparing = self._around.loop.run_in_executor(self._around.pool, self._prepare)
        preparing.add_done_callback(lambda _: self._begin())

    def _note_writer(self) -> None:
        order = self._order
        # What is staged is put in place after it, by who notes that himself.
        is_staged = self._area is not None or (order.confinement.level == "strict" and order.staging is not None)
        self._around.writers.begin(order.run_id, order.root, () if is_staged else order.writes, order.confinement.allow_write)

    def _prepare(self) -> None:
        order = self._order
        try:
            write_folder(order)
            self._confine()
            if self._area is not None:
                self._area.take_stock()
        except OperatorError as error:
            self._problem = str(error)
        except (OSError, ValueError) as error:
            self._problem = describe_start(error, program_of(order), self._cwd, self._environment)
        except Exception as error:
            self._note_defect(error)

    def _note_defect(self, error: Exception) -> None:
        """Nobody would ever end a run that stops halfway in us: it fails in words, and who runs the daemon gets the traceback."""
        self._problem = self._problem or describe_defect(error)
        told = {"message": f"{self._order.run_id}: a defect of wakeful", "exception": error}
        self._around.loop.call_soon_threadsafe(self._around.loop.call_exception_handler, told)

    def _begin(self) -> None:
        order = self._order
        if self._problem is None and self._stopping is not None:
            self._problem = "stopped before it began"
        # Never from inside `start`: the reactor is in the middle of a plan.
        if self._problem is not None or not self._launch(program_of(order)):
            self._around.loop.call_soon(self._finish, Ending(None, None))
            return
        self._time()

    def _time(self) -> None:
        """It may take as long as its spec and its budget say, counted from its start, whoever started it."""
        order, spent = self._order, time.monotonic() - self._started
        left = order.allowance.wall_seconds
        if left is not None and left < order.timeout_seconds:
            self._timeout = self._around.loop.call_later(left - spent, self._end_for, describe_overspent("wall_seconds", left))
        else:
            self._timeout = self._around.loop.call_later(order.timeout_seconds - spent, self._end_for, describe_timeout(order.timeout_seconds))

    def adopt(self, left: LeftRun) -> None:
        """Go on with what an earlier daemon started."""
        found, order = left.keepsake, self._order
        self.started_boottime, self._started = found.started_boottime, found.started
        self._cwd, self._environment = os.path.join(order.root, order.cwd), found.environment
        self._isolation, self._surveyed, self._is_checking = found.isolation, found.surveyed, found.is_checking
        if found.staged is not None and order.staging is not None:
            self._staging = Staging(order.staging, order.root, found.staged.areas, found.staged)
            self._mounted = found.staged.mounted
        self._note_writer()
        self._process = AdoptedProcess(self._around, self.mark, left, self.capture, self._spent, self._take_ending)
        self._is_adopted = True
        self._time()
        self._mind_if_bounded()

    def abandon(self) -> None:
        """The next daemon goes on with it."""
        self._is_abandoned = True
        for timer in (self._timeout, self._minding, self._kill):
            if timer is not None:
                timer.cancel()
        if self._process is not None:
            self._process.abandon()

    def stop(self, how: StopWord, grace_seconds: float) -> None:
        if _STRENGTH[how] <= _STRENGTH[self._stopping]:
            return
        # Remembered even between the command and its check, so that the check is not begun.
        self._stopping = how
        self._wind_down(how, grace_seconds)

    def usage(self) -> LiveUsage:
        """What ended processes used, and what live ones used until now."""
        so_far = self._spent.usage(time.monotonic() - self._started)
        if self._process is None or self._process.is_over:
            return LiveUsage(**structs.asdict(so_far))
        live = [_observe(pid) for pid in (self._process.pid, *proc.descendants_of(self._process.pid))]
        return LiveUsage(
            cpu_seconds=so_far.cpu_seconds + sum(one.cpu_seconds for one in live),
            max_rss_bytes=max([so_far.max_rss_bytes, *(one.max_rss_bytes for one in live)]),
            read_bytes=so_far.read_bytes + sum(one.read_bytes for one in live),
            written_bytes=so_far.written_bytes + sum(one.written_bytes for one in live),
            wall_seconds=so_far.wall_seconds,
            # Of each it is what it holds now, of the whole run the peak of the largest.
            rss_bytes=sum(one.max_rss_bytes for one in live),
            processes=len(live),
        )

    def _confine(self) -> None:
        """Find out what it may touch, before anything of it exists. The check, too, is launched so."""
        order = self._order
        if not order.confinement.is_enforced:
            self._isolation = Enforced(order.confinement.level, ("everything",))
            if order.is_traced or order.confinement.level == "observe":
                self._observe()
            return
        if order.confinement.level == "strict":
            self._confine_strictly()
            return
        if self._around.system is None:
            raise OperatorError(refuse_unconfined())
        reach = find_reach(order, self._environment, self._around.system, self._around.protected)
        self._launch_as = ConfinedLaunch(reach.policy)
        self._environment |= reach.environment
        self._isolation = Enforced("standard", (*reach.unenforced, *limits.find_unenforced(order.limits)))
        self._surveyed = survey(reach.opened, reach.guarded)
        if order.is_traced:
            self._trace(Standards(reach, order.root, has_view=False, is_observed=False))

    def _observe(self) -> None:
        """Nothing is denied; what `standard` would deny is found out, if it can be."""
        order = self._order
        if self._around.system is None:
            self._untraced = refuse_unjudged()
            return
        try:
            reach = find_reach(order, self._environment, self._around.system, self._around.protected)
            self._trace(Standards(reach, order.root, has_view=False, is_observed=True))
        except OperatorError as error:
            if order.is_traced:
                raise
            self._untraced = str(error)
            return
        # What a confined program is told, it is told here, too, or it would ask for what it otherwise would not.
        self._environment |= reach.environment

    def _trace(self, standards: Standards) -> None:
        if self._obstacle is not None:
            raise OperatorError(self._obstacle)
        self._tracing = Tracing(standards, self._cwd, lambda text: self._around.find_redactor().redact_text(text))

    def _confine_strictly(self) -> None:
        order = self._order
        reach = find_view(order, self._environment, self._around.protected)
        self._environment |= reach.environment
        if order.staging is not None and self._area is None and self._staging is None:
            self._staging = Staging(order.staging, order.root, reach.areas)
        self._view = self._launch_as = BubblewrapLaunch(order, self._environment, reach, self._staging)
        self._mounted = self._view.mounted
        unenforced = (*find_unenforced_in_view(order.confinement.network), *reach.unenforced, *limits.find_unenforced(order.limits))
        self._isolation = Enforced("strict", unenforced)
        if order.is_traced:
            self._trace(Standards(reach, order.root, has_view=True, is_observed=False))

    def _launch(self, argv: tuple[str, ...]) -> bool:
        process = Process(
            self._around, self._order.run_id, self.mark, self.capture, self._spent, self._take_ending, self._order.limits
        )
        try:
            if self._view is not None or self._tracing is not None:
                check_program(argv[0], self._cwd, self._environment)
            argv = limits.wrap(argv, self._order.limits)
            self._spawn(process, argv)
        except OperatorError as error:
            self._problem = str(error)
            return False
        except (OSError, ValueError) as error:
            self._problem = describe_start(error, argv, self._cwd, self._environment)
            return False
        self._process = process
        self._mind_if_bounded()
        # After the spawn, and after whatever else is due now: keeping it must not delay anybody's first instruction.
        self._around.loop.call_soon(self._keep)
        return True

    def _keep(self) -> None:
        """Let it outlive this daemon, if there is anybody to keep it."""
        kept, process, memory = self._around.kept, self._process, self._memory
        descriptors = process.descriptors if process is not None else None
        # Who traces speaks to this daemon and to no other, and the area of a workspace is known to it alone.
        if kept is None or memory is None or process is None or descriptors is None or self._tracing is not None or self._area is not None:
            return
        keepsake = Keepsake(
            state=self._around.state,
            order=self._order,
            pid=process.pid,
            is_checking=self._is_checking,
            is_wrapped=self._view is not None,
            started=self._started,
            started_boottime=self.started_boottime,
            environment=self._environment,
            isolation=self._isolation,
            surveyed=self._surveyed,
            staged=self._staging.describe(self._mounted) if self._staging is not None else None,
        )
        kept.keep(keepsake, *descriptors, memory)

    def _mind_if_bounded(self) -> None:
        if self._order.limits != limits.NO_LIMITS or limits.is_counted(self._order.allowance):
            self._mind_after(limits.LOOK_SECONDS)

    def _spawn(self, process: Process, argv: tuple[str, ...]) -> None:
        is_wrapped = self._view is not None
        if self._tracing is None:
            process.launch(argv, self._cwd, self._environment, self._launch_as, is_wrapped=is_wrapped)
            return
        argv, handed = self._tracing.wrap(argv)
        try:
            process.launch(argv, self._cwd, self._environment, self._launch_as, is_wrapped=is_wrapped, handed=(handed,))
        finally:
            os.close(handed)

    def _mind_after(self, pause: float) -> None:
        # Its check is minded as its command was: one timer for both.
        if self._minding is not None:
            self._minding.cancel()
        self._minding = self._around.loop.call_later(pause, self._mind, pause)

    def _mind(self, pause: float) -> None:
        """What the spec bounds for the run, and the kernel for each of its processes at most: looked at while it lives."""
        process, order = self._process, self._order
        if process is None or process.is_over:
            return
        if order.limits != limits.NO_LIMITS:
            counted = self._around.cgroups.cpu_seconds(self.mark) if self._around.cgroups is not None else 0.0
            excess = limits.find_excess(order.limits, (process.pid, *proc.descendants_of(process.pid)), counted)
            if excess is not None:
                if self._stopping is None and self._problem is None:
                    self._problem = excess
                process.signal(signal.SIGKILL)
                return
            pause = limits.LOOK_SECONDS
        else:
            pause = min(2 * pause, limits.LONGEST_PAUSE_SECONDS)
        overspent = limits.find_overspent(order.allowance, self.usage()) if limits.is_counted(order.allowance) else None
        if overspent is not None:
            self._end_for(overspent)
        # Also while it winds down: a limit holds to the end.
        self._mind_after(pause)

    def _end_for(self, problem: str) -> None:
        # Whoever stops it has set a deadline of their own, and their reason stands; so does the first problem.
        if self._stopping is not None or self._problem is not None or self._process is None or self._process.is_over:
            return
        self._problem = problem
        self._wind_down("terminate", self._order.grace_seconds)

    def _wind_down(self, how: StopWord, grace_seconds: float) -> None:
        if self._process is None or self._process.is_over:
            return
        self._process.signal(_SIGNALS[how])
        if self._kill is not None:
            self._kill.cancel()
        # The rest of the tree follows: when the program is gone, so is its right to have left something behind.
        self._kill = self._around.loop.call_later(grace_seconds, self._process.signal, signal.SIGKILL)

    def _take_ending(self, ending: Ending) -> None:
        if self._is_abandoned:
            return
        if self._kill is not None:
            self._kill.cancel()
        if ending.is_starved and self._stopping is None and self._problem is None:
            self._problem = limits.describe_memory(self._order.limits)
        is_undisturbed = self._stopping is None and self._problem is None
        if is_undisturbed and self._is_checking and ending.exit_code != 0:
            self._problem = describe_check(self._order.check, ending.exit_code, ending.signal)
        elif is_undisturbed and not self._is_checking and ending.exit_code == 0 and self._order.check:
            if self._begin_check():
                return
        self._finish(ending)

    def _begin_check(self) -> bool:
        self._is_checking = True
        self.capture.add(f"--- check: {shlex.join(self._order.check)}\n".encode(errors="surrogateescape"))
        if self._is_adopted and not self._confine_again():
            return False
        return self._launch(self._order.check)

    def _confine_again(self) -> bool:
        """The check of a run that we did not start: as confined as its command was, by what its spec opens now."""
        noted = self._isolation, self._surveyed
        try:
            self._confine()
        except OperatorError as error:
            self._problem = str(error)
        except (OSError, ValueError) as error:
            self._problem = describe_start(error, self._order.check or (), self._cwd, self._environment)
        self._isolation, self._surveyed = noted
        return self._problem is None

    def _finish(self, ending: Ending) -> None:
        for timer in (self._timeout, self._minding):
            if timer is not None:
                timer.cancel()
        if self._problem is None:
            self._problem = _describe_loss(ending)
        wall_seconds = time.monotonic() - self._started
        if self._around.secrets is not None and self._order.secrets:
            # One may have been replaced meanwhile, and both values be in the output.
            self._around.secrets.look()
        self.capture.close()
        if not self.capture.total_bytes and not self._surveyed and self._staging is None and self._area is None and self._tracing is None:
            self._report(ending, wall_seconds, _Saved(trace=self._conclude_trace()))
            return
        if self._surveyed:
            self._others = self._around.writers.besides(self._order.run_id)
        saving = self._around.loop.run_in_executor(self._around.pool, self._save)
        saving.add_done_callback(lambda saved: self._report(ending, wall_seconds, saved.result()))

    def _save(self) -> _Saved:
        """Blocks."""
        try:
            return self._collect()
        except Exception as error:
            self._note_defect(error)
            # What it made cannot be vouched for, so none of it lands.
            return _Saved(staged=None if self._staging is None and self._area is None else ())

    def _collect(self) -> _Saved:
        output = _save_output(self._blobs, self.capture) if self.capture.total_bytes else Output()
        trace = self._conclude_trace()
        if self._area is not None and self._process is None:
            # It never began: there is nothing of it in there.
            return _Saved(output, (), (), trace)
        try:
            if self._area is not None:
                staged, undeclared = self._area.collect()
            elif self._staging is not None:
                staged, undeclared = self._staging.collect(self._mounted)
            else:
                undeclared = find_undeclared(self._surveyed, self._order.root, self._order.writes, self._order.confinement.allow_write, self._others)
                return _Saved(output, undeclared, trace=trace)
        except (OSError, OperatorError) as error:
            # The disk is full, or the area was taken away: what it made cannot be vouched for, so none of it lands.
            self._problem = self._problem or f"its outputs could not be collected: {error}"
            return _Saved(output, (), (), trace)
        return _Saved(output, undeclared, staged, trace)

    def _conclude_trace(self) -> Traced | None:
        """Blocks where it was traced."""
        if self._tracing is not None:
            return self._tracing.conclude()
        return Traced(is_observed=True, words=self._untraced) if self._untraced is not None else None

    def _report(self, ending: Ending, wall_seconds: float, saved: _Saved) -> None:
        order = self._order
        if self._is_abandoned:
            return
        if self._view is not None:
            self._view.close()
        if self._staging is not None:
            self._staging.close()
        self._around.writers.end(order.run_id)
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None
        self._around.pool.submit(_remove_folders, order.folder, order.temporary)
        is_confined = self._isolation is not None and self._order.confinement.is_enforced
        has_failed = ending.exit_code != 0 or self._problem is not None
        self._ended(
            ProcessEnded(
                session=order.session,
                run_id=order.run_id,
                exit_code=ending.exit_code,
                signal=ending.signal,
                problem=self._problem,
                usage=self._spent.usage(wall_seconds),
                output=saved.output,
                isolation=self._isolation,
                undeclared=saved.undeclared,
                staged=saved.staged,
                workspace=order.workspace.words if order.workspace is not None else None,
                hint=find_denial(self.capture, order.name) if is_confined and has_failed and saved.trace is None else None,
                trace=saved.trace,
            )
        )


def _find_area(order: RunOrder) -> WorkspaceArea | None:
    if order.workspace is None or order.staging is None:
        return None
    return WorkspaceArea(order.staging, order.root, order.workspace)


def _describe_loss(ending: Ending) -> str | None:
    if ending.survivors:
        return describe_survivors(ending.survivors)
    if ending.exit_code is None and ending.signal is None:
        return "its exit status was taken by another part of the daemon; this is a defect of wakeful"
    return None


def _save_output(blobs: Blobs, capture: Capture) -> Output:
    """Blocks: two flushes. Head and tail are apart, so that a long output can be read from either end."""
    kept = capture.kept()
    try:
        return Output(
            head=blobs.put(kept.head) if kept.head else None,
            tail=blobs.put(kept.tail) if kept.tail else None,
            total_bytes=kept.total_bytes,
            kept_bytes=len(kept.head) + len(kept.tail),
        )
    except OSError:
        # The disk is full. The run ended as it ended; that nothing of its output was kept stands in the count.
        return Output(total_bytes=capture.total_bytes)


def _remove_folders(folder: str, temporary: str) -> None:
    """Blocks. What a run made unreadable for us to spite is left for the next start to sweep up."""
    shutil.rmtree(folder, ignore_errors=True)
    # The folder itself stays for the next run: making it again would cost that run a write to the disk.
    for entry in _list(temporary):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _list(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _observe(pid: int) -> Usage:
    """One live process and the children it already waited for."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            cpu = process.cpu_times()
            memory = process.memory_info()
            io = process.io_counters()
    except psutil.Error:
        return Usage()
    return Usage(
        cpu_seconds=cpu.user + cpu.system + cpu.children_user + cpu.children_system,
        max_rss_bytes=memory.rss,
        read_bytes=io.read_chars,
        written_bytes=io.write_chars,
    )
