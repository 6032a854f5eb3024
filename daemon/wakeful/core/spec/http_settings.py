"""The TCP address of the daemon and the names it answers to: `http:` of wakeful.yaml as values.

settings.py builds them from the file, the flag and the variable; api/tcp_port.py listens on the address.
"""

from __future__ import annotations

import ipaddress
from typing import Literal

from msgspec import Struct

LOCALHOST = "localhost"
# The names of this machine for itself. A browser on it can reach a loopback port by each of these names.
LOOPBACK_NAMES = ("127.0.0.1", LOCALHOST, "[::1]")
EXPECTED_ADDRESS = "expected HOST:PORT such as 127.0.0.1:8420, or off"


class TcpAddress(Struct, frozen=True):
    """An IP address, without brackets, and a port. Port 0 stands for any free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def is_any(self) -> bool:
        """Does the host stand for every address of the machine?"""
        return ipaddress.ip_address(self.host).is_unspecified

    @property
    def is_v6(self) -> bool:
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_v6 else f"{self.host}:{self.port}"


class HttpSettings(Struct, frozen=True, kw_only=True):
    """The settings of the TCP port. `hosts` are further names that the daemon answers to, exactly as a browser sends
    them in `Host`: with the port, unless it is the default port."""

    listen: TcpAddress
    hosts: tuple[str, ...] = ()
    is_beyond_loopback: bool = False
    certificate: str | None = None
    key: str | None = None

    @property
    def is_tls(self) -> bool:
        return self.certificate is not None

    def find_obstacle(self) -> str | None:
        """Say why the daemon must not listen with these settings. None if it may."""
        if (self.certificate is None) != (self.key is None):
            given, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            return f"http has a {given} and no {missing}; add the {missing}, or remove the {given}"
        if self.listen.is_loopback:
            return None
        if not self.is_beyond_loopback or not self.is_tls:
            return (
                f"http: {self.listen} can be reached from other machines; that takes beyond_loopback: true, a "
                "certificate and a key in wakeful.yaml. Listen on 127.0.0.1 otherwise, and use ssh -L from afar"
            )
        if self.listen.is_any and not self.hosts:
            return (
                f"http: {self.listen} is every address of this machine; say in hosts under which names, with the "
                "port, browsers may reach it"
            )
        return None


# "off": the port is never opened, not even by `wakeful dashboard`. None: it is closed until a person opens it.
HttpChoice = HttpSettings | Literal["off"] | None


def parse_address(text: str) -> TcpAddress:
    """Parse HOST:PORT. Raises ValueError with a message if the text is not an address."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"'{text}' is not an address; {EXPECTED_ADDRESS}")
    named = "127.0.0.1" if host.lower() == LOCALHOST else host.removeprefix("[").removesuffix("]")
    try:
        return TcpAddress(str(ipaddress.ip_address(named)), int(port))
    except ValueError:
        raise ValueError(
            f"'{host}' is not an IP address; {EXPECTED_ADDRESS}. Names belong into hosts of wakeful.yaml"
        ) from None


def choose_http(said: TcpAddress | Literal["off"] | None, settings: HttpChoice) -> HttpChoice:
    """Combine the flag or variable, `said`, with the settings of the file.

    `said` decides the address, or that the port is off. Everything else comes from the file.
    """
    if said is None or said == "off":
        return settings if said is None else "off"
    if isinstance(settings, HttpSettings):
        return HttpSettings(
            listen=said,
            hosts=settings.hosts,
            is_beyond_loopback=settings.is_beyond_loopback,
            certificate=settings.certificate,
            key=settings.key,
        )
    return HttpSettings(listen=said)
