"""Takes privileges from a confined run: those of set-uid programs, those of root except over files, and some system
calls.

`confined_spawn` calls these functions on the short-lived thread that spawns a run. A daemon that is not root has no
capabilities to drop. This module imports only the standard library, because the small programs that wrap a run or an
agent's shell use it before anything else can be imported.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_VERSION_3 = 0x20080522
# A system call number, the same on every architecture.
_LANDLOCK_RESTRICT_SELF = 446
_libc = ctypes.CDLL(None, use_errno=True)
# The answer of capget: two times three words. The type is made once, because each array type that ctypes makes is a
# reference cycle.
_Capabilities = ctypes.c_char * 24

# The capabilities that root needs for files of other owners, by name and number in capability.h. They are the same four
# under `standard` and `strict`. All others are dropped: another process's memory (SYS_PTRACE, PERFMON), mounts
# (SYS_ADMIN), another user (SETUID, SETGID), capabilities on files (SETFCAP), files by number instead of name
# (DAC_READ_SEARCH), devices, the network, the clock and the kernel itself.
KEPT_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4}
_KEPT_BITS = sum(1 << number for number in KEPT_CAPABILITIES.values())


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid_new_privileges() -> None:
    """Take the effect of set-uid programs from the calling thread and all that it starts.

    The kernel demands this before any other restriction.
    """
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        _raise()


def drop_capabilities() -> None:
    """Drop all capabilities of the calling thread except `KEPT_CAPABILITIES`, for good.

    With "no new privileges", not even an exec as root brings them back. The bounding set only limits what an exec may
    bring, so it is left as it is: emptying it would take 37 calls and 0.1 ms per run.
    """
    if not _has_any():
        return
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _VERSION_3, 0)
    held = _Capabilities()
    if _libc.capget(header, held) != 0:
        _raise()
    # Effective, permitted and inheritable: the low 32 bits of each, then the high 32 bits of each.
    words = struct.unpack("=6I", held.raw)
    kept = [word & _KEPT_BITS if place < 3 else 0 for place, word in enumerate(words)]
    if _libc.capset(header, struct.pack("=6I", *kept)) != 0:
        _raise()


def restrict_by(fd: int) -> None:
    """Restrict the calling thread, and all that it starts from now on, by a Landlock ruleset (landlock.py).

    Call `forbid_new_privileges` first.
    """
    if _libc.syscall(_LANDLOCK_RESTRICT_SELF, fd, 0) != 0:
        _raise()


def install_filter(program: bytes) -> None:
    """Install a system call filter (seccomp.py) on the calling thread and all that it starts from now on.

    Call `forbid_new_privileges` first.
    """
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_FilterProgram(len(program) // 8, program)), 0, 0) != 0:
        _raise()


@functools.cache
def can_filter() -> bool:
    """Does this kernel have system call filters?

    Probed with a NULL filter: the kernel answers EFAULT if it has filters, and EINVAL if it does not know the mode.
    """
    return _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0) != 0 and ctypes.get_errno() == errno.EFAULT


@functools.cache
def _has_any() -> bool:
    """Does the daemon have any capabilities? Asked once, because they do not come back."""
    header, held = struct.pack("=Ii", _VERSION_3, 0), _Capabilities()
    if _libc.capget(header, held) != 0:
        _raise()
    return any(held.raw)


def _raise() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
