"""Identifies the caller.

The kernel names the user and process; a token names the run, or the rights that a person gave its bearer.

A connection is judged once, when it is accepted, and the answer is held for as long as the connection. The process is
known by a descriptor that the kernel took at connect (SO_PEERPIDFD), because its number may be another process's by
now. A peer whose process is gone is nobody. A run speaks with its own token and for its own session alone, and a
process of a run speaks as that run or not at all; everybody else who gets through is the daemon's own user, narrowed by
the token they show, if they show one.
"""

from __future__ import annotations

import errno
import os
import pwd
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, overload

from wakeful.api.gate.people import Person
from wakeful.api.gate.tokens import Token
from wakeful.api.service import RunIdentity
from wakeful.core.record.observations import ProcessOwner

_CREDENTIALS = struct.Struct("3i")
# Linux 6.5, include/uapi/asm-generic/socket.h; Python has no name for it yet.
_SO_PEERPIDFD = 77
# The field of /proc/<pid>/stat that says when a process started, counted behind the name in brackets.
_STARTED = 19
_SHORTAGES = (errno.EMFILE, errno.ENFILE)
GONE = "the process that connected is gone, so nobody knows who calls; call again"
OUTSIDE = (
    "the process that calls is outside of the daemon's PID namespace, so nobody can tell whether it belongs to a run; "
    "call from inside (docker exec, nsenter), or show a token (wakeful token)"
)
OUT_OF_DESCRIPTORS = "the daemon has no descriptor left to find out who calls; call again"
OwnerOf = Callable[[int], ProcessOwner | None]


class Connected(Protocol):
    """A socket, or what a transport shows of one."""

    @overload
    def getsockopt(self, level: int, option: int, /) -> int: ...
    @overload
    def getsockopt(self, level: int, option: int, length: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Unknown:
    """The kernel cannot say any more, or here, whether the caller belongs to a run. `words` say why, and what to do.

    A process that we cannot see from here may show a token. A process that is gone shows nothing."""

    words: str
    may_show_token: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection, as it was judged when that was accepted.

    `standing` is None for a process of a person. `pid` is None where the system does not tell. `started` is known where
    the kernel gives no descriptor of the peer: with the number it names one process."""

    uid: int
    pid: int | None = None
    standing: ProcessOwner | Unknown | None = None
    started: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """`run` is None for a person; `uid` is the user at the other end, by the kernel's word. `token`: what narrows them.

    `author` is who the log names; `judged_as` whose role in a session counts:
    a token never gives its bearer more than they have. `member` is the entry of a person whom the owner let in; None
    for the daemon's own user, and for runs."""

    author: str
    run: RunIdentity | None = None
    uid: int | None = None
    token: Token | None = None
    person: str | None = None
    member: Person | None = None

    @property
    def judged_as(self) -> str:
        return self.person or self.author

    @property
    def shown_name(self) -> str:
        """The name that others see of them while they are here."""
        return self.author.removeprefix("person:")


def judge_peer(connection: Connected, owner_of: OwnerOf) -> Peer:
    """Once per connection, as soon as it is accepted. `owner_of` finds the run that a process belongs to."""
    uid, pid = read_peer(connection)
    # Systems that do not tell the process do not confine runs either.
    if pid is None:
        return Peer(uid)
    if pid == 0:
        return Peer(uid, pid, Unknown(OUTSIDE, may_show_token=True))
    try:
        process, started = _open_process(connection, pid)
    except OSError as error:
        return Peer(uid, pid, Unknown(OUT_OF_DESCRIPTORS if error.errno in _SHORTAGES else GONE))
    try:
        standing = owner_of(pid)
        # The answer of /proc about this pid concerns this process only if the process is still running afterwards.
        return Peer(uid, pid, standing if _is_running(process) else Unknown(GONE), started)
    except ProcessLookupError:
        return Peer(uid, pid, Unknown(GONE))
    except OSError as error:
        if error.errno not in _SHORTAGES:
            raise
        return Peer(uid, pid, Unknown(OUT_OF_DESCRIPTORS))
    finally:
        os.close(process)


def find_absence(connection: Connected, peer: Peer) -> str | None:
    """Why nobody knows whether the process that was judged is still running; None where it is.

    Another may hold its connection, and is not covered by the judgement.
    """
    if not peer.pid:
        return None
    try:
        process, started = _open_process(connection, peer.pid)
    except OSError as error:
        return OUT_OF_DESCRIPTORS if error.errno in _SHORTAGES else GONE
    try:
        return None if started == peer.started and _is_running(process) else GONE
    finally:
        os.close(process)


def _open_process(connection: Connected, pid: int) -> tuple[int, int | None]:
    """A descriptor of the process that connected; where the kernel gives none, one by its number,
    and when that process started."""
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    else:
        assert isinstance(found, int)
        return found, None
    process = os.pidfd_open(pid)
    try:
        return process, _read_start(pid)
    except BaseException:
        os.close(process)
        raise


def _read_start(pid: int) -> int:
    """In ticks since the machine started."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        text = file.read(4096)
    return int(text[text.rfind(b")") + 2 :].split()[_STARTED])


def _is_running(process: int) -> bool:
    """A process that ended can be read from its descriptor, also while its parent has not waited for it."""
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    return not waiting.poll(0)


def read_peer(connection: Connected) -> tuple[int, int | None]:
    """The user and the number of the process at the other end, as they were when it connected;
    0 is a process that we cannot see."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        assert isinstance(credentials, bytes)
        pid, uid, _ = _CREDENTIALS.unpack(credentials)
        return uid, pid
    # macOS and the BSDs: xucred of LOCAL_PEERCRED (level 0, option 1) is a version, then the uid.
    found = connection.getsockopt(0, 1, 8)
    assert isinstance(found, bytes)
    return struct.unpack("Ii", found)[1], None


def name_person(uid: int) -> str:
    return f"person:{name_account(uid)}"


def name_account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def name_run(run: RunIdentity) -> str:
    return f"run:{run.name}#{run.run}"


def name_token(token: Token) -> str:
    return f"token:{token.id}"
