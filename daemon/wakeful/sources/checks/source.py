"""The common part of probes and services: targets whose changes no event reports, so they are checked at intervals.

Every `check_every`, a target is reported as hinted. The core then asks for a look, and the look checks the target. A
few checks run at once. A newer look at a target replaces an older one. Forgetting a target cancels its check. This
module decides nothing. `DueTimes` holds one heap and one timer for all targets.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from wakeful.core.looking.targets import ProbeTarget, ServiceTarget
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.contract import Defects, SourceReport

CheckedT = TypeVar("CheckedT", ProbeTarget, ServiceTarget)


class Checked(NamedTuple):
    """The result of a check: a version, or None if it is unknown (rule 5), and the problem in words."""

    version: str | None
    problem: str | None = None


class CheckedSource(ABC, Generic[CheckedT]):
    """Schedules the checks of one kind of target. Every method is called on the loop."""

    def __init__(
        self, report: SourceReport, loop: asyncio.AbstractEventLoop, at_once: int, defects: Defects | None = None
    ) -> None:
        self._report = report
        self._defects = defects or Defects()
        self._loop = loop
        self._targets: dict[str, CheckedT] = {}
        self._due_times = DueTimes(loop, lambda keys: report(TargetsHinted(keys)))
        self._slots = asyncio.Semaphore(at_once)
        self._checks: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    async def check(self, target: CheckedT) -> Checked:
        """Check one target now. A cancelled check leaves nothing behind."""

    def follow(self, targets: Iterable[CheckedT]) -> None:
        for target in targets:
            if target.key not in self._targets:
                self._targets[target.key] = target
                self._due_times.add(target.key, target.check_every_seconds)

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._targets.pop(key, None)
            self._due_times.remove(key)
            self._end_check(key)

    def look(self, key: str, generation: int) -> None:
        """Check the target now, or as soon as a slot is free."""
        target = self._targets.get(key)
        if target is None:
            return
        self._end_check(key)
        check = self._loop.create_task(self._check(target, generation), name=f"wakeful: check {key}")
        self._checks[key] = check
        check.add_done_callback(lambda done: self._finish(key, done))

    async def close(self) -> None:
        self._due_times.close()
        self._targets.clear()
        checks = tuple(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def _check(self, target: CheckedT, generation: int) -> None:
        async with self._slots:
            try:
                found = await self.check(target)
            except Exception as error:  # a defect makes the target unknown; the next due check tries again
                found = Checked(None, self._defects.take(target.key.replace("\x1f", " "), error))
        if target.key in self._targets:
            stamp = found.version or ""
            self._report(
                TargetLooked(
                    LookResult(
                        target=target.key,
                        generation=generation,
                        version=found.version,
                        problem=found.problem,
                        stamp=stamp,
                    )
                )
            )

    def _end_check(self, key: str) -> None:
        if (check := self._checks.pop(key, None)) is not None:
            check.cancel()

    def _finish(self, key: str, check: asyncio.Task[None]) -> None:
        if self._checks.get(key) is check:
            del self._checks[key]
        if not check.cancelled() and (error := check.exception()) is not None:
            self._defects.take(key.replace("\x1f", " "), error)


# Keys that are due within this span of each other are reported in one observation.
_TOGETHER_SECONDS = 0.05


class DueTimes:
    """Calls `ring` with the keys that are due. Called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[tuple[str, ...]], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._every: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, key: str, every_seconds: float) -> None:
        """Add a key. It is first due after a fraction of the span that depends only on the key, then once per span."""
        self._every[key] = every_seconds
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()
        share = (1 + int.from_bytes(digest, "big")) / 2**32
        heapq.heappush(self._heap, (self._loop.time() + every_seconds * share, key))
        self._arm()

    def remove(self, key: str) -> None:
        """Remove a key. Its heap entry is dropped when it comes up."""
        self._every.pop(key, None)

    def close(self) -> None:
        self._every.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0][0], self._take_due) if self._heap else None

    def _take_due(self) -> None:
        now = self._loop.time()
        due: dict[str, float] = {}
        while self._heap and self._heap[0][0] <= now + _TOGETHER_SECONDS:
            at, key = heapq.heappop(self._heap)
            if key in self._every:
                due[key] = at
        for key, at in due.items():
            # Counted from now, so that a machine that slept makes one check, not all that it missed.
            heapq.heappush(self._heap, (max(at, now) + self._every[key], key))
        self._timer = None
        self._arm()
        if due:
            self._ring(tuple(due))
