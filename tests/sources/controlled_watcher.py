"""A real watcher whose reports a test can read, hold back, drop and add to. A test passes it to a source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from wakeful.sources.hints.contract import Dirt, Hints, Lost, MakeHints, Report


class Watcher:
    """Implements `Hints` by the watcher of `make_hints`. One source gets `make`."""

    def __init__(self, make_hints: MakeHints) -> None:
        self._make_hints = make_hints
        # All reports of the real watcher.
        self.told: list[Dirt] = []
        # The folders that the source has armed and not disarmed, and all that it ever armed.
        self.armed: set[str] = set()
        self.ever_armed: set[str] = set()
        # The number of times the source asked for queued events.
        self.asked = 0
        # If True, reports wait in a queue until the source asks for them.
        self.is_late = False
        # If True, reports never come, as on a file system without events.
        self.is_deaf = False
        self._queue: list[tuple[Dirt, ...]] = []

    def make(self, loop: asyncio.AbstractEventLoop, report: Report) -> Hints:
        self._report = report
        self._real = self._make_hints(loop, self._take)
        return self

    def _take(self, batch: tuple[Dirt, ...]) -> None:
        self.told.extend(batch)
        if self.is_deaf:
            return
        if self.is_late:
            self._queue.append(batch)
        else:
            self._report(batch)

    def lose(self) -> None:
        """Report that hints were lost."""
        self._report((Lost("for a test"),))

    @property
    def degraded(self) -> str | None:
        return self._real.degraded

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        wanted = set(folders)
        refused = self._real.arm(wanted)
        self.armed |= wanted - refused.keys()
        self.ever_armed |= wanted
        return refused

    def disarm(self, folders: Iterable[str]) -> None:
        unwanted = set(folders)
        self.armed -= unwanted
        self._real.disarm(unwanted)

    def hear(self) -> None:
        self._real.hear()
        self.asked += 1
        queue, self._queue = self._queue, []
        for batch in queue:
            self._report(batch)

    def close(self) -> None:
        self._real.close()
