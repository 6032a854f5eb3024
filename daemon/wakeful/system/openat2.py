"""Opens a path so that no symbolic link in it leads out of a folder, by openat2 with RESOLVE_BENEATH.

The daemon reads and writes in folders in which runs write, too, and it is not confined. If a run replaces a file by a
link to `~/.ssh`, the daemon must not follow it. A check before the open would be a race, so the kernel checks while it
opens. If openat2 is missing (systemd's RestrictSUIDSGID= disables it), each part of the path is opened by itself, with
the same result.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

# The system call number, the same on every architecture.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
# Flags of renameat2. NO_REPLACE: fail if the target exists. EXCHANGE: swap the two files.
AT_FDCWD, NO_REPLACE, EXCHANGE = -100, 1, 2
# The most tries: the kernel answers EAGAIN if a part of the path is being renamed.
_TRIES = 8
# The most links in one path, as in the kernel.
_MOST_LINKS = 40

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_libc.syscall.restype = ctypes.c_long


def open_beneath(folder: str, path: str, flags: int) -> int:
    """Open `path` below `folder`, and return the descriptor. The path of `folder` itself may contain links.

    Raises OSError with EXDEV if `path` leads outside.
    """
    base = os.open(folder, _PLACE | os.O_DIRECTORY)
    try:
        return open_at(base, path, flags)
    finally:
        os.close(base)


def open_without_links(path: str, flags: int) -> int:
    """Open an absolute path that was resolved and checked before, and return the descriptor.

    Raises OSError with ELOOP or ENOTDIR if the path contains a link now.
    """
    base = os.open("/", _PLACE | os.O_DIRECTORY)
    try:
        return open_at(base, path.lstrip("/") or ".", flags, has_links=False)
    finally:
        os.close(base)


def open_at(base: int, path: str, flags: int, *, has_links: bool = True) -> int:
    """Open `path` below the open folder `base`, and return the descriptor.

    Raises OSError: with EXDEV if `path` leads outside, and without `has_links` with ELOOP if it contains a link.
    """
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | (0 if has_links else _RESOLVE_NO_SYMLINKS)
    how = struct.pack("=3Q", flags | os.O_CLOEXEC, 0, resolve)
    number = errno.EAGAIN
    for _ in range(_TRIES):
        fd: int = _libc.syscall(_OPENAT2, base, os.fsencode(path), how, len(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number != errno.EAGAIN:
            break
    if number == errno.ENOSYS:
        return open_step_by_step(base, path, flags, has_links=has_links)
    raise _fail(number, path)


def rename_at(source_fd: int, source: str, folder_fd: int, name: str, flag: int) -> int:
    """Rename by renameat2. Returns 0 or the error number. `source_fd` is AT_FDCWD if `source` is an absolute path."""
    if not hasattr(_libc, "renameat2"):
        return errno.ENOSYS
    done = _libc.renameat2(source_fd, os.fsencode(source), folder_fd, os.fsencode(name), flag)
    return 0 if done == 0 else ctypes.get_errno()


def open_step_by_step(base: int, path: str, flags: int, *, has_links: bool) -> int:
    """Open a path as `open_at` does, without openat2.

    The folders of the path stay open, so that `..` returns to the folder that the path came from, even if a folder was
    moved meanwhile.
    """
    steps = _split(path)
    way = [os.dup(base)]
    links_left = _MOST_LINKS if has_links else 0
    try:
        while steps:
            step = steps.pop(0)
            if step == "..":
                os.close(way.pop())
                if not way:
                    raise _fail(errno.EXDEV, path)
                continue
            if not steps and flags & os.O_NOFOLLOW:
                return os.open(step, flags | os.O_CLOEXEC, dir_fd=way[-1])
            found = os.open(step, _PLACE | os.O_NOFOLLOW, dir_fd=way[-1])
            way.append(found)
            if stat.S_ISLNK(os.fstat(found).st_mode):
                if links_left == 0:
                    raise _fail(errno.ELOOP, path)
                links_left -= 1
                steps = [*_split(os.readlink("", dir_fd=found)), *steps]
                os.close(way.pop())
            elif not steps and not stat.S_ISDIR(os.fstat(found).st_mode):
                # O_NOFOLLOW, because a link may have replaced the file since.
                return os.open(step, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=way[-2])
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=way[-1])
    finally:
        for fd in way:
            os.close(fd)


def _split(path: str) -> list[str]:
    if path.startswith("/"):
        raise _fail(errno.EXDEV, path)
    return [step for step in path.split("/") if step not in ("", ".")]


def _fail(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
