"""What was asked of the file system, and what it answered: whoever drew conclusions from it can tell later whether they still hold.

`reach` asks through it. A path is known by the file it leads to and what kind that is, so that a link that is swapped, a folder that comes,
goes or is replaced gives another answer; one whose content was read also by the time of its last change.
"""

from __future__ import annotations

import os
import stat

# Device, number and kind; the time of the last change where the content counted; None: not there, or not to be reached.
Stamp = tuple[int, int, int, int] | None


class Looked:
    """Each path is stamped before anything is concluded of it: what changes in between shows at the next comparison."""

    def __init__(self) -> None:
        self._asked: dict[str, Stamp] = {}
        self._read: dict[str, Stamp] = {}

    def is_there(self, path: str) -> bool:
        """Or where it leads."""
        return self._ask(path) is not None

    def is_folder(self, path: str) -> bool:
        found = self._ask(path)
        return found is not None and stat.S_ISDIR(found[2])

    def is_file(self, path: str) -> bool:
        found = self._ask(path)
        return found is not None and stat.S_ISREG(found[2])

    def read(self, path: str) -> Stamp:
        """Of a folder: its names."""
        found = self._read[path] = _stamp(path, has_time=True)
        return found

    def holds(self) -> bool:
        """Would all of it be answered alike now?"""
        return all(_stamp(path, has_time=False) == known for path, known in self._asked.items()) and all(
            _stamp(path, has_time=True) == known for path, known in self._read.items()
        )

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
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode), found.st_mtime_ns if has_time else 0
