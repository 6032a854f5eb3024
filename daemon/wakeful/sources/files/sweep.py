"""Second looks at paths without a hint: the slow sweep, the polls, and paths that were hashed too soon after a change.

Driven by the file source's timer, on the loop. The sweep checks every path again within ten minutes, with or without
hints. It finds what no watcher reports: writes through mmap or another hard link, lost hints, a replaced ancestor. It
takes one slice per second, with one stat per path, for at most a millisecond, and reads no content. Polls are for
folders that cannot be watched.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from wakeful.sources.files.entry import CannotSee, Demand, Seen, read_entry, read_key

ROUND_SECONDS = 600
SLICE_SECONDS = 0.001


class Pace(Struct, frozen=True, kw_only=True):
    """How often the file source looks at paths without a hint."""

    # Seconds of one tick. Each tick takes one slice of the sweep, and begins the polls and second reads that are due.
    tick_seconds: float = 1.0
    # Seconds of one round of the sweep, with one tick per second.
    round_seconds: int = ROUND_SECONDS
    # Seconds until a path that was hashed within 2 s of its change is read again.
    reread_seconds: float = 2.5
    # Seconds until the first poll of a target, and between polls while it changes.
    poll_seconds: float = 2.0


USUAL_PACE: Final = Pace()


class Sweep:
    """Checks, round after round, the paths and folders that are known at the beginning of each round."""

    def __init__(
        self,
        seen: Mapping[str, Seen],
        folders: Callable[[], Mapping[str, int]],
        is_left_out: Callable[[str], bool],
        round_seconds: int = ROUND_SECONDS,
    ) -> None:
        """`round_seconds` is the number of slices, one per second, over which a round is spread."""
        self._seen = seen
        self._folders = folders
        # Leaves out paths that are polled, and paths that no target matches any more.
        self._is_left_out = is_left_out
        self._round_seconds = round_seconds
        self._round: Iterator[tuple[str, bool]] = iter(())
        self._share = 1

    def slice(self, limit_seconds: float = SLICE_SECONDS) -> tuple[list[str], list[str]]:
        """Check the paths and folders of this second's share. Returns those that differ from the last look."""
        paths: list[str] = []
        folders: list[str] = []
        deadline = time.perf_counter() + limit_seconds
        for _ in range(self._share):
            place = next(self._round, None)
            if place is None:
                self._begin_round()
                break
            path, is_folder = place
            if self._is_left_out(path):
                continue
            if is_folder and self._is_folder_changed(path):
                folders.append(path)
            elif not is_folder and self._is_path_changed(path):
                paths.append(path)
            if time.perf_counter() > deadline:
                break
        return paths, folders

    def _begin_round(self) -> None:
        listed = [folder for folder, mtime in self._folders().items() if mtime >= 0]
        places = [(path, False) for path in list(self._seen)] + [(folder, True) for folder in listed]
        self._round = iter(places)
        self._share = max(1, math.ceil(len(places) / self._round_seconds))

    def _is_path_changed(self, path: str) -> bool:
        seen = self._seen.get(path)
        if seen is None:
            return False
        try:
            return read_key(path) != seen.key
        except CannotSee:
            # A look reports the problem.
            return True

    def _is_folder_changed(self, folder: str) -> bool:
        try:
            return os.stat(folder).st_mtime_ns != self._folders().get(folder)
        except OSError:
            return folder in self._folders()


class Polls:
    """The due times of targets that cannot be watched: every 2 s while they change, up to every 30 s while they
    do not.
    """

    _LONGEST_SECONDS = 30.0
    _GROWTH = 1.5
    # After a slow poll (a slow server, a huge tree), the pause is at least twenty times its duration.
    _REST = 20.0

    def __init__(self, shortest_seconds: float = USUAL_PACE.poll_seconds) -> None:
        self._shortest_seconds = shortest_seconds
        self._due: dict[str, float] = {}
        self._pauses: dict[str, float] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._pauses

    def begin(self, key: str, now: float) -> None:
        if key not in self._pauses:
            self._pauses[key] = self._shortest_seconds
            self._due[key] = now + self._shortest_seconds

    def end(self, key: str) -> None:
        self._pauses.pop(key, None)
        self._due.pop(key, None)

    def take_due(self, now: float) -> list[str]:
        """Take the keys to poll now. Each is due again only after `note`."""
        due = [key for key, at in self._due.items() if at <= now]
        for key in due:
            del self._due[key]
        return due

    def note(self, key: str, now: float, *, is_changed: bool, took_seconds: float) -> None:
        if key not in self._pauses:
            return
        pause = self._shortest_seconds if is_changed else self._pauses[key] * self._GROWTH
        pause = min(max(pause, took_seconds * self._REST), self._LONGEST_SECONDS)
        self._pauses[key] = pause
        self._due[key] = now + pause


# The most racy paths that are read again in one tick.
MOST_AT_ONCE = 200


class RacyPaths:
    """The paths that were hashed too soon after a change, until they are due to be read again."""

    def __init__(self, seen: Mapping[str, Seen], pause_seconds: float = USUAL_PACE.reread_seconds) -> None:
        self._seen = seen
        self._pause_seconds = pause_seconds
        self._waiting: deque[tuple[float, str]] = deque()

    def add(self, paths: Iterable[str]) -> None:
        due = time.monotonic() + self._pause_seconds
        self._waiting.extend((due, path) for path in paths)

    def take_due(self) -> dict[str, Seen]:
        """Take the paths to read again now, with their last seen state."""
        now = time.monotonic()
        paths: dict[str, Seen] = {}
        while self._waiting and self._waiting[0][0] <= now and len(paths) < MOST_AT_ONCE:
            _, path = self._waiting.popleft()
            if (seen := self._seen.get(path)) is not None:
                paths[path] = seen
        return paths


class Reread(NamedTuple):
    """The result of reading paths again: paths with other content, and paths of which only the stat changed.

    The watcher reports a changed stat, and knows whether the file was written (rule 17).
    """

    rewritten: list[str]
    moved: list[str]


def reread(paths: dict[str, Seen], is_closing: Callable[[], bool]) -> Reread:
    """Hash the paths again, because their stat keys can now be trusted."""
    demand = Demand(wants_content=True, is_closing=is_closing)
    found = Reread([], [])
    for path, seen in paths.items():
        try:
            now = read_entry(path, seen, demand)
        except CannotSee:
            now = None
        if now is seen:
            continue
        is_same = isinstance(now, Seen) and not now.is_unstable and (now.kind, now.digest) == (seen.kind, seen.digest)
        (found.moved if is_same else found.rewritten).append(path)
    return found
