"""A repository as seen without running git: where it is, and whether an operation is under way.

The file source reads it to hold looks while git rewrites the working tree. It only stats marker files; it never takes a
lock, and never reads objects or configuration.
"""

from __future__ import annotations

import os
import time

# In the order in which they explain what is going on: a rebase also leaves CHERRY_PICK_HEAD and index.lock behind.
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
# `git init` in a folder that had no repository is noticed this late.
_REMEMBERED_SECONDS = 10.0
_LONGEST_GIT_FILE_BYTES = 4096


def busy_reason(git_dir: str) -> str | None:
    """The operation under way in this git folder (of a worktree: its own), or None."""
    for marker, reason in _MARKERS:
        # Raises nothing where nothing is, which is the rule: a third of the cost of a stat.
        if os.access(f"{git_dir}/{marker}", os.F_OK):
            return reason
    return None


def find_git_dir(path: str) -> str | None:
    """The git folder of the working tree that this folder or file lies in, or None outside of any."""
    folder = path
    while True:
        found = _git_dir_at(folder)
        if found is not None:
            return found
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


class Repositories:
    """`find_git_dir`, remembered for a while: ten thousand bindings mostly lie in the same few working trees."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str | None]] = {}

    def git_dir(self, folder: str) -> str | None:
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
    # Asked of every folder with a binding, and nearly always no.
    if not os.access(candidate, os.F_OK):
        return None
    try:
        with open(candidate, "rb") as file:
            text = file.read(_LONGEST_GIT_FILE_BYTES)
    except IsADirectoryError:
        # A folder named .git that holds no repository (an empty leftover) has no operation under way either.
        return candidate
    except OSError:
        return None
    # A worktree or submodule: `gitdir: <path>`, relative to the folder the file is in.
    prefix = b"gitdir: "
    if not text.startswith(prefix):
        return None
    return os.path.normpath(os.path.join(folder, os.fsdecode(text[len(prefix) :].strip())))
