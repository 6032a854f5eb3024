"""File descriptors in reserve for reading /proc, so that the daemon can still tell which processes belong to a run when
it has run out of descriptors.

`proc` and `process_mark` read /proc through this module. Without the reserve, a shortage looked like "there is no such
process". The daemon then did not find and end the processes that a run left behind, and could have taken a process of
a run for a person's. The daemon holds the reserve from its start (`hold`); other programs hold none.
"""

from __future__ import annotations

import errno
import os
from threading import Lock

# The number of descriptors in reserve: the most reads of /proc at the same time, on the loop and in threads.
HELD = 4
SHORTAGES = (errno.EMFILE, errno.ENFILE)
_CHUNK_BYTES = 65536

_lock = Lock()
_held: list[int] = []


def hold() -> None:
    """Fill the reserve. Called once per daemon, before its first run."""
    while len(_held) < HELD:
        _held.append(_open_nothing())


def read_file(path: str) -> bytes:
    """Read a whole small file. Raises OSError, but for a lack of descriptors only if the reserve is used up too."""
    fd, is_lent = _open(path)
    try:
        parts = []
        while part := os.read(fd, _CHUNK_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)
        if is_lent:
            _refill()


def _open(path: str) -> tuple[int, bool]:
    """Open a file. Returns its descriptor, and True if it replaced a descriptor of the reserve."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False
    except OSError as error:
        if error.errno not in SHORTAGES:
            raise
        with _lock:
            if not _held:
                raise
            os.close(_held.pop())
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC), True
            except OSError:
                _held.append(_open_nothing())
                raise


def _refill() -> None:
    with _lock:
        try:
            while len(_held) < HELD:
                _held.append(_open_nothing())
        except OSError:
            # Another thread took the free descriptor. The next read that uses the reserve fills it up.
            return


def _open_nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
