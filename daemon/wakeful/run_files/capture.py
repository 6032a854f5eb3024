"""Makes the entries of a run's record for the paths of a look, and keeps each content that is not kept yet.

Called by `Keeper` in a thread, while the run may already be changing these files. So every content is compared with the
digest of the look, and a changed content is not kept. Files that the run may write are read at once. For a file that it
only reads, the record needs only the digest: the content is put on a list, and `Backlog` keeps it later. This module
reads at most what `Limits` allow. It reads only regular files, follows no link out of the session's root, and never
waits for ever when it opens a file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from wakeful.core.deciding.working_state import Core
from wakeful.run_files.file_record import Entry
from wakeful.system.blobs import SHORT_BYTES, Blobs, SecretContent, address_of
from wakeful.system.openat2 import open_beneath

TOO_LARGE = "too large"
TOO_MUCH = "the run has more than is kept"
CHANGED = "changed"
NO_FILE = "not a file"
LATE = "not read in time"
SECRET = "holds a secret"
OUTSIDE = "leads outside"
# The results that stay valid as long as the file does not change: kept (None), or not kept for one of these reasons.
LASTING = (None, TOO_LARGE, NO_FILE, SECRET, OUTSIDE)
# The mode that is recorded for a file or an executable file if its real mode was not read.
_MODES = {"f": 0o644, "x": 0o755}
# The errors if the file is gone, or is no longer of the kind that the look found.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EISDIR, errno.EAGAIN)
# The outputs of one run that are read even after the time limit. Reading them takes a few milliseconds, so
# even a busy machine keeps small outputs.
_SURE_FILES = 16
_SURE_BYTES = 256 << 10
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Limits(Struct, frozen=True, kw_only=True):
    """The most that is kept of one run.

    Sources and documents are small. A larger file is usually data that is stored elsewhere.
    """

    # A file is held in memory while it is kept.
    file_bytes: int = 8 << 20
    # Counts only new contents. A slow disk writes this in half a second.
    run_bytes: int = 64 << 20
    run_files: int = 2_000


def find_limits(core: Core) -> Limits | None:
    """Return the present limits, which wakeful.yaml may change. None if no contents are kept."""
    limits = core.settings.limits
    file, run, files = limits.kept_file.hard, limits.kept_run.hard, limits.kept_files.hard
    return Limits(file_bytes=file, run_bytes=run, run_files=files) if file and run and files else None


class SeenPath(Protocol):
    """The state of one path at a look. `digest` is 20 bytes of blake2b, or empty if only the stat was compared."""

    @property
    def kind(self) -> str: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def size(self) -> int: ...


class WantedContent(NamedTuple):
    """A content that a record names and that is to be kept later. No link in its path may lead out of `root`."""

    path: str
    digest: bytes
    size: int
    root: str = "/"


class NotKept(Exception):
    """A content is not kept. The message is the reason."""


class Outside(NotKept):
    """A link in the path leads out of the session's root."""

    def __init__(self) -> None:
        super().__init__(OUTSIDE)


class Moved(NotKept):
    """The file at the path changed since it was looked at."""

    def __init__(self) -> None:
        super().__init__(CHANGED)


