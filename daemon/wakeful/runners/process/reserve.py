"""Descriptors in reserve for looking at processes: who belongs to a run must be known also when the daemon has no
descriptor left.

`proc` and `mark` read /proc through it. Without it a shortage looked like "there is no such process": what a run left
behind was not found, and so not ended, and a process of a run could have passed for a person's. Held from the daemon's
start (`hold`); other programs hold none.
"""

from __future__ import annotations

import errno
import os
from threading import Lock

# As many reads of /proc at the same time, on the loop and in threads.
HELD = 4
SHORTAGES = (errno.EMFILE, errno.ENFILE)
_CHUNK_BYTES = 65536

_lock = Lock()
_held: list[int] = []


def hold() -> None:
    """Once per daemon, before its first run."""
    while len(_held) < HELD:
        _held.append(_open_nothing())


def read_file(path: str) -> bytes:
    """The whole of a small file. Raises OSError; a lack of descriptors only where the reserve is spent as well."""
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
    """A descriptor, and whether it took the place of one in reserve."""
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
            # Somebody else was quicker: the next read fills it up.
            return


def _open_nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
