"""Distinguishes the child processes that the daemon spawned from the child processes that it adopted.

The daemon is a child subreaper: a process whose parents are gone becomes its child, however it was daemonised. A
process that the daemon spawns itself (a probe, a long-lived git) inherits the daemon's mark OWN and is never touched. A
process adopted from a run is ended with the run, and reaped here by its pid. The daemon never calls wait for any child
(-1), because that would take the exit status of children that other code waits for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from types import FrameType

from wakeful.errors import OperatorError
from wakeful.runners.process import procfs
from wakeful.runners.process.process_mark import OWN, ProcessMark, mark_own, read_mark, read_run
from wakeful.runners.process.procfs import Reaped

_PR_SET_CHILD_SUBREAPER = 36
# The most searches for new descendants of a run while it is being frozen.
_FREEZING_ROUNDS = 20


def become_subreaper() -> ProcessMark | None:
    """Make orphans of runs children of the daemon instead of init. Called once per daemon, before the first run.

    Returns the mark of the run that started this daemon; None if no run did.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise OperatorError(
            f"the system refused to make the daemon a child subreaper: {reason}; Linux 3.4 or newer is needed"
        )
    procfs.reserve_descriptors()
    origin = mark_own()
    _let_signals_reach_children()
    return origin


def _let_signals_reach_children() -> None:
    """Stop ignoring the signals that a launcher may have left ignored.

    exec passes ignored signals on to children, and resets handled signals to their default.
    """
    # While SIGCHLD is ignored, the kernel throws away every exit status.
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # `wakeful daemon &` in a script leaves SIGINT ignored. Runs would inherit that and end only after their grace.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Ignore the signal in the daemon, by a handler, so that its children do not ignore it."""


class Children:
    """The direct children of this process."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._pid = os.getpid()
        self._session = os.getsid(0)
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME) - procfs.TICK_SECONDS

    def spawned(self, pid: int) -> None:
        """Record that the daemon spawned this child, whatever its mark. The code that spawned it waits for it."""
        self._own.add(pid)

    def gone(self, pid: int) -> None:
        """Record that this child was reaped. From now on its pid may belong to another process."""
        self._own.discard(pid)

    def adopted(self) -> list[int]:
        """List the children that the daemon did not spawn, zombies included.

        Called at the end of every run, while other threads compute, so it must be cheap.
        """
        return [pid for pid in procfs.orphans_of(self._pid) if pid not in self._own]

    def end_run(self, mark: int, run_id: str, state: str, reaped: Callable[[Reaped], None]) -> list[int]:
        """Kill and reap the processes adopted from this run. Returns those still dying; repeat until there are none.

        Only direct children are signalled, because their pids cannot be reused before we reap them. When they end,
        their own children become children of the daemon.
        """
        left = []
        for pid in self.adopted():
            try:
                if read_run(pid, {mark: run_id}, state) != run_id:
                    continue
            except OSError:
                # No file descriptor is left to read the mark, so the process may belong to the run.
                left.append(pid)
                continue
            if not _end(pid, reaped):
                left.append(pid)
        return left

    def freeze_run(self, mark: int, run_id: str, state: str) -> None:
        """Stop the processes adopted from this run, and their descendants. They might fork faster than we kill them.

        A stopped process does not fork, so a few rounds find all of them. SIGKILL ends a stopped process too."""
        stopped: set[int] = set()
        for _ in range(_FREEZING_ROUNDS):
            own = [pid for pid in self.adopted() if read_run(pid, {mark: run_id}, state) == run_id]
            fresh = [pid for one in own for pid in (one, *procfs.descendants_of(one)) if pid not in stopped]
            for pid in fresh:
                _stop(pid, mark)
            stopped.update(fresh)
            if not fresh:
                return

    def tidy(self, live: Mapping[int, str], oldest_start: float | None, state: str) -> int:
        """Reap adopted children that have ended, and end those of no live run. Returns how many of them remain.

        `live` maps marks to run ids. `oldest_start` is the start of the oldest live run (CLOCK_BOOTTIME).
        """
        left = 0
        for pid in self.adopted():
            stat = procfs.read_stat(pid)
            try:
                if stat is None or not self._is_ours_to_end(stat, live, oldest_start, state):
                    continue
            except OSError:
                # No file descriptor is left to read the mark. The next call tries again.
                left += 1
                continue
            left += not _end(pid, _forget)
        return left

    def _is_ours_to_end(
        self, stat: procfs.ProcessStat, live: Mapping[int, str], oldest_start: float | None, state: str
    ) -> bool:
        # A run has a kernel session of its own, and none of its processes can enter the daemon's. A child older than
        # the daemon was started by its launcher.
        if stat.session == self._session or stat.started < self._since:
            return False
        mark = read_mark(stat.pid)
        # The daemon, or a process that it spawned, started this child. The code that started it waits for it.
        if mark == OWN:
            return False
        # An orphan of a live run may live as long as its run. If it has ended, reap it.
        if mark is not None:
            return mark not in live or not stat.is_alive
        # If the daemon could not mark itself, an unmarked child may be its own and cannot be told from a stray.
        if read_mark(self._pid) is None or read_run(stat.pid, live, state) is not None:
            return False
        # The child dropped its mark on purpose. It may belong to any live run that is older than it.
        return not stat.is_alive or oldest_start is None or stat.started + procfs.TICK_SECONDS < oldest_start


def _stop(pid: int, mark: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The mark is compared after opening, because the pid may belong to another process by now.
        if read_mark(pid) == mark:
            signal.pidfd_send_signal(fd, signal.SIGSTOP)
    except OSError:
        return
    finally:
        os.close(fd)


def _end(pid: int, reaped: Callable[[Reaped], None]) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
        ending = procfs.reap(pid)
    except (ProcessLookupError, ChildProcessError):
        return True
    if ending is not None:
        reaped(ending)
    return ending is not None


def _forget(_: Reaped) -> None:
    """Drop the usage of a stray, because it belongs to no run any more."""
