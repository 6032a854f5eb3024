"""Contents that a record names already and that are not kept yet: kept one after the other,
in the order they were asked for.

`Keeper` hands over what runs found; nobody waits for it. A thread of its own, so that what a run wrote never queues
behind what others read, and which gives way to threads that somebody waits for. What is lost on the way (a file that
moved on, a daemon that stops, a disk that is full) was promised to nobody:
whoever asks for such a content finds that it is not kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf

from wakeful.run_files.capture import Wanted, keep_wanted
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

# Paths that wait at most, some 12 MB, since path and digest are those of the look:
# as many as a burst that is promised to settle.
MOST_WAITING = 100_000
# How long the contents of one run give way to looks and lists, and how often they ask. Each takes some 80 us of Python,
# as long as three looks at a changed file: a burst of 50,000 files settled a second sooner where nothing was kept.
LONGEST_WAY_SECONDS = 10.0
PAUSE_SECONDS = 0.02
# Contents that a record names are flushed at most so long after it, for all runs of that time at once.
FLUSH_SECONDS = 2.0
# A daemon that stops goes on for so long, enough for what is kept of one run.
CLOSING_SECONDS = 2.0


class Backlog:
    """Any thread may call it.

    `lost` is called, in its thread, when contents were given up that could be had at another time.

    `is_pressed` is asked, in its thread, whether others need the interpreter more.
    """

    def __init__(
        self, blobs: Blobs, lost: Callable[[str], None], is_pressed: Callable[[], bool] = lambda: False
    ) -> None:
        self._blobs = blobs
        self._lost = lost
        self._is_pressed = is_pressed
        self._pool = Pool(1, "contents-later")
        self._counting = threading.Lock()
        self._waiting = 0
        self._until = inf

    def add(self, wanted: list[Wanted]) -> None:
        """Keep these, in their turn; what is too much is given up at once."""
        if not wanted or self._until < inf:
            return
        if not self._make_room(len(wanted)):
            self._lost(
                f"{len(wanted):,} contents that a run found were not kept: more than {MOST_WAITING:,} wait to be"
            )
            return
        self._pool.submit(self._keep, wanted)

    def flush(self) -> None:
        """Let all that was kept without a flush outlast a power cut, in its turn."""
        if self._until == inf:
            self._pool.submit(self._flush)

    def close(self) -> None:
        """Blocks: for what waits, within bounds. The rest is given up."""
        self._until = time.monotonic() + CLOSING_SECONDS
        self._pool.shutdown(wait=True)
        self._flush()

    def _make_room(self, paths: int) -> bool:
        with self._counting:
            if self._waiting + paths > MOST_WAITING:
                return False
            self._waiting += paths
            return True

    def _keep(self, wanted: list[Wanted]) -> None:
        way_ends = time.monotonic() + LONGEST_WAY_SECONDS
        try:
            for one in wanted:
                # Not when the daemon stops: then somebody waits for this.
                while self._until == inf and time.monotonic() < way_ends and self._is_pressed():
                    time.sleep(PAUSE_SECONDS)
                if time.monotonic() > self._until:
                    return
                keep_wanted(self._blobs, one)
        except OSError as error:
            self._lost(f"contents that a run found were not kept: {error}")
        finally:
            with self._counting:
                self._waiting -= len(wanted)

    def _flush(self) -> None:
        try:
            self._blobs.flush()
        except OSError as error:
            self._lost(f"contents of runs may not outlast a power cut: {error}")
