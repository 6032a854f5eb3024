"""Finds out whether a process of a run has the other end of a TCP connection on this machine.

The kernel reports the inode of the socket at the other end (sock_diag). A process that has the socket open shows the
inode in /proc/PID/fd. Only processes with the mark of a run are searched, because reading a limit takes a microsecond
and reading a table of open files takes longer. A process that is not dumpable hides its table. Such a process of a run
is taken for the holder if no other process has the socket open. Blocking. May be called from any thread.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from wakeful.runners.process.process_mark import is_run_mark

# linux/sock_diag.h, linux/inet_diag.h, linux/netlink.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
# The rest of inet_diag_sockid: interface 0, and INET_DIAG_NOCOOKIE twice.
_REST = struct.Struct("=III")
# The offset of the uid in inet_diag_msg: four bytes, the socket's id of 48, then expires, rqueue, wqueue, uid, inode.
_USER_AT = 4 + 48 + 12
_USER = struct.Struct("=II")
_PATIENCE_SECONDS = 1.0


def find_holder(local: tuple[str, int], remote: tuple[str, int], own_mark: int | None) -> str | None:
    """Describe the run's process that has the other end of a connection; None if no process of a run has it.

    `own_mark` is the mark of the run that started this daemon, if one did. Processes with that mark count as people.
    """
    marked = [pid for pid, mark in _list_marked() if mark != own_mark]
    if not marked:
        return None
    found = find_end(remote, local)
    # The other end is on another machine, in another network namespace, or already closed.
    if found is None:
        return None
    link = f"socket:[{found.inode}]"
    hidden: list[int] = []
    for pid in marked:
        try:
            if _has_open(pid, link):
                return f"process {pid} has the mark of a run"
        except PermissionError:
            hidden.append(pid)
        except OSError:
            # The process ended meanwhile.
            continue
    if hidden and not _is_open_anywhere(link):
        return f"process {hidden[0]} of a run hides which connections it has, and no other process has this one"
    return None


def _list_marked() -> Iterator[tuple[int, int]]:
    """List every process with the mark of a run, of any daemon, together with its mark."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                mark = resource.prlimit(int(name), resource.RLIMIT_RTTIME)[0]
            except (OSError, ValueError):
                # The process belongs to another user, or is gone.
                continue
            if is_run_mark(mark):
                yield int(name), mark


def _has_open(pid: int, link: str) -> bool:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            if os.readlink(f"{folder}/{name}") == link:
                return True
        except FileNotFoundError:
            continue
    return False


def _is_open_anywhere(link: str) -> bool:
    """Is this socket open in any process that shows its open files?"""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and _has_open(int(name), link):
                return True
        except OSError:
            continue
    return False


class End(NamedTuple):
    """One end of a connection: the user who made the socket, and its inode."""

    uid: int
    inode: int


def find_end(end: tuple[str, int], other: tuple[str, int]) -> End | None:
    """Find the socket that is bound to `end` and connected to `other`; None if this machine has no such socket."""
    family = socket.AF_INET6 if ":" in end[0] else socket.AF_INET
    addresses = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (end, other))
    body = (
        _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        + _PORTS.pack(end[1], other[1])
        + addresses
        + _REST.pack(0, 0xFFFFFFFF, 0xFFFFFFFF)
    )
    head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as channel:
        channel.settimeout(_PATIENCE_SECONDS)
        channel.send(head + body)
        answer = channel.recv(8192)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    uid, inode = _USER.unpack_from(answer, _HEADER.size + _USER_AT)
    # Inode 0: the connection is being closed and belongs to no process any more.
    return End(uid, inode) if inode else None
