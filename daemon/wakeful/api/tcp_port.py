"""The TCP port of the HTTP API. It is closed until the settings or a person open it, and runs on the daemon's loop.

`ControlSocket` owns it, and gives it the same application and protocol as the control socket. A closed port costs
nothing; an open port costs one descriptor. Its connections have their own limit, so that many of them cannot block the
control socket, which the owner's commands need.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from wakeful.api.gate.browser_rules import AllowedHosts, NetworkPeer, make_entrance
from wakeful.api.gate.connections import TcpConnections
from wakeful.api.gate.listener import Listener
from wakeful.api.gate.protocol import PeerProtocol
from wakeful.core.spec.http_settings import HttpChoice, HttpSettings, TcpAddress
from wakeful.errors import CallerError, OperatorError

# The ports that `wakeful dashboard` tries first. After them it takes any free port.
USUAL_PORTS = range(8420, 8440)
DASHBOARD_HOST = "127.0.0.1"
# The file with the last port that a person opened. That port is opened again, so that a bookmarked page keeps its
# address.
PORT_FILE = "http-port"

Greet = Callable[[NetworkPeer, Callable[[], None]], PeerProtocol]


class PortRefused(OperatorError):
    """The daemon cannot listen on an address, or the settings forbid it."""


class TcpPort:
    """The port, open or closed. `make_protocol` makes the protocol of a connection. `state` is the folder of
    `PORT_FILE`.
    """

    def __init__(self, make_protocol: Greet, state: Path, version: str) -> None:
        self._make_protocol = make_protocol
        self._remembered = state / PORT_FILE
        self._version = version
        self.connections = TcpConnections()
        self._listener: Listener[NetworkPeer] | None = None
        self._bound: TcpAddress | None = None
        self._asked: TcpAddress | None = None
        self._entrance: AllowedHosts | None = None
        self._choice: HttpChoice = None

    @property
    def url(self) -> str | None:
        """The address for a browser on this machine. None while the port is closed."""
        if self._bound is None or self._entrance is None:
            return None
        shown = TcpAddress("::1" if self._bound.is_v6 else DASHBOARD_HOST, self._bound.port)
        return f"{self._entrance.scheme}://{shown if self._bound.is_any else self._bound}"

    def follow(self, choice: HttpChoice) -> None:
        """Apply new settings. Raises PortRefused if that is not possible; the port then stays as it was."""
        if choice == self._choice:
            return
        if isinstance(choice, HttpSettings):
            self._open(choice)
        elif choice == "off" or self._choice is not None:
            self.close()
        self._choice = choice

    def open_for_person(self) -> str:
        """Open the port on loopback unless it is already open, and return its URL. The last port is used again if it is
        free."""
        if self.url is None:
            if self._choice == "off":
                raise CallerError(
                    "the TCP port is off by --http, WAKEFUL_HTTP or wakeful.yaml (http: off); remove that, or give "
                    "an address there, such as 127.0.0.1:8420"
                )
            self._open_first((*self._read_remembered(), *USUAL_PORTS, 0))
            self._remember()
        assert self.url is not None
        return self.url

    def reopen(self) -> None:
        """Open the last port again, because browsers still use pages on it. Raises PortRefused if another program
        listens on it."""
        if self.url is None and self._choice is None and (remembered := self._read_remembered()):
            self._open_first(remembered)

    def close_for_person(self) -> None:
        """Close the port if a person opened it. A port that the settings open stays open."""
        if self._choice is None:
            self.close()

    def close(self) -> None:
        """Accept no new connections. Open connections go on."""
        if self._listener is not None:
            self._listener.close()
        self._listener = self._bound = self._asked = self._entrance = None

    def _open_first(self, ports: tuple[int, ...]) -> None:
        for port in ports:
            try:
                self._open(HttpSettings(listen=TcpAddress(DASHBOARD_HOST, port)))
                return
            except PortRefused:
                if port == ports[-1]:
                    raise

    def _open(self, settings: HttpSettings) -> None:
        if (obstacle := settings.find_obstacle()) is not None:
            raise PortRefused(obstacle)
        tls = _load_tls(settings)
        # If only the host names or the certificate changed, the old listener must release the port first.
        if self._bound is not None and settings.listen in (self._bound, self._asked):
            self.close()
        listening = _bind(settings.listen)
        host, port, *_ = listening.getsockname()
        self.close()
        self._asked, self._bound = settings.listen, TcpAddress(host, port)
        self._entrance = entrance = make_entrance(settings, self._bound)

        def judge(connection: socket.socket) -> NetworkPeer:
            return NetworkPeer(entrance, connection.getsockname()[:2], connection.getpeername()[:2])

        self._listener = Listener(listening, self.connections, judge, self._make_protocol, self._version, tls)

    def _read_remembered(self) -> tuple[int, ...]:
        try:
            text = self._remembered.read_text("ascii")
        except (OSError, UnicodeDecodeError):
            return ()
        port = text.strip()
        return (int(port),) if port.isdigit() and 0 < int(port) < 65536 else ()

    def _remember(self) -> None:
        """Save the port. If that fails, the next start uses another port; nothing else breaks."""
        assert self._bound is not None
        try:
            self._remembered.write_text(f"{self._bound.port}\n", "ascii")
        except OSError:
            return


def _load_tls(settings: HttpSettings) -> ssl.SSLContext | None:
    if settings.certificate is None or settings.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=_refuse_password)
    except (OSError, ValueError) as error:
        raise PortRefused(
            f"http: the certificate {settings.certificate} and key {settings.key} cannot be used ({error}); both are "
            "PEM files, and the key has no password"
        ) from error
    return context


def _refuse_password() -> str:
    """Refuse an encrypted key. Without this callback, OpenSSL would ask for the password on a terminal and block."""
    raise ValueError("the key is encrypted")


def _bind(address: TcpAddress) -> socket.socket:
    # asyncio sets TCP_NODELAY only on a socket that was made with an explicit protocol number. Without TCP_NODELAY,
    # every answer on a kept-alive connection takes 40 ms longer: the body waits until the client has acknowledged the
    # head.
    listening = socket.socket(
        socket.AF_INET6 if address.is_v6 else socket.AF_INET,
        socket.SOCK_STREAM | socket.SOCK_CLOEXEC,
        socket.IPPROTO_TCP,
    )
    try:
        # Connections of the previous daemon linger for a minute. SO_REUSEADDR lets us bind meanwhile; on Linux it does
        # not let two programs listen on the same port.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.is_v6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((address.host, address.port))
        # With SO_REUSEADDR, two programs can bind to one port. If another program listens there, only `listen` fails.
        listening.listen(1)
    except OSError as error:
        listening.close()
        hint = (
            f"another program listens there (ss -ltnp 'sport = :{address.port}' names it); end it, or choose another "
            "port"
            if error.errno == errno.EADDRINUSE
            else "choose another address"
        )
        raise PortRefused(f"cannot listen on {address}: {error.strerror}; {hint}") from error
    return listening
