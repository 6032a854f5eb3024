"""A file source with a small stand-in for the reactor.

A hint leads to a look after a short quiet, and the results of looks are collected. `settled` waits until no target is
dirty. `truth` asks a second source that has neither hints nor memory, so that a test compares the version that was
noticed with the version on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from sources.controlled_watcher import Watcher
from wait_conditions import eventually_async
from wakeful.core.looking.targets import FileTarget
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.contract import Defects
from wakeful.sources.files.entry import Seen
from wakeful.sources.files.look_pool import Lanes
from wakeful.sources.files.mounts import Mounts
from wakeful.sources.files.source import FileSource
from wakeful.sources.files.stat_cache import StatCache
from wakeful.sources.files.sweep import USUAL_PACE, Pace, RacyPaths
from wakeful.sources.hints.contract import MakeHints
from wakeful.sources.hints.watcher_choice import choose_hints

QUIET_SECONDS = 0.06


# The sweep looks at every path again at once. No path is reread because it was hashed too soon after a change.
SWEPT = Pace(tick_seconds=0.02, round_seconds=1, reread_seconds=3600.0)
# The source polls unwatchable targets at once.
POLLED = Pace(tick_seconds=0.05, poll_seconds=0.05)
# The source rereads at once a path that was hashed too soon after a change.
REREAD = Pace(tick_seconds=0.02, reread_seconds=0.0)


class Due(RacyPaths):
    """The paths to be read again. `taken` records those that were handed out for rereading."""

    def __init__(self, seen: Mapping[str, Seen], pause_seconds: float) -> None:
        super().__init__(seen, pause_seconds)
        self.taken: list[str] = []

    def take_due(self) -> dict[str, Seen]:
        due = super().take_due()
        self.taken += due
        return due


class World:
    """A file source with its hints, cache, timers and collected results."""

    def __init__(
        self,
        root: Path,
        state: Path,
        make_hints: MakeHints,
        mounts: Mounts | None = None,
        pace: Pace = USUAL_PACE,
    ) -> None:
        self.root = root
        self.loop = asyncio.get_running_loop()
        self.results: dict[str, list[LookResult]] = {}
        self.hints: list[tuple[str, ...]] = []
        self._generation = 0
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.looking: set[str] = set()
        state.mkdir(exist_ok=True, parents=True)
        # The messages of the defects that were reported.
        self.told: list[str] = []
        self.cache = StatCache(state)
        self.watcher = Watcher(make_hints)
        self.lanes = Lanes()
        self.racy = Due(self.cache.seen, pace.reread_seconds)
        self.source = FileSource(
            self._take,
            self.loop,
            state,
            self.watcher.make,
            self.cache,
            mounts=mounts,
            lanes=self.lanes,
            racy=self.racy,
            pace=pace,
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
        self.timers[key] = self.loop.call_later(QUIET_SECONDS, self.look, key)

    def look(self, key: str) -> None:
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()
        self._generation += 1
        self.looking.add(key)
        self.source.look(key, self._generation)

    async def follow(self, pattern: str, root: Path | None = None, key: str | None = None, **options: object) -> str:
        """Follow a target, wait for its first look, and return its key."""
        name = key or f"{pattern}#{len(self.results)}"
        self.source.follow([FileTarget(key=name, root=str(root or self.root), pattern=pattern, **options)])
        self.look(name)
        await self.settled()
        return name

    async def settled(self) -> None:
        await eventually_async(lambda: not self.timers and not self.looking, what="nothing dirty, no look under way")

    async def hinted(self, change: Callable[[], object]) -> None:
        """Make a change, wait for a hint of it, and wait for the looks that follow."""
        before = len(self.hints)
        change()
        await eventually_async(lambda: len(self.hints) > before, what="a hint")
        await self.settled()

    async def look_at_all(self) -> None:
        """Look at every path of every target, as after lost hints."""
        self.watcher.lose()
        for key in list(self.timers):
            self.look(key)
        await self.settled()

    def last(self, key: str) -> LookResult:
        return self.results[key][-1]

    def version(self, key: str) -> str | None:
        return self.last(key).version

    def versions(self, key: str) -> list[str | None]:
        """Return the versions in the order they were seen, with consecutive equal ones merged."""
        found: list[str | None] = []
        for result in self.results[key]:
            if not found or found[-1] != result.version:
                found.append(result.version)
        return found

    async def truth(self, pattern: str, root: Path | None = None, **options: object) -> str | None:
        """Return the version that a source without memory and without hints finds now."""
        told: list[TargetsHinted | TargetLooked] = []
        fresh = FileSource(told.append, self.loop, self.root / ".no-state", choose_hints("poll"), StatCache(None))
        fresh.follow([FileTarget(key="truth", root=str(root or self.root), pattern=pattern, **options)])
        fresh.look("truth", 1, takes_open=True)
        await eventually_async(lambda: told, what="what is there")
        await fresh.close()
        looked = told[0]
        assert isinstance(looked, TargetLooked) and looked.result.held is None
        return looked.result.version

    async def noticed(self, key: str, pattern: str, root: Path | None = None, **options: object) -> None:
        """Wait until the version that was noticed equals the version on disk."""

        async def is_noticed() -> bool:
            await self.settled()
            return self.version(key) == await self.truth(pattern, root, **options)

        await eventually_async(is_noticed, what=f"{key} seen as it is")


@asynccontextmanager
async def open_world(
    tmp_path: Path,
    make_hints: MakeHints | None = None,
    mounts: Mounts | None = None,
    pace: Pace = USUAL_PACE,
) -> AsyncIterator[World]:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    world = World(root, tmp_path / "state", make_hints or choose_hints("inotify"), mounts, pace)
    try:
        yield world
    finally:
        await world.source.close()
