"""Takes down what stands at the paths of a look, and keeps each content that is not kept yet.

Called by `Keeper` in a thread, while the run may already be changing what is read here: every content is checked against
the digest that was looked at, and one that moved on is said to be not kept. Never reads more than `Limits` allow, never
follows a path into anything but a regular file, never opens what could wait for ever.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from wakeful.blobs import SHORT_BYTES, Blobs, address_of
from wakeful.contents.record import Entry

TOO_LARGE = "too large"
TOO_MUCH = "the run has more than is kept"
CHANGED = "changed"
NO_FILE = "not a file"
# What will not be kept next time either, as long as the file stays as it is (None: it was kept).
LASTING = (None, TOO_LARGE, NO_FILE)
# Not there, or another kind of thing than what was looked at.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EISDIR)
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Limits(Struct, frozen=True, kw_only=True):
    """What is kept of one run at most. Sources and documents are small; what is larger is data, and has a home of its own."""

    # Held in memory once while it is kept.
    file_bytes: int = 8 << 20
    # New contents alone: what is kept already costs nothing. Some 2 s of a slow disk.
    run_bytes: int = 256 << 20
    run_files: int = 10_000


class Sight(Protocol):
    """What a look saw at one path: `digest` is 20 bytes of blake2b, empty where only the stat was compared."""

    @property
    def kind(self) -> str: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def size(self) -> int: ...


class NotKept(Exception):
    """Its content is not for keeping; the words say why."""


class Moved(NotKept):
    """What stands at the path is not what was looked at."""

    def __init__(self) -> None:
        super().__init__(CHANGED)


class Capture:
    """One run's share of the blobs: counts what is new."""

    def __init__(self, blobs: Blobs, limits: Limits) -> None:
        self.blobs = blobs
        self._limits = limits
        self._bytes_left = limits.run_bytes
        self._files_left = limits.run_files

    def take(self, root: str, seen: Mapping[str, Sight]) -> tuple[Entry, ...]:
        """Every path of a look, ordered by name. Raises OSError only for the blobs' own sake: a full disk."""
        lead = f"{root.rstrip('/')}/"
        return tuple(self._take_one(path, path.removeprefix(lead), seen[path]) for path in sorted(seen))

    def _take_one(self, path: str, name: str, sight: Sight) -> Entry:
        facts: dict[str, object] = {"path": name, "kind": sight.kind, "size": sight.size, "mode": 0o755 if sight.kind == "x" else 0o644}
        try:
            name.encode()
        except UnicodeEncodeError:
            facts |= {"path": os.fsencode(name).decode("utf-8", "backslashreplace"), "raw": os.fsencode(name).hex()}
        try:
            facts |= self._take_link(path, sight) if sight.kind == "l" else self._take_file(path, sight)
        except NotKept as reason:
            facts |= {"not_kept": str(reason), "digest": "" if sight.kind == "l" else sight.digest.hex()}
        return Entry(**facts)

    def _take_file(self, path: str, sight: Sight) -> dict[str, object]:
        if sight.kind not in ("f", "x"):
            raise NotKept(NO_FILE)
        mode = _read_mode(path)
        facts: dict[str, object] = {} if mode is None else {"mode": mode}
        # Kept already, by this run or another: not read again, whatever became of the file meanwhile.
        if sight.digest and self.blobs.has(address_of(sight.digest), sight.size):
            return facts | {"digest": sight.digest.hex()}
        content = self._read(path, sight.size, os.O_NOFOLLOW)
        digest = hashlib.blake2b(content, digest_size=SHORT_BYTES).digest()
        if sight.digest and digest != sight.digest:
            raise Moved
        self._keep_new(content)
        return facts | {"digest": digest.hex(), "size": len(content)}

    def _take_link(self, path: str, sight: Sight) -> dict[str, object]:
        """Its words, and the content of the file it leads to, if that was looked at."""
        with _reading():
            words = os.readlink(path)
        facts: dict[str, object] = {"link": os.fsencode(words).decode("utf-8", "backslashreplace"), "size": 0, "mode": 0o777}
        named = hashlib.blake2b(os.fsencode(words), digest_size=SHORT_BYTES)
        if not sight.digest or named.digest() == sight.digest:
            return facts
        with _reading():
            target = os.stat(path)
        if not stat.S_ISREG(target.st_mode):
            raise Moved
        content = self._read(path, target.st_size, 0)
        digest = hashlib.blake2b(content, digest_size=SHORT_BYTES).digest()
        named.update(b"\0" + (b"x" if target.st_mode & stat.S_IXUSR else b"f") + digest)
        if named.digest() != sight.digest:
            raise Moved
        if not self.blobs.has(address_of(digest), len(content)):
            self._keep_new(content)
        return facts | {"digest": digest.hex(), "size": len(content), "mode": stat.S_IMODE(target.st_mode)}

    def _read(self, path: str, size: int, flags: int) -> bytes:
        if size > self._limits.file_bytes:
            raise NotKept(TOO_LARGE)
        if self._files_left <= 0 or size > self._bytes_left:
            raise NotKept(TOO_MUCH)
        with _reading():
            descriptor = os.open(path, _OPEN_FLAGS | flags)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Moved
                content = _read_all(descriptor, size + 1)
            finally:
                os.close(descriptor)
        if len(content) != size:
            raise Moved
        return content

    def _keep_new(self, content: bytes) -> None:
        self._files_left -= 1
        self._bytes_left -= len(content)
        self.blobs.add(content)


def _read_mode(path: str) -> int | None:
    try:
        found = os.lstat(path)
    except OSError:
        # Reading its content will say what is wrong, should that be needed.
        return None
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def _reading() -> Iterator[None]:
    """What goes wrong with the run's own files is a reason not to keep them; with the blobs it is the daemon's trouble."""
    try:
        yield
    except OSError as error:
        if error.errno in _GONE:
            raise Moved from error
        raise NotKept(f"unreadable: {error.strerror}") from error


def _read_all(descriptor: int, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := os.read(descriptor, most)):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
