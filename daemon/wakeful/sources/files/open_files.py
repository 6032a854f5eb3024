"""Files that somebody holds open for writing: they are not quiet, and a look at them waits for the close.

A look asks `is_open_for_writing` of the few files it found changed. The file source owns `OpenFiles`, on the loop,
which says how long a look waits, and checks in between whether the file was closed. A file that stays open (a log, a
database) delays its readers by a bounded time, and by less once it is known to stay open.
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
from wakeful.core.spec.session import find_settle_max

# An open file that nobody wrote to for so long counts as it is, and so does one that was written to for so long.
QUIET_SECONDS = 10.0
MOST_SECONDS = 60.0
# The same for a file that is known to stay open. Its quiet is `settle_max`.
MOST_SECONDS_WHEN_KEPT = 10.0
# The kernel tells of a close before the file counts as closed, by some microseconds: so the first checks follow soon.
_FIRST_CHECK_SECONDS = 0.002
_LONGEST_CHECK_SECONDS = 0.25
# Ignored by default, unlike SIGIO: sent to us if somebody opens the file within the microsecond of the question.
_LEASE_SIGNAL = getattr(signal, "SIGURG", 0)
_CAN_ASK = hasattr(fcntl, "F_SETLEASE")


class BeingWritten(Exception):
    """A look found these files changed and open for writing: each with the wall time of its last change,
    in microseconds."""

    def __init__(self, paths: dict[str, int]) -> None:
        super().__init__(f"{len(paths)} files are open for writing")
        self.paths = paths


def is_open_for_writing(path: str) -> bool:
    """Whether any process holds this regular file open for writing; False where the kernel does not say.

    A read lease is refused while it is so. The kernel gives leases to a file's owner and to root,
    on local file systems.
    """
    if not _CAN_ASK:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, _LEASE_SIGNAL)
        # Given back by the close that follows at once: whoever opens the file for writing meanwhile waits for that.
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        # Another owner's file, or a file system without leases.
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
        # (target, path) -> its wait; and paths that were still open when their wait was over.
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._kept: set[str] = set()
        self._pause = _FIRST_CHECK_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, target: FileTarget, written: dict[str, int]) -> str | None:
        """Why a look at this target must wait for these open files, in words; None: it takes them as they are."""
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
        # A clock that was set back makes a change of the future: it counts as one of now.
        wait.is_released = False
        wait.until = min(wait.since + most, now + quiet - max(age, 0.0))
        return wait.until > now

    def _bound(self, target: FileTarget, path: str) -> tuple[float, float]:
        """How long without a write, and how long in all. A `settle_max` that the spec names is both."""
        longest = target.settle_max_seconds
        if longest != find_settle_max(target.settle_seconds):
            return longest, longest
        if path in self._kept:
            return longest, max(longest, MOST_SECONDS_WHEN_KEPT)
        return max(longest, QUIET_SECONDS), max(longest, MOST_SECONDS)

    def note_closed(self, paths: Iterable[str]) -> None:
        """A look found these changed and not open: the next one who opens them is a new writer."""
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
                # It is still open: the look that follows takes it as it is.
                waiting[place].is_released = True
        self._timer = None
        if len(over) < len(waiting):
            self._schedule()
        if over:
            self._release(tuple(dict.fromkeys(key for key, _ in over)))
