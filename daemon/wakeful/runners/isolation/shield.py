"""Places made read-only for a run alone, by a mount namespace of its own: what Landlock cannot subtract from a folder it grants.

An output beside the specs or the state folder opens the folder that holds them all. Where the daemon may mount (root, mostly), the
thread that spawns the run takes a namespace of its own and binds each protected place over itself, read-only; its scratch folder
and the like are bound on top, writable. Nothing outside that thread sees it. A confined run cannot undo it: Landlock refuses mounts.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Sequence
from threading import Thread

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 1 << 12, 1 << 14, 1 << 19
# No set-user-ID, no devices, no programs.
_MS_PLAIN = 2 | 4 | 8
# mount_setattr has the same number on every architecture, and is older than Landlock.
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = -100, 0x8000, 1

_libc = ctypes.CDLL(None, use_errno=True)


@functools.cache
def can_shield() -> bool:
    """Whether this process may make namespaces and mounts; tried once, in a thread that ends with its namespace."""
    worked: list[bool] = []

    def attempt() -> None:
        try:
            leave_namespace()
        except OSError:
            return
        worked.append(True)

    trial = Thread(target=attempt, name="try a mount namespace")
    trial.start()
    trial.join()
    return bool(worked)


def shield(places: Sequence[str], writable: Sequence[str], hidden: Sequence[str] = ()) -> None:
    """In the calling thread's own namespace, from now on: `places` read-only and `hidden` empty, but for the folders `writable`."""
    leave_namespace()
    # Opened first: what lies inside a shielded place is reached past it afterwards.
    opened = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in writable]
    try:
        for path in places:
            _mount(path, path, _MS_BIND | _MS_REC)
            _make_read_only(path)
        for path in hidden:
            if os.path.isdir(path):
                _check(_libc.mount(b"none", os.fsencode(path), b"tmpfs", ctypes.c_ulong(_MS_PLAIN), b"size=64k,mode=0755"), path)
        for path, fd in opened:
            os.makedirs(path, exist_ok=True)
            _mount(f"/proc/self/fd/{fd}", path, _MS_BIND | _MS_REC)
    finally:
        for _, fd in opened:
            os.close(fd)


def leave_namespace() -> None:
    """What the calling thread mounts from now on, only it and what it starts sees. Raises OSError where that may not be."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    # Else our mounts would show up for everybody.
    _mount(None, "/", _MS_REC | _MS_SLAVE)


def _mount(source: str | None, target: str, flags: int) -> None:
    origin = None if source is None else os.fsencode(source)
    _check(_libc.mount(origin, os.fsencode(target), None, ctypes.c_ulong(flags), None), target)


def _make_read_only(path: str) -> None:
    attributes = struct.pack("=4Q", _ATTR_RDONLY, 0, 0, 0)
    name = os.fsencode(path)
    _check(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, name, _AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes))), path)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
