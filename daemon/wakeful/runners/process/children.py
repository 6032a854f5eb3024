"""Tells the child processes that the daemon spawned from those it inherited.

The daemon is a child subreaper: a process whose parents are gone becomes its child, however it was daemonised. A
process that the daemon spawns itself (a probe, a long-lived git) inherits its OWN mark and is never touched. A process
adopted from a run is ended with the run, and reaped here by its pid. The daemon never waits for any child (-1): that
would steal the exit status of the others.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from types import FrameType

from wakeful.errors import OperatorError
from wakeful.runners.process import proc, reserve
from wakeful.runners.process.mark import OWN, Sign, mark_own, read_mark, read_run
from wakeful.runners.process.proc import Reaped

_PR_SET_CHILD_SUBREAPER = 36
# So often new descendants of a run are looked for while it is stopped.
_FREEZING_ROUNDS = 20


def become_subreaper() -> Sign | None:
    """Once per daemon, before the first run: orphans of runs come to us, not to init.

    Returns the sign of the run that started us, if one did.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise OperatorError(
            f"the system refused to make the daemon a child subreaper: {reason}; Linux 3.4 or newer is needed"
        )
    reserve.hold()
    origin = mark_own()
    _let_signals_reach_children()
    return origin


def _let_signals_reach_children() -> None:
    """Undo what a launcher may have left ignored: exec passes "ignored" on, and resets only what is handled."""
    # The kernel would throw away every exit status.
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # `wakeful daemon &` in a script leaves SIGINT ignored: no run could be interrupted before its grace is over.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """The daemon goes on ignoring it."""


class Children:
    """The direct children of this process."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._pid = os.getpid()
        self._session = os.getsid(0)
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME) - proc.TICK_SECONDS

    def spawned(self, pid: int) -> None:
        """This child is ours, whatever mark it carries, and whoever spawned it waits for it."""
        self._own.add(pid)

    def gone(self, pid: int) -> None:
        """Its end was taken: the number may be somebody else's from now on."""
        self._own.discard(pid)

    def adopted(self) -> list[int]:
        """Children nobody here spawned, zombies included; asked at the end of every run,
        beside threads that compute."""
        return [pid for pid in proc.orphans_of(self._pid) if pid not in self._own]

    def end_run(self, mark: int, run_id: str, state: str, reaped: Callable[[Reaped], None]) -> list[int]:
        """Kill and reap what was adopted from this run; who is still dying is returned. Repeat until that is nobody.

        Only direct children are signalled, whose numbers cannot be reused before we reap them; what they leave
        behind becomes our child in turn.
        """
        left = []
        for pid in self.adopted():
            try:
                if read_run(pid, {mark: run_id}, state) != run_id:
                    continue
            except OSError:
                # Nothing to look with now: it may be one of them.
                left.append(pid)
                continue
            if not _end(pid, reaped):
                left.append(pid)
        return left

    def freeze_run(self, mark: int, run_id: str, state: str) -> None:
        """Stop what was adopted from this run, and what descends from that:
        a storm of forks would go on faster than it can be ended.

        A stopped process forks no more, so a few rounds find all; SIGKILL ends it as any other."""
        stopped: set[int] = set()
        for _ in range(_FREEZING_ROUNDS):
            own = [pid for pid in self.adopted() if read_run(pid, {mark: run_id}, state) == run_id]
            fresh = [pid for one in own for pid in (one, *proc.descendants_of(one)) if pid not in stopped]
            for pid in fresh:
                _stop(pid, mark)
            stopped.update(fresh)
            if not fresh:
                return

    def tidy(self, live: Mapping[int, str], oldest_start: float | None, state: str) -> int:
        """Reap what ended by itself, and end what belongs to no live run; how many of these remain.

        `live` is mark -> run id, `oldest_start` when the oldest of them began (CLOCK_BOOTTIME).
        """
        left = 0
        for pid in self.adopted():
            stat = proc.read_stat(pid)
            try:
                if stat is None or not self._is_ours_to_end(stat, live, oldest_start, state):
                    continue
            except OSError:
                # Nothing to look with now: it is looked at in the next round.
                left += 1
                continue
            left += not _end(pid, _forget)
        return left

    def _is_ours_to_end(
        self, stat: proc.ProcessStat, live: Mapping[int, str], oldest_start: float | None, state: str
    ) -> bool:
        # A run has a session of its own and nothing gets back into ours;
        # what is older than we are came with our launcher.
        if stat.session == self._session or stat.started < self._since:
            return False
        mark = read_mark(stat.pid)
        # Spawned by this daemon, or by something it spawned: whoever did that waits for it.
        if mark == OWN:
            return False
        # A live run's orphan may go on as long as its run does; dead, it only needs reaping.
        if mark is not None:
            return mark not in live or not stat.is_alive
        # Without a mark of our own, an unmarked child may be one we spawned: nothing tells it from a stray.
        if read_mark(self._pid) is None or read_run(stat.pid, live, state) is not None:
            return False
        # It shed its mark on purpose. While a run lives that is older, it may belong to that one.
        return not stat.is_alive or oldest_start is None or stat.started + proc.TICK_SECONDS < oldest_start


def _stop(pid: int, mark: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Opened first, then compared: its number may be somebody else's by now.
        if read_mark(pid) == mark:
            signal.pidfd_send_signal(fd, signal.SIGSTOP)
    except OSError:
        return
    finally:
        os.close(fd)


def _end(pid: int, reaped: Callable[[Reaped], None]) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
        ending = proc.reap(pid)
    except (ProcessLookupError, ChildProcessError):
        return True
    if ending is not None:
        reaped(ending)
    return ending is not None


def _forget(_: Reaped) -> None:
    """The usage of strays belongs to no run any more."""
