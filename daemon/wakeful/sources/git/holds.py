"""Holds on looks while git rewrites the working tree: at most ten minutes, then the look is made anyway.

Owned by the file source, on the loop. A target that is held is hinted at again when its repository is free, or overdue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from wakeful.sources.git.repository import Repositories, busy_reason

_CHECK_SECONDS = 0.25
# A rebase left lying for days must not hold its readers for days.
LONGEST_HOLD_SECONDS = 600.0


class GitHolds:
    def __init__(self, loop: asyncio.AbstractEventLoop, release: Callable[[tuple[str, ...]], None]) -> None:
        """`release` is called with the targets whose looks need not wait any longer."""
        self._loop = loop
        self._release = release
        self._repositories = Repositories()
        # Target -> the git folder it waits for; and that folder -> since when it is busy.
        self._held: dict[str, str] = {}
        self._busy_since: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, key: str, folder: str) -> str | None:
        """Why a look at this target, whose files begin at this folder, must wait; None: it need not wait."""
        git_dir, reason = self._find(folder)
        if git_dir is None or reason is None:
            if git_dir is not None:
                self._busy_since.pop(git_dir, None)
            return None
        now = time.monotonic()
        if now - self._busy_since.setdefault(git_dir, now) > LONGEST_HOLD_SECONDS:
            return None
        self._held[key] = git_dir
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_SECONDS, self._check)
        return reason

    def is_busy(self, folder: str) -> bool:
        return self._find(folder)[1] is not None

    def forget(self, key: str) -> None:
        self._held.pop(key, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _find(self, folder: str) -> tuple[str | None, str | None]:
        """The repository a folder lies in, and why git is rewriting its working tree, if it is."""
        git_dir = self._repositories.git_dir(folder)
        return git_dir, busy_reason(git_dir) if git_dir is not None else None

    def _check(self) -> None:
        now = time.monotonic()
        free: set[str] = set()
        for git_dir in set(self._held.values()):
            if busy_reason(git_dir) is None:
                self._busy_since.pop(git_dir, None)
                free.add(git_dir)
            elif now - self._busy_since.get(git_dir, now) > LONGEST_HOLD_SECONDS:
                free.add(git_dir)
        released = tuple(key for key, git_dir in self._held.items() if git_dir in free)
        for key in released:
            del self._held[key]
        self._timer = self._loop.call_later(_CHECK_SECONDS, self._check) if self._held else None
        if released:
            self._release(released)
