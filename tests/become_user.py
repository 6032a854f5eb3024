"""The program behind `ordinary_user`: `become_user.py UID HOME PROGRAM ARGUMENTS…` runs a program as that user.

Only root starts it. A forked daemon (daemon_forks.py) becomes the user with `become`.

The user must see the interpreter and this checkout, which may lie in a folder that is closed to others (/root). In a
mount namespace of its own, each such folder is covered by an empty one that contains only these two. /etc/passwd and
/etc/group are covered by copies with one more line.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
from collections.abc import Iterable

NAME = "ordinary"
_NEW_MOUNTS = 0x00020000
_SET_DUMPABLE = 4
_BIND, _RECURSIVE, _SLAVE = 1 << 12, 1 << 14, 1 << 19
_libc = ctypes.CDLL(None, use_errno=True)


def become(uid: int, home: str) -> None:
    """Make the calling process this user, in a mount namespace of its own."""
    _check(_libc.unshare(_NEW_MOUNTS), "a mount namespace")
    _mount(None, "/", _RECURSIVE | _SLAVE)
    checkout = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _show({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, checkout)})
    _add_line("/etc/passwd", f"{NAME}:x:{uid}:{uid}::{home}:/bin/sh\n")
    _add_line("/etc/group", f"{NAME}:x:{uid}:\n")
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # The kernel hides a process that changed its user in /proc, even from itself, until it executes a program or sets
    # this flag.
    _check(_libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0), "a process that can be looked at")


def _show(places: Iterable[str]) -> None:
    closed: dict[str, list[tuple[str, int]]] = {}
    for place in places:
        above = _find_closed(place)
        if above is not None:
            # Open the place before its folder is covered, because the cover hides the path.
            closed.setdefault(above, []).append((place, os.open(place, os.O_PATH | os.O_DIRECTORY)))
    for above, opened in closed.items():
        _check(_libc.mount(b"none", os.fsencode(above), b"tmpfs", ctypes.c_ulong(0), b"size=1m,mode=0755"), above)
        for place, fd in sorted(opened):
            os.makedirs(place, exist_ok=True)
            _mount(f"/proc/self/fd/{fd}", place, _BIND | _RECURSIVE)
            os.close(fd)


def _find_closed(place: str) -> str | None:
    """Return the outermost folder of the path that other users may not enter."""
    parts = place.split("/")[1:]
    folders = ("/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((folder for folder in folders if not os.stat(folder).st_mode & stat.S_IXOTH), None)


def _add_line(path: str, line: str) -> None:
    with open(path) as file:
        text = file.read()
    with tempfile.NamedTemporaryFile("w", delete=False) as copy:
        copy.write(text + line)
    os.chmod(copy.name, 0o644)
    _mount(copy.name, path, _BIND)
    os.unlink(copy.name)


def _mount(source: str | None, target: str, flags: int) -> None:
    origin = None if source is None else os.fsencode(source)
    _check(_libc.mount(origin, os.fsencode(target), None, ctypes.c_ulong(flags), None), target)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2])
    os.execvp(sys.argv[3], sys.argv[3:])
