"""Paths that were hashed so soon after their last change that another change could hide in the same timestamp.

Owned by the file source, on the loop. Each is handed out once, some seconds later, to be read again (the racy-clean rule of git).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from wakeful.sources.files.entry import CannotSee, Demand, Seen, read_entry

# A path hashed within 2 s of its change is read once more after that; so many a second.
PAUSE_SECONDS = 2.5
MOST_AT_ONCE = 200


class RacyPaths:
    def __init__(self, seen: Mapping[str, Seen]) -> None:
        self._seen = seen
        self._waiting: deque[tuple[float, str]] = deque()

    def add(self, paths: Iterable[str]) -> None:
        due = time.monotonic() + PAUSE_SECONDS
        self._waiting.extend((due, path) for path in paths)

    def take_due(self) -> dict[str, Seen]:
        """Those to be read again now, as they were last seen."""
        now = time.monotonic()
        paths: dict[str, Seen] = {}
        while self._waiting and self._waiting[0][0] <= now and len(paths) < MOST_AT_ONCE:
            _, path = self._waiting.popleft()
            if (seen := self._seen.get(path)) is not None:
                paths[path] = seen
        return paths


class Reread(NamedTuple):
    """Of paths that were read again: those that hold other content, and those whose stat alone moved.

    A stat that moved is reported by whoever watches the path, who also tells whether it was written (rule 17)."""

    rewritten: list[str]
    moved: list[str]


def reread(paths: dict[str, Seen], is_closing: Callable[[], bool]) -> Reread:
    """Hash them again, now that their stat keys can be trusted."""
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
