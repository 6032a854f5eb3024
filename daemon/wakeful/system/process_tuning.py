"""Limits on the daemon's own process: the cores that its threads may use, and its memory allocator.

A process may move the threads of every process of its user to other cores. Isolation cannot refuse that to runs
(runners/isolation/seccomp.py says why), so the daemon looks now and then, and takes its cores back.
Never touches a run.
"""

from __future__ import annotations

import ctypes
import os

_THREADS = "/proc/self/task"


class Affinity:
    """Made at the daemon's start, with the cores it has then."""

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)

    def restore(self) -> bool:
        """Give each thread its cores again.

        True where one had others; a control group that has fewer cores now is obeyed, and is no such case.
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
            # It has ended, or none of its cores is there any more.
            return False


# From malloc.h.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_ARENAS = 2
_MAPPED_FROM_BYTES = 128 * 1024


def bound_allocator() -> None:
    """Blocks above the threshold go back to the system when they are freed.

    Does nothing where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
