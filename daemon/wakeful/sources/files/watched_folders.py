"""The folders that are armed, and how many targets need each of them.

Owned by the file source, on the loop. A folder that nobody needs any more is handed out to be disarmed; one that was armed as
soon as it was reported is kept for a while, until a look has found and counted it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping


class WatchedFolders:
    def __init__(self, approval_seconds: float) -> None:
        self._approval_seconds = approval_seconds
        # Armed folder -> how many targets need it, and its mtime when last listed (-1: armed only).
        self._needed: dict[str, int] = {}
        self.mtimes: dict[str, int] = {}
        self._common: dict[tuple[str, ...], dict[str, int]] = {}
        self._unneeded: set[str] = set()
        # Folders armed as soon as they were reported -> until when a look must have found and counted them.
        self._on_approval: dict[str, float] = {}

    def __contains__(self, folder: str) -> bool:
        return folder in self._needed

    def renew(self, before: Mapping[str, int], left: dict[str, int], found: Mapping[str, int]) -> dict[str, int]:
        """One target needed the folders `before` and needs those `left`, of which `found` were just visited; what it is to keep."""
        for folder in left.keys() - before.keys():
            self._needed[folder] = self._needed.get(folder, 0) + 1
        for folder, mtime in found.items():
            if mtime >= 0 or folder not in self.mtimes:
                self.mtimes[folder] = mtime
        self.release(before.keys() - left.keys())
        # Literal targets of one folder need the same few folders above them: one dictionary for all.
        return left if max(left.values(), default=0) >= 0 else self._common.setdefault(tuple(left), left)

    def release(self, folders: Iterable[str]) -> None:
        for folder in folders:
            count = self._needed.get(folder, 0) - 1
            if count > 0:
                self._needed[folder] = count
            else:
                self._needed.pop(folder, None)
                self.mtimes.pop(folder, None)
                self._unneeded.add(folder)

    def approve(self, folder: str) -> None:
        """It was armed before anybody counted it."""
        if folder not in self._needed:
            self._on_approval[folder] = time.monotonic() + self._approval_seconds

    def end_approvals(self) -> None:
        now = time.monotonic()
        over = [folder for folder, until in self._on_approval.items() if until <= now or folder in self._needed]
        for folder in over:
            del self._on_approval[folder]
        self._unneeded.update(folder for folder in over if folder not in self._needed)

    def take_unneeded(self) -> list[str]:
        unneeded = [
            folder for folder in self._unneeded if folder not in self._needed and folder not in self._on_approval
        ]
        self._unneeded.clear()
        return unneeded
