"""The answers of the file system that a plan depends on, so that the plan can be checked before it is used again.

`reach` and `program_places` ask about paths through `PathAnswers`, which records each answer. The answer for a path is
the file it leads to, the file's kind and its mode. A swapped link gives another answer, and so does a folder that
appears, disappears or is replaced. If the content was read, the answer includes the time of the last change, which no
program can set.
"""

from __future__ import annotations

import os
import stat
import time

from wakeful.runners.isolation.written_places import Writing, WrittenPlaces

# Device, inode number, mode, and a fourth number: the time of the last change, the number of folders inside, or 0.
# None if the path is missing or cannot be reached.
Stamp = tuple[int, int, int, int] | None
# If a file changed this shortly before it was read, a second change may get the same time: the file system's clock
# advances in ticks.
_RACY_NANOSECONDS = 20_000_000


class PathAnswers:
    """The questions about paths and their answers.

    Each path is stamped before a conclusion is drawn from it. A change in between shows at the next comparison.
    """

    def __init__(self, written: WrittenPlaces | None = None) -> None:
        self._asked: dict[str, Stamp] = {}
        self._read: dict[str, Stamp] = {}
        self._listed: dict[str, Stamp] = {}
        self._written = written
        self._version = written.version if written is not None else ()
        self._writers: dict[str, Writing | None] = {}
        self._is_racy = False

    def is_there(self, path: str) -> bool:
        """Does this path exist? A link counts as its target."""
        return self._ask(path) is not None

    def is_folder(self, path: str) -> bool:
        found = self._ask(path)
        return found is not None and stat.S_ISDIR(found[2])

    def is_file(self, path: str) -> bool:
        found = self._ask(path)
        return found is not None and stat.S_ISREG(found[2])

    def is_program(self, path: str) -> bool:
        """Is this a regular file that the daemon may execute?"""
        return self.is_file(path) and os.access(path, os.X_OK)

    def read(self, path: str) -> Stamp:
        """Record that a conclusion depends on a file's content, or on a folder's names. Returns the stamp."""
        found = _stamp(path, has_time=True)
        self._read.setdefault(path, found)
        if found is not None and abs(time.time_ns() - found[3]) < _RACY_NANOSECONDS:
            self._is_racy = True
        return found

    def list_folders(self, path: str) -> list[str]:
        """List the names of the folders in a folder, without links. Files that come and go there change no answer."""
        self._listed.setdefault(path, _stamp_folders(path))
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def read_start(self, path: str, size: int) -> bytes:
        """Read the first bytes of a file. Empty if it cannot be read: such a program fails with its own message."""
        if self.read(path) is None:
            return b""
        try:
            # Opening a FIFO must not block the daemon.
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
        """List the names in a folder, unordered. Empty if there is no such folder."""
        if self.read(folder) is None:
            return []
        try:
            return os.listdir(folder)
        except OSError:
            return []

    def find_writer(self, real: str) -> Writing | None:
        """Find a session whose runs may write this path, which must contain no link. None if no run may write it."""
        if real not in self._writers:
            self._writers[real] = self._written.find(real, self.is_folder) if self._written is not None else None
        return self._writers[real]

    def include(self, other: PathAnswers) -> None:
        """Add the answers of `other`. Both must use the same `WrittenPlaces`."""
        self._asked = other._asked | self._asked
        self._read = other._read | self._read
        self._listed = other._listed | self._listed
        self._writers = other._writers | self._writers
        self._is_racy = self._is_racy or other._is_racy

    def still_hold(self) -> bool:
        """Would every question get the same answer now?"""
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
        # A repeated question keeps the first answer, because conclusions may rest on it.
        self._asked.setdefault(path, found)
        return found


def _stamp(path: str, *, has_time: bool) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_ctime_ns if has_time else 0


def _stamp_folders(path: str) -> Stamp:
    """Stamp a folder by the number of folders in it, which most file systems show as its number of links.

    If the file system does not count them (btrfs), the stamp has the folder's modification time instead.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    kind = stat.S_IFMT(found.st_mode)
    # A file contains no folders, so its time and links do not matter.
    if kind != stat.S_IFDIR:
        return found.st_dev, found.st_ino, kind, 0
    return found.st_dev, found.st_ino, kind, found.st_nlink if found.st_nlink > 1 else found.st_mtime_ns
