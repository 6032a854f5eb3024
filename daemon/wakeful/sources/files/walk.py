"""A pruned walk: finds every file below a folder that a target matches, and watches each folder before it reads it.

The walk goes level by level, so that the watcher is called once per level and not once per folder. Looks call it,
mostly in a thread. It never enters an excluded folder, a linked folder or the state folder. A folder that it cannot
read never counts as an empty folder (rule 5).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Container, Iterable, Sequence

from wakeful.core.looking.patterns import Excludes, Pattern, contains
from wakeful.sources.files.entry import Allowance, Listing, TooLarge, describe_problem, list_folder

Arm = Callable[[Iterable[str]], None]
ListAhead = Callable[[Sequence[str]], Iterable[Listing | None]]


# The folder below the state folder that holds the workspaces of forks.
WORKSPACES = "workspaces"


class StateFolder:
    """The daemon's own folder, which is never watched, walked or read.

    It is recognized by its path, and by its device and inode, because a pattern may reach it under another name. The
    workspaces of forks are in it. Only the forks use them: a pattern that begins outside never reaches them.
    """

    __slots__ = ("_identity", "_paths", "_workspaces", "inode")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.path.abspath(path)
        self._paths = tuple({text, os.path.realpath(text)})
        self._workspaces = tuple(f"{own}/{WORKSPACES}/" for own in self._paths)
        try:
            found = os.stat(text)
        except FileNotFoundError:
            self._identity, self.inode = None, -1
        else:
            self._identity, self.inode = (found.st_dev, found.st_ino), found.st_ino

    def holds(self, path: str) -> bool:
        """Is this path the state folder, or inside it and not in a fork's workspace? Compares only the text of the
        path.
        """
        return any(contains(own, path) for own in self._paths) and not path.startswith(self._workspaces)

    def lies_below(self, base: str) -> bool:
        """Would a pattern with this base reach the state folder?"""
        lead = f"{base.rstrip('/')}/"
        return any(own.startswith(lead) for own in self._paths)

    def is_workspace(self, path: str) -> bool:
        return path.startswith(self._workspaces)

    def is_folder(self, path: str, inode: int) -> bool:
        """Is this folder, found with this inode, the state folder under any name?"""
        if self.holds(path):
            return True
        if inode != self.inode:
            return False
        try:
            found = os.stat(path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity


class Walked:
    """The result of a walk. `folders` holds the mtime of each folder, by which the sweep notices a missed name."""

    __slots__ = ("files", "folders", "is_missing", "problems")

    def __init__(self) -> None:
        # True if there is no folder at which the walk could begin.
        self.is_missing = False
        self.files: list[str] = []
        self.folders: dict[str, int] = {}
        self.problems: list[str] = []


class Walker:
    """The rules for walks of one target."""

    __slots__ = ("_excludes", "_is_above_state", "_pattern", "_start", "_state")

    def __init__(self, pattern: Pattern, excludes: Excludes, start: int, state: StateFolder) -> None:
        self._pattern = pattern
        self._excludes = excludes
        self._start = start
        self._state = state
        # Only these patterns could match a path in a fork's workspace.
        self._is_above_state = state.lies_below(pattern.base)

    def means(self, path: str) -> bool:
        if self._is_above_state and self._state.is_workspace(path):
            return False
        return self._pattern.matches(path) and self._excludes.covers(path, self._start) is None

    def excluded_by(self, path: str) -> str | None:
        return self._excludes.covers(path, self._start)

    def enters(self, folder: str) -> bool:
        if folder == self._pattern.base:
            return True
        if self._is_above_state and self._state.is_workspace(folder):
            return False
        return self._pattern.enters(folder) and (
            len(folder) < self._start or not self._excludes.prunes(folder, self._start)
        )

    def walk(
        self, top: str, arm: Arm, allowance: Allowance | None, list_ahead: ListAhead, meant: Container[str] = ()
    ) -> Walked:
        """Walk from `top`, level by level.

        `list_ahead` lists the folders of a level in another process, and returns None for those that must be listed
        here. `meant` holds paths that are known to match, so the pattern is not checked for them again.
        """
        walked = Walked()
        level = [top]
        while level:
            # Watch first, then list. A name that appears after the listing is reported, and an earlier name is listed.
            arm(level)
            below: list[str] = []
            for folder, listing in zip(level, list_ahead(level), strict=True):
                try:
                    self._take(folder, listing or self._list(folder, allowance), walked, below, meant)
                except OSError as problem:
                    if problem.errno not in (errno.ENOENT, errno.ENOTDIR):
                        walked.problems.append(describe_problem(folder, problem))
                    elif folder is top:
                        walked.is_missing = True
                    # Otherwise the folder was removed after it was listed. Its parent was watched before, and has
                    # reported it.
            level = below
        return walked

    def _list(self, folder: str, allowance: Allowance | None) -> Listing:
        listing = list_folder(folder, allowance.entries_left if allowance is not None else sys.maxsize)
        if listing is None:
            raise TooLarge
        if allowance is not None:
            allowance.spend(entries=len(listing.files) + len(listing.folders))
        return listing

    def _take(self, folder: str, listing: Listing, walked: Walked, below: list[str], meant: Container[str]) -> None:
        walked.folders[folder] = listing.mtime
        lead = folder if folder.endswith("/") else f"{folder}/"
        # The code of `means`, inlined for paths below the pattern's base. It runs for every file at a start, and is a
        # third of the cost.
        fits, behind, covers = (
            self._pattern.below_base().fullmatch,
            len(self._pattern.base.rstrip("/")) + 1,
            self._excludes.covers,
        )
        if not (self._is_above_state and self._state.is_workspace(lead)):
            paths = [lead + name for name in listing.files]
            walked.files += [
                path for path in paths if path in meant or (fits(path, behind) and covers(path, self._start) is None)
            ]
        for name, inode in listing.folders:
            path = lead + name
            if self.enters(path) and not self._state.is_folder(path, inode):
                below.append(path)
