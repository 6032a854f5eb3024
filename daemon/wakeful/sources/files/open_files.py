"""Files that a process holds open for writing: a look at them waits until they are closed.

A look calls `is_open_for_writing` for the few files that it found changed. The file source owns `OpenFiles`, on the
loop. `OpenFiles` decides how long a look waits, and checks meanwhile whether the file was closed. A file that stays
open (a log, a database) delays the looks at it by a bounded time, and by less once it is known to stay open.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wakeful.core.looking.targets import FileTarget
from wakeful.core.spec.bindings import find_settle_max

# Seconds without a write, and seconds of writing in all, after which an open file is accepted in its present state.
QUIET_SECONDS = 10.0
MOST_SECONDS = 60.0
# Seconds of writing in all for a file that is known to stay open. Its limit without a write is `settle_max`.
MOST_SECONDS_WHEN_KEPT = 10.0
# Seconds until the first check. It is short, because the kernel reports a close some microseconds before it takes
# effect.
_FIRST_CHECK_SECONDS = 0.002
_LONGEST_CHECK_SECONDS = 0.25
# The kernel sends this signal if a process opens the file during the microsecond of the check. Unlike SIGIO, it is
# ignored by default.
_LEASE_SIGNAL = getattr(signal, "SIGURG", 0)
_CAN_ASK = hasattr(fcntl, "F_SETLEASE")


class BeingWritten(Exception):
    """A look found these files changed and open for writing. `paths` holds the wall time of each last change, in
    microseconds.
    """

    def __init__(self, paths: dict[str, int]) -> None:
        super().__init__(f"{len(paths)} files are open for writing")
        self.paths = paths


def is_open_for_writing(path: str) -> bool:
    """Does any process hold this regular file open for writing? False if the kernel cannot tell.

    The kernel refuses a read lease on such a file. It gives leases only to a file's owner and to root, on local file
    systems.
    """
    if not _CAN_ASK:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, _LEASE_SIGNAL)
        # The close that follows at once returns the lease. A process that opens the file for writing in between waits
        # until then.
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        # The file has another owner, or its file system has no leases.
        return False
    finally:
        os.close(descriptor)
    return False


@dataclass(slots=True)
class _Wait:
    since: float
    until: float
    is_released: bool = False


class OpenFiles:
    def __init__(self, loop: asyncio.AbstractEventLoop, release: Callable[[tuple[str, ...]], None]) -> None:
        """`release` is called with the targets whose looks need not wait any longer."""
        self._loop = loop
        self._release = release
        # The wait of each target and path. `_kept` holds the paths that were still open when their wait was over.
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._kept: set[str] = set()
        self._pause = _FIRST_CHECK_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, target: FileTarget, written: dict[str, int]) -> str | None:
        """Return why a look at this target must wait for these open files. None if it accepts them in their present
        state.
        """
        now, wall = time.monotonic(), time.time()
        busy = [
            path for path, moved_us in written.items() if self._is_awaited(target, path, now, wall - moved_us / 1e6)
        ]
        if not busy:
            for path in written:
                self._waits.pop((target.key, path), None)
                self._kept.add(path)
            return None
        if self._timer is None:
            self._pause = _FIRST_CHECK_SECONDS
            self._schedule()
        more = f" and {len(busy) - 1} more" if len(busy) > 1 else ""
        return f"{os.path.relpath(busy[0], target.root)}{more} is being written"

    def _is_awaited(self, target: FileTarget, path: str, now: float, age: float) -> bool:
        quiet, most = self._bound(target, path)
        wait = self._waits.setdefault((target.key, path), _Wait(now, 0.0))
        # After a clock was set back, a change may be in the future. It counts as a change of now.
        wait.is_released = False
        wait.until = min(wait.since + most, now + quiet - max(age, 0.0))
        return wait.until > now

    def _bound(self, target: FileTarget, path: str) -> tuple[float, float]:
        """Return the longest wait without a write, and the longest wait in all.

        A `settle_max` in the spec sets both.
        """
        longest = target.settle_max_seconds
        if longest != find_settle_max(target.settle_seconds):
            return longest, longest
        if path in self._kept:
            return longest, max(longest, MOST_SECONDS_WHEN_KEPT)
        return max(longest, QUIET_SECONDS), max(longest, MOST_SECONDS)

    def note_closed(self, paths: Iterable[str]) -> None:
        """Record that a look found these paths changed and not open.

        The next process that opens them is a new writer.
        """
        if self._kept:
            self._kept.difference_update(paths)

    def forget(self, key: str) -> None:
        self._waits = {place: wait for place, wait in self._waits.items() if place[0] != key}

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._check)
        self._pause = min(self._pause * 2, _LONGEST_CHECK_SECONDS)

    def _check(self) -> None:
        now = time.monotonic()
        waiting = {place: wait for place, wait in self._waits.items() if not wait.is_released}
        over = [place for place, wait in waiting.items() if wait.until <= now or not is_open_for_writing(place[1])]
        for place in over:
            if waiting[place].until > now:
                del self._waits[place]
            else:
                # The file is still open. The next look accepts it in its present state.
                waiting[place].is_released = True
        self._timer = None
        if len(over) < len(waiting):
            self._schedule()
        if over:
            self._release(tuple(dict.fromkeys(key for key, _ in over)))
