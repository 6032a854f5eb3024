"""One program of a run, from its spawn until none of its descendants is alive.

`LiveRun` launches the program (the command, then perhaps its check) and signals it. `LiveRun` is called back once, on
the loop, when the process tree is gone and its output is read. A process has a pipe, a pidfd and a few timers, but no
thread and no asyncio task. Everything here happens on the loop, except that a thread of the pool enters and removes
control groups. Timeouts are not handled here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.record.observations import Usage
from wakeful.core.spec.session import RunLimits
from wakeful.runners.process import procfs
from wakeful.runners.process.cgroup import Cgroups
from wakeful.runners.process.children import Children
from wakeful.runners.process.output_capture import NOTHING_SECRET, Capture, OutputPipe
from wakeful.runners.process.process_mark import mark_children
from wakeful.runners.process.procfs import Reaped
from wakeful.runners.process.resource_limits import launch_sparing, spare_processes
from wakeful.secrets.known_secrets import KnownSecrets
from wakeful.secrets.redact import Redactor
from wakeful.system.blocking_pool import Pool

# Seconds that a round of sweeping waits for a killed process to end: in the first round, and the most after doubling.
_FIRST_SWEEP_SECONDS = 0.005
_LONGEST_SWEEP_SECONDS = 0.05
# Seconds after which a process that survives SIGKILL counts as stuck in the kernel. The run then ends without it.
SWEEP_SECONDS = 10.0
# Seconds that the run waits for a tracer (strace, a debugger) that has not yet taken note of the program's end.
_HELD_SECONDS = 1.0
_HELD_LOOK_SECONDS = 0.001
FIRST_SAMPLE_SECONDS = 0.02
_LONGEST_SAMPLE_SECONDS = 2.0
_SAMPLED_PROCESSES = 64
_AWAITED = 8
# The layers of processes under bubblewrap: a child for its namespace, and the program as that child's child.
_LAYERS = 2
# The oom_score_adj of a run. When memory runs out, the kernel ends runs before the daemon. Without it, runs would
# inherit the protection of a daemon under OOMScoreAdjust=.
_OOM_SCORE = b"500"


Spawned = TypeVar("Spawned", covariant=True)


class Spawn(Protocol[Spawned]):
    """Starts the program. `prefix` is put before its command line, and `fds` are descriptors that it inherits."""

    def __call__(self, prefix: Sequence[str] = (), fds: Sequence[int] = ()) -> Spawned: ...


class Launch(Protocol):
    """Calls `spawn`, which starts the program, in a place where all that it starts is confined."""

    def __call__(self, spawn: Spawn[Spawned]) -> Spawned: ...


def launch_bare(spawn: Spawn[Spawned]) -> Spawned:
    """Start the program without confinement (`isolation: none`)."""
    return spawn()


class Surroundings(Struct, frozen=True):
    """The collaborators that all runs of one daemon share.

    `state` is the state folder, links resolved. `pool` is for blocking work.
    """

    loop: asyncio.AbstractEventLoop
    pool: Pool
    children: Children
    cgroups: Cgroups | None
    state: str
    # None if this daemon knows no secrets.
    secrets: KnownSecrets | None = None

    def find_redactor(self) -> Redactor:
        """Return a redactor of every secret value known by now."""
        return self.secrets.redactor if self.secrets is not None else NOTHING_SECRET


class Ending(Struct, frozen=True):
    """How the program itself ended, and the processes of its tree that could not be ended.

    If both `exit_code` and `signal` are None, the status was lost.
    """

    exit_code: int | None
    signal: int | None
    survivors: tuple[int, ...] = ()
    # True if the run's control group ran out of memory and the kernel killed a member.
    is_starved: bool = False


class Spent:
    """The usage of a run, summed over every process of its tree that was reaped here or by its own parent."""

    def __init__(self) -> None:
        self._cpu_seconds = 0.0
        self._max_rss_bytes = 0
        self._read_bytes = 0
        self._written_bytes = 0

    def add(self, reaped: Reaped) -> None:
        self._cpu_seconds += reaped.cpu_seconds
        self._read_bytes += reaped.read_bytes
        self._written_bytes += reaped.written_bytes
        # A child spawned by vfork is charged with the daemon's peak, so only a higher peak is surely its own.
        if reaped.max_rss_bytes > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024:
            self.see_memory(reaped.max_rss_bytes)

    def add_observed(self, cpu_seconds: float, read_bytes: int, written_bytes: int) -> None:
        """Add the usage of a process that is not a child of this daemon."""
        self._cpu_seconds += cpu_seconds
        self._read_bytes += read_bytes
        self._written_bytes += written_bytes

    def see_memory(self, peak_bytes: int) -> None:
        """Count the peak of the largest single process. A sum would count shared pages once for each process."""
        self._max_rss_bytes = max(self._max_rss_bytes, peak_bytes)

    def usage(self, wall_seconds: float) -> Usage:
        return Usage(
            cpu_seconds=self._cpu_seconds,
            max_rss_bytes=self._max_rss_bytes,
            read_bytes=self._read_bytes,
            written_bytes=self._written_bytes,
            wall_seconds=wall_seconds,
        )


class RunningProgram(ABC):
    """A program of a run, started by this daemon or by an earlier daemon.

    Holds its pidfd and the reading end of its output, samples its usage, and signals it.
    """

    pid: int
    _pidfd: int
    _sampling: asyncio.TimerHandle | asyncio.Handle
    _is_wrapped: bool

    def __init__(
        self, around: Surroundings, run_id: str, mark: int, spent: Spent, ended: Callable[[Ending], None]
    ) -> None:
        """`ended` is called once, on the loop, when nothing that descends from the program is alive."""
        self._around = around
        self._run_id = run_id
        self._mark = mark
        self._spent = spent
        # Set to None by the call, because a reference to the owner would be a cycle that outlives the run.
        self._ended: Callable[[Ending], None] | None = ended
        self._output: OutputPipe | None = None
        self.is_over = False

    @property
    def descriptors(self) -> tuple[int, int | None] | None:
        """The pidfd, and the descriptor of the output (None if no writer has it open). None after the program's end."""
        return None if self.is_over else (self._pidfd, self._output.fd if self._output is not None else None)

    def signal(self, number: int) -> None:
        """Signal the program and the process group that it leads. Does nothing once the program is over."""
        if self.is_over:
            return
        # A signal would end bubblewrap at once, and its namespace with it. Signal only the program, so that it has its
        # grace.
        if self._is_wrapped and number != signal.SIGKILL:
            _signal_inside(self.pid, number)
        else:
            self._signal_group(number)

    def abandon(self) -> None:
        """Let the program go on without this daemon: close every descriptor, and end no process."""
        self._sampling.cancel()
        self._ended = None
        if not self.is_over:
            self.is_over = True
            self._around.loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        if self._output is not None:
            self._output.close()

    def _tell_end(self, ending: Ending) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(ending)

    @abstractmethod
    def _signal_group(self, number: int) -> None:
        """Signal the program's process group, in a way that cannot reach a reused pid."""

    def _see(self, pids: Sequence[int]) -> None:
        """Record the peak memory of live processes, because a zombie shows none, and rusage is unreliable (`Spent`)."""
        for pid in pids:
            self._spent.see_memory(procfs.peak_memory(pid))

    def _sample(self, pause: float) -> None:
        self._see((self.pid, *procfs.descendants_of(self.pid))[:_SAMPLED_PROCESSES])
        pause = min(2 * pause, _LONGEST_SAMPLE_SECONDS)
        self._sampling = self._around.loop.call_later(pause, self._sample, pause)


