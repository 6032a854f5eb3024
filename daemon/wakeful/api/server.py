"""The control socket: accessible to our user, and to a group if wakeful.yaml names one. Serves HTTP/1.1 on the daemon's
loop.

The daemon enters a `ControlSocket` while it holds the lock of the state folder, so it may remove a socket that no
process answers. Uvicorn's protocol is used without its server. The server would take over the signals and wake ten
times a second, and an idle daemon must cost nothing.

With socket activation, systemd passes in its listening socket. The file belongs to systemd, so it is neither bound
again nor removed here. A client that connects while no daemon runs waits in the queue for the next daemon.
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
from wakeful.api.contract import Service
from wakeful.api.gate.access_tokens import Tokens, TokensUnreadable
from wakeful.api.gate.callers import Peer, judge_peer
from wakeful.api.gate.connections import Connections
from wakeful.api.gate.listener import Listener
from wakeful.api.gate.protocol import PeerProtocol
from wakeful.api.tcp_port import PortRefused, TcpPort
from wakeful.core.spec.http_settings import HttpChoice
from wakeful.errors import OperatorError
from wakeful.system.private_files import make_private

# sun_path holds 108 bytes with its final NUL.
LONGEST_SOCKET_PATH = 107
# The longest head of a request. `wakeful plan $(git ls-files)` names thousands of paths in the query.
LONGEST_REQUEST_BYTES = 1_000_000
# Seconds that answers under way have to finish when the daemon stops. A `follow` would otherwise never end.
PARTING_SECONDS = 0.5
# Seconds between checks that the socket's file exists. A cleaner of /tmp or /run, or a person, may have removed it.
LOOK_SECONDS = 5.0


class SocketRefused(OperatorError):
    """The daemon cannot listen on the path of the socket."""


class ControlSocket:
    """`async with ControlSocket(service, path):` listens inside the block. At its end, the file of the socket is
    removed. If systemd passed in the socket (`handed_over`), its file stays."""

    def __init__(self, service: Service, path: Path | str, handed_over: socket.socket | None = None) -> None:
        self._path = os.fspath(path)
        self._handed_over = handed_over
        self._service = service
        self._connections = Connections(lambda run_id: name_run_id(service, run_id))
        self.tcp = TcpPort(self._make_protocol, service.places.state, service.version)
        self._app = build_app(service, self._connections, self.tcp)
        self._config = uvicorn.Config(
            self._app,
            lifespan="off",
            ws="none",
            log_config=None,
            # Headers of proxies are not trusted, and not read.
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
        return Listener(listener, self._connections, judge, self._make_protocol, self._service.version)

    async def keep(self, tell: Callable[[str], None]) -> None:
        """Listen again whenever the socket's file was removed, because clients could not connect any more. Runs until
        cancelled. `tell` prints a message."""
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
                        "its socket unit, which creates it again"
                    )
                    tell(refused)
                continue
            # Only the listener is closed; open connections go on.
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            try:
                self._listener = self._listen()
            except SocketRefused as error:
                # Try again for ever, but do not print the same message twice.
                if str(error) != refused:
                    refused = str(error)
                    tell(refused)
                continue
            refused = ""
            tell(f"the file of the control socket was removed; listening again on {self._path}")

    def follow_http(self, choice: HttpChoice) -> None:
        """Apply the settings of the TCP port. Raises PortRefused if that is not possible; the port stays as it was."""
        self.tcp.follow(choice)

    def reopen_for_browsers(self) -> str | None:
        """Open the last TCP port again if a browser is logged in, because its page waits for the daemon. Returns a
        message if that failed, else None."""
        try:
            if Tokens(self._service.places.state).has_browser(self._service.moment().wall):
                self.tcp.reopen()
        except (PortRefused, TokensUnreadable) as error:
            return f"{error}; pages of the dashboard that are open do not reach the daemon: wakeful dashboard"
        return None

    def _make_protocol(self, peer: object, over: Callable[[], None]) -> PeerProtocol:
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
        # A `follow` never finishes by itself. It ends when its connection is aborted, as if the client had left.
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
        """Remove the socket's file, unless it has been replaced by another file."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return
        if (found.st_dev, found.st_ino) == self._inode:
            os.unlink(self._path)


def name_run_id(service: Service, run_id: str) -> str:
    """Return the name of a run for people: `payroll#3`."""
    session_id, _, run = run_id.rpartition(".")
    session = service.core.state.sessions.get(session_id)
    return run_id if session is None else f"{session.name}#{run}"


def bind_socket(path: str, group: str | None = None) -> socket.socket:
    """Bind the socket with mode 0600 from the start. If `group` is given, its members may connect as well.

    The caller holds the state lock, so a socket that no process answers belongs to a dead daemon, and is removed.
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
        # On Linux the file gets the mode of the unbound socket. On other systems, the chmod below sets the mode.
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
    """Let members of the group connect to the socket. The kernel identifies them, and the gate judges them."""
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
            f"this account is not a member of the group {group!r}, and may not give the socket to it; "
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
    """Refuse a folder where other users could replace the socket, because clients would send them their tokens."""
    found = os.stat(folder)
    is_replaceable = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if is_replaceable or found.st_uid not in (os.geteuid(), 0):
        raise SocketRefused(
            f"others can replace files in {folder} (mode {found.st_mode & 0o7777:04o}, user {found.st_uid}): chmod 700 "
            "it, or choose another place with --socket"
        )


def _remove_stale(path: str) -> None:
    # A plain file must be checked first: connecting to it fails in the same way as connecting to a dead socket.
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise SocketRefused(f"{path} is a file, not a socket; choose another place with --socket")
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
            # A socket that is too busy to answer belongs to a live daemon, so it is refused below and not removed.
            if error.errno != errno.EAGAIN and not isinstance(error, TimeoutError):
                raise
    raise SocketRefused(
        f"{path} is another daemon's socket, and it answers; stop that daemon or choose another place with --socket"
    )
