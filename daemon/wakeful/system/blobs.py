"""Stores content-addressed files (blobs): contents that are too large for an event.

Runners store a run's output before the run's end is reported, and `run_files` stores the files that a run read and
wrote. Views and the API read them. A blob is on disk when `put` or `flush` returns, and never changes. `get` checks the
content against the address. Every call is blocking. Nothing is removed unless a person or retention asks for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import itertools
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple, Protocol

from wakeful.errors import CallerError, OperatorError
from wakeful.system.private_files import make_private

# An address holds a blake2b digest of 32 or 20 bytes. The digests of file bindings have 20 bytes.
_ADDRESS = re.compile(r"blake2b-([0-9a-f]{2})([0-9a-f]{62}|[0-9a-f]{38})")
SHORT_BYTES = 20
_LONG_BYTES = 32
# Above this many files, one flush of the whole file system is cheaper than one per file (1,000 files: 0.4 s instead of
# 5 s).
_MANY_FILES = 8
_PIECE_BYTES = 1024 * 1024
# The most entries of the cache of sizes: some 20 MB.
_MOST_REMEMBERED = 200_000
# The folder of blobs being written. A crash leaves at worst a file here, which the next daemon removes.
_UNFINISHED = "unfinished"
# Unique names for unfinished files. Asking `tempfile` for each name would take a third of the time of a small blob.
_ours = secrets.token_hex(8)
_numbers = itertools.count()


class UnknownBlob(CallerError):
    """No blob has this address: it was never kept, or it was removed."""


class DamagedBlob(OperatorError):
    """The content of a blob's file does not match the blob's address."""


class SecretContent(OperatorError):
    """The content holds the value of a secret, and must not be kept."""


class Sizes(NamedTuple):
    """The sizes of the store. `unfinished` counts the files that a crash left half written; nothing refers to them."""

    blobs: int
    size_bytes: int
    unfinished: int


class SecondStore(Protocol):
    """A second store for old blobs. It is slower, and is asked only for blobs that are not in the first store."""

    def holds(self, address: str) -> bool: ...

    def read(self, address: str) -> bytes | None: ...

    def remove(self, addresses: Iterable[str]) -> None: ...


class SecretFinder(Protocol):
    """Finds secrets in contents. Its truth value is False while it knows no secret."""

    def find(self, content: bytes) -> str | None:
        """Return the name of a secret whose value is in the content. None if there is none."""

    def __bool__(self) -> bool: ...


class Blobs:
    """The blobs below one folder, which only this class writes to. Blobs that were moved are read from `elsewhere`."""

    def __init__(self, folder: str, elsewhere: SecondStore | None = None, screen: SecretFinder | None = None) -> None:
        """`screen` checks each content before `add` stores it. None if there are no secrets."""
        self._folder = folder
        self._elsewhere = elsewhere
        self.screen = screen
        # Paths that were added and not yet flushed, of all runs: a run may refer to a blob that another run added, and
        # must not be recorded before that blob is on disk.
        self._unflushed: set[str] = set()
        # A cache: address -> size of a blob that was found here. It is asked for each file of a run, and most files
        # stay the same.
        self._at_hand: dict[str, int] = {}

    def put(self, content: bytes) -> str:
        """Store `content` durably and return its address. The same content is stored once."""
        address = address_of(hashlib.blake2b(content, digest_size=_LONG_BYTES).digest())
        path = self._path(address)
        if not os.path.exists(path):
            self._place(path, content, is_flushed=True)
        return address

    def get(self, address: str) -> bytes:
        """Read a blob and check it. Raises UnknownBlob or DamagedBlob."""
        with self.open(address) as file:
            content = file.read()
        if address_of(hashlib.blake2b(content, digest_size=_count_bytes(address)).digest()) != address:
            raise DamagedBlob(f"{self._path(address)}: the content differs from its address; restore it from a backup")
        return content

    def open(self, address: str) -> BinaryIO:
        """Open a blob for reading in pieces, unchecked. Raises UnknownBlob."""
        try:
            return open(self._path(address), "rb")
        except FileNotFoundError:
            content = self._elsewhere.read(address) if self._elsewhere is not None else None
            if content is not None:
                return io.BytesIO(content)
            raise UnknownBlob(f"no blob {address!r}: it was never kept, or it was removed") from None

    def is_sound(self, address: str) -> bool:
        """Does the content match its address? True for a blob that was removed meanwhile.

        The content is read in pieces, so that a large blob takes no memory.
        """
        digest = hashlib.blake2b(digest_size=_count_bytes(address))
        try:
            with open(self._path(address), "rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    digest.update(piece)
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the disk cannot read it
        return address_of(digest.digest()) == address

    def size(self, address: str) -> int | None:
        """Return the size of a blob in bytes. None if it is not in this folder."""
        try:
            return os.stat(self._path(address)).st_size
        except FileNotFoundError:
            return None

    def is_kept(self, address: str) -> bool:
        """Can this blob be read, from here or from `elsewhere`?"""
        return self.size(address) is not None or (self._elsewhere is not None and self._elsewhere.holds(address))

    def has(self, address: str, size: int) -> bool:
        """Is this blob in this folder, complete?

        The content is not read, because a power cut during `add` leaves a wrong size, never wrong content.
        """
        if self._at_hand.get(address) == size:
            return True
        is_whole = self.size(address) == size
        if is_whole:
            if len(self._at_hand) >= _MOST_REMEMBERED:
                self._at_hand.clear()
            self._at_hand[address] = size
        return is_whole

    def add(self, content: bytes) -> str:
        """Store `content` under its short address. It survives a power cut only after `flush`.

        Raises SecretContent if the content contains the value of a secret.
        """
        address = address_of(hashlib.blake2b(content, digest_size=SHORT_BYTES).digest())
        if not self.has(address, len(content)):
            if self.screen and (name := self.screen.find(content)) is not None:
                raise SecretContent(f"the content of {len(content)} bytes holds the secret {name}, and was not kept")
            path = self._path(address)
            self._place(path, content, is_flushed=False)
            self._unflushed.add(path)
        return address

    def flush(self, addresses: Iterable[str] | None = None) -> None:
        """Make added blobs durable, their contents and their names. With `addresses`, only these blobs.

        Does nothing if all of them are durable already.
        """
        # Copied in one step, because other threads go on adding.
        paths = (
            self._unflushed.copy()
            if addresses is None
            else self._unflushed.intersection([self._path(one) for one in addresses])
        )
        if len(paths) > _MANY_FILES:
            _sync_file_system(self._folder)
        elif paths:
            # On most file systems the first flush also writes the names, so the flushes after it have little to do.
            for path in (*paths, *{os.path.dirname(path) for path in paths}, self._folder):
                # The blob may have been removed since.
                with contextlib.suppress(FileNotFoundError):
                    _sync(path)
        self._unflushed -= paths

    def sizes(self) -> Sizes:
        """Compute the sizes of the store, for `doctor`."""
        sizes = [size for _, size in self.listing()]
        return Sizes(len(sizes), sum(sizes), len(_list(os.path.join(self._folder, _UNFINISHED))))

    def listing(self) -> Iterator[tuple[str, int]]:
        """List the address and size of every blob."""
        for prefix in _list(self._folder):
            for name in _list(os.path.join(self._folder, prefix)) if prefix != _UNFINISHED else ():
                size = self.size(address := f"blake2b-{prefix}{name}")
                # A blob may be erased, or moved elsewhere, while the others are listed.
                if size is not None:
                    yield address, size

    def remove(self, addresses: Iterable[str]) -> None:
        """Remove the blobs of a record that a person erased, for good. Copies in the other store are also removed."""
        addresses = tuple(addresses)
        if addresses and self._elsewhere is not None:
            self._elsewhere.remove(addresses)
        self.let_go(addresses)

    def let_go(self, addresses: Iterable[str]) -> None:
        """Remove blobs from this folder that are in the other store now."""
        for address in addresses:
            self._at_hand.pop(address, None)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(address))

    def remove_unfinished(self) -> None:
        """Remove the files that a daemon was writing when it died. Called before anything is written."""
        for name in _list(os.path.join(self._folder, _UNFINISHED)):
            os.unlink(os.path.join(self._folder, _UNFINISHED, name))

    def _path(self, address: str) -> str:
        parts = _ADDRESS.fullmatch(address)
        if parts is None:
            raise UnknownBlob(
                f"{address!r} is not the address of a blob; expected 'blake2b-' and 64 or 40 hexadecimal digits"
            )
        return f"{self._folder}/{parts[1]}/{parts[2]}"

    def _place(self, path: str, content: bytes, *, is_flushed: bool) -> None:
        try:
            self._write(path, content, is_flushed=is_flushed)
        except FileNotFoundError:
            # Folders are made only after a write failed. With 2,000 blobs, a check before each one would cost as much
            # as its write.
            is_first = not os.path.isdir(self._folder)
            for needed in (os.path.dirname(path), f"{self._folder}/{_UNFINISHED}"):
                make_private(needed)
            # The names of the folders must survive a power cut, as the blob does.
            for folder in (
                *((self._folder,) if is_flushed else ()),
                *((os.path.dirname(self._folder),) if is_first else ()),
            ):
                _sync(folder)
            self._write(path, content, is_flushed=is_flushed)
        if is_flushed:
            _sync(os.path.dirname(path))

    def _write(self, path: str, content: bytes, *, is_flushed: bool) -> None:
        """Write a blob under a temporary name, then rename it.

        A crash leaves no partial blob under its address. A power cut before the flush may leave one.
        """
        temporary = f"{self._folder}/{_UNFINISHED}/{_ours}.{next(_numbers)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(fd, left) :]
                if is_flushed:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def address_of(digest: bytes) -> str:
    """Return the address for a digest of 20 or 32 bytes of blake2b."""
    return f"blake2b-{digest.hex()}"


def _count_bytes(address: str) -> int:
    """Return the number of bytes of the digest in an address."""
    return (len(address) - len("blake2b-")) // 2


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_file_system(folder: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(fd)
