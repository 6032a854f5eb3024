"""A program of a run that an earlier daemon started, from the moment it is taken over until nothing that descends from
it is alive.

Attended as a `Process` is, which it is not: this one is nobody's child here. Its end is told by its pidfd, its signals
go through that, its leftovers are found by their mark (the system's first process inherits them, not we), and what it
used is seen from outside, by samples and by its control group, since only a parent is told exactly.
`LiveRun` makes one when it goes on with a run.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable, Sequence
from threading import Event
from typing import NamedTuple

from wakeful.runners.process import proc
from wakeful.runners.process.orphans import end_orphans
from wakeful.runners.process.output_capture import Capture, OutputPipe
from wakeful.runners.process.program import FIRST_SAMPLE_SECONDS, SWEEP_SECONDS, Attended, Ending, Spent, Surroundings


class LeftProcess(NamedTuple):
    """A process that an earlier daemon left.

    The descriptors are its taker's; `output` is None where nobody had it open any more.
    """

    pid: int
    is_wrapped: bool
    pidfd: int
    output: int | None


class AdoptedProcess(Attended):
    """From construction on; `ended` is never called from inside it."""

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
        # CPU seconds, bytes read, bytes written: of the whole tree, at the last sample.
        self._used = (0.0, 0, 0)
        # While it waits to be reaped by whoever inherited it.
        self._reaping: select.epoll | None = None
        self._overdue: asyncio.TimerHandle | None = None
        around.loop.add_reader(self._pidfd, self._notice_end)
        self._sampling = around.loop.call_soon(self._sample, FIRST_SAMPLE_SECONDS)

    def _signal_group(self, number: int) -> None:
        proc.signal_group(self._pidfd, number)

    def _see(self, pids: Sequence[int]) -> None:
        super()._see(pids)
        used = [0.0, 0, 0]
        for pid in pids:
            for index, amount in enumerate((proc.cpu_time(pid), *proc.read_io(pid))):
                used[index] += amount
        # When a part of the tree ends, its usage is no longer visible, but it still counts: totals never shrink.
        self._used = (max(self._used[0], used[0]), max(self._used[1], int(used[1])), max(self._used[2], int(used[2])))

    def abandon(self) -> None:
        self._stop_waiting()
        super().abandon()

    def _notice_end(self) -> None:
        """It has ended, and whoever inherited it reaps it in a moment: until then nobody can tell how."""
        if self.is_over:
            return
        loop = self._around.loop
        loop.remove_reader(self._pidfd)
        if proc.read_status(self._pidfd) is not None:
            self._take_end()
            return
        self._reaping = proc.watch_reaping(self._pidfd)
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
        loop, status = self._around.loop, proc.read_status(self._pidfd)
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
        """Blocks: end what it left behind, until that is enough; whether nothing is left."""
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
