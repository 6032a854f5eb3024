"""Makes private folders, including missing parents with the same mode.

`os.makedirs` and `Path.mkdir` give their mode only to the last folder, and leave its parents to the umask. This module
makes every folder of the state folder, and the folders that runs get. It is its own module, because layers that must
not import each other use it. The state folder itself is made once, by its lock. While it is locked, nothing makes it
again: if it was deleted, its log is gone, too.
"""

from __future__ import annotations

import os
from pathlib import Path

# Folders that this process never makes again.
_kept: set[str] = set()


class FolderGone(FileNotFoundError):
    """Something was to be made in the state folder of this process, which was deleted or moved."""


def keep_folder(path: str | Path) -> None:
    """Never make this folder again. If it is missing, making a folder in it raises FolderGone."""
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
        raise FolderGone(2, "the state folder is gone, and is not made again while its daemon runs", path)
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
    """Make the names in a folder durable. A power cut can remove a synced file whose name was not synced."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
