"""The archive of old blobs: zip files, one per round of retention. The name of an entry is the address of its blob.

Retention moves blobs here, `Blobs` reads them from here on demand, and erase removes them. Any zip program can read the
files. A file is written completely and read back against the addresses before any blob is removed from its old place.
No file is ever deleted.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from wakeful.bundles.format import count_digest
from wakeful.errors import OperatorError
from wakeful.system.blobs import Blobs, DamagedBlob, UnknownBlob, address_of
from wakeful.system.private_files import make_private, sync_folder

_LEVEL = 3
# The time of every entry. It is fixed, so that the same contents always give the same file.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_PRIVATE = 0o600 << 16


class ArchiveDamaged(OperatorError):
    """The archive cannot be read back as it was written. Nothing was removed."""


class Moved(msgspec.Struct, frozen=True):
    """The blobs that went into one file of the archive."""

    path: Path
    blobs: int
    size_bytes: int


class BlobArchive:
    """The zip files of one folder, which may not exist yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The addresses in each file. The cache is valid for the file's size and time, because a person may add or
        # remove files.
        self._names: dict[Path, tuple[tuple[int, int], frozenset[str]]] = {}

    def holds(self, address: str) -> bool:
        return self._find(address) is not None

    def find_damage(self) -> Iterator[tuple[Path, str]]:
        """Yield the files whose list of entries cannot be read, with the reason. Entries are not checked here."""
        for path in self._list():
            try:
                self._read_names(path)
            except ArchiveDamaged as damaged:
                yield path, str(damaged)

    def read(self, address: str) -> bytes | None:
        """Read a blob's content, without checking it: `Blobs.get` does that. None if no file has the blob.

        Raises ArchiveDamaged if the entry, or a file that may have the entry, cannot be read.
        """
        path = self._find(address)
        if path is None:
            # The blob may be in a file that cannot be read. Returning None would wrongly mean that the blob was never
            # kept.
            for _, wrong in self.find_damage():
                raise ArchiveDamaged(f"{address} is not among the open blobs, and {wrong}")
            return None
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(address)
        except (zipfile.BadZipFile, OSError, KeyError) as error:
            raise ArchiveDamaged(
                f"{path}: {address} cannot be read from it: {error}; put it back from a backup"
            ) from error

    def move(self, blobs: Blobs, addresses: Iterable[str], name: str) -> Moved | None:
        """Write these blobs to a new file, read them back, then remove them from `blobs`.

        None if no such blob exists.
        """
        make_private(self._folder)
        path = self._find_free(name)
        partial = path.with_name(f".{path.name}.partial")
        partial.unlink(missing_ok=True)  # left by a round that was killed
        total = _write(partial, _read_all(blobs, addresses))
        written = _check(partial)
        if not written:
            partial.unlink()
            return None
        os.rename(partial, path)
        sync_folder(self._folder)
        blobs.let_go(written)
        return Moved(path, len(written), total)

    def remove(self, addresses: Iterable[str]) -> None:
        """Erase these blobs. Every file that has one is rewritten without it."""
        gone = frozenset(addresses)
        for path in self._list():
            if gone.isdisjoint(self._read_names(path)):
                continue
            fresh = path.with_name(f".{path.name}.erased")
            fresh.unlink(missing_ok=True)
            with zipfile.ZipFile(path) as archive:
                _write(fresh, ((name, archive.read(name)) for name in archive.namelist() if name not in gone))
            _check(fresh)
            os.replace(fresh, path)
            sync_folder(self._folder)

    def _find(self, address: str) -> Path | None:
        """Find the newest file that has this blob. Files that cannot be read are skipped."""
        damaged = {path for path, _ in self.find_damage()}
        return next((path for path in self._list() if path not in damaged and address in self._read_names(path)), None)

    def _list(self) -> list[Path]:
        return sorted(self._folder.glob("*.zip"), reverse=True)

    def _read_names(self, path: Path) -> frozenset[str]:
        try:
            found = path.stat()
            stamp = (found.st_size, found.st_mtime_ns)
            known = self._names.get(path)
            if known is None or known[0] != stamp:
                with zipfile.ZipFile(path) as archive:
                    known = self._names[path] = (stamp, frozenset(archive.namelist()))
        except FileNotFoundError:
            return frozenset()
        except (zipfile.BadZipFile, OSError) as error:
            raise ArchiveDamaged(
                f"{path} cannot be read: {error}; put it back from a backup, or delete it and lose its contents"
            ) from error
        return known[1]

    def _find_free(self, name: str) -> Path:
        number = 1
        while (path := self._folder / f"{name}-{number}.zip").exists():
            number += 1
        return path


def _read_all(blobs: Blobs, addresses: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for address in addresses:
        try:
            yield address, blobs.get(address)
        except (UnknownBlob, DamagedBlob):
            continue  # removed meanwhile, or damaged: it is not moved, and its next reader gets the error


def _write(path: Path, contents: Iterable[tuple[str, bytes]]) -> int:
    total = 0
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
            for address, content in contents:
                entry = zipfile.ZipInfo(address, _NO_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = _PRIVATE
                archive.writestr(entry, content)
                total += len(content)
        file.flush()
        os.fsync(file.fileno())
    return total


def _check(path: Path) -> list[str]:
    """Check every entry against its address. Returns the addresses. Raises ArchiveDamaged if one differs."""
    with zipfile.ZipFile(path) as archive:
        for address in archive.namelist():
            digest = hashlib.blake2b(archive.read(address), digest_size=count_digest(address)).digest()
            if address_of(digest) != address:
                raise ArchiveDamaged(
                    f"{path}: {address} was not written correctly; nothing was removed, check the disk"
                )
        return archive.namelist()
