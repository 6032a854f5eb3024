"""The private write area of a strict run: the run changes copies of its outputs, not the outputs (rule 27).

`Preparation` makes the area, and `run_results` collects the changed outputs at the run's end. Both block, and run in a
thread. The area lies in the state folder, which is not watched and is out of people's way. `landing.py` puts the
collected outputs in place after they are recorded. Files are copied through open folders, so that a link which is
swapped in meanwhile has no effect.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from wakeful.core.record.observations import StagedOutput
from wakeful.errors import OperatorError
from wakeful.runners.isolation.opened_places import open_beneath
from wakeful.runners.isolation.reach import Area
from wakeful.system.git_folders import GIT
from wakeful.system.private_files import make_plain, make_private

_CHUNK_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The most readable files next to outputs in one folder. Each is mounted on its own, and more would take longer than
# most runs.
_MOST_BESIDE = 256
_TOLD = 20


class _Copied(Struct, frozen=True):
    """The digest of an output before the run, and the stamp of its copy. The stamp shows whether the copy changed."""

    digest: str
    stamp: tuple[int, ...]


class StagedBefore(Struct, frozen=True):
    """An area as it was when the run began: all that is needed to collect from it.

    `shown_links` and `mounted` are the entries that are not outputs, although they lie in the area.
    """

    areas: tuple[Area, ...]
    copied: dict[str, _Copied]
    shown_links: frozenset[str]
    mounted: frozenset[str]


class ReadOnlyNeighbour(Struct, frozen=True):
    """An entry in a folder of outputs that the run may only read: its path, and an open descriptor."""

    path: str
    fd: int


class Staging:
    """The write area of one run. `folder` is its folder in the state folder; `root` is the root of the spec."""

    def __init__(
        self,
        folder: str,
        root: str,
        areas: tuple[Area, ...],
        before: StagedBefore | None = None,
    ) -> None:
        """`before` is set if an earlier daemon filled the area: a run has worked in it since."""
        self._folder = folder
        self._root = root
        self._areas = areas if before is None else before.areas
        self._is_filled = before is not None
        # Path below `folder` -> its copy.
        self._before: dict[str, _Copied] = {} if before is None else before.copied
        self.beside: list[ReadOnlyNeighbour] = []
        self._shown_links: set[str] = set() if before is None else set(before.shown_links)
        # Places that are mounted on top of the area, so they are not outputs.
        self._mounted: frozenset[str] = frozenset() if before is None else before.mounted

    def describe(self) -> StagedBefore:
        return StagedBefore(self._areas, self._before, frozenset(self._shown_links), self._mounted)

    def note_mounted(self, places: Iterable[str]) -> None:
        """Record the mounts of a view. A mount leaves an empty placeholder in the area, which is not an output."""
        self._mounted |= frozenset(places)

    def prepare(self, is_read: Callable[[str], bool]) -> list[tuple[Area, str]]:
        """Make and fill the write area. Returns each output folder, and the folder that replaces it.

        `is_read` tells whether a binding lets the run read a path. Blocking.
        """
        make_private(os.path.dirname(self._folder))
        if not self._is_filled:
            os.mkdir(self._folder, 0o700)
        prepared = []
        for number, area in enumerate(self._areas):
            place = f"{self._folder}/{number}"
            source = _open_area(area.folder, self._root)
            try:
                if not self._is_filled:
                    os.mkdir(place, stat.S_IMODE(os.fstat(source).st_mode) | 0o700)
                self._fill(area, number, source, is_read)
            finally:
                os.close(source)
            prepared.append((area, place))
        return prepared

    def collect(self) -> tuple[tuple[StagedOutput, ...], tuple[str, ...]]:
        """Collect the outputs that the run changed, flushed to disk, and the other files that it wrote. Blocking."""
        outputs, undeclared = [], []
        for number, area in enumerate(self._areas):
            found = set()
            for below, is_regular in _walk_staged(f"{self._folder}/{number}", area.folder, self._mounted):
                place, path = f"{number}/{below}", self._name(area, below)
                found.add(place)
                if place in self._shown_links:
                    continue
                if path is None or not is_regular:
                    undeclared.append(os.path.relpath(os.path.join(area.folder, below), self._root))
                elif (output := self._compare(place, path)) is not None:
                    outputs.append(output)
            for place in sorted(self._before.keys() - found):
                if place.startswith(f"{number}/") and (path := self._name(area, place.partition("/")[2])) is not None:
                    outputs.append(StagedOutput(path=path, base=self._before[place].digest, new=None, place=place))
        return tuple(outputs), shorten_told(undeclared)

    def close(self) -> None:
        """Close the descriptors. The area itself stays until it has landed or is discarded. Safe to repeat."""
        beside, self.beside = self.beside, []
        for one in beside:
            os.close(one.fd)

    def _fill(self, area: Area, number: int, source: int, is_read: Callable[[str], bool]) -> None:
        for below, folder_fd, name, is_folder in _walk_area(area, source):
            if self._name(area, below) is not None:
                if not is_folder:
                    self._copy(f"{number}/{below}", name, folder_fd)
            elif is_read(path := os.path.join(area.folder, below)):
                if not is_folder and stat.S_ISLNK(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
                    if not self._is_filled:
                        self._shown_links.add(f"{number}/{below}")
                    self._copy(f"{number}/{below}", name, folder_fd)
                    continue
                if len(self.beside) >= _MOST_BESIDE:
                    words = (
                        f"{area.folder} holds outputs and more than {_MOST_BESIDE} files to be read; under "
                        "isolation: strict give outputs a folder of their own"
                    )
                    raise OperatorError(words)
                self.beside.append(
                    ReadOnlyNeighbour(path, os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd))
                )

    def _copy(self, place: str, name: str, folder_fd: int) -> None:
        if self._is_filled:
            return
        target = f"{self._folder}/{place}"
        make_plain(os.path.dirname(target))
        digest = copy_entry(name, folder_fd, target)
        if digest is not None:
            self._before[place] = _Copied(digest, stamp_of(os.lstat(target)))

    def _compare(self, place: str, path: str) -> StagedOutput | None:
        target, before = f"{self._folder}/{place}", self._before.get(place)
        if before is not None and stamp_of(os.lstat(target)) == before.stamp:
            return None
        new = digest_entry(target, None, is_flushed=True)
        # The run wrote the same content again.
        if new is None or (before is not None and new == before.digest):
            return None
        return StagedOutput(path=path, base=before.digest if before is not None else None, new=new, place=place)

    def _name(self, area: Area, below: str) -> str | None:
        """Return an output's path as the spec spells it, relative to root if it lies there. None for other files."""
        for folder, pattern in area.outputs:
            spelled = os.path.join(folder, below)
            # A repository below the output folder is not an output. If the spec names `.git`, it is part of `folder`.
            if pattern.matches(spelled) and (spelled == pattern.base or GIT not in below.split("/")):
                return os.path.relpath(spelled, self._root) if spelled.startswith(f"{self._root}/") else spelled
        return None


