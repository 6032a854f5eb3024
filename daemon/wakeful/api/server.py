"""The control socket: bound for our user alone, served as HTTP/1.1 on the daemon's own loop.

The daemon enters a `ControlSocket` while it holds the lock of the state folder, so whoever finds a socket here that
nobody answers may remove it. Uvicorn's protocol is used without its server: that would take over the signals and tick
ten times a second, and a daemon at rest must cost nothing.

A socket that systemd listens on for us is handed in: its file is systemd's, so it is neither bound anew nor removed
here, and who connects while no daemon runs waits in its queue for the next one.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import grp
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import uvicorn
from uvicorn.server import ServerState

from wakeful.api.app import build_app
from wakeful.api.gate.callers import Peer, judge_peer
from wakeful.api.gate.connections import Connections
from wakeful.api.gate.listener import Listener
from wakeful.api.gate.protocol import PeerProtocol
from wakeful.api.gate.tokens import Tokens, TokensUnreadable
from wakeful.api.service import Service
from wakeful.api.tcp_port import PortRefused, TcpPort
from wakeful.core.spec.http import HttpChoice
from wakeful.errors import OperatorError
from wakeful.system.private_folders import make_private

# sun_path holds 108 bytes with its final NUL.
LONGEST_SOCKET_PATH = 107
# `wakeful plan $(git ls-files)` names thousands of paths.
LONGEST_REQUEST_BYTES = 1_000_000
# How long answers under way may take to finish when the daemon stops; a `follow` would otherwise hold it for ever.
PARTING_SECONDS = 0.5
# How long a daemon may stay out of reach after its socket's file was removed, by a cleaner of /tmp or /run or by hand.
LOOK_SECONDS = 5.0


class SocketRefused(OperatorError):
    """We cannot listen there."""


class ControlSocket:
    """`async with ControlSocket(service, path):` listens inside,
    and leaves no file behind but that of a socket handed over."""

    def __init__(self, service: Service, path: Path | str, handed_over: socket.socket | None = None) -> None:
        self._path = os.fspath(path)
        self._handed_over = handed_over
        self._service = service
        self._connections = Connections(lambda run_id: name_run_id(service, run_id))
        self.tcp = TcpPort(self._greet, service.places.state, service.version)
        self._app = build_app(service, self._connections, self.tcp)
        self._config = uvicorn.Config(
            self._app,
            lifespan="off",
            ws="none",
            log_config=None,
            # No proxy stands between: a header that says otherwise is not believed, nor looked for.
            proxy_headers=False,
            h11_max_incomplete_event_size=LONGEST_REQUEST_BYTES,
        )
        self._state = ServerState()
        self._listener: Listener[Peer] | None = None
        self._inode = (0, 0)

    async def __aenter__(self) -> ControlSocket:
        self._config.load()
        self._listener = self._listen()
        return self

    def _listen(self) -> Listener[Peer]:
        listener = self._handed_over
        if listener is None:
            listener = bind_socket(self._path, self._service.core.settings.socket_group)
            found = os.stat(self._path)
            self._inode = (found.st_dev, found.st_ino)
        judge = functools.partial(judge_peer, owner_of=self._service.owner_of_process)
        return Listener(listener, self._connections, judge, self._greet, self._service.version)

    async def keep(self, tell: Callable[[str], None]) -> None:
        """Listen anew, until cancelled, whenever the socket's file is gone: nobody could find us any more."""
        refused = ""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if os.path.lexists(self._path):
                refused = ""
                continue
            if self._handed_over is not None:
                if not refused:
                    refused = (
                        f"the file of the control socket {self._path} was removed, and systemd made it: restart "
                        "its socket unit, which makes it anew"
                    )
                    tell(refused)
                continue
            # Connections under way belong to themselves, and go on.
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            try:
                self._listener = self._listen()
            except SocketRefused as error:
                # Tried again for as long as we live, told once.
                if str(error) != refused:
                    refused = str(error)
                    tell(refused)
                continue
            refused = ""
            tell(f"the file of the control socket was removed; listening anew on {self._path}")

    def follow_http(self, choice: HttpChoice) -> None:
        """Listen on TCP as the settings say; raises PortRefused, and all stays as it was."""
        self.tcp.follow(choice)

    def reopen_for_browsers(self) -> str | None:
        """Open the port of last time where a browser is logged in: its page waits for us. Returns why that cannot be,
        in words."""
        try:
            if Tokens(self._service.places.state).has_browser(self._service.moment().wall):
                self.tcp.reopen()
        except (PortRefused, TokensUnreadable) as error:
            return f"{error}; pages of the dashboard that are open do not reach the daemon: wakeful dashboard"
        return None

    def _greet(self, peer: object, over: Callable[[], None]) -> PeerProtocol:
        return PeerProtocol(self._config, self._state, peer, self._service.version, over)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handed_over is None:
            self._unlink_own()
        self.tcp.close()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._let_finish()
        # A `follow` never finishes: it is told by the end of its connection, and ends as if its reader had left.
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._let_finish()
        for answer in self._state.tasks:
            answer.cancel()
        await self._app.close()

    async def _let_finish(self) -> None:
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=PARTING_SECONDS)

    def _unlink_own(self) -> None:
        """Somebody may have put another file in our place: that one is not ours to remove."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return
        if (found.st_dev, found.st_ino) == self._inode:
            os.unlink(self._path)


def name_run_id(service: Service, run_id: str) -> str:
    """A run as people know it: `payroll#3`."""
    session_id, _, run = run_id.rpartition(".")
    session = service.core.state.sessions.get(session_id)
    return run_id if session is None else f"{session.name}#{run}"


def bind_socket(path: str, group: str | None = None) -> socket.socket:
    """Bind, 0600 from its first moment. Members of `group` may connect as well, if one is given.

    The caller holds the state lock: a socket that nobody answers is a dead daemon's.
    """
    length = len(os.fsencode(path))
    if length > LONGEST_SOCKET_PATH:
        raise SocketRefused(
            f"{path}: {length} bytes; the path of a socket has at most {LONGEST_SOCKET_PATH}: "
            "choose a shorter one with --socket"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        make_private(os.path.dirname(path) or ".")
        _refuse_open_folder(os.path.dirname(path) or ".")
        _remove_stale(path)
        # Linux gives the file the mode of the unbound socket; elsewhere the chmod below closes the gap.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(path)
        os.chmod(path, 0o600)
        if group is not None:
            _let_group_in(path, group)
    except OSError as error:
        listener.close()
        raise SocketRefused(f"cannot listen on {path}: {error.strerror}; choose another place with --socket") from error
    except SocketRefused:
        listener.close()
        raise
    return listener


def _let_group_in(path: str, group: str) -> None:
    """Members of the group may connect; who they are is asked of the kernel, and judged by the gate."""
    try:
        number = int(group) if group.isascii() and group.isdigit() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise SocketRefused(
            f"there is no group {group!r} on this machine, which wakeful.yaml names (people: socket_group:); "
            f"make it (groupadd {group}), or take the line out"
        ) from None
    try:
        os.chown(path, -1, number)
    except PermissionError:
        raise SocketRefused(
            f"this account is no member of the group {group!r}, and may not give the socket to it; "
            "add the account to the group, or take people: socket_group: out of wakeful.yaml"
        ) from None
    os.chmod(path, 0o660)
    folder = os.path.dirname(path) or "."
    found = os.stat(folder)
    is_passable = bool(found.st_mode & 0o001) or (found.st_gid == number and bool(found.st_mode & 0o010))
    if not is_passable:
        raise SocketRefused(
            f"members of {group!r} cannot pass through {folder} to the socket (mode {found.st_mode & 0o7777:04o}): "
            f"chgrp {group} {folder} and chmod 710 it, or choose another place with --socket"
        )


def _refuse_open_folder(folder: str) -> None:
    """Refuse a folder where others could put a socket in our place: clients would tell it their tokens."""
    found = os.stat(folder)
    is_replaceable = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if is_replaceable or found.st_uid not in (os.geteuid(), 0):
        raise SocketRefused(
            f"others can replace files in {folder} (mode {found.st_mode & 0o7777:04o}, user {found.st_uid}): chmod 700 "
            "it, or choose another place with --socket"
        )


def _remove_stale(path: str) -> None:
    # Connecting to a plain file is refused just as connecting to a dead socket is.
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise SocketRefused(f"{path} is a file and no socket; choose another place with --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            # Not a socket, or one too busy to answer: neither is ours to remove.
            if error.errno != errno.EAGAIN and not isinstance(error, TimeoutError):
                raise
    raise SocketRefused(
        f"{path} is another daemon's socket, and it answers; stop that daemon or choose another place with --socket"
    )
