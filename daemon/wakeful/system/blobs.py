"""Content-addressed files: contents that are too large for an event.

Runners put a run's output here before its end is reported, and `contents` what the run read and wrote; views and the
API read it. A blob is on disk when `put` or `flush` returns, is never changed, and is checked against its address when
it is read. Every call blocks: off the loop, in a thread. Nothing is ever removed from here unasked.
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
from wakeful.system.private_folders import make_private

# By 32 bytes of blake2b, or by the 20 that looks at files know them by.
_ADDRESS = re.compile(r"blake2b-([0-9a-f]{2})([0-9a-f]{62}|[0-9a-f]{38})")
SHORT_BYTES = 20
_LONG_BYTES = 32
# From so many files on, one flush of the whole file system is cheaper than one for each (1,000 files:
# 0.4 s instead of 5 s).
_MANY_FILES = 8
_PIECE_BYTES = 1024 * 1024
# Some 20 MB.
_MOST_REMEMBERED = 200_000
# The folder of blobs being written. A crash leaves at worst a file here, which the next daemon removes.
_UNFINISHED = "unfinished"
# The names of such files, which nothing else uses. Asking tempfile for each name takes a third of what a small content
# costs.
_ours = secrets.token_hex(8)
_numbers = itertools.count()


class UnknownBlob(CallerError):
    """No blob has this address: it was never kept, or it was removed."""


class DamagedBlob(OperatorError):
    """The file's content is not what its name says."""


class SecretContent(OperatorError):
    """The content holds the value of a secret, and must not be kept."""


class Sizes(NamedTuple):
    """The sizes of the store. `unfinished` are files that a crash left half written; nothing refers to them."""

    blobs: int
    size_bytes: int
    unfinished: int


class Elsewhere(Protocol):
    """Where blobs went that nobody needs at hand: slower to read, and never asked while there is one at hand."""

    def holds(self, address: str) -> bool: ...

    def read(self, address: str) -> bytes | None: ...

    def remove(self, addresses: Iterable[str]) -> None: ...


class Screen(Protocol):
    """Finds secrets in contents. False while it knows no secret."""

    def find(self, content: bytes) -> str | None:
        """The name of a secret whose value stands there, or None."""

    def __bool__(self) -> bool: ...


