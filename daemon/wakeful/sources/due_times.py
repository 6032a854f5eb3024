"""Due times of things that must be looked at again and again: one heap and one timer for all of them.

Probes and services have no events of their own; each is due every `check_every`, shifted by a stable part of that span
so that a thousand of them are not due in the same second. At rest an entry is a tuple, not a task.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections.abc import Callable

# Due within this span of each other: one ring, one observation.
_TOGETHER_SECONDS = 0.05


class Rounds:
    """Calls `ring` on the loop with the keys that are due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[tuple[str, ...]], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._every: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, key: str, every_seconds: float) -> None:
        """Due first after a part of the span that depends on the key alone, then once per span."""
        self._every[key] = every_seconds
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()
        share = (1 + int.from_bytes(digest, "big")) / 2**32
        heapq.heappush(self._heap, (self._loop.time() + every_seconds * share, key))
        self._arm()

    def remove(self, key: str) -> None:
        """Its entry is dropped when it comes up."""
        self._every.pop(key, None)

    def close(self) -> None:
        self._every.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0][0], self._go_round) if self._heap else None

    def _go_round(self) -> None:
        now = self._loop.time()
        due = []
        while self._heap and self._heap[0][0] <= now + _TOGETHER_SECONDS:
            at, key = heapq.heappop(self._heap)
            if key not in self._every:
                continue
            due.append(key)
            # From now, not from when it was due: a machine that slept owes one check, not all it missed.
            heapq.heappush(self._heap, (max(at, now) + self._every[key], key))
        self._timer = None
        self._arm()
        if due:
            self._ring(tuple(due))
