"""Content-addressed files: what is too large for an event and too small for a file system of its own.

Runners put a run's output here before its end is reported; views and the API read it. A blob is on disk when `put` returns,
is never changed, and is checked against its address when it is read. Every call blocks: off the loop, in a thread.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from typing import BinaryIO

from wakeful.errors import CallerError, OperatorError

_ADDRESS = re.compile(r"blake2b-([0-9a-f]{2})([0-9a-f]{62})")


class UnknownBlob(CallerError):
    """No blob has this address: it was never kept, or retention removed it."""


class DamagedBlob(OperatorError):
    """The file's content is not what its name says."""


class Blobs:
    """The blobs below one folder, which only this class writes to."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def put(self, content: bytes) -> str:
        """Keep `content` and return its address. The same content is kept once."""
        address = f"blake2b-{hashlib.blake2b(content, digest_size=32).hexdigest()}"
        path = self._path(address)
        if not os.path.exists(path):
            self._write(path, content)
        return address

    def get(self, address: str) -> bytes:
        with self.open(address) as file:
            content = file.read()
        if f"blake2b-{hashlib.blake2b(content, digest_size=32).hexdigest()}" != address:
            raise DamagedBlob(f"{self._path(address)}: the content differs from its address; restore it from a backup")
        return content

    def open(self, address: str) -> BinaryIO:
        """For reading in pieces, unchecked."""
        try:
            return open(self._path(address), "rb")
        except FileNotFoundError:
            raise UnknownBlob(f"no blob {address!r}: it was never kept, or retention removed it") from None

    def _path(self, address: str) -> str:
        parts = _ADDRESS.fullmatch(address)
        if parts is None:
            raise UnknownBlob(f"{address!r} is no address of a blob; expected 'blake2b-' and 64 hexadecimal digits")
        return os.path.join(self._folder, parts[1], parts[2])

    def _write(self, path: str, content: bytes) -> None:
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # mkstemp gives 0600. A crash leaves at worst a temporary file, never half a blob under a good name.
        fd, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
