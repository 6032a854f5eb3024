"""One run under way: its command, its check, its timeout, its stops, and its one report.

`CommandRunner` makes a `LiveRun` per launched ticket, or per run that it adopts, and drops it when it reports.
Everything happens on the loop except blocking work: a preparation that is not quick, and the saving at the end
(`run_results.py`). Threads of the runner's pool do that work. Such a thread reads the order and the preparation, and
passes its result to the loop. It touches no timer, no process and no other run.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Sequence

import psutil
from msgspec import Struct
from msgspec.structs import asdict, replace

from wakeful.core.looking.patterns import parse_under
from wakeful.core.record.observations import ProcessEnded, Usage
from wakeful.errors import OperatorError
from wakeful.runners.contract import LiveUsage, RunOrder, StopWord
from wakeful.runners.isolation.denials import find_hint, speaks_of_denial
from wakeful.runners.outputs.staging import Staging
from wakeful.runners.outputs.undeclared_changes import Writer, Writers
from wakeful.runners.outputs.workspace_outputs import WorkspaceArea
from wakeful.runners.preparation import Preparation, Prepared, Ticket, is_staged
from wakeful.runners.process import procfs, resource_limits
from wakeful.runners.process.adopted_program import AdoptedProcess, LeftProcess
from wakeful.runners.process.environment import check_program, program_of
from wakeful.runners.process.output_capture import Capture
from wakeful.runners.process.problems import (
    describe_check,
    describe_defect,
    describe_overspent,
    describe_replaced,
    describe_start,
    describe_survivors,
    describe_timeout,
)
from wakeful.runners.process.program import Ending, Process, Spent, Surroundings
from wakeful.runners.run.kept_runs import KeptRuns, KeptRunState, LeftRun
from wakeful.runners.run.run_results import (
    Saved,
    empty_temporary,
    has_nothing_to_save,
    is_empty,
    read_ends,
    save,
    save_nothing,
)
from wakeful.system.blobs import Blobs

# The most seconds by which the times of files lag behind the clock.
_LAG_SECONDS = 0.005
# The threads per process that a control group allows if the spec has no limit of processes. A group counts threads.
_THREADS_EACH = 4
# The exit code of a shell whose program was killed.
_KILLED_EXIT = 128 + signal.SIGKILL
_STRENGTH: dict[StopWord | None, int] = {None: 0, "interrupt": 1, "terminate": 2, "kill": 3}
_SIGNALS: dict[StopWord, int] = {
    "interrupt": signal.SIGINT,
    "terminate": signal.SIGTERM,
    "kill": signal.SIGKILL,
}


class Shared(Struct, frozen=True):
    """The collaborators that all runs of one runner share."""

    around: Surroundings
    preparation: Preparation
    blobs: Blobs
    writers: Writers
    # None if runs end with the daemon.
    kept: KeptRuns | None = None


class LiveRun:
    """One run, from `start` or `adopt` to exactly one call of `ended`. A run that is abandoned does not call it."""

    def __init__(
        self,
        order: RunOrder,
        mark: int,
        shared: Shared,
        ended: Callable[[ProcessEnded], None],
        memory: int | None = None,
    ) -> None:
        """`memory` is the memory file for the output, if the run may outlive the daemon."""
        self.mark = mark
        self.started_boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.capture = Capture(order.output_limit_bytes, shared.around.find_redactor, memory)
        self._memory = memory
        self.order = order
        self._shared = shared
        self._around = shared.around
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
        self._limit_timer: asyncio.TimerHandle | None = None
        self._counting: asyncio.TimerHandle | None = None
        # The fewest processes and threads that the machine had since the run began.
        self._fewest_processes: int | None = None
        # How many processes the kernel had killed for lack of memory, a moment after the run began.
        self._oom_kills: int | None = None
        self._problem: str | None = None

    @property
    def has_begun(self) -> bool:
        """Does the run have a process, or did it have one?"""
        return self._process is not None

    def start(self, ticket: Ticket) -> None:
        self._note_writer()
        ticket.take_early(self._take_early)

    def _take_early(self, early: Prepared | None) -> None:
        """Begin with the early preparation, or prepare now."""
        self._prepared = early or self._shared.preparation.begin(self.order)
        if early is not None:
            self._begin()
        elif self._shared.preparation.is_quick(self.order):
            self._prepare()
            self._begin()
        else:
            preparing = self._around.loop.run_in_executor(self._around.pool, self._prepare)
            preparing.add_done_callback(lambda _: self._begin())

    def _note_writer(self) -> None:
        order = self.order
        # `Landing` puts staged outputs in place later, and registers its own writes.
        writes = () if is_staged(order) else order.writes
        self._shared.writers.begin(
            order.run_id, order.root, writes, order.confinement.allow_write, time.monotonic() - self._started
        )

    def _prepare(self) -> None:
        self._take_prepared(
            lambda: self._shared.preparation.complete(self.order, self._prepared), program_of(self.order)
        )

    def _take_prepared(self, find: Callable[[], Prepared], argv: Sequence[str]) -> None:
        def take() -> None:
            self._prepared = find()

        self._try(take, argv)

    def _try(self, step: Callable[[], None], argv: Sequence[str]) -> bool:
        """Carry out a step of the start of `argv`. An error in it becomes the run's problem, as a message.

        Returns True if there was no error.
        """
        try:
            step()
            return True
        except OperatorError as error:
            self._problem = str(error)
        except (OSError, ValueError) as error:
            self._problem = describe_start(error, argv, self._prepared.cwd, self._prepared.environment)
        except MemoryError:
            shortage = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            self._problem = describe_start(shortage, argv, self._prepared.cwd, self._prepared.environment)
        except Exception as error:
            self._note_defect(error)
        return False

    def _note_defect(self, error: Exception) -> None:
        """Let the run fail with a message, because a run that stops halfway in our code would never end.

        The daemon's output gets the traceback. May be called from any thread.
        """
        self._problem = self._problem or describe_defect(error)
        told = {"message": f"{self.order.run_id}: a defect of wakeful", "exception": error}
        self._around.loop.call_soon_threadsafe(self._around.loop.call_exception_handler, told)

    def _begin(self) -> None:
        if self._problem is None and self._stopping is not None:
            self._problem = "stopped before it began"
        # Finish in the next loop turn, never from inside `start`, because the reactor is in the middle of a plan.
        if self._problem is not None or not self._launch(program_of(self.order)):
            self._around.loop.call_soon(self._finish, Ending(None, None))
            return
        self._time()

    def _time(self) -> None:
        """Set the timer for the timeout or the rest of the budget, counted from the run's start even after adoption."""
        order, spent = self.order, time.monotonic() - self._started
        if self._timeout is not None:
            self._timeout.cancel()
        left = order.allowance.wall_seconds
        if left is not None and left < order.timeout_seconds:
            self._timeout = self._around.loop.call_later(
                left - spent, self._end_for, describe_overspent("wall_seconds", left)
            )
        else:
            self._timeout = self._around.loop.call_later(
                order.timeout_seconds - spent, self._end_for, describe_timeout(order.timeout_seconds)
            )

    def adopt(self, left: LeftRun) -> None:
        """Go on with a run that an earlier daemon started."""
        found, order = left.kept_state, self.order
        self.started_boottime, self._started, self._is_checking = (
            found.started_boottime,
            found.started,
            found.is_checking,
        )
        area = (
            Staging(order.staging, order.root, found.staged.areas, found.staged)
            if found.staged is not None and order.staging is not None
            else None
        )
        self._prepared = replace(
            self._shared.preparation.begin(order),
            environment=found.environment,
            isolation=found.isolation,
            surveyed=found.surveyed,
            area=area,
            untraced=found.untraced,
        )
        self._note_writer()
        process = LeftProcess(found.pid, found.is_wrapped, left.pidfd, left.output)
        self._process = AdoptedProcess(
            self._around, order.run_id, self.mark, process, self.capture, self._spent, self._take_ending
        )
        self._is_adopted = True
        self._time()
        self._watch_limits()

    def abandon(self) -> None:
        """Leave the run to the next daemon."""
        self._is_abandoned = True
        for timer in (self._timeout, self._limit_timer, self._counting, self._kill):
            if timer is not None:
                timer.cancel()
        if self._process is not None:
            self._process.abandon()

    def stop(self, how: StopWord, grace_seconds: float) -> None:
        if _STRENGTH[how] <= _STRENGTH[self._stopping]:
            return
        # Set even between the command and its check, so that the check is not started.
        self._stopping = how
        self._wind_down(how, grace_seconds)

    def usage(self) -> LiveUsage:
        """Return the usage of ended processes plus that of live ones until now."""
        so_far = self._spent.usage(time.monotonic() - self._started)
        if self._process is None or self._process.is_over:
            return LiveUsage(**asdict(so_far))
        live = [_observe(pid) for pid in (self._process.pid, *procfs.descendants_of(self._process.pid))]
        return LiveUsage(
            cpu_seconds=so_far.cpu_seconds + sum(one.cpu_seconds for one in live),
            max_rss_bytes=max([so_far.max_rss_bytes, *(one.max_rss_bytes for one in live)]),
            read_bytes=so_far.read_bytes + sum(one.read_bytes for one in live),
            written_bytes=so_far.written_bytes + sum(one.written_bytes for one in live),
            wall_seconds=so_far.wall_seconds,
            # In `live`, `max_rss_bytes` is the present memory of a process. In the result it is a peak.
            rss_bytes=sum(one.max_rss_bytes for one in live),
            processes=len(live),
        )

    def _launch(self, argv: tuple[str, ...]) -> bool:
        def launch() -> None:
            if self._prepared.starts_another:
                check_program(argv[0], self._prepared.cwd, self._prepared.environment)
            self._process = self._spawn(resource_limits.wrap(argv, self.order.limits))

        if not self._try(launch, argv):
            return False
        self._watch_limits()
        # In the next loop turn, because keeping this run must not delay the first instruction of another.
        self._around.loop.call_soon(self._keep)
        return True

    def _keep(self) -> None:
        """Let the run outlive this daemon, if there is a store to keep it in."""
        kept, process, memory, prepared = self._shared.kept, self._process, self._memory, self._prepared
        descriptors = process.descriptors if process is not None else None
        # strace reports to this daemon only, and only this daemon knows the files that a run found in its workspace.
        is_bound_to_us = prepared.tracing is not None or isinstance(prepared.area, WorkspaceArea)
        if kept is None or memory is None or process is None or descriptors is None or is_bound_to_us:
            return
        kept_state = KeptRunState(
            state=self._around.state,
            order=self.order,
            pid=process.pid,
            is_checking=self._is_checking,
            is_wrapped=prepared.view is not None,
            started=self._started,
            started_boottime=self.started_boottime,
            environment=prepared.environment,
            isolation=prepared.isolation,
            surveyed=prepared.surveyed,
            staged=prepared.area.describe() if isinstance(prepared.area, Staging) else None,
            untraced=prepared.untraced,
        )
        kept.keep(kept_state, *descriptors, memory)

    def _watch_limits(self) -> None:
        if self.order.limits.processes is None and self._counting is None:
            self._fewest_processes = resource_limits.count_all()
            self._counting = self._around.loop.call_later(resource_limits.LOOK_SECONDS, self._count_processes)
        if self.order.limits != resource_limits.NO_LIMITS or resource_limits.is_counted(self.order.allowance):
            self._check_limits_after(resource_limits.LOOK_SECONDS)

    def _spawn(self, argv: tuple[str, ...]) -> Process:
        order, prepared, handed = self.order, self._prepared, list[int]()
        # The control group of a run always has a limit of processes.
        limits = order.limits
        if limits.processes is None:
            limits = replace(limits, processes=order.most_processes * _THREADS_EACH)
        process = Process(self._around, order.run_id, self.mark, self.capture, self._spent, self._take_ending, limits)
        if prepared.tracing is not None:
            argv, *handed = prepared.tracing.wrap(argv)
        try:
            process.launch(
                argv,
                prepared.cwd,
                prepared.environment,
                prepared.launch,
                is_wrapped=prepared.view is not None,
                handed=handed,
            )
        finally:
            for fd in handed:
                os.close(fd)
        return process

    def _check_limits_after(self, pause: float) -> None:
        # One timer serves the command and then its check.
        if self._limit_timer is not None:
            self._limit_timer.cancel()
        self._limit_timer = self._around.loop.call_later(pause, self._check_limits, pause)

    def _check_limits(self, pause: float) -> None:
        """Check the limits of the spec while the run lives.

        They apply to the whole run, but the kernel enforces them only for each process."""
        process, order = self._process, self.order
        if process is None or process.is_over:
            return
        if order.limits != resource_limits.NO_LIMITS:
            counted = self._around.cgroups.cpu_seconds(self.mark) if self._around.cgroups is not None else 0.0
            excess = resource_limits.find_excess(
                order.limits, (process.pid, *procfs.descendants_of(process.pid)), counted
            )
            if excess is not None:
                if self._stopping is None and self._problem is None:
                    self._problem = excess
                process.signal(signal.SIGKILL)
                return
            pause = resource_limits.LOOK_SECONDS
        else:
            pause = min(2 * pause, resource_limits.LONGEST_PAUSE_SECONDS)
        overspent = (
            resource_limits.find_overspent(order.allowance, self.usage())
            if resource_limits.is_counted(order.allowance)
            else None
        )
        if overspent is not None:
            self._end_for(overspent)
        # Go on while the run winds down, because a limit holds to the end.
        self._check_limits_after(pause)

    def _count_processes(self) -> None:
        """Count the run's processes, but only if the machine has many more than at its lowest since the run began.

        Walking the process tree takes longer than reading the machine's total.
        """
        self._counting = self._around.loop.call_later(resource_limits.LOOK_SECONDS, self._count_processes)
        if self._oom_kills is None:
            self._oom_kills = resource_limits.count_oom_kills()
        process, most, present = self._process, self.order.most_processes, resource_limits.count_all()
        if process is None or process.is_over:
            return
        if present is not None and self._fewest_processes is not None:
            self._fewest_processes = min(self._fewest_processes, present)
            if present - self._fewest_processes < most // 2:
                return
        crowd = resource_limits.find_excess_processes(most, process.pid)
        if crowd is not None:
            if self._stopping is None and self._problem is None:
                self._problem = crowd
            process.signal(signal.SIGKILL)

    def _end_for(self, problem: str) -> None:
        # A stop has its own deadline and its own reason. Otherwise the first problem is kept.
        if self._stopping is not None or self._problem is not None or self._process is None or self._process.is_over:
            return
        self._problem = problem
        self._wind_down("terminate", self.order.grace_seconds)

    def _wind_down(self, how: StopWord, grace_seconds: float) -> None:
        if self._process is None or self._process.is_over:
            return
        self._process.signal(_SIGNALS[how])
        if self._kill is not None:
            self._kill.cancel()
        # When the program is gone, `Process` ends the rest of the tree.
        self._kill = self._around.loop.call_later(grace_seconds, self._process.signal, signal.SIGKILL)

    def _take_ending(self, ending: Ending) -> None:
        if self._is_abandoned:
            return
        if self._kill is not None:
            self._kill.cancel()
        if self._stopping is None and self._problem is None:
            self._problem = self._find_starvation(ending)
        is_undisturbed = self._stopping is None and self._problem is None
        if is_undisturbed and self._is_checking and ending.exit_code != 0:
            self._problem = describe_check(self.order.check or (), ending.exit_code, ending.signal)
        elif is_undisturbed and not self._is_checking and ending.exit_code == 0 and self.order.check:
            self._begin_check(ending)
            return
        self._finish(ending)

    def _find_starvation(self, ending: Ending) -> str | None:
        """Describe that the run was killed because memory ran out; None if it was not.

        A control group gives a certain answer. Without one, the machine's counts of such kills are compared.
        """
        if ending.is_starved:
            return resource_limits.describe_memory(self.order.limits)
        is_killed = ending.signal == signal.SIGKILL or ending.exit_code == _KILLED_EXIT
        if not is_killed or self._oom_kills is None or (resource_limits.count_oom_kills() or 0) <= self._oom_kills:
            return None
        return (
            "it was killed while the machine had no more memory (oom): the kernel killed processes for that "
            "reason meanwhile; limit the run with run.limits.memory, or give the machine more memory"
        )

    def _begin_check(self, ending: Ending) -> None:
        """Start the check. `ending` is the end of the command. If no check can be started, the run ends with it."""
        self._is_checking = True
        with contextlib.suppress(OSError):
            self.capture.add(f"--- check: {shlex.join(self.order.check or ())}\n".encode(errors="surrogateescape"))
        if not self._is_adopted:
            self._launch_check(ending)
            return
        confining = self._around.loop.run_in_executor(self._around.pool, self._confine_again)
        confining.add_done_callback(lambda _: self._launch_check(ending))

    def _confine_again(self) -> None:
        """Confine the check of an adopted run like its command, by the places that its spec opens now. Blocking.

        The record keeps the isolation of the command.
        """
        noted = self._prepared
        self._take_prepared(lambda: self._shared.preparation.confine(self.order, noted), self.order.check or ())
        self._prepared = replace(self._prepared, isolation=noted.isolation, surveyed=noted.surveyed)

    def _launch_check(self, ending: Ending) -> None:
        if self._is_abandoned:
            self._prepared.close()
        elif self._problem is not None or self._stopping is not None or not self._launch(self.order.check or ()):
            self._finish(ending)
        else:
            # Set the timer again, because it may have expired while there was no process to end.
            self._time()

    def _finish(self, ending: Ending) -> None:
        for timer in (self._timeout, self._limit_timer, self._counting):
            if timer is not None:
                timer.cancel()
        if self._problem is None:
            self._problem = _describe_loss(ending)
        wall_seconds = time.monotonic() - self._started
        if self._around.secrets is not None and self.order.secrets:
            # A secret may have been replaced during the run, so its old and new value may both be in the output.
            self._around.secrets.look()
        self.capture.close()
        if has_nothing_to_save(self._prepared, self.capture) and is_empty(self.order.temporary):
            hint = find_hint(self.order, None, "", "") if self._is_hinted(ending) else None
            self._report(
                ending,
                wall_seconds,
                replace(save_nothing(self.order), trace=self._prepared.conclude_trace(), hint=hint),
            )
            return
        others = self._shared.writers.besides(self.order.run_id) if self._prepared.surveyed else ()
        saving = self._around.loop.run_in_executor(self._around.pool, self._save, others, ending)
        saving.add_done_callback(lambda saved: self._report(ending, wall_seconds, saved.result()))

    def _save(self, others: tuple[Writer, ...], ending: Ending) -> Saved:
        """Save the run's results. Blocking."""
        try:
            saved = save(
                self.order,
                self._prepared,
                self._shared.blobs,
                self.capture,
                others,
                has_begun=self._process is not None,
            )
            return replace(saved, hint=self._find_hint()) if self._is_hinted(ending) and saved.trace is None else saved
        except Exception as error:
            self._note_defect(error)
            return save_nothing(self.order)
        finally:
            empty_temporary(self.order.temporary)

    def _is_hinted(self, ending: Ending) -> bool:
        """Did a confined program fail by itself? After a stop or a limit, a hint about denied accesses misleads."""
        return (
            self._prepared.isolation is not None
            and self.order.confinement.is_enforced
            and self._stopping is None
            and ending.exit_code not in (0, None)
        )

    def _find_hint(self) -> str:
        """Find advice for a confined run that failed. Blocking."""
        text = read_ends(self.capture)
        if speaks_of_denial(text) and (replaced := self._find_replaced()):
            return describe_replaced(replaced)
        return find_hint(self.order, self._prepared.standards, self._prepared.cwd, text)

    def _report(self, ending: Ending, wall_seconds: float, saved: Saved) -> None:
        order = self.order
        if self._is_abandoned:
            return
        self._prepared.close()
        self._shared.writers.end(order.run_id)
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None
        self._around.pool.submit(shutil.rmtree, order.folder, ignore_errors=True)
        problem = self._problem or saved.problem
        self._ended(
            ProcessEnded(
                session=order.session,
                run_id=order.run_id,
                exit_code=ending.exit_code,
                signal=ending.signal,
                problem=problem,
                usage=self._spent.usage(wall_seconds),
                output=saved.output,
                isolation=self._prepared.isolation,
                undeclared=saved.undeclared,
                staged=saved.staged,
                workspace=order.workspace.words if order.workspace is not None else None,
                hint=saved.hint,
                trace=saved.trace,
            )
        )

    def _find_replaced(self) -> list[str]:
        """List the files that the run reads by name, that its output mentions, and that changed since it began.

        The confinement opens a bound file by its inode, so a new file in its place is denied. A bound folder also opens
        files that come into it later.
        """
        began = time.time() - (time.monotonic() - self._started) - _LAG_SECONDS
        patterns = ((text, parse_under(text, self.order.root)) for text in self.order.reads)
        literal = {text: pattern.base for text, pattern in patterns if pattern.is_literal}
        return [
            text
            for text, path in literal.items()
            if self.capture.mentions((os.fsencode(os.path.basename(path)),)) and _is_changed_since(path, began)
        ]


def _is_changed_since(path: str, moment: float) -> bool:
    try:
        return os.stat(path).st_ctime >= moment
    except OSError:
        return False


def _describe_loss(ending: Ending) -> str | None:
    if ending.survivors:
        return describe_survivors(ending.survivors)
    if ending.exit_code is None and ending.signal is None:
        return "its exit status was taken by another part of the daemon; this is a defect of wakeful"
    return None


def _observe(pid: int) -> Usage:
    """Return the usage of one live process and of the children it has already waited for."""
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
