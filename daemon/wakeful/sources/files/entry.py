"""Reads one path into the state in which it was last seen: its stat key, its kind and the digest of its content.

Called by looks, on the loop for small files and in a thread for all others. It never blocks on a FIFO or a device,
never follows a loop of links, and never takes an unreadable file for a deleted one (rule 5). The bytes it hashes come
from the same descriptor as the stat before and after.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    # Imported for types only, because the process that reads for looks needs nothing else of the core.
    from wakeful.core.spec.bindings import Compare


DIGEST_BYTES = 20
# A file that was written within this time before it was hashed could be written again with the same timestamp
# (racy-git). FAT has a resolution of 2 s, older kernels one of 4 ms.
RACY_NANOSECONDS = 2_000_000_000
_CHUNK_BYTES = 1 << 20
# The largest file that is read in one call, which takes five system calls instead of eight.
SMALL_BYTES = 64 << 10
# The most that is read of a file without a proper size. /proc and some FUSE files report size 0 and never end.
_UNSIZED_LIMIT_BYTES = 64 << 20
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_KEY = struct.Struct("<QQqqqI")
_TIMES = struct.Struct("<qq")
_TIMES_OFFSET = 24
# The mode bits of a key: the kind of the path and its owner's x bit.
_KEY_MODE = 0o170100

_KINDS = {stat.S_IFIFO: "p", stat.S_IFSOCK: "s", stat.S_IFCHR: "c", stat.S_IFBLK: "b"}
_KIND_BYTES = {kind: kind.encode() for kind in ("f", "x", "l", "?", *_KINDS.values())}


LOOP_ENTRIES = 32


class CannotSee(Exception):
    """A path exists, or may exist, and cannot be read. The message names the path and the reason."""


class TooLarge(Exception):
    """The look costs more than the loop can spare. It must be repeated in a thread."""


class NoLongerWanted(Exception):
    """The daemon stops. Its next start reads the file again."""


class Allowance:
    """The budget of a look on the loop: 32 entries and 256 KB take well under 2 ms.

    Entries count when they are listed or read. An unchanged entry costs one stat, and does not count.
    """

    __slots__ = ("bytes_left", "entries_left")

    def __init__(self, entries: int = LOOP_ENTRIES, size: int = 256 * 1024) -> None:
        self.entries_left = entries
        self.bytes_left = size

    def spend(self, size: int = 0, entries: int = 1) -> None:
        self.entries_left -= entries
        self.bytes_left -= size
        if self.entries_left < 0 or self.bytes_left < 0:
            raise TooLarge


class Demand:
    """The needs of a look: content or only the stat of each entry, its budget, and the links that it may follow."""

    __slots__ = ("_is_closing", "allowance", "may_follow", "wants_content")

    def __init__(
        self,
        *,
        wants_content: bool,
        allowance: Allowance | None = None,
        may_follow: Callable[[str], bool] = lambda path: True,
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:
        self.wants_content = wants_content
        self.allowance = allowance
        self.may_follow = may_follow
        self._is_closing = is_closing

    def go_on(self) -> None:
        """Raise NoLongerWanted if the daemon stops. Called between the pieces of long work, so that a stop does not
        wait for gigabytes.
        """
        if self._is_closing():
            raise NoLongerWanted


# No garbage collection, because hundreds of thousands of these live as long as the daemon and refer to no other
# objects.
class Seen(Struct, eq=False, gc=False):
    """A path as it was seen.

    Only `hashed_at` ever changes, so two holders of one object have seen the same state of the path.

    `kind` is f (file), x (executable), l (link), p (FIFO), s (socket), c or b (device), or ? for any other kind.
    `digest` is empty until the content is needed. `hashed_at` is 0 if the content changed while it was read.
    """

    key: bytes
    kind: str
    digest: bytes
    hashed_at: int

    @property
    def is_unstable(self) -> bool:
        return self.hashed_at == 0

    @property
    def size(self) -> int:
        size: int = _KEY.unpack_from(self.key)[2]
        return size

    @property
    def is_regular(self) -> bool:
        """True for a regular file, and for a link that leads to one."""
        return self.kind in ("f", "x") or len(self.key) > _KEY.size

    def grew_from(self, before: Seen | None) -> bool:
        """Is this the same file, and longer than before?"""
        return before is not None and before.key[:16] == self.key[:16] and self.size > before.size

    @property
    def moved_at(self) -> int:
        """The time of the last change of the stat (contents, rights or name), in microseconds.

        For a link, the later of its own time and that of its target.
        """
        newest: int = _TIMES.unpack_from(self.key, _TIMES_OFFSET)[1]
        if len(self.key) > _KEY.size:
            newest = max(newest, _TIMES.unpack_from(self.key, _KEY.size + _TIMES_OFFSET)[1])
        return newest // 1000

    @property
    def is_racy(self) -> bool:
        """True if the content may have changed since, without a change of the key.

        A key that was older than the margin when it was hashed is not racy.
        """
        if not self.digest:
            return False
        changed, moved = _TIMES.unpack_from(self.key, _TIMES_OFFSET)
        newest: int = changed if changed > moved else moved
        if len(self.key) > _KEY.size:
            newest = max(newest, *_TIMES.unpack_from(self.key, _KEY.size + _TIMES_OFFSET))
        return newest + RACY_NANOSECONDS >= self.hashed_at

    def is_sure(self, wants_content: bool) -> bool:
        """Does an unchanged key prove that nothing changed?"""
        return not wants_content or (bool(self.digest) and not self.is_racy)


def list_tags(seen: Iterable[Seen | None], compare: Compare) -> list[bytes | None]:
    """List the part of each path that counts in a version. None for a path that does not exist.

    For `content` it contains neither host nor time (rule 6).
    """
    match compare:
        case "content":
            return [_KIND_BYTES[one.kind] + one.digest if one is not None else None for one in seen]
        case "stat":
            # The size and the mtime.
            return [_KIND_BYTES[one.kind] + one.key[16:32] if one is not None else None for one in seen]
        case "names":
            return [b"n" if one is not None else None for one in seen]


def describe_tags(tags: Iterable[bytes | None]) -> list[str | None]:
    return [
        None if tag is None else f"{tag[:1].decode()}:{tag[1:].hex()}" if len(tag) > 1 else tag.decode() for tag in tags
    ]


Folder = Literal["folder"]
FOLDER: Final = "folder"


def pack_key(found: os.stat_result) -> bytes:
    return _KEY.pack(
        found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode & _KEY_MODE
    )


def read_key(path: str) -> bytes | None:
    """Read only the stat key, as cheaply as possible, for the sweep. None if the path does not exist."""
    try:
        found = os.lstat(path)
        key = pack_key(found)
        if not stat.S_ISLNK(found.st_mode):
            return key
        return key + _read_target_key(path)
    except OSError as problem:
        if _is_missing(problem):
            return None
        raise CannotSee(describe_problem(path, problem)) from None


def find_still(
    paths: Iterable[str], seen: Mapping[str, Seen], wants_content: bool
) -> tuple[dict[str, Seen], dict[str, os.stat_result | None]]:
    """Split paths by one stat each: the unchanged paths, and the others with their stat (None if it failed).

    At a start nearly every path is unchanged. 50,000 paths cost one call each here, and seven through `read_entry`.
    """
    still: dict[str, Seen] = {}
    others: dict[str, os.stat_result | None] = {}
    for path in paths:
        try:
            found = os.lstat(path)
        except OSError:
            # `read_entry` gets the same error again, and reports it.
            others[path] = None
            continue
        known = seen.get(path)
        changed, moved = found.st_mtime_ns, found.st_ctime_ns
        # The stat of a link does not show a change of its target. The rest repeats `is_sure` with the times of `found`.
        if (
            known is not None
            and known.kind != "l"
            and known.key
            == _KEY.pack(found.st_dev, found.st_ino, found.st_size, changed, moved, found.st_mode & _KEY_MODE)
            and (
                not wants_content
                or (known.digest and (changed if changed > moved else moved) + RACY_NANOSECONDS < known.hashed_at)
            )
        ):
            still[path] = known
        else:
            others[path] = found
    return still, others


def read_entry(
    path: str, known: Seen | None, demand: Demand, found: os.stat_result | None = None
) -> Seen | Folder | None:
    """Look at one path. Returns `known` itself if nothing changed, None if the path does not exist.

    `found` is the path's stat if `find_still` has just found a change.
    """
    demand.go_on()
    try:
        if found is None:
            found = os.lstat(path)
            # The stat of a link does not show a change of its target.
            if (
                known is not None
                and known.kind != "l"
                and known.key == pack_key(found)
                and known.is_sure(demand.wants_content)
            ):
                return known
        if demand.allowance is not None:
            demand.allowance.spend()
        # A path may change its kind between the stat and the open. Then look again.
        for _ in range(2):
            seen = _read(path, found, known, demand)
            if seen is not None:
                return seen
            found = os.lstat(path)
        raise CannotSee(f"{show(path)}: changed its kind while it was read")
    except OSError as problem:
        if _is_missing(problem):
            return None
        raise CannotSee(describe_problem(path, problem)) from None


def _read(path: str, found: os.stat_result, known: Seen | None, demand: Demand) -> Seen | Folder | None:
    if stat.S_ISREG(found.st_mode):
        return _read_file(path, found, known, demand)
    if stat.S_ISDIR(found.st_mode):
        return FOLDER
    if stat.S_ISLNK(found.st_mode):
        return _read_link(path, found, known, demand)
    # A FIFO, socket or device counts by its kind, because opening it could block forever.
    key = pack_key(found)
    if known is not None and known.key == key:
        return known
    return Seen(key, _KINDS.get(stat.S_IFMT(found.st_mode), "?"), b"", time.time_ns())


def _read_file(path: str, found: os.stat_result, known: Seen | None, demand: Demand) -> Seen | None:
    key = pack_key(found)
    if not demand.wants_content:
        return Seen(key, kind_of_file(found), b"", time.time_ns())
    if demand.allowance is not None:
        demand.allowance.spend(found.st_size)
    hashed_at = time.time_ns()
    if found.st_size <= SMALL_BYTES:
        digest = hash_small_file(path, found.st_size, key)
        if digest is not None:
            return renew(known, key, kind_of_file(found), digest, hashed_at)
    read = _hash_open_file(path, os.O_NOFOLLOW, demand)
    if read is None:
        return None
    before, digest, is_still = read
    return renew(known, pack_key(before), kind_of_file(before), digest, hashed_at if is_still else 0)


def _read_link(path: str, found: os.stat_result, known: Seen | None, demand: Demand) -> Seen | None:
    """Read the link's text and, if the link leads to a regular file, that file's content. Of a dangling link only its
    text counts.
    """
    key = pack_key(found) + _read_target_key(path)
    if known is not None and known.key == key and known.is_sure(demand.wants_content):
        return known
    try:
        words = os.readlink(path)
    except OSError as problem:
        # The path has been replaced by another kind since the stat.
        if problem.errno == errno.EINVAL:
            return None
        raise
    digest = hashlib.blake2b(os.fsencode(words), digest_size=DIGEST_BYTES)
    hashed_at = time.time_ns()
    target = _stat_target(path) if demand.may_follow(path) else None
    if demand.wants_content and target is not None and stat.S_ISREG(target.st_mode):
        if demand.allowance is not None:
            demand.allowance.spend(target.st_size)
        read = _hash_open_file(path, 0, demand)
        if read is None:
            return None
        before, content, is_still = read
        digest.update(b"\0" + kind_of_file(before).encode() + content)
        hashed_at = hashed_at if is_still else 0
    return renew(known, key, "l", digest.digest() if demand.wants_content else b"", hashed_at)


def renew(known: Seen | None, key: bytes, kind: str, digest: bytes, hashed_at: int) -> Seen:
    """Return the entry that was read. If only `hashed_at` is newer, return the known object, because the path did not
    change.
    """
    if known is not None and known.key == key and known.digest == digest and hashed_at:
        known.hashed_at = hashed_at
        return known
    return Seen(key, kind, digest, hashed_at)


def hash_small_file(path: str, size: int, key: bytes) -> bytes | None:
    """Hash a file that is read in one call, if its key is still `key` afterwards. None if `_hash_open_file` must be
    used.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS | os.O_NOFOLLOW)
    except OSError:
        # `_hash_open_file` gets the same error again, and reports it.
        return None
    try:
        content = os.read(descriptor, size + 1)
        if len(content) != size or pack_key(os.fstat(descriptor)) != key:
            return None
    except IsADirectoryError:
        return None
    finally:
        os.close(descriptor)
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def _hash_open_file(path: str, flags: int, demand: Demand) -> tuple[os.stat_result, bytes, bool] | None:
    """Return the stat and digest of one open file, and whether it stayed unchanged.

    None if it is not a regular file after all.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS | flags)
    except OSError as problem:
        # ELOOP: O_NOFOLLOW on a path that has become a link. ENXIO: the path has become a socket.
        if problem.errno in (errno.ELOOP, errno.ENXIO) and flags:
            return None
        raise
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return None
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        limit = max(4 * before.st_size, _UNSIZED_LIMIT_BYTES)
        total = 0
        while chunk := os.read(descriptor, _CHUNK_BYTES if total else min(before.st_size + 1, _CHUNK_BYTES)):
            demand.go_on()
            digest.update(chunk)
            total += len(chunk)
            if total > limit:
                raise CannotSee(
                    f"{show(path)}: is longer than its size says "
                    f"(more than {limit} bytes read, {before.st_size} expected)"
                )
        return before, digest.digest(), pack_key(os.fstat(descriptor)) == pack_key(before)
    finally:
        os.close(descriptor)


def _stat_target(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError as problem:
        if _is_missing(problem) or problem.errno == errno.ELOOP:
            return None
        raise


def _read_target_key(path: str) -> bytes:
    target = _stat_target(path)
    # Only the kind of a folder counts behind a link, because the times of a folder change with every file in it.
    return b"" if target is None or not stat.S_ISREG(target.st_mode) else pack_key(target)


def kind_of_file(found: os.stat_result) -> str:
    return "x" if found.st_mode & stat.S_IXUSR else "f"


def _is_missing(problem: OSError) -> bool:
    return problem.errno in (errno.ENOENT, errno.ENOTDIR)


def describe_problem(path: str, problem: OSError) -> str:
    return f"{show(path)}: {os.strerror(problem.errno or 0)}"


def show(path: str) -> str:
    """Show a path as text that every encoder accepts. Bytes that are not UTF-8 become \\xff."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    return path


class Listing(NamedTuple):
    # The folder's mtime when the listing began. A name that is added later changes the mtime.
    mtime: int
    files: list[str]
    # Each folder with its inode, which identifies it under any name.
    folders: list[tuple[str, int]]


def list_folder(folder: str, most: int) -> Listing | None:
    """List a folder. None if it has more than `most` entries. Raises OSError."""
    listing = Listing(os.stat(folder).st_mtime_ns, [], [])
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            count += 1
            if count > most:
                return None
            if entry.is_dir(follow_symlinks=False):
                listing.folders.append((entry.name, entry.inode()))
            else:
                listing.files.append(entry.name)
    return listing
