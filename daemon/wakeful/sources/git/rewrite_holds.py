"""Holds looks while git rewrites the working tree, for at most ten minutes. Then the look is made anyway.

Owned by the file source, on the loop. A held target is hinted at again when its repository is free, or when the time is
over. Marker files in git's folder show that git is at work. No git is run, no lock is taken, and neither objects nor
configuration are read.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

# In order of precedence, because a rebase also leaves CHERRY_PICK_HEAD and index.lock behind.
_MARKERS = (
    ("rebase-merge", "git rebase"),
    ("rebase-apply", "git rebase"),
    ("MERGE_HEAD", "git merge"),
    ("CHERRY_PICK_HEAD", "git cherry-pick"),
    ("REVERT_HEAD", "git revert"),
    ("sequencer", "git cherry-pick"),
    ("BISECT_LOG", "git bisect"),
    ("index.lock", "git checkout"),
)
# Seconds until a `git init` in a folder without a repository is noticed.
_REMEMBERED_SECONDS = 10.0
_LONGEST_GIT_FILE_BYTES = 4096
_CHECK_SECONDS = 0.25
# The most seconds of a hold. A rebase that was left unfinished for days must not hold looks for days.
LONGEST_HOLD_SECONDS = 600.0


class GitHolds:
    def __init__(self, loop: asyncio.AbstractEventLoop, release: Callable[[tuple[str, ...]], None]) -> None:
        """`release` is called with the targets whose looks no longer need to wait."""
        self._loop = loop
        self._release = release
        self._repositories = Repositories()
        # By target: the git folder that it waits for. By git folder: the moment since which git is busy there.
        self._held: dict[str, str] = {}
        self._busy_since: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, key: str, folder: str) -> str | None:
        """Return why a look at this target, whose files begin at this folder, must wait. None if it need not wait."""
        git_dir = self._repositories.git_dir(folder)
        if git_dir is None:
            return None
        reason = busy_reason(git_dir)
        if reason is None:
            self._busy_since.pop(git_dir, None)
            return None
        now = time.monotonic()
        if now - self._busy_since.setdefault(git_dir, now) > LONGEST_HOLD_SECONDS:
            return None
        self._held[key] = git_dir
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_SECONDS, self._check)
        return reason

    def forget(self, key: str) -> None:
        self._held.pop(key, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

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


def busy_reason(git_dir: str) -> str | None:
    """Return the operation under way in this git folder (for a worktree, its own folder). None if there is none."""
    for marker, reason in _MARKERS:
        # `access` raises nothing for a missing file, which is the usual case, and so costs a third of a stat.
        if os.access(f"{git_dir}/{marker}", os.F_OK):
            return reason
    return None


class Repositories:
    """A cache of git folders, because ten thousand bindings are mostly in the same few working trees."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str | None]] = {}

    def git_dir(self, folder: str) -> str | None:
        """Return the git folder of the working tree that contains this folder or file. None if there is none."""
        now = time.monotonic()
        known = self._known.get(folder)
        if known is not None and now < known[0]:
            return known[1]
        found = _git_dir_at(folder)
        parent = os.path.dirname(folder)
        if found is None and parent != folder:
            found = self.git_dir(parent)
        self._known[folder] = (now + _REMEMBERED_SECONDS, found)
        return found


def _git_dir_at(folder: str) -> str | None:
    candidate = f"{folder.rstrip('/')}/.git"
    # Called for every folder with a binding, and the answer is nearly always no.
    if not os.access(candidate, os.F_OK):
        return None
    try:
        with open(candidate, "rb") as file:
            text = file.read(_LONGEST_GIT_FILE_BYTES)
    except IsADirectoryError:
        # A folder named .git without a repository (an empty leftover) has no operation under way either.
        return candidate
    except OSError:
        return None
    # A worktree or submodule: `gitdir: <path>`, relative to the folder of this file.
    prefix = b"gitdir: "
    if not text.startswith(prefix):
        return None
    return os.path.normpath(os.path.join(folder, os.fsdecode(text[len(prefix) :].strip())))
