"""Opens a path so that no symbolic link on the way leads out of a folder: openat2 with RESOLVE_BENEATH,
the kernel's own word.

Runs write in folders that we read and write in, as the user, with nothing to hold us: a folder or file they swap for a
link to `~/.ssh` must not make us read or write there. Nothing is checked first and opened afterwards: what was opened
is what was checked. Where there is no openat2 (RestrictSUIDSGID= of systemd takes it away),
each step is opened by itself, to the same end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

# The same number on every architecture of Linux.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
# Of renameat2: nothing may be there, and what is there comes out under the other name.
AT_FDCWD, NO_REPLACE, EXCHANGE = -100, 1, 2
# The kernel cannot tell while something on the way is being renamed: asked again, it can.
_TRIES = 8
# As many as the kernel follows.
_MOST_LINKS = 40

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_libc.syscall.restype = ctypes.c_long


def open_beneath(folder: str, path: str, flags: int) -> int:
    """A descriptor of `path` below `folder`, which may itself be reached by links. EXDEV: it leads outside."""
    base = os.open(folder, _PLACE | os.O_DIRECTORY)
    try:
        return open_at(base, path, flags)
    finally:
        os.close(base)


def open_without_links(path: str, flags: int) -> int:
    """A descriptor of an absolute path that no link lies on, as one who resolved and judged it expects.

    ELOOP or ENOTDIR: one does.
    """
    base = os.open("/", _PLACE | os.O_DIRECTORY)
    try:
        return open_at(base, path.lstrip("/") or ".", flags, has_links=False)
    finally:
        os.close(base)


def open_at(base: int, path: str, flags: int, *, has_links: bool = True) -> int:
    """The same below an open folder."""
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
    """renameat2: 0, or the error's number. `source_fd` AT_FDCWD where the source is a whole path."""
    if not hasattr(_libc, "renameat2"):
        return errno.ENOSYS
    done = _libc.renameat2(source_fd, os.fsencode(source), folder_fd, os.fsencode(name), flag)
    return 0 if done == 0 else ctypes.get_errno()


def open_step_by_step(base: int, path: str, flags: int, *, has_links: bool) -> int:
    """As openat2 would.

    Folders on the way stay open, so that `..` leads back to the one it was entered from,
    wherever that was moved meanwhile.
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
                # A link that was put there since is not followed.
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
