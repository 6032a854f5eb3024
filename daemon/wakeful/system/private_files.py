"""Private files: replaced atomically, and read again only after a change."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from wakeful.system.private_folders import sync_folder

ValueT = TypeVar("ValueT")


class NotOursAlone(OSError):
    """Others can read or write the file, or it is not a file."""


class ChangesInTurn:
    """Changes of private files that depend on each other: each is made in a thread, with its checks, one at a time."""

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
        # The value, and the stat of the file that it was read from: replaced together, since threads read, too.
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
