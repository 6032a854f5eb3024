"""Limits on the daemon's own process: the cores that its threads may use, and its memory allocator.

A process may move the threads of every process of its user to other cores. Isolation cannot refuse that to runs (the
reason is in runners/isolation/seccomp.py), so the daemon checks its threads at intervals, and takes their cores back.
Never changes a run's process. A module of its own, because the rest of `system/` serves other parts of the daemon.
"""

from __future__ import annotations

import ctypes
import os

_THREADS = "/proc/self/task"


class Affinity:
    """The cores that the daemon had at its start."""

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)

    def restore(self) -> bool:
        """Give each thread its original cores. Returns True if a thread had other cores.

        If the control group has fewer cores now, the threads keep those, and the result is False.
        """
        return any([self._restore_one(int(name)) for name in os.listdir(_THREADS)])

    def _restore_one(self, number: int) -> bool:
        try:
            found = os.sched_getaffinity(number)
            if found == self._cores:
                return False
            os.sched_setaffinity(number, self._cores)
            return os.sched_getaffinity(number) != found
        except OSError:
            # The thread has ended, or all of its cores are gone.
            return False


# From malloc.h.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_ARENAS = 2
_MAPPED_FROM_BYTES = 128 * 1024


def bound_allocator() -> None:
    """Limit the number of malloc arenas, and return large blocks to the system as soon as they are freed.

    Does nothing if the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
