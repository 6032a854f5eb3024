"""A program of a run that an earlier daemon started, from the takeover until none of its descendants is alive.

`LiveRun` creates an `AdoptedProcess` when it goes on with such a run. Unlike a `Process`, the program is not a child of
this daemon:
- Its pidfd reports its end and carries its signals.
- The system's first process (init) adopts the processes that it leaves behind, so they are found by their mark.
- Its usage is known only from samples and from its control group, because only a parent gets exact numbers.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable, Sequence
from threading import Event
from typing import NamedTuple

from wakeful.runners.process import procfs
from wakeful.runners.process.orphans import end_orphans
from wakeful.runners.process.output_capture import Capture, OutputPipe
from wakeful.runners.process.program import (
    FIRST_SAMPLE_SECONDS,
    SWEEP_SECONDS,
    Ending,
    RunningProgram,
    Spent,
    Surroundings,
)


class LeftProcess(NamedTuple):
    """A process that an earlier daemon left.

    The caller that takes it over owns the descriptors. `output` is None if no process had the output open any more.
    """

    pid: int
    is_wrapped: bool
    pidfd: int
    output: int | None


class AdoptedProcess(RunningProgram):
    """Watches the program from construction on. `ended` is never called from inside the constructor."""

    def __init__(
        self,
        around: Surroundings,
        run_id: str,
        mark: int,
        left: LeftProcess,
        capture: Capture,
        spent: Spent,
        ended: Callable[[Ending], None],
    ) -> None:
        super().__init__(around, run_id, mark, spent, ended)
        self.pid = left.pid
        self._is_wrapped = left.is_wrapped
        self._pidfd = left.pidfd
        self._output = OutputPipe(left.output, capture, around.loop) if left.output is not None else None
        # CPU seconds, bytes read and bytes written of the whole tree: the highest values of all samples.
        self._used = (0.0, 0, 0)
        # Set while the program has ended and its new parent has not reaped it yet.
        self._reaping: select.epoll | None = None
        self._overdue: asyncio.TimerHandle | None = None
        around.loop.add_reader(self._pidfd, self._notice_end)
        self._sampling = around.loop.call_soon(self._sample, FIRST_SAMPLE_SECONDS)

    def _signal_group(self, number: int) -> None:
        procfs.signal_group(self._pidfd, number)

    def _see(self, pids: Sequence[int]) -> None:
        super()._see(pids)
        used = [0.0, 0, 0]
        for pid in pids:
            for index, amount in enumerate((procfs.cpu_time(pid), *procfs.read_io(pid))):
                used[index] += amount
        # The usage of a process that has ended is no longer visible but still counts, so keep the highest totals.
        self._used = (max(self._used[0], used[0]), max(self._used[1], int(used[1])), max(self._used[2], int(used[2])))

    def abandon(self) -> None:
        self._stop_waiting()
        super().abandon()

    def _notice_end(self) -> None:
        """Wait until the program's new parent has reaped it, because its exit status is unknown until then."""
        if self.is_over:
            return
        loop = self._around.loop
        loop.remove_reader(self._pidfd)
        if procfs.read_status(self._pidfd) is not None:
            self._take_end()
            return
        self._reaping = procfs.watch_reaping(self._pidfd)
        loop.add_reader(self._reaping.fileno(), self._take_end)
        self._overdue = loop.call_later(SWEEP_SECONDS, self._take_end)

    def _stop_waiting(self) -> None:
        if self._reaping is not None:
            self._around.loop.remove_reader(self._reaping.fileno())
            self._reaping.close()
            self._reaping = None
        if self._overdue is not None:
            self._overdue.cancel()

    def _take_end(self) -> None:
        self._stop_waiting()
        loop, status = self._around.loop, procfs.read_status(self._pidfd)
        self.is_over = True
        self._sampling.cancel()
        self._signal_group(signal.SIGKILL)
        os.close(self._pidfd)
        if self._around.cgroups is not None:
            self._around.cgroups.kill(self._mark)
        enough = Event()
        deadline = loop.call_later(SWEEP_SECONDS, enough.set)
        sweeping = loop.run_in_executor(None, self._sweep, enough)
        sweeping.add_done_callback(lambda swept: self._take_swept(status, deadline, swept))

    def _take_swept(self, status: int | None, deadline: asyncio.TimerHandle, swept: asyncio.Future[bool]) -> None:
        deadline.cancel()
        self._close(status, swept.exception() is None and swept.result())

    def _sweep(self, enough: Event) -> bool:
        """End the processes that the program left behind, until `enough` is set. True if none is left. Blocking."""
        cgroups, gone = self._around.cgroups, Event()
        cpu_seconds = cgroups.cpu_seconds(self._mark) if cgroups is not None else 0.0
        self._used = (max(self._used[0], cpu_seconds), *self._used[1:])
        end_orphans(
            {self._mark: self._run_id}, self._around.state, cgroups, lambda _: gone.set(), enough, has_grace=False
        )
        return gone.is_set()

    def _close(self, status: int | None, is_swept: bool) -> None:
        if self._output is not None:
            self._output.drain()
        self._spent.add_observed(*self._used)
        survivors = () if is_swept else (self.pid,)
        if status is None:
            self._tell_end(Ending(None, None, survivors))
            return
        code = os.waitstatus_to_exitcode(status)
        self._tell_end(Ending(code, None, survivors) if code >= 0 else Ending(None, -code, survivors))
