"""Private folders and files: folders that only their owner can use, and small files that are replaced atomically and
read again only after a change.

`os.makedirs` and `Path.mkdir` give their mode only to the last folder, and leave its parents to the umask. This module
makes every folder of the state folder, and the folders that runs get, with missing parents of the same mode. The state
folder itself is made once, by its lock. While it is locked, nothing makes it again: if it was deleted, its log is gone,
too.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

# Folders that this process never makes again.
_kept: set[str] = set()


class FolderGone(FileNotFoundError):
    """A folder cannot be made, because the state folder of this process was deleted or moved."""


def keep_folder(path: str | Path) -> None:
    """Never make this folder again. While it is missing, making a folder in it raises FolderGone."""
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


ValueT = TypeVar("ValueT")


class NotOursAlone(OSError):
    """Others can read or write the file, or it is not a file."""


class ChangesInTurn:
    """Makes changes of private files that depend on each other, one at a time. Each change and its checks run in a
    thread.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def make(self, change: Callable[[], ValueT]) -> ValueT:
        async with self._turn:
            return await asyncio.to_thread(change)


def replace_private(path: Path, content: bytes) -> None:
    """Replace the content of a file, durably. Blocking.

    A crash leaves the old file or the new one, and perhaps a file whose name begins with a dot.
    """
    # mkstemp makes the file with mode 0600.
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(path.parent)


class PrivateFile(Generic[ValueT]):
    """A small file that is checked at every request, and decoded only if it changed. Read in any thread."""

    def __init__(self, path: Path, decode: Callable[[bytes], ValueT], absent: ValueT) -> None:
        """`absent` is the value while there is no file."""
        self.path = path
        self._decode = decode
        self._absent = absent
        # The value, and the stat of its file. Both are replaced together, because several threads read them.
        self._known: tuple[ValueT, tuple[int, ...] | None] = (absent, None)

    def read(self) -> ValueT:
        """Return the decoded value. Raises NotOursAlone, another OSError, or what `decode` raises."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            self._known = (self._absent, None)
            return self._absent
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise NotOursAlone(f"{self.path} must be a regular file that only its owner can read and write")
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            value, known = self._known
            if seen != known:
                value = self._decode(file.read())
                self._known = (value, seen)
        return value
