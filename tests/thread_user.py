"""Let the calling thread act as another user for a while. Files and sockets see that user.

os.seteuid is not used: the C library changes all threads at once, and ends the process if one of them may not change. A
thread that waits for a run to confine may not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator

_libc = ctypes.CDLL(None, use_errno=True)
# The numbers of setgroups, setresuid and setresgid.
_CALLS = {"x86_64": (116, 117, 119), "aarch64": (159, 147, 149)}


@contextlib.contextmanager
def acting_as(uid: int, *others: int) -> Iterator[None]:
    """Act as this user within the block.
    It needs root, and modules imported within must be readable by the user. `others` are further groups of the user."""
    setgroups, setresuid, setresgid = _CALLS[platform.machine()]
    groups = os.getgroups()
    _call(setgroups, len(others), (ctypes.c_uint32 * len(others))(*others))
    _call(setresgid, uid, uid, 0)
    _call(setresuid, uid, uid, 0)
    try:
        yield
    finally:
        _call(setresuid, 0, 0, 0)
        _call(setresgid, 0, 0, 0)
        _call(setgroups, len(groups), (ctypes.c_uint32 * len(groups))(*groups))


def _call(number: int, *arguments: object) -> None:
    if _libc.syscall(number, *arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
