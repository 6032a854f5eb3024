"""A queue of contents that a record already names and that are not kept yet.

`Keeper` adds the contents that runs found. No run waits for them. A single thread keeps them in order, so that the
outputs of a run never queue behind the inputs of others. It yields to more urgent threads. A content can get lost
before it is kept: its file changes, the daemon stops, or the disk is full. A later reader then gets "not kept".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf

from wakeful.run_files.capture import WantedContent, keep_wanted
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

# The most paths that wait: as many as the largest burst that is promised to settle. They take about 12 MB, because path
# and digest are shared with the look.
MOST_WAITING = 100_000
# The most seconds that the contents of one run yield to looks and lists, and the seconds between two checks. Keeping a
# content takes about 80 us of Python, as long as three looks at a changed file. A burst of 50,000 files settled one
# second sooner when nothing was kept meanwhile.
LONGEST_WAY_SECONDS = 10.0
PAUSE_SECONDS = 0.02
# Seconds from a record to the flush of the contents that it names. One flush serves all runs of that time.
FLUSH_SECONDS = 2.0
# The most seconds that a stopping daemon goes on, enough for the contents of one run.
CLOSING_SECONDS = 2.0


class Backlog:
    """The queue and its thread. Any thread may call it.

    `lost` is called with a message when contents were given up that might be kept another time. `is_pressed` returns
    True if other threads need the interpreter more urgently. The queue's thread calls both; `lost` is also called in
    the thread of `add`.
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

    def add(self, wanted: list[WantedContent]) -> None:
        """Add contents to the queue. If too many wait, they are given up at once."""
        if not wanted or self._until < inf:
            return
        if not self._make_room(len(wanted)):
            self._lost(
                f"{len(wanted):,} contents that a run found were not kept: more than {MOST_WAITING:,} would wait"
            )
            return
        self._pool.submit(self._keep, wanted)

    def flush(self) -> None:
        """Flush the kept contents to disk, so that they survive a power cut. Contents that wait now are kept first."""
        if self._until == inf:
            self._pool.submit(self._flush)

    def close(self) -> None:
        """Keep what still waits, for at most `CLOSING_SECONDS`, and give up the rest. Blocking."""
        self._until = time.monotonic() + CLOSING_SECONDS
        self._pool.shutdown(wait=True)
        self._flush()

    def _make_room(self, paths: int) -> bool:
        with self._counting:
            if self._waiting + paths > MOST_WAITING:
                return False
            self._waiting += paths
            return True

    def _keep(self, wanted: list[WantedContent]) -> None:
        way_ends = time.monotonic() + LONGEST_WAY_SECONDS
        try:
            for one in wanted:
                # Do not yield when the daemon stops, because then the stop waits for this thread.
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
            self._lost(f"contents of runs may not survive a power cut: {error}")
