"""The threads that looks are made in, apart by what could hold them up.

Owned by the file source, which submits on the loop. Near looks share one thread: two of them in Python take each
other's turns, and a burst of 100,000 files took half as long again. Looks at hundreds of paths have two, each with a
process that reads for it: while one waits for its process, the other counts what it was told. What takes long for its
bytes is apart, and what cannot be watched as well: a server that does not answer must not hold up the looks at this
machine's files.
"""

from __future__ import annotations

import asyncio

from wakeful.sources.files.reader_process import Reader
from wakeful.system.blocking_pool import Pool


class Lane:
    """Some threads, and how many looks are in them or wait for them; counted on the loop."""

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

    @property
    def is_near_taken(self) -> bool:
        """Are there looks at this machine's files under way that others wait for?"""
        return any(lane.looks for lane in (self.near, *self._large))

    def is_near(self, lane: Lane) -> bool:
        return lane is self.near or lane in self._large

    def find_large(self) -> Lane:
        """The emptier one, with its process ready."""
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
