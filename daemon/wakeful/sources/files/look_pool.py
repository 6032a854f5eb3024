"""The threads of looks, separated by what could delay them.

Owned by the file source, which submits work on the loop. This code is not in `reader_process`, because that module is
also the program of the reader process and must import little.

- Near looks share one thread, because two Python threads delay each other. A burst of 100,000 files took half as long
  again with two.
- Looks at hundreds of paths have two threads, each with a reader process. While one thread waits for its process, the
  other evaluates its answers.
- Looks at many bytes have their own threads.
- Looks at folders that cannot be watched have their own threads. A server that does not answer then delays no look at
  local files.
"""

from __future__ import annotations

import asyncio

from wakeful.sources.files.reader_process import Reader
from wakeful.system.blocking_pool import Pool


class Lane:
    """A few threads, and the number of looks that run in them or wait for them. Counted on the loop."""

    def __init__(self, name: str, count: int, reader: Reader | None = None) -> None:
        self.threads = Pool(count, name)
        self.reader = reader
        self.looks = 0


class Lanes:
    def __init__(self) -> None:
        self.near = Lane("look", 1)
        self.long = Lane("long look", 2)
        self.far = Lane("far look", 2)
        self._readers = (Reader(), Reader())
        self._large = tuple(Lane("large look", 1, reader) for reader in self._readers)

    @property
    def _all(self) -> tuple[Lane, ...]:
        return (self.near, *self._large, self.long, self.far)

    @property
    def is_any_taken(self) -> bool:
        return any(lane.looks for lane in self._all)

    def is_near_taken(self) -> bool:
        """Are looks at local files under way, which sessions wait for? May be called from any thread."""
        return any(lane.looks for lane in (self.near, *self._large))

    def is_near(self, lane: Lane) -> bool:
        return lane is self.near or lane in self._large

    def find_large(self) -> Lane:
        """Return the lane with fewer looks, with its reader process started."""
        lane = min(self._large, key=lambda lane: lane.looks)
        if lane.reader is not None:
            lane.reader.start()
        return lane

    def rest(self) -> None:
        for reader in self._readers:
            reader.rest()

    async def close(self) -> None:
        for lane in self._all:
            await asyncio.to_thread(lane.threads.shutdown, wait=True)
        for reader in self._readers:
            reader.close()
