"""Watches the free space of the disk that holds the log. A module of its own, because no binding uses this source.

`DiskSpaceWatch` reports when runs must wait for free space, and when they no longer need to. The wiring constructs it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from wakeful.core.record.observations import DiskSpaceSeen
from wakeful.core.spec.limits import find_mark, judge_disk_space

LOOK_SECONDS = 2.0
# The disk is checked more often if its free space is less than this many times the limit, because runs can fill it
# between two usual checks.
NEAR_FACTOR = 10
LOOK_NEAR_SECONDS = 0.2


class DiskSpaceWatch:
    """The daemon looks once before anything may start, and then runs `keep` as a task.

    A look is one `statvfs` on the loop. It takes a few microseconds, because the state folder is never on a network
    file system.
    """

    def __init__(self, folder: str, report: Callable[[DiskSpaceSeen], None]) -> None:
        self._folder = folder
        self._report = report
        self._words: str | None = None

    def look(self) -> float:
        """Report a change. Returns the seconds until the next look."""
        try:
            found = os.statvfs(self._folder)
        except FileNotFoundError:
            # The state folder was deleted. The log notices this, and ends the daemon with a message.
            return LOOK_SECONDS
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        words = judge_disk_space(free, total, is_short=self._words is not None)
        if words != self._words:
            self._words = words
            self._report(DiskSpaceSeen(words))
        return LOOK_NEAR_SECONDS if free < find_mark(total) * NEAR_FACTOR else LOOK_SECONDS

    async def keep(self) -> None:
        """Look repeatedly, until cancelled."""
        while True:  # noqa: ASYNC110 - no event reports the free space of a disk
            await asyncio.sleep(self.look())
