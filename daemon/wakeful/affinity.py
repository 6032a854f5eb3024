"""The cores that the daemon's threads may use: those it was started with, whatever a run says later.

A process may move the threads of every process of its user to other cores. Isolation cannot refuse that to runs (filter.py says why), so the daemon looks
now and then, and takes its cores back. Never touches a run.
"""

from __future__ import annotations

import os

_THREADS = "/proc/self/task"


class Affinity:
    """Made at the daemon's start, with the cores it has then."""

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)

    def restore(self) -> bool:
        """Give each thread its cores again. True where one had others; a control group that has fewer cores now is obeyed, and is no such case."""
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
