"""A source whose targets have no events of their own: each hints itself every `check_every`, and is checked when asked.

Probes and services are of this kind and add only what a check is. A few checks run at once, each owned by its target: a
newer look takes the place of an older one, and a target that is forgotten has no check under way. It decides nothing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from wakeful.core.looking.targets import ProbeTarget, ServiceTarget
from wakeful.core.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.contract import SourceReport
from wakeful.sources.defects import Defects
from wakeful.sources.due_times import Rounds

CheckedT = TypeVar("CheckedT", ProbeTarget, ServiceTarget)


class Checked(NamedTuple):
    """What a check found: a version, or None where it cannot be known (rule 5); and the words that belong to it."""

    version: str | None
    problem: str | None = None


class CheckedSource(ABC, Generic[CheckedT]):
    """Every method is called on the loop."""

    def __init__(
        self, report: SourceReport, loop: asyncio.AbstractEventLoop, at_once: int, defects: Defects | None = None
    ) -> None:
        self._report = report
        self._defects = defects or Defects()
        self._loop = loop
        self._targets: dict[str, CheckedT] = {}
        self._rounds = Rounds(loop, lambda keys: report(TargetsHinted(keys)))
        self._slots = asyncio.Semaphore(at_once)
        self._checks: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    async def check(self, target: CheckedT) -> Checked:
        """Look at one target now. Cancelled, it leaves nothing behind."""

    def follow(self, targets: Iterable[CheckedT]) -> None:
        for target in targets:
            if target.key not in self._targets:
                self._targets[target.key] = target
                self._rounds.add(target.key, target.check_every_seconds)

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._targets.pop(key, None)
            self._rounds.remove(key)
            self._end_check(key)

    def look(self, key: str, generation: int) -> None:
        """Check it now, or when a slot is free."""
        target = self._targets.get(key)
        if target is None:
            return
        self._end_check(key)
        check = self._loop.create_task(self._check(target, generation), name=f"wakeful: check {key}")
        self._checks[key] = check
        check.add_done_callback(lambda done: self._finish(key, done))

    async def close(self) -> None:
        self._rounds.close()
        self._targets.clear()
        checks = tuple(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    async def _check(self, target: CheckedT, generation: int) -> None:
        async with self._slots:
            try:
                found = await self.check(target)
            except (
                Exception
            ) as error:  # a defect in one check makes its target unknown, and is tried again when it is due
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
