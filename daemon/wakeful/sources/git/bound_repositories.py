"""Remembers the repository that each folder had when it was bound, and judges another repository in its place.

A run that may write around `.git` could put a pointer, links or borrowed objects there. The daemon would then read
another person's repository, so `source` and `checkouts` call `check` before they read. The answers are kept in the
state folder.

A different repository is accepted without a question on two conditions: it lies in the checkout or names the checkout
as its own (a linked worktree, a submodule), and it uses no objects or links from elsewhere. A run under way that may
write there delays this until its end. Any other repository is accepted only if no run could have put it there, or if a
person accepts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from wakeful.sources.git.git_command import GitRefusal, Place, list_trusted_folders
from wakeful.system.git_folders import GitDirs, find_borrowed, find_top, read_birth, read_git_dirs

_ABSENT = "absent"
_MOST_KEPT = 20_000


class FindWriter(Protocol):
    """Finds the session whose run could have put another `.git` into this checkout. None if no run could have.

    `was_there` means that the checkout had a `.git`, which runs cannot change. With `is_running`, only runs that are
    under way count.
    """

    def __call__(self, top: str, *, was_there: bool, is_running: bool) -> str | None: ...


def find_no_writer(top: str, *, was_there: bool, is_running: bool) -> str | None:
    return None


class _Found(NamedTuple):
    """The repository found now. `doubt` is the reason why it may belong to another checkout. None if there is none."""

    top: str
    words: str
    doubt: str | None


class BoundRepositories:
    """Remembers the repository of each bound folder, in `file` or, if that is None, in memory. Called on the loop."""

    def __init__(
        self,
        file: Path | None = None,
        find_writer: FindWriter = find_no_writer,
        list_trusted: Callable[[], Awaitable[Iterable[str]]] = list_trusted_folders,
    ) -> None:
        self._file = file
        self._find_writer = find_writer
        self._list_trusted = list_trusted
        # By folder: the checkout's top and its repository's description, as two lines.
        self._known = _read(file)
        # By folder: the place of its repository when that was last accepted.
        self._accepted: dict[str, Place] = {}

    async def check(self, folder: str, place: Place, *, is_explicit: bool = False) -> None:
        """Raise GitRefusal if the repository that git finds for this folder is not known to be the folder's own."""
        if self._accepted.get(folder) == place:
            return
        known = self._known.get(folder)
        found = await asyncio.to_thread(_look, folder, place, known, is_explicit)
        if found.words != known:
            await self._judge(found, known)
            self._keep(folder, found.words)
        self._accepted[folder] = place

    def note_absent(self, folder: str) -> None:
        """Record that there is no repository around this folder, so that a later one does not count as the first."""
        self._accepted.pop(folder, None)
        if self._known.get(folder) != _ABSENT:
            self._keep(folder, _ABSENT)

    async def _judge(self, found: _Found, known: str | None) -> None:
        # The folder was bound just now, so the person meant the repository that is there.
        if known is None:
            return
        was_there = known.startswith(f"{found.top}\n")
        if found.doubt is None:
            running = self._find_writer(found.top, was_there=was_there, is_running=True)
            if running is not None:
                raise GitRefusal(
                    f"{found.top} has a different repository, and a run of {running} that could have written it is "
                    "under way; the repository is accepted when that run has ended"
                )
            return
        writer = self._find_writer(found.top, was_there=was_there, is_running=False)
        if writer is None or f"safe.directory={found.top}" in await self._list_trusted():
            return
        raise GitRefusal(
            f"{found.doubt}; this is not the repository that was bound, and a run of {writer} could have put it there. "
            f"If it is yours: git config --global --add safe.directory {found.top}"
        )

    def _keep(self, folder: str, words: str) -> None:
        self._known.pop(folder, None)
        self._known[folder] = words
        while len(self._known) > _MOST_KEPT:
            del self._known[next(iter(self._known))]
        if self._file is None:
            return
        fresh = self._file.with_name(f".{self._file.name}.new")
        # If the disk is full, the answer is known until the daemon ends, and the next daemon binds the folder again.
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(self._known))
            fresh.replace(self._file)


def _look(folder: str, place: Place, known: str | None, is_explicit: bool) -> _Found:
    """Find the repository and describe it. Blocking. Links are checked only if `known` is another repository."""
    top = find_top(folder, has_bare=is_explicit)
    dirs = read_git_dirs(top) if top is not None else None
    if top is None or dirs is None or not _is_as_git_says(dirs, place):
        raise GitRefusal(
            f"{place.git_dir} does not match the .git files around {folder}, or was changed while it was checked"
        )
    words = _describe(dirs)
    if words == known or known is None:
        return _Found(top, words, None)
    return _Found(top, words, dirs.doubt or find_borrowed(dirs.common_dir))


def _is_as_git_says(dirs: GitDirs, place: Place) -> bool:
    ours, theirs = (dirs.git_dir, dirs.common_dir), (place.git_dir, place.common_dir)
    return all(os.path.realpath(one) == os.path.realpath(other) for one, other in zip(ours, theirs, strict=True))


def _describe(dirs: GitDirs) -> str:
    """Describe the folders of a repository and their real places. A difference means another repository."""
    places = (dirs.git_dir, dirs.common_dir, f"{dirs.common_dir}/objects", f"{dirs.common_dir}/refs")
    parts = [f"{os.path.realpath(path)}={_identify(path)}" for path in places]
    return f"{dirs.top}\n" + " ".join([*parts, f"alternates={_read_alternates(dirs.common_dir)}"])


def _identify(path: str) -> str:
    """Identify a folder by its inode and birth time. The device number may change when the machine restarts."""
    try:
        return f"{os.stat(path).st_ino}:{read_birth(path)}"
    except OSError:
        return "-"


def _read_alternates(common_dir: str) -> str:
    try:
        return Path(common_dir, "objects/info/alternates").read_bytes()[:4096].hex()
    except OSError:
        return ""


def _read(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {str(folder): str(words) for folder, words in found.items()} if isinstance(found, dict) else {}
