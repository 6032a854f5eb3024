"""A file source with a small stand-in for the reactor: hints lead to looks after a short quiet, looks are collected.

`settled` waits until nothing is dirty; `truth` asks a second source that has neither hints nor memory, so that a test
compares what was noticed with what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from waiting import eventually_async
from wakeful.core.looking.targets import FileTarget
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.contract import Defects
from wakeful.sources.files.mounts import Mounts
from wakeful.sources.files.source import FileSource
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.hints.choice import choose_hints
from wakeful.sources.hints.contract import MakeHints

QUIET_SECONDS = 0.06


def look_now(source: FileSource, key: str) -> LookResult:
    """Look at everything a target means, here and now, however long it takes."""
    followed = source._followed[key]
    followed.is_whole = True
    return source._apply(followed, 0, source._looker.look(followed, followed.take_errand()))


class World:
    """Everything one test needs around a source."""

    def __init__(self, root: Path, state: Path, make_hints: MakeHints, mounts: Mounts | None = None) -> None:
        self.root = root
        self.loop = asyncio.get_running_loop()
        self.results: dict[str, list[LookResult]] = {}
        self.hints: list[tuple[str, ...]] = []
        self._generation = 0
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.looking: set[str] = set()
        state.mkdir(exist_ok=True, parents=True)
        # What was said of defects.
        self.told: list[str] = []
        self.cache = StatCache(state)
        self.source = FileSource(
            self._take,
            self.loop,
            state,
            make_hints,
            self.cache,
            mounts=mounts,
            defects=Defects(lambda words, error: self.told.append(words)),
        )

    def _take(self, observation: TargetsHinted | TargetLooked) -> None:
        match observation:
            case TargetsHinted(targets):
                self.hints.append(targets)
                for key in targets:
                    self._dirty(key)
            case TargetLooked(result):
                self.results.setdefault(result.target, []).append(result)
                self.looking.discard(result.target)
                for key in result.also_dirty:
                    self._dirty(key)
                if result.is_unstable:
                    self._dirty(result.target)

    def _dirty(self, key: str) -> None:
        if key in self.timers:
            self.timers[key].cancel()
        self.timers[key] = self.loop.call_later(QUIET_SECONDS, self._look, key)

    def _look(self, key: str) -> None:
        del self.timers[key]
        self.look(key)

    def look(self, key: str) -> None:
        self._generation += 1
        self.looking.add(key)
        self.source.look(key, self._generation)

    async def follow(self, pattern: str, root: Path | None = None, key: str | None = None, **options: object) -> str:
        """Follow a target and wait for its first look; the key is returned."""
        name = key or f"{pattern}#{len(self.results)}"
        self.source.follow([FileTarget(key=name, root=str(root or self.root), pattern=pattern, **options)])
        self.look(name)
        await self.settled()
        return name

    async def settled(self) -> None:
        await eventually_async(lambda: not self.timers and not self.looking, what="nothing dirty, no look under way")

    async def hinted(self, change: Callable[[], object]) -> None:
        """Make a change and wait until it was hinted at and looked at."""
        before = len(self.hints)
        change()
        await eventually_async(lambda: len(self.hints) > before, what="a hint")
        await self.settled()

    def last(self, key: str) -> LookResult:
        return self.results[key][-1]

    def version(self, key: str) -> str | None:
        return self.last(key).version

    def versions(self, key: str) -> list[str | None]:
        """The versions in the order they were seen, each run of equal ones once."""
        found: list[str | None] = []
        for result in self.results[key]:
            if not found or found[-1] != result.version:
                found.append(result.version)
        return found

    async def truth(self, pattern: str, root: Path | None = None, **options: object) -> str | None:
        """The version as a source without memory and without hints finds it now."""
        fresh = FileSource(
            lambda observation: None, self.loop, self.root / ".no-state", choose_hints("poll"), StatCache(None)
        )
        fresh.follow([FileTarget(key="truth", root=str(root or self.root), pattern=pattern, **options)])
        result = look_now(fresh, "truth")
        await fresh.close()
        return result.version

    async def noticed(self, key: str, pattern: str, root: Path | None = None, **options: object) -> None:
        """Wait until what was noticed is what is there."""

        async def is_noticed() -> bool:
            await self.settled()
            return self.version(key) == await self.truth(pattern, root, **options)

        await eventually_async(is_noticed, what=f"{key} seen as it is")


@asynccontextmanager
async def open_world(
    tmp_path: Path, make_hints: MakeHints | None = None, mounts: Mounts | None = None
) -> AsyncIterator[World]:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    world = World(root, tmp_path / "state", make_hints or choose_hints("inotify"), mounts)
    try:
        yield world
    finally:
        await world.source.close()
