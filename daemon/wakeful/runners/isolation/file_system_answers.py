"""Records questions to the file system and their answers, so that a cached conclusion can be checked later.

`reach` and `programs` ask through it. The answer for a path is the file it leads to, the file's kind and its mode. A
swapped link gives another answer, and so does a folder that appears, disappears or is replaced. If the content was
read, the answer includes the time of the last change, which no program can set.
"""

from __future__ import annotations

import os
import stat
import time

from wakeful.runners.isolation.written_places import Writing, WrittenPlaces

# Device, number and mode; the time of the last change, or how many folders it holds, where that counted; None: not
# there, or not to be reached.
Stamp = tuple[int, int, int, int] | None
# A file changed so shortly before it was read may change once more within the same tick of the file system's clock.
_RACY_NANOSECONDS = 20_000_000


class Looked:
    """Each path is stamped before anything is concluded of it: what changes in between shows at the next comparison."""

    def __init__(self, written: WrittenPlaces | None = None) -> None:
        self._asked: dict[str, Stamp] = {}
        self._read: dict[str, Stamp] = {}
        self._listed: dict[str, Stamp] = {}
        self._written = written
        self._version = written.version if written is not None else ()
        self._writers: dict[str, Writing | None] = {}
        self._is_racy = False

    def is_there(self, path: str) -> bool:
        """Is there anything at this path? A link counts as what it leads to."""
        return self._ask(path) is not None

    def is_folder(self, path: str) -> bool:
        found = self._ask(path)
        return found is not None and stat.S_ISDIR(found[2])

    def is_file(self, path: str) -> bool:
        found = self._ask(path)
        return found is not None and stat.S_ISREG(found[2])

    def is_program(self, path: str) -> bool:
        """A regular file that we may execute."""
        return self.is_file(path) and os.access(path, os.X_OK)

    def read(self, path: str) -> Stamp:
        """Note that the content of a file, or the names in a folder, count: a later change is another answer."""
        found = _stamp(path, has_time=True)
        self._read.setdefault(path, found)
        if found is not None and abs(time.time_ns() - found[3]) < _RACY_NANOSECONDS:
            self._is_racy = True
        return found

    def list_folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, without links. Files that come and go there change no answer."""
        self._listed.setdefault(path, _stamp_folders(path))
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def read_start(self, path: str, size: int) -> bytes:
        """The first bytes of a file. Empty for a file that cannot be read: it will not start, and says so itself."""
        if self.read(path) is None:
            return b""
        try:
            # A FIFO in its place must not hold up the daemon.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.read(fd, size)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def list_names(self, folder: str) -> list[str]:
        """The names in a folder, unordered. Empty where there is no such folder."""
        if self.read(folder) is None:
            return []
        try:
            return os.listdir(folder)
        except OSError:
            return []

    def find_writer(self, real: str) -> Writing | None:
        """Find a session whose runs may write this path. The path must contain no link."""
        if real not in self._writers:
            self._writers[real] = self._written.find(real, self.is_folder) if self._written is not None else None
        return self._writers[real]

    def include(self, other: Looked) -> None:
        """Add the other's answers to these. Both must have the same knowledge of the places that runs write."""
        self._asked = other._asked | self._asked
        self._read = other._read | self._read
        self._listed = other._listed | self._listed
        self._writers = other._writers | self._writers
        self._is_racy = self._is_racy or other._is_racy

    def holds(self) -> bool:
        """Would all of it be answered alike now?"""
        return (
            not self._is_racy
            and all(_stamp(path, has_time=True) == known for path, known in self._read.items())
            and all(
                _stamp(path, has_time=False) == known for path, known in self._asked.items() if path not in self._read
            )
            and self._are_writers_same()
            and all(_stamp_folders(path) == known for path, known in self._listed.items())
        )

    def _are_writers_same(self) -> bool:
        if self._written is None or self._written.version == self._version:
            return True
        version = self._written.version
        if any(self._written.find(path, os.path.isdir) != known for path, known in self._writers.items()):
            return False
        self._version = version
        return True

    def _ask(self, path: str) -> Stamp:
        found = _stamp(path, has_time=False)
        # Where it is asked for again, the first answer is the one that conclusions began with.
        self._asked.setdefault(path, found)
        return found


def _stamp(path: str, *, has_time: bool) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_ctime_ns if has_time else 0


def _stamp_folders(path: str) -> Stamp:
    """By the number of folders in it, which most file systems count as links to it; where one does not (btrfs),
    by its time."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    kind = stat.S_IFMT(found.st_mode)
    # A file holds no folders, however often it is written.
    if kind != stat.S_IFDIR:
        return found.st_dev, found.st_ino, kind, 0
    return found.st_dev, found.st_ino, kind, found.st_nlink if found.st_nlink > 1 else found.st_mtime_ns
