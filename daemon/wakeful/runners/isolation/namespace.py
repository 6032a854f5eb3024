"""Makes places read-only or empty in a mount namespace, because Landlock cannot subtract a place from a granted folder.

Each protected place is bound over itself, read-only. The run's own folders are bound on top, writable. Other processes
do not see these mounts. A confined run cannot undo them, because Landlock refuses mounts. Called by the thread that
spawns a run (confined_spawn.py), and by the launcher that a daemon without root starts instead (launcher.py). Imports
only the standard library, and little of it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_SLAVE = 1 << 12, 1 << 14, 1 << 19
# MS_NOSUID, MS_NODEV and MS_NOEXEC.
_MS_PLAIN = 2 | 4 | 8
# mount_setattr has the same number on every architecture, and is older than Landlock.
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = -100, 0x8000, 1

_libc = ctypes.CDLL(None, use_errno=True)


def shield(places: Sequence[str], writable: Sequence[str], hidden: Sequence[str] = ()) -> None:
    """Make `places` read-only and `hidden` empty, except the folders `writable`.

    Only the calling thread and its children see this. Raises OSError.
    """
    leave_namespace()
    # Opened before the mounts, which cover the folders inside shielded places.
    opened = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in writable]
    try:
        for path in places:
            _mount(path, path, _MS_BIND | _MS_REC)
            _make_read_only(path)
        for path in hidden:
            if os.path.isdir(path):
                _check(
                    _libc.mount(b"none", os.fsencode(path), b"tmpfs", ctypes.c_ulong(_MS_PLAIN), b"size=64k,mode=0755"),
                    path,
                )
        for path, fd in opened:
            os.makedirs(path, exist_ok=True)
            _mount(f"/proc/self/fd/{fd}", path, _MS_BIND | _MS_REC)
    finally:
        for _, fd in opened:
            os.close(fd)


def leave_namespace() -> None:
    """Give the calling thread its own mount namespace: only it and its children see its later mounts.

    Raises OSError if that is forbidden.

    A process without the right to mount also enters a new user namespace, in which it has that right. The kernel
    refuses a user namespace to a process with several threads.
    """
    try:
        leave_mounts()
    except PermissionError:
        _leave_user()
        leave_mounts()


def leave_mounts() -> None:
    """Enter a new mount namespace, without a user namespace. Raises OSError if the right to mount is missing."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    # Without this, our mounts would appear in the namespaces of other processes.
    _mount(None, "/", _MS_REC | _MS_SLAVE)


def _leave_user() -> None:
    """Enter a new user namespace as the same user and group. A program that is executed later has no right to mount."""
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        # The kernel reports EINVAL for a process with several threads. EPERM is a clearer answer.
        raise PermissionError(
            errno.EPERM if number == errno.EINVAL else number, "a user namespace is refused here", "unshare"
        )
    for name, words in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, words.encode())
        finally:
            os.close(fd)


def _mount(source: str | None, target: str, flags: int) -> None:
    origin = None if source is None else os.fsencode(source)
    _check(_libc.mount(origin, os.fsencode(target), None, ctypes.c_ulong(flags), None), target)


def _make_read_only(path: str) -> None:
    attributes = struct.pack("=4Q", _ATTR_RDONLY, 0, 0, 0)
    name = os.fsencode(path)
    _check(
        _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, name, _AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes))),
        path,
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
