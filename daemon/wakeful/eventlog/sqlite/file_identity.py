"""Detects that the files of an open store were deleted, replaced or truncated.

SQLite continues to write to a deleted file, and those records are lost. So the writer checks before it acknowledges a
group, and every few seconds at rest. Each file must have the device and inode it had when the store was opened, and
must not have become shorter. That is five calls of `stat`. If a folder is gone or replaced, so are its files, so
folders are checked only for the message.
"""

from __future__ import annotations

import os

import msgspec

from wakeful.eventlog.sqlite.files import StoreFiles
from wakeful.eventlog.state_lock import LOCK

_FRAME_HEADER_BYTES = 24
_WAL_HEADER_BYTES = 32


class _Known(msgspec.Struct):
    device: int
    inode: int
    size: int


class Loss(msgspec.Struct, frozen=True):
    """A file that is gone, replaced or truncated.

    `is_whole` means that the open file still has all its bytes, under another name or without a name.
    """

    words: str
    is_whole: bool


class FileIdentity:
    """The files of one store as its writer opened them. Constructed while all of them exist."""

    def __init__(self, files: StoreFiles, page_bytes: int) -> None:
        self.frame_bytes = page_bytes + _FRAME_HEADER_BYTES
        self._database, self._anchor, self._wal = str(files.database), str(files.anchor), f"{files.database}-wal"
        names = (str(files.state_dir / LOCK), self._database, self._anchor, self._wal, f"{files.database}-shm")
        self._files = {name: _look(name) for name in names}
        self._folders = {name: _look(name) for name in (str(files.state_dir), str(files.folder))}

    def find_loss(self, wal_frames: int = 0) -> Loss | None:
        """Return the loss of the first file that was deleted, replaced or truncated. None if there is no such file.

        `wal_frames`: the number of frames that the write-ahead log must contain.
        """
        for path, known in self._files.items():
            found = _find(path)
            if found is None or not _is_same(known, found):
                return self._describe(path, found)
            if path == self._wal:
                least = self._find_wal_bytes(wal_frames)
            elif path in (self._database, self._anchor):
                # The database and the anchor never shrink while the store is open.
                least, known.size = known.size, max(known.size, found.st_size)
            else:
                least = 0
            if found.st_size < least:
                return Loss(f"{path} was cut to {found.st_size} of {least} bytes", is_whole=False)
        return None

    def holds_frames(self, wal_frames: int) -> bool:
        """Is the write-ahead log long enough for its frames? One `stat`, cheap enough before every group."""
        found = _find(self._wal)
        return found is not None and found.st_size >= self._find_wal_bytes(wal_frames)

    def has_database(self) -> bool:
        """Is the main file still the opened one? The files next to it do not count."""
        found = _find(self._database)
        return found is not None and _is_same(self._files[self._database], found)

    def _describe(self, path: str, found: os.stat_result | None) -> Loss:
        """Describe a loss.

        If a folder is gone or replaced, it is named instead of its files, the outermost first.
        """
        for folder, known in self._folders.items():
            seen = _find(folder)
            if seen is None or not _is_same(known, seen):
                path, found = folder, seen
                break
        return Loss(f"{path} is gone" if found is None else f"{path} was replaced by another", is_whole=True)

    def _find_wal_bytes(self, wal_frames: int) -> int:
        return _WAL_HEADER_BYTES + wal_frames * self.frame_bytes if wal_frames else 0


def _is_same(known: _Known, found: os.stat_result) -> bool:
    return (found.st_dev, found.st_ino) == (known.device, known.inode)


def _find(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _look(path: str) -> _Known:
    found = os.stat(path)
    return _Known(found.st_dev, found.st_ino, found.st_size)