class Process(RunningProgram):
    """A spawned program and its tree."""

    def __init__(
        self,
        around: Surroundings,
        run_id: str,
        mark: int,
        capture: Capture,
        spent: Spent,
        ended: Callable[[Ending], None],
        limits: RunLimits = RunLimits(),
    ) -> None:
        super().__init__(around, run_id, mark, spent, ended)
        self._capture = capture
        self._limits = limits
        self._entering: Future[None] | None = None
        self._held_since: float | None = None
        self._popen: subprocess.Popen[bytes] | None = None

    def launch(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        launch: Launch,
        *,
        is_wrapped: bool = False,
        handed: Sequence[int] = (),
    ) -> None:
        """Spawn the program now, through `launch`.

        `is_wrapped` is True if the spawned process only waits for the program (bubblewrap) and must not be signalled.
        `handed` are descriptors of the caller that the program inherits.
        Raises OSError, ValueError or OperatorError. No process is then left running.
        """
        output, writer = os.pipe()
        self._is_wrapped = is_wrapped

        def spawn(prefix: Sequence[str] = (), fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
            # subprocess uses vfork, whose cost does not depend on the daemon's size, only without preexec_fn.
            # With preexec_fn there would be 57 spawns/s instead of 1,500.
            return subprocess.Popen(
                (*prefix, *argv),
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                # One pipe for both keeps the order in which they were written.
                stdout=writer,
                stderr=writer,
                start_new_session=True,
                pass_fds=(*fds, *handed),
            )

        try:
            # The whole daemon has the run's mark for a moment, whichever thread spawns. The loop waits meanwhile, so
            # nothing else is spawned.
            with mark_children(self._mark):
                popen, is_spared = launch_sparing(lambda: launch(spawn))
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(writer)
        self._popen, self.pid = popen, popen.pid
        if not is_spared:
            spare_processes(self.pid)
        self._around.children.spawned(self.pid)
        self._attend(output)

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return

    def _attend(self, output: int) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            # No descriptor is free. A program that the daemon cannot watch must not run.
            os.close(output)
            self._signal_group(signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._around.children.gone(self.pid)
            raise
        loop = self._around.loop
        self._output = OutputPipe(output, self._capture, loop)
        loop.add_reader(self._pidfd, self._notice_end)
        _raise_oom_score(self.pid)
        if self._around.cgroups is not None:
            self._entering = self._around.pool.submit(_enter, self._around.cgroups, self._mark, self.pid, self._limits)
        self._sampling = loop.call_later(FIRST_SAMPLE_SECONDS, self._sample, FIRST_SAMPLE_SECONDS)

    def _notice_end(self) -> None:
        """End the rest of the tree. The program is a zombie now, so its pid and its group's id cannot be reused yet."""
        if self._is_entering() or self._is_held():
            return
        self.is_over = True
        self._sampling.cancel()
        self._around.loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._signal_group(signal.SIGKILL)
        if self._around.cgroups is not None:
            self._around.cgroups.kill(self._mark)
        is_starved = self._around.cgroups is not None and self._around.cgroups.is_starved(self._mark)
        exit_code, number = self._reap_program()
        deadline = self._around.loop.time() + SWEEP_SECONDS
        self._sweep(Ending(exit_code, number, is_starved=is_starved), deadline, _FIRST_SWEEP_SECONDS)

    def _is_entering(self) -> bool:
        """Is a thread writing the pid into a control group right now? The program must not be reaped meanwhile.

        If so, `_notice_end` is called again when the thread is done.
        """
        entering, self._entering = self._entering, None
        if entering is None or entering.cancel() or entering.done():
            return False
        loop = self._around.loop
        loop.remove_reader(self._pidfd)
        entering.add_done_callback(lambda _: loop.call_soon_threadsafe(self._notice_end))
        return True

    def _is_held(self) -> bool:
        """Has a tracer (strace, a debugger) not yet taken note of the program's end? We cannot reap it until then.

        If so, `_notice_end` is called again soon.
        """
        try:
            is_ours = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False
        loop = self._around.loop
        self._held_since = self._held_since or loop.time()
        held_seconds = loop.time() - self._held_since
        if is_ours or held_seconds > 2 * _HELD_SECONDS:
            return False
        if held_seconds > _HELD_SECONDS:
            # The tracer may be a stopped process of the run itself.
            self._signal_group(signal.SIGKILL)
        loop.remove_reader(self._pidfd)
        loop.call_later(_HELD_LOOK_SECONDS, self._notice_end)
        return True

    def _reap_program(self) -> tuple[int | None, int | None]:
        try:
            reaped = procfs.reap(self.pid)
        except ChildProcessError:
            reaped = None
        self._around.children.gone(self.pid)
        if self._popen is not None:
            # subprocess must not wait for this pid, because it may belong to another process by now.
            self._popen.returncode = 0 if reaped is None else reaped.status
        if reaped is None:
            return None, None
        self._spent.add(reaped)
        code = os.waitstatus_to_exitcode(reaped.status)
        return (code, None) if code >= 0 else (None, -code)

    def _sweep(self, ending: Ending, deadline: float, pause: float, before: Sequence[int] = ()) -> None:
        """Kill the processes that the program left behind, round by round, until there are none or time is up.

        `before` are the processes that the last round left.
        """
        around = self._around
        if pause >= _LONGEST_SWEEP_SECONDS:
            around.children.freeze_run(self._mark, self._run_id, around.state)
        left = around.children.end_run(self._mark, self._run_id, around.state, self._spent.add)
        if left and around.loop.time() < deadline:
            again = partial(self._sweep, ending, deadline, min(2 * pause, _LONGEST_SWEEP_SECONDS), left)
            # A zombie that is traced cannot be reaped, and its pidfd stays readable. So wait only for the pause.
            _call_at_end_of_any(left if left != before else (), pause, again, around.loop)
            return
        if self._output is not None:
            self._output.drain()
        if around.cgroups is not None and not around.cgroups.remove(self._mark):
            around.pool.submit(_remove_later, around.cgroups, self._mark)
        self._tell_end(replace(ending, survivors=tuple(left)))


def _call_at_end_of_any(
    pids: Sequence[int], seconds: float, act: Callable[[], None], loop: asyncio.AbstractEventLoop
) -> None:
    """Call `act` when one of these children ends, or after `seconds`.

    Watches only the first few children, because descriptors are scarce.
    """
    opened: list[int] = []

    def end() -> None:
        timer.cancel()
        for fd in opened:
            loop.remove_reader(fd)
            os.close(fd)
        act()

    timer = loop.call_later(seconds, end)
    for pid in pids[:_AWAITED]:
        with contextlib.suppress(OSError):
            opened.append(os.pidfd_open(pid))
            loop.add_reader(opened[-1], end)


def _signal_inside(leader: int, number: int) -> None:
    """Signal the members of the process group, except its leader.

    bubblewrap's first process in the namespace gets the signal too, but has no handler, so the kernel drops it.
    """
    for pid in procfs.descendants_of(leader):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            # The group is compared after opening, because the pid may belong to another process by now.
            found = procfs.read_stat(pid)
            if found is not None and found.group == leader:
                signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            continue
        finally:
            os.close(fd)


def _raise_oom_score(pid: int) -> None:
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        # The program is over, or belongs to another user because of a set-uid program.
        return
    try:
        os.write(fd, _OOM_SCORE)
    except OSError:
        return
    finally:
        os.close(fd)


def _enter(cgroups: Cgroups, mark: int, pid: int, limits: RunLimits) -> None:
    try:
        cgroups.enter(mark, pid, limits)
    except OSError:
        # The program ended first, or the delegation was revoked. The mark alone is enough to end the tree.
        return
    # The processes that the program started before it entered, and their descendants, enter too. The kernel reuses a
    # freed pid only after it has given out all others.
    entered = {pid}
    for _ in range(_LAYERS):
        for child in set(procfs.descendants_of(pid)) - entered:
            entered.add(child)
            with contextlib.suppress(OSError):
                cgroups.enter(mark, child)


def _remove_later(cgroups: Cgroups, mark: int) -> None:
    """Remove a group whose members have been reaped. Try repeatedly, because the kernel refuses for a moment longer."""
    for _ in range(50):
        if cgroups.remove(mark):
            return
        os.sched_yield()
