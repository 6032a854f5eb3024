"""Folders that nobody else may look into, made whole: a parent that vanished returns as private as it was.

`os.makedirs` and `Path.mkdir` give their mode to the last folder alone, and leave those above it to the umask. All of
the state folder, and what runs are given, is made by this instead. A module of its own because layers that know nothing
of each other make such folders. The state folder itself is made once, by its lock. While it is locked nothing makes it
anew: a state folder that was deleted took its log along.
"""

from __future__ import annotations

import os
from pathlib import Path

# Folders that are never made anew by this process.
_kept: set[str] = set()


class FolderGone(FileNotFoundError):
    """The state folder of this process was deleted or moved, and something was to be made in it."""


def keep_folder(path: str | Path) -> None:
    """From now on this folder is not made: it exists, or what should lie in it cannot be made."""
    _kept.update((os.fspath(path), os.path.realpath(path)))


def let_folder_go(path: str | Path) -> None:
    """Undo `keep_folder`."""
    _kept.difference_update((os.fspath(path), os.path.realpath(path)))


def make_private(path: str | Path) -> None:
    """Make a folder that only its owner can use, if it does not exist. An existing folder is left unchanged."""
    _make(os.fspath(path), 0o700)


def make_plain(path: str | Path) -> None:
    """Make a folder with the rights that the umask leaves, and the folders above it, if they do not exist."""
    _make(os.fspath(path), 0o777)


def _make(path: str, mode: int) -> None:
    if path in _kept and not os.path.isdir(path):
        raise FolderGone(2, "the state folder is gone, and is not made anew while its daemon runs", path)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above in ("", path):
            raise
        _make(above, mode)
        _make(path, mode)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; a synced file under an unsynced name can vanish in a power cut."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
