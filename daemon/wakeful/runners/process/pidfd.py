"""What a descriptor of a process tells and does, for processes that are nobody's child here: how it ended,
and signals to its group.

A process that outlived its daemon is reaped by somebody else, so its exit status cannot be waited for; who held a pidfd
of it before can still ask (PIDFD_GET_INFO, Linux 6.15). A signal through a pidfd reaches that process's group or
nobody: a number may be reused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct

# include/uapi/linux/pidfd.h: the mask comes first, the wait status last of the first version of the struct.
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_INFO_EXIT = 1 << 3
_SIGNAL_PROCESS_GROUP = 1 << 2
_TRIAL = "/bin/true"


def read_status(pidfd: int) -> int | None:
    """The wait status of a process that has ended and was reaped, by whomever; None until then."""
    answer = bytearray(_INFO.size)
    _INFO.pack_into(answer, 0, _INFO_EXIT, *(0,) * 13)
    fcntl.ioctl(pidfd, _GET_INFO, answer)
    mask, *_, status = _INFO.unpack(answer)
    return status if mask & _INFO_EXIT else None


def signal_group(pidfd: int, number: int) -> None:
    """To the process group that it leads, also when the process itself is gone and its group is not."""
    try:
        signal.pidfd_send_signal(pidfd, number, None, _SIGNAL_PROCESS_GROUP)
    except ProcessLookupError:
        return


def can_tell_ends() -> bool:
    """Does this kernel tell how a process ended that somebody else reaped?

    Tried, once per daemon, with a process that does nothing.
    """
    try:
        pid = os.posix_spawn(_TRIAL, [_TRIAL], {})
    except OSError:
        return False
    try:
        pidfd = os.pidfd_open(pid)
    finally:
        os.waitpid(pid, 0)
    try:
        return read_status(pidfd) == 0
    except OSError as error:
        # Linux before 6.13 knows nothing of the question, and 6.13 refuses to answer it for who is gone.
        if error.errno in (errno.ENOTTY, errno.EINVAL, errno.ESRCH):
            return False
        raise
    finally:
        os.close(pidfd)
