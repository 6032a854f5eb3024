"""Reads /proc for the children, start times and usage of processes, and asks the kernel by pidfd about processes that
are not children of this daemon.

Only reads, except for `signal_group`. A process that is gone is a normal answer, not an error. psutil finds a tree by
walking every process of the machine (milliseconds) and misses reparented processes. The files read here cost
microseconds, and are read for the daemon's own children, whose pids cannot be reused unnoticed. A process that outlived
its daemon is reaped by another process, so the daemon cannot wait for its exit status. A pidfd that was opened earlier
still gives the status (PIDFD_GET_INFO, Linux 6.15).
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
from threading import Lock

from msgspec import Struct

# The number of file descriptors in reserve: the most reads of /proc at the same time, on the loop and in threads.
# Without it, a shortage of descriptors looked like "there is no such process". The daemon then did not find and
# end the processes that a run left behind, and could have taken a process of a run for a person's.
RESERVED = 4
SHORTAGES = (errno.EMFILE, errno.ENFILE)
_CHUNK_BYTES = 65536

_lock = Lock()
_reserved: list[int] = []


def reserve_descriptors() -> None:
    """Fill the reserve. Called once per daemon, before its first run."""
    while len(_reserved) < RESERVED:
        _reserved.append(_open_nothing())


def read_file(path: str) -> bytes:
    """Read a whole small file. Raises OSError, but for a lack of descriptors only if the reserve is used up too."""
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
    """Open a file. Returns its descriptor, and True if it replaced a descriptor of the reserve."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False
    except OSError as error:
        if error.errno not in SHORTAGES:
            raise
        with _lock:
            if not _reserved:
                raise
            os.close(_reserved.pop())
            try:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC), True
            except OSError:
                _reserved.append(_open_nothing())
                raise


def _refill() -> None:
    with _lock:
        try:
            while len(_reserved) < RESERVED:
                _reserved.append(_open_nothing())
        except OSError:
            # Another thread took the free descriptor. The next read that uses the reserve fills it up.
            return


def _open_nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The resolution of start times, which are rounded down.
TICK_SECONDS = 1 / _TICKS_PER_SECOND


class ProcessStat(Struct, frozen=True):
    """One line of /proc/<pid>/stat. `started` is seconds of CLOCK_BOOTTIME. Pid and `started` identify one process."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: float

    @property
    def is_alive(self) -> bool:
        return self.state not in "ZX"


class Reaped(Struct, frozen=True):
    """The usage of a process and of the children it waited for, over their lives."""

    status: int
    cpu_seconds: float
    max_rss_bytes: int
    read_bytes: int
    written_bytes: int


def read_stat(pid: int) -> ProcessStat | None:
    try:
        text = read_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name stands in brackets and may contain brackets itself, so the last bracket ends it.
    fields = text[text.rfind(b")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]) / _TICKS_PER_SECOND,
    )


def every_pid() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(pid: int) -> list[int]:
    """List the direct children, zombies included."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return list(dict.fromkeys(child for thread in threads for child in _list_children(pid, thread)))


def orphans_of(pid: int) -> list[int]:
    """List the children of the process's first thread, zombies included.

    They include every orphan that came to a subreaper, because the kernel gives orphans to its first thread. Children
    that other threads spawned are not included.
    """
    return _list_children(pid, str(pid))


def _list_children(pid: int, thread: str) -> list[int]:
    # The kernel may skip a child while a sibling exits, so read twice. Every caller also repeats until none is left.
    path = f"/proc/{pid}/task/{thread}/children"
    return list(dict.fromkeys((*_read_children(path, pid), *_read_children(path, pid))))


def descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    ahead = children_of(pid)
    while ahead:
        found += ahead
        ahead = [grandchild for child in ahead for grandchild in children_of(child)]
    return found


def peak_memory(pid: int) -> int:
    """Return the peak memory (VmHWM) in bytes; 0 for a zombie, whose memory is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return 0
    start = text.find(b"VmHWM:")
    return int(text[start + 6 :].split(None, 1)[0]) * 1024 if start >= 0 else 0


def own_memory(pid: int) -> int:
    """Return the resident memory that this process does not share, in bytes; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            fields = file.read(256).split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES if len(fields) > 2 else 0


def cpu_time(pid: int) -> float:
    """Return the CPU seconds of this process and of the children it waited for; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return 0.0
    return sum(map(int, text[text.rfind(b")") + 2 :].split()[11:15])) / _TICKS_PER_SECOND


def reap(pid: int) -> Reaped | None:
    """Reap a child; None while it lives. Its I/O is read before wait4, because its /proc folder is gone afterwards."""
    read, written = read_io(pid)
    found, status, used = os.wait4(pid, os.WNOHANG)
    if not found:
        return None
    return Reaped(status, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, read, written)


def read_io(pid: int) -> tuple[int, int]:
    """Return the bytes that a process read and wrote by system calls.

    Unlike the bytes that reached a disk, these are the same for the same work.
    """
    try:
        with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
            fields = file.read(4096).split()
    except OSError:
        return 0, 0
    return (int(fields[1]), int(fields[3])) if len(fields) >= 4 else (0, 0)


def _read_children(path: str, pid: int) -> list[int]:
    try:
        return [int(child) for child in read_file(path).split()]
    except FileNotFoundError:
        # The kernel lacks CONFIG_PROC_CHILDREN, or the thread ended.
        return [stat.pid for other in every_pid() if (stat := read_stat(other)) and stat.parent == pid]
    except OSError:
        return []


# struct pidfd_info of include/uapi/linux/pidfd.h, in its first version. The mask comes first, the wait status last.
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_INFO_EXIT = 1 << 3
_SIGNAL_PROCESS_GROUP = 1 << 2
_TRIAL = "/bin/true"


def read_status(pidfd: int) -> int | None:
    """Return the wait status of a process once any process has reaped it; None until then."""
    answer = bytearray(_INFO.size)
    _INFO.pack_into(answer, 0, _INFO_EXIT, *(0,) * 13)
    fcntl.ioctl(pidfd, _GET_INFO, answer)
    mask, *_, status = _INFO.unpack(answer)
    return status if mask & _INFO_EXIT else None


def watch_reaping(pidfd: int) -> select.epoll:
    """Return a descriptor that becomes readable once any process has reaped this process.

    The pidfd itself is readable already when the process has ended (Linux 6.9).
    """
    watching = select.epoll()
    # No event is requested, because epoll always reports a hang-up.
    watching.register(pidfd, 0)
    return watching


def signal_group(pidfd: int, number: int) -> None:
    """Signal the process group that this process leads, even if the process itself is gone and its group is not."""
    try:
        signal.pidfd_send_signal(pidfd, number, None, _SIGNAL_PROCESS_GROUP)
    except ProcessLookupError:
        return


def can_tell_ends() -> bool:
    """Does this kernel report the exit status of a process that another process reaped?

    Tried once per daemon, with a process that does nothing.
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
        # Linux before 6.13 does not know the request, and 6.13 refuses it for a process that is gone.
        if error.errno in (errno.ENOTTY, errno.EINVAL, errno.ESRCH):
            return False
        raise
    finally:
        os.close(pidfd)
