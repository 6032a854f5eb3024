"""What a confined run gives up: what a set-uid program would bring, those privileges of root that lead past every policy, and system calls.

`confine` calls all three on the short-lived thread that spawns a run. A daemon that is not root has no capabilities to drop. Leans on the
standard library alone: the small program around an agent's shell uses it before anything else could be imported.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)

# By their numbers in capability.h. Reading another process's memory or environment (SYS_PTRACE; PERFMON and SYS_ADMIN do it since
# Linux 6.17 without asking Landlock), mounts and namespaces (SYS_ADMIN), the kernel itself (SYS_MODULE, SYS_RAWIO, SYS_BOOT, BPF, SYSLOG,
# CHECKPOINT_RESTORE, MAC_*, AUDIT_CONTROL), devices (MKNOD), limits (SYS_RESOURCE), files by number instead of name (DAC_READ_SEARCH), the
# machine's network and clock (NET_ADMIN, SYS_TIME). What is left is what root needs with files of other owners.
_DROPPED = (2, 12, 16, 17, 19, 21, 22, 24, 25, 27, 30, 32, 33, 34, 38, 39, 40)
_DROPPED_BITS = sum(1 << number for number in _DROPPED)


def forbid_new_privileges() -> None:
    """The calling thread and all it starts gain nothing by set-uid programs: the kernel asks for it before any restriction."""
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        _raise()


def drop_capabilities() -> None:
    """From the calling thread, for good: with "no new privileges" not even an exec as root brings them back."""
    if not _has_any():
        return
    header = struct.pack("=Ii", _VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    if _libc.capget(header, held) != 0:
        _raise()
    # Twice effective, permitted, inheritable: the low 32 bits of each, then the high ones.
    words = struct.unpack("=6I", held.raw)
    kept = [word & ~(_DROPPED_BITS >> 32 * (place // 3)) & 0xFFFFFFFF for place, word in enumerate(words)]
    if _libc.capset(header, struct.pack("=6I", *kept)) != 0:
        _raise()


def install_filter(program: bytes) -> None:
    """A system call filter (filter.py), on the calling thread and all it starts from now on. `forbid_new_privileges` comes first."""
    held = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a length, then the pointer on its own boundary.
    description = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(held))
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, description, 0, 0) != 0:
        _raise()


@functools.cache
def _has_any() -> bool:
    """Does the daemon have capabilities at all? They do not come back, so once is enough to know."""
    header, held = struct.pack("=Ii", _VERSION_3, 0), ctypes.create_string_buffer(24)
    if _libc.capget(header, held) != 0:
        _raise()
    return any(held.raw)


def _raise() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
