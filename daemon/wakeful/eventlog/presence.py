"""Are the files of an open store still the ones that were opened, under their names?

SQLite writes on to a file that was deleted, and nobody finds what it wrote. So the writer looks before it acknowledges a group, and every few
seconds at rest: each file must have the device and inode it had when the store was opened, and must not be shorter than it was. Seven calls of `stat`.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from wakeful.eventlog.statelock import LOCK
from wakeful.eventlog.store import StoreFiles

_FRAME_HEADER_BYTES = 24
_WAL_HEADER_BYTES = 32


class _Known(msgspec.Struct):
    device: int
    inode: int
    size: int


class Loss(msgspec.Struct, frozen=True):
    """The fate of a file. `is_whole`: what the writer still has open is all there, under no name or another."""

    words: str
    is_whole: bool


class Presence:
    """The files of one store as its writer opened them; made while all of them are there."""

    def __init__(self, files: StoreFiles, page_bytes: int) -> None:
        wal, index = (f"{files.database}-{end}" for end in ("wal", "shm"))
        self.frame_bytes = page_bytes + _FRAME_HEADER_BYTES
        self._wal, self._sized = wal, (str(files.database), str(files.anchor))
        # From the outside in: of a folder that is gone, its files need not be named.
        paths = (files.state_dir, files.state_dir / LOCK, files.folder, files.database, files.anchor, wal, index)
        self._known = {str(path): _look(path) for path in paths}
        self._main = (str(files.state_dir), str(files.folder), str(files.database))

    def find_loss(self, wal_frames: int = 0) -> Loss | None:
        """The first file that is not the one that was opened; None when all are. `wal_frames`: so many the write-ahead log must hold."""
        for path, known in self._known.items():
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return Loss(f"{path} is gone", is_whole=True)
            if not _is_same(known, found):
                return Loss(f"{path} was replaced by another", is_whole=True)
            least = self._find_least(path, known, found.st_size, wal_frames)
            if found.st_size < least:
                return Loss(f"{path} was cut to {found.st_size} of {least} bytes", is_whole=False)
        return None

    def holds_frames(self, wal_frames: int) -> bool:
        """Is the write-ahead log as long as its frames? The one call that every group can afford before it is written."""
        try:
            return os.stat(self._wal).st_size >= self._find_wal_bytes(wal_frames)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def has_database(self) -> bool:
        """Is the main file still the one that was opened, whatever became of those beside it?"""
        try:
            return all(_is_same(self._known[path], os.stat(path)) for path in self._main)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _find_least(self, path: str, known: _Known, size: int, wal_frames: int) -> int:
        """Neither the main file nor the anchor is ever made shorter while the store is open; the write-ahead log is, by its writer."""
        if path in self._sized:
            least, known.size = known.size, max(known.size, size)
            return least
        return self._find_wal_bytes(wal_frames) if path == self._wal else 0

    def _find_wal_bytes(self, wal_frames: int) -> int:
        return _WAL_HEADER_BYTES + wal_frames * self.frame_bytes if wal_frames else 0


def _is_same(known: _Known, found: os.stat_result) -> bool:
    return (found.st_dev, found.st_ino) == (known.device, known.inode)


def _look(path: str | Path) -> _Known:
    found = os.stat(path)
    return _Known(found.st_dev, found.st_ino, found.st_size)