class Blobs:
    """The blobs below one folder, which only this class writes to; what was moved `elsewhere` is read from there."""

    def __init__(self, folder: str, elsewhere: Elsewhere | None = None, screen: Screen | None = None) -> None:
        """`screen` is asked of every content that is added; None: nothing is secret here."""
        self._folder = folder
        self._elsewhere = elsewhere
        self.screen = screen
        # Added and not yet flushed, by whoever: a run that leans on another's content must not be recorded before that
        # is safe.
        self._unflushed: set[str] = set()
        # Address -> size of what was found at hand before: asked for each of a run's files, and nearly always the same.
        self._at_hand: dict[str, int] = {}

    def put(self, content: bytes) -> str:
        """Keep `content` and return its address. The same content is kept once."""
        address = address_of(hashlib.blake2b(content, digest_size=_LONG_BYTES).digest())
        path = self._path(address)
        if not os.path.exists(path):
            self._place(path, content, is_flushed=True)
        return address

    def get(self, address: str) -> bytes:
        with self.open(address) as file:
            content = file.read()
        if address_of(hashlib.blake2b(content, digest_size=_count_bytes(address)).digest()) != address:
            raise DamagedBlob(f"{self._path(address)}: the content differs from its address; restore it from a backup")
        return content

    def open(self, address: str) -> BinaryIO:
        """For reading in pieces, unchecked."""
        try:
            return open(self._path(address), "rb")
        except FileNotFoundError:
            content = self._elsewhere.read(address) if self._elsewhere is not None else None
            if content is not None:
                return io.BytesIO(content)
            raise UnknownBlob(f"no blob {address!r}: it was never kept, or it was removed") from None

    def is_sound(self, address: str) -> bool:
        """Is the content at hand what its address says?

        Read in pieces, so that a large one takes no memory; one that is gone meanwhile is no harm.
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
        """How many bytes are at hand under this address; None when there is no such blob here."""
        try:
            return os.stat(self._path(address)).st_size
        except FileNotFoundError:
            return None

    def is_kept(self, address: str) -> bool:
        """Can this content be read, from here or elsewhere?"""
        return self.size(address) is not None or (self._elsewhere is not None and self._elsewhere.holds(address))

    def has(self, address: str, size: int) -> bool:
        """Is this content at hand, whole?

        Without reading: a power cut during `add` leaves a wrong size, never a wrong content.
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
        """Keep `content` by its short address, or raise SecretContent;
        it outlasts a power cut only after `flush`, which takes many at once."""
        address = address_of(hashlib.blake2b(content, digest_size=SHORT_BYTES).digest())
        if not self.has(address, len(content)):
            if self.screen and (name := self.screen.find(content)) is not None:
                raise SecretContent(f"the content of {len(content)} bytes holds the secret {name}, and was not kept")
            path = self._path(address)
            self._place(path, content, is_flushed=False)
            self._unflushed.add(path)
        return address

    def flush(self, addresses: Iterable[str] | None = None) -> None:
        """Let what was added outlast a power cut, contents and names: these blobs, or all.

        Nothing new costs nothing.
        """
        # A copy in one step: other threads go on adding.
        paths = (
            self._unflushed.copy()
            if addresses is None
            else self._unflushed.intersection([self._path(one) for one in addresses])
        )
        if len(paths) > _MANY_FILES:
            _sync_file_system(self._folder)
        elif paths:
            # The first flush takes the names along on most file systems, so that those after it find little to do.
            for path in (*paths, *{os.path.dirname(path) for path in paths}, self._folder):
                # One may have been removed since.
                with contextlib.suppress(FileNotFoundError):
                    _sync(path)
        self._unflushed -= paths

    def sizes(self) -> Sizes:
        """For `doctor`: how much is kept."""
        sizes = [size for _, size in self.listing()]
        return Sizes(len(sizes), sum(sizes), len(_list(os.path.join(self._folder, _UNFINISHED))))

    def listing(self) -> Iterator[tuple[str, int]]:
        """The address and size of every blob."""
        for prefix in _list(self._folder):
            for name in _list(os.path.join(self._folder, prefix)) if prefix != _UNFINISHED else ():
                size = self.size(address := f"blake2b-{prefix}{name}")
                # One may go while the others are listed: erased, or moved elsewhere.
                if size is not None:
                    yield address, size

    def remove(self, addresses: Iterable[str]) -> None:
        """Remove the blobs of a record that a person erased, for good. Copies in the other store are also removed."""
        addresses = tuple(addresses)
        if addresses and self._elsewhere is not None:
            self._elsewhere.remove(addresses)
        self.let_go(addresses)

    def let_go(self, addresses: Iterable[str]) -> None:
        """Take blobs from here that are elsewhere now."""
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
                f"{address!r} is no address of a blob; expected 'blake2b-' and 64 or 40 hexadecimal digits"
            )
        return f"{self._folder}/{parts[1]}/{parts[2]}"

    def _place(self, path: str, content: bytes, *, is_flushed: bool) -> None:
        try:
            self._write(path, content, is_flushed=is_flushed)
        except FileNotFoundError:
            # Folders are made when they are missed: asking for them before each of 2,000 contents costs as much as
            # writing one.
            is_first = not os.path.isdir(self._folder)
            for needed in (os.path.dirname(path), f"{self._folder}/{_UNFINISHED}"):
                make_private(needed)
            # Their names outlast a power cut, as the blob does.
            for folder in (
                *((self._folder,) if is_flushed else ()),
                *((os.path.dirname(self._folder),) if is_first else ()),
            ):
                _sync(folder)
            self._write(path, content, is_flushed=is_flushed)
        if is_flushed:
            _sync(os.path.dirname(path))

    def _write(self, path: str, content: bytes, *, is_flushed: bool) -> None:
        """Half a blob never stands under a good name, but one that a power cut took before its flush may."""
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
    """Where content is kept whose 20 or 32 bytes of blake2b are known."""
    return f"blake2b-{digest.hex()}"


def _count_bytes(address: str) -> int:
    """How long the digest in an address is."""
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
