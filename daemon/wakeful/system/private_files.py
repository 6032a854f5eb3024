"""Private files: replaced atomically, and read again only after a change."""

from __future__ import annotations

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


def replace_private(path: Path, content: bytes) -> None:
    """Replace the content of a file, durably. A crash leaves the old file or the new one, and perhaps a file whose name
    begins with a dot."""
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
    """A small file that is checked at every request, and decoded only if it changed."""

    def __init__(self, path: Path, decode: Callable[[bytes], ValueT], absent: ValueT) -> None:
        """`absent` is the value while there is no file."""
        self.path = path
        self._decode = decode
        self._absent = absent
        self._value = absent
        self._seen: tuple[int, ...] | None = None

    def read(self) -> ValueT:
        """Return the decoded value. Raises NotOursAlone, another OSError, or what `decode` raises."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            self._value, self._seen = self._absent, None
            return self._value
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise NotOursAlone(f"{self.path} must be a regular file that only its owner can read and write")
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if seen != self._seen:
                self._value = self._decode(file.read())
                self._seen = seen
        return self._value