class Capture:
    """Keeps the contents of one run as blobs, and counts the new ones against the limits.

    Used by one thread at a time. The loop sets the two times.
    """

    def __init__(self, blobs: Blobs, limits: Limits) -> None:
        self.blobs = blobs
        # Monotonic times. A file that is not read before that time is recorded as not read in time.
        self.inputs_until = inf
        self.outputs_until = inf
        # The addresses of the outputs that are kept. Some of them may not be flushed yet.
        self.relied_on: set[str] = set()
        self._limits = limits
        self._bytes_left = limits.run_bytes
        self._files_left = limits.run_files
        self._sure_files = _SURE_FILES
        self._sure_bytes = _SURE_BYTES
        self._wanted: list[WantedContent] = []
        self._wanted_digests: set[bytes] = set()

    @property
    def is_spent(self) -> bool:
        """Has this run reached a limit, so that nothing more is kept of it?"""
        return self._files_left <= 0 or self._bytes_left <= 0

    def take(self, root: str, seen: Mapping[str, SeenPath], *, is_later: bool = False) -> tuple[Entry, ...]:
        """Return an entry for every path of a look, ordered by name, and keep the contents.

        `is_later`: contents with a known digest are not read now, but listed to be kept later. Raises OSError only if a
        blob cannot be written, for example on a full disk.
        """
        lead, paths = f"{root.rstrip('/')}/", sorted(seen)
        names, sights = [path.removeprefix(lead) for path in paths], [seen[path] for path in paths]
        if is_later and _is_text("".join(names)) and all([sight.digest and sight.kind in _MODES for sight in sights]):
            return self._list_later(root, paths, names, sights)
        return tuple([self._take_one(root, *one, is_later) for one in zip(paths, names, sights, strict=True)])

    def take_pending(self) -> list[WantedContent]:
        """Return the contents that are to be kept later. Each is returned once."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def _list_later(self, root: str, paths: list[str], names: list[str], sights: list[SeenPath]) -> tuple[Entry, ...]:
        """Do the work of `_take_one` for many files that are all kept later.

        The end of a run on 1,000 files waits for this, so it must be fast: no file is opened, each content is judged
        once, and the values are handled column by column.
        """
        kinds, digests, sizes = (
            [sight.kind for sight in sights],
            [sight.digest for sight in sights],
            [sight.size for sight in sights],
        )
        reasons = {
            digest: self._refuse_later(digest, size) for digest, size in dict(zip(digests, sizes, strict=True)).items()
        }
        self._wanted += [
            WantedContent(*one, root)
            for one in zip(paths, digests, sizes, strict=True)
            if one[1] in self._wanted_digests
        ]
        return tuple(
            [
                Entry(path=name, kind=kind, digest=digest.hex(), size=size, mode=_MODES[kind], not_kept=reasons[digest])
                for name, kind, digest, size in zip(names, kinds, digests, sizes, strict=True)
            ]
        )

    def _take_one(self, root: str, path: str, name: str, sight: SeenPath, is_later: bool) -> Entry:
        shown, raw = (
            (name, None)
            if _is_text(name)
            else (os.fsencode(name).decode("utf-8", "backslashreplace"), os.fsencode(name).hex())
        )
        mode = _MODES.get(sight.kind, 0o644)
        if is_later and sight.digest and sight.kind in _MODES:
            size = sight.size
            reason = self._want(root, path, sight.digest, size)
            return Entry(
                path=shown, kind=sight.kind, digest=sight.digest.hex(), size=size, mode=mode, not_kept=reason, raw=raw
            )
        facts: dict[str, Any] = {"path": shown, "kind": sight.kind, "size": sight.size, "mode": mode, "raw": raw}
        try:
            facts |= (
                self._take_link(root, name, sight, is_later)
                if sight.kind == "l"
                else self._take_file(root, name, sight, is_later)
            )
        except NotKept as reason:
            facts |= {"not_kept": str(reason), "digest": "" if sight.kind == "l" else sight.digest.hex()}
        return Entry(**facts)

    def _take_file(self, root: str, name: str, sight: SeenPath, is_later: bool) -> dict[str, Any]:
        if sight.kind not in _MODES:
            raise NotKept(NO_FILE)
        mode = _read_mode(os.path.join(root, name))
        facts: dict[str, Any] = {} if mode is None else {"mode": mode}
        # This or another run has already kept the content. Do not read it again, even if the file has changed
        # meanwhile.
        if sight.digest and self.blobs.has(address_of(sight.digest), sight.size):
            self.relied_on.add(address_of(sight.digest))
            return facts | {"digest": sight.digest.hex()}
        if self._is_late(is_later):
            # Try to keep it later. If that succeeds, a reader finds it by its digest.
            raise NotKept(
                (self._want(root, os.path.join(root, name), sight.digest, sight.size) if sight.digest else None) or LATE
            )
        self._refuse_more(sight.size)
        content, digest = _read_file(root, name, sight.size, os.O_NOFOLLOW)
        if sight.digest and digest != sight.digest:
            raise Moved
        self._keep_new(content, digest, is_later)
        return facts | {"digest": digest.hex(), "size": len(content)}

    def _take_link(self, root: str, name: str, sight: SeenPath, is_later: bool) -> dict[str, Any]:
        """Record the text of a link. Also keep the file behind the link, if the look read it and it is below root.

        A run may leave a link to a file that it cannot read itself. The daemon could read that file, and must not copy
        it for the run.
        """
        path = os.path.join(root, name)
        with _reading():
            words = os.readlink(path)
        facts: dict[str, Any] = {
            "link": os.fsencode(words).decode("utf-8", "backslashreplace"),
            "size": 0,
            "mode": 0o777,
        }
        named = hashlib.blake2b(os.fsencode(words), digest_size=SHORT_BYTES)
        if not sight.digest or named.digest() == sight.digest:
            return facts
        with _reading():
            target = os.stat(path)
        if not stat.S_ISREG(target.st_mode):
            raise Moved
        self._refuse_more(target.st_size)
        # The look has one digest for the text and the content together. The content's own digest is not known without
        # reading it.
        if self._is_late(is_later):
            raise NotKept(LATE)
        try:
            content, digest = _read_file(root, name, target.st_size, 0)
        except Outside:
            # The link leads out of root, so record only its text.
            return facts
        named.update(b"\0" + (b"x" if target.st_mode & stat.S_IXUSR else b"f") + digest)
        if named.digest() != sight.digest:
            raise Moved
        self._keep_new(content, digest, is_later)
        return facts | {"digest": digest.hex(), "size": len(content), "mode": stat.S_IMODE(target.st_mode)}

    def _refuse_more(self, size: int) -> None:
        if size > self._limits.file_bytes:
            raise NotKept(TOO_LARGE)
        if self._files_left <= 0 or size > self._bytes_left:
            raise NotKept(TOO_MUCH)

    def _is_late(self, is_input: bool) -> bool:
        if is_input:
            return time.monotonic() > self.inputs_until
        return time.monotonic() > self.outputs_until and (self._sure_files <= 0 or self._sure_bytes <= 0)

    def _want(self, root: str, path: str, digest: bytes, size: int) -> str | None:
        """List a content to be kept later, unless it is kept. Returns the reason if it will not be kept; else None."""
        reason = self._refuse_later(digest, size)
        # Two paths may have the same content. Both are listed, because one file may be gone when it is read.
        if digest in self._wanted_digests:
            self._wanted.append(WantedContent(path, digest, size, root))
        return reason

    def _refuse_later(self, digest: bytes, size: int) -> str | None:
        """Return the reason why this content will not be kept. None if it is kept, or may be kept later."""
        if digest in self._wanted_digests or self.blobs.has(address_of(digest), size):
            return None
        try:
            self._refuse_more(size)
        except NotKept as reason:
            return str(reason)
        self._count(size)
        self._wanted_digests.add(digest)
        return None

    def _keep_new(self, content: bytes, digest: bytes, is_input: bool) -> None:
        address = address_of(digest)
        if not self.blobs.has(address, len(content)):
            try:
                self.blobs.add(content)
            except SecretContent:
                raise NotKept(SECRET) from None
            self._count(len(content))
        if not is_input:
            self._sure_files -= 1
            self._sure_bytes -= len(content)
            self.relied_on.add(address)

    def _count(self, size: int) -> None:
        self._files_left -= 1
        self._bytes_left -= size


def keep_wanted(blobs: Blobs, wanted: WantedContent) -> str | None:
    """Keep a content that was listed to be kept later. Blocking.

    Returns its address. None if it contains a secret, or if the file changed or cannot be read. Raises OSError as
    `Capture.take` does.
    """
    address = address_of(wanted.digest)
    if blobs.has(address, wanted.size):
        return address
    try:
        content, digest = _read_file(
            wanted.root, wanted.path.removeprefix(f"{wanted.root.rstrip('/')}/"), wanted.size, os.O_NOFOLLOW
        )
    except NotKept:
        return None
    try:
        return blobs.add(content) if digest == wanted.digest else None
    except SecretContent:
        return None


def _read_file(root: str, name: str, size: int, flags: int) -> tuple[bytes, bytes]:
    """Return the content and the digest of a regular file. Raises Moved if it has not exactly this size."""
    with _reading():
        # A person wrote the absolute path of a binding, so links on the way are followed.
        descriptor = (
            os.open(name, _OPEN_FLAGS | flags)
            if name.startswith("/")
            else open_beneath(root, name, _OPEN_FLAGS | flags)
        )
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Moved
            content = _read_all(descriptor, size + 1)
        finally:
            os.close(descriptor)
    if len(content) != size:
        raise Moved
    return content, hashlib.blake2b(content, digest_size=SHORT_BYTES).digest()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_mode(path: str) -> int | None:
    try:
        found = os.lstat(path)
    except OSError:
        # If the content is needed, reading it reports this error.
        return None
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def _reading() -> Iterator[None]:
    """Turn an error of the run's own files into a reason not to keep them.

    Do not use it around writes of blobs: their errors are the daemon's problem.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _GONE:
            raise Moved from error
        if error.errno == errno.EXDEV:
            raise Outside from error
        raise NotKept(f"unreadable: {error.strerror}") from error


def _read_all(descriptor: int, most: int) -> bytes:
    pieces = []
    while most > 0 and (piece := os.read(descriptor, most)):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