def shorten_told(paths: list[str]) -> tuple[str, ...]:
    """Sort paths, and replace those beyond the first 20 by their number."""
    told = sorted(paths)
    return tuple(told) if len(told) <= _TOLD else (*told[:_TOLD], f"and {len(told) - _TOLD} more")


def digest_entry(name: str, folder_fd: int | None, *, is_flushed: bool = False) -> str | None:
    """Compute the digest of a file or a link: of its kind, its executable bit and its content. Blocking.

    None if it is missing, or neither a file nor a link. `is_flushed`: also flush the file to disk.
    """
    try:
        found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return _digest_link(os.readlink(name, dir_fd=folder_fd))
        if not stat.S_ISREG(found.st_mode):
            return None
        fd = os.open(name, _FILE, dir_fd=folder_fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        digest = _begin(os.fstat(fd))
        while chunk := os.read(fd, _CHUNK_BYTES):
            digest.update(chunk)
        if is_flushed:
            os.fsync(fd)
        return digest.hexdigest()
    finally:
        os.close(fd)


def copy_entry(name: str, folder_fd: int | None, target: str) -> str | None:
    """Copy a file or a link with its rights, owner and times. Blocking. Returns its digest; None if it is neither."""
    found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        words = os.readlink(name, dir_fd=folder_fd)
        os.symlink(words, target)
        return _digest_link(words)
    if not stat.S_ISREG(found.st_mode):
        return None
    source = os.open(name, _FILE, dir_fd=folder_fd)
    try:
        found = os.fstat(source)
        # O_TRUNC, because an interrupted copy may have left a file here.
        copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            digest = _begin(found)
            while chunk := os.read(source, _CHUNK_BYTES):
                digest.update(chunk)
                _write(copy, chunk)
            if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
                os.fchown(copy, found.st_uid, found.st_gid)
            os.fchmod(copy, stat.S_IMODE(found.st_mode))
            os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(copy)
    finally:
        os.close(source)
    return digest.hexdigest()


def _begin(found: os.stat_result) -> hashlib.blake2b:
    return hashlib.blake2b(b"x" if found.st_mode & 0o111 else b"-", digest_size=20)


def _digest_link(words: str) -> str:
    return hashlib.blake2b(b"l" + os.fsencode(words), digest_size=20).hexdigest()


def _write(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _open_area(folder: str, root: str) -> int:
    """Open a folder of outputs for reading. If it lies in root, links do not lead out of root."""
    root = os.path.realpath(root)
    if not folder.startswith(f"{root}/"):
        return os.open(folder, _FOLDER)
    place = open_beneath(root, os.path.relpath(folder, root))
    try:
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)


def _walk_area(area: Area, source: int) -> Iterator[tuple[str, int, str, bool]]:
    """Walk a folder of outputs: each entry's path below it, its parent's descriptor, its name, whether it is a folder.

    The walk enters only folders in which an output may lie, and yields any other folder as one entry.
    """
    for above, folders, files, folder_fd in os.fwalk(".", dir_fd=source, follow_symlinks=False):
        for name in sorted(folders):
            below = os.path.normpath(os.path.join(above, name))
            spelled = [(os.path.join(folder, below), pattern) for folder, pattern in area.outputs]
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode)
            if (
                is_link
                or name == GIT
                or not any(pattern.enters(path) or pattern.matches(path) for path, pattern in spelled)
            ):
                folders.remove(name)
                yield below, folder_fd, name, not is_link
        for name in files:
            yield os.path.normpath(os.path.join(above, name)), folder_fd, name, False


def _walk_staged(place: str, folder: str, mounted: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Walk an area after the run: each file's path below it, and whether the file can land.

    Files and links can land; pipes, sockets and devices cannot. Links are not followed.
    """
    ahead = [""]
    while ahead:
        above = ahead.pop()
        for entry in os.scandir(os.path.join(place, above)):
            below = os.path.join(above, entry.name)
            # A mount on top of the area left an empty placeholder here.
            if os.path.join(folder, below) in mounted:
                continue
            if entry.is_dir(follow_symlinks=False):
                ahead.append(below)
            else:
                yield below, entry.is_symlink() or entry.is_file(follow_symlinks=False)


def stamp_of(found: os.stat_result) -> tuple[int, ...]:
    """Return a stamp that stays the same as long as the file is not changed."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
