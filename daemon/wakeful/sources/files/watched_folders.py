"""The watched folders with the number of targets that need each, and the links whose files are in other folders.

Owned by the file source, on the loop. A folder that no target needs is returned, so that its watch is removed. A folder
that was watched as soon as it was reported is kept for a while, until a look has found and counted it. Looks record
where each link leads, so that a hint about a file is also a hint about its links.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping


class WatchedFolders:
    def __init__(self, approval_seconds: float) -> None:
        self._approval_seconds = approval_seconds
        # By watched folder: how many targets need it, and its mtime when it was last listed (-1 if it was only
        # watched).
        self._needed: dict[str, int] = {}
        self.mtimes: dict[str, int] = {}
        self._common: dict[tuple[str, ...], dict[str, int]] = {}
        self._unneeded: set[str] = set()
        # By folder that was watched as soon as it was reported: the time by which a look must have found and counted
        # it.
        self._on_approval: dict[str, float] = {}

    def __contains__(self, folder: str) -> bool:
        return folder in self._needed

    def renew(self, before: Mapping[str, int], left: dict[str, int], found: Mapping[str, int]) -> dict[str, int]:
        """Count the folders of one target: it needed `before` and needs `left`, of which `found` were just visited.

        Returns the folders to keep.
        """
        for folder in left.keys() - before.keys():
            self._needed[folder] = self._needed.get(folder, 0) + 1
        for folder, mtime in found.items():
            if mtime >= 0 or folder not in self.mtimes:
                self.mtimes[folder] = mtime
        self.release(before.keys() - left.keys())
        # Literal targets of one folder need the same few folders above them, so they share one dictionary.
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
        """Keep a folder that was watched before any target needed it."""
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


class Links:
    def __init__(self) -> None:
        # By file behind links: the links that lead to it. By link: the file that it led to at its last look.
        self._links: dict[str, set[str]] = {}
        self._led: dict[str, str] = {}

    def note(self, visited: Mapping[str, object], links: Mapping[str, str]) -> None:
        """Record the result of a look.

        `links` holds the file of each link. Any other visited path is not a link now.
        """
        for link in self._led.keys() & visited.keys() if self._led else ():
            if self._led[link] != links.get(link):
                self._drop(link)
        for link, real in links.items():
            self._led[link] = real
            self._links.setdefault(real, set()).add(link)

    def _drop(self, link: str) -> None:
        real = self._led.pop(link)
        self._links[real].discard(link)
        if not self._links[real]:
            del self._links[real]

    def list_with(self, path: str) -> Iterable[str]:
        """List a path and all links that lead to it, each once."""
        found = {path: None}
        for one in (ahead := [path]):
            for link in self._links.get(one, ()):
                if link not in found:
                    found[link] = None
                    ahead.append(link)
        return found


def leave_out(folders: dict[str, int], trees: tuple[str, ...]) -> dict[str, int]:
    """Return the folders outside these trees, as a copy.

    A look that renewed no tree must not call this. Otherwise each save of a file would copy 2,000 folders.
    """
    inside = tuple(f"{tree}/" for tree in trees)
    return {folder: mtime for folder, mtime in folders.items() if not f"{folder}/".startswith(inside)}
