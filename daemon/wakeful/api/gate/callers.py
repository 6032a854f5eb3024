"""Identifies the peer of a connection and the caller of a request at the control socket. Also finds the sessions that a
caller may see.

The kernel reports the user and the process. A token names the run, or the rights of its bearer. A connection is judged
once, when it is accepted, and the result is valid as long as the connection. The process is known by a descriptor that
the kernel took at connect (SO_PEERPIDFD), because its pid may have been reused. A peer whose process has exited is
refused. A process of a run must show its run's token, and reaches its own session only.
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

from wakeful.api.contract import RunIdentity
from wakeful.api.gate.access_tokens import Token
from wakeful.api.gate.people import People, Person
from wakeful.core.record.observations import ProcessOwner
from wakeful.core.record.state import Session, State
from wakeful.core.spec.session import Role

_CREDENTIALS = struct.Struct("3i")
# Linux 6.5, include/uapi/asm-generic/socket.h; Python has no name for it yet.
_SO_PEERPIDFD = 77
# The index of the start time in /proc/<pid>/stat, counted after the process name in parentheses.
_STARTED = 19
_SHORTAGES = (errno.EMFILE, errno.ENFILE)
GONE = "the process that connected is gone, so the caller is not known; call again"
OUTSIDE = (
    "the process that calls is outside of the daemon's PID namespace, so it is not known whether it belongs to a run; "
    "call from inside (docker exec, nsenter), or show a token (wakeful token)"
)
OUT_OF_DESCRIPTORS = "the daemon has no file descriptor left to identify the caller; call again"
OwnerOf = Callable[[int], ProcessOwner | None]


class Connected(Protocol):
    """A socket, or the socket object that an asyncio transport exposes."""

    @overload
    def getsockopt(self, level: int, option: int, /) -> int: ...
    @overload
    def getsockopt(self, level: int, option: int, length: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Unknown:
    """A peer of which it is not known whether it belongs to a run. Its process has exited, or is outside our PID
    namespace. `words` is the message with the reason and the remedy.

    A process outside the namespace may show a token. A process that has exited may not."""

    words: str
    may_show_token: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection, as it was judged when the connection was accepted.

    `standing` is None for a process of a person. `pid` is None if the system does not report it. `started` is set only
    if the kernel gives no descriptor of the peer; pid and start time then identify the process."""

    uid: int
    pid: int | None = None
    standing: ProcessOwner | Unknown | None = None
    started: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    - `author`: the author that the log names.
    - `run`: None for a person.
    - `uid`: the user at the other end, as the kernel reports it.
    - `token`: the token that limits the caller's rights, if any.
    - `person`: the person behind a token, if `author` is the token. See `judged_as`.
    - `member`: the entry of a person whom the owner let in. None for the daemon's own user and for runs."""

    author: str
    run: RunIdentity | None = None
    uid: int | None = None
    token: Token | None = None
    person: str | None = None
    member: Person | None = None

    @property
    def judged_as(self) -> str:
        """The author whose role in a session counts. A token never gives more rights than its person has."""
        return self.person or self.author

    @property
    def shown_name(self) -> str:
        """The name under which others see the caller as present."""
        return self.author.removeprefix("person:")


class VisibleSessions:
    """The sessions and records that one caller may see.

    The daemon's own user sees every session. A person with a role for single sessions sees those sessions and their
    forks. No list, search, stream or causal chain shows any other session to that person. Streams check again for each
    line, because a role may be taken away while a stream is open.
    """

    def __init__(self, state: State, people: People, caller: Caller) -> None:
        self._state = state
        self._people = people
        self._caller = caller

    @property
    def is_whole(self) -> bool:
        """Does the caller see every session? Valid for one answer: the role is not looked up again."""
        return self._caller.member is None or self._caller.member.is_everywhere

    def list_ids(self) -> frozenset[str] | None:
        """List the ids of the sessions that the caller sees, or None if they see all. Valid for one answer."""
        if self.is_whole:
            return None
        return frozenset(one.id for one in self._state if self.find_role(one) is not None)

    def sees(self, session_id: str) -> bool:
        """Does the caller see this session now? The role is looked up again at each call."""
        if self._caller.member is None:
            return True
        member = self._people.find(self._caller.member.name)
        if member is None:
            return False
        session = self._state.sessions.get(session_id)
        if session is None:
            return member.is_everywhere
        return member.find_role(session, self._state.sessions.get) is not None

    def sees_name(self, name: str) -> bool:
        session_id = self._state.ids.get(name)
        return self._caller.member is None or (session_id is not None and self.sees(session_id))

    def find_role(self, session: Session) -> Role | None:
        member = self._caller.member
        return member.find_role(session, self._state.sessions.get) if member is not None else "maintainer"


def judge_peer(connection: Connected, owner_of: OwnerOf) -> Peer:
    """Identify the peer, once per connection, as soon as it is accepted. `owner_of` finds the run of a process."""
    uid, pid = read_peer(connection)
    # Systems that do not report the process do not confine runs either.
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
        # /proc was read by pid. The result concerns this process only if it is still running afterwards.
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
    """Return None if the judged process is still running, else the message of the refusal.

    After it exits, another process may hold its connection. The judgement is not valid for that process.
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
    """Open a descriptor of the process that connected. The second value is None.

    An older kernel gives no such descriptor. The process is then opened by its pid, and the second value is its start
    time."""
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
    """Read the start time of a process, in ticks since boot."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        text = file.read(4096)
    return int(text[text.rfind(b")") + 2 :].split()[_STARTED])


def _is_running(process: int) -> bool:
    """Is the process running? The descriptor of an ended process is readable, even while it is a zombie."""
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    return not waiting.poll(0)


def read_peer(connection: Connected) -> tuple[int, int | None]:
    """Read the uid and the pid of the peer at the time it connected. The pid is 0 for a process outside our PID
    namespace, and None if the system does not report it."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        assert isinstance(credentials, bytes)
        pid, uid, _ = _CREDENTIALS.unpack(credentials)
        return uid, pid
    # macOS and the BSDs: the struct xucred of LOCAL_PEERCRED (level 0, option 1) begins with a version and the uid.
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
