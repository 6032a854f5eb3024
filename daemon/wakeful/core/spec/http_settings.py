"""The TCP address of the daemon and the names it answers to: `http:` of wakeful.yaml as values.

settings.py makes them from the file, the flag and the variable; api/tcp_port.py listens by them.
"""

from __future__ import annotations

import ipaddress
from typing import Literal

from msgspec import Struct

LOCALHOST = "localhost"
# The names of this machine to itself. A browser here can reach a port on loopback by each of them.
LOOPBACK_NAMES = ("127.0.0.1", LOCALHOST, "[::1]")
EXPECTED_ADDRESS = "expected HOST:PORT such as 127.0.0.1:8420, or off"


class TcpAddress(Struct, frozen=True):
    """`host` is an IP address without brackets; `port` 0: any that is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def is_any(self) -> bool:
        """Every address of the machine."""
        return ipaddress.ip_address(self.host).is_unspecified

    @property
    def is_v6(self) -> bool:
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_v6 else f"{self.host}:{self.port}"


class HttpSettings(Struct, frozen=True, kw_only=True):
    """`hosts` are further names, as a browser sends them in `Host`: exact, and with the port unless it is the usual
    one."""

    listen: TcpAddress
    hosts: tuple[str, ...] = ()
    is_beyond_loopback: bool = False
    certificate: str | None = None
    key: str | None = None

    @property
    def is_tls(self) -> bool:
        return self.certificate is not None

    def find_obstacle(self) -> str | None:
        """Why the daemon must not listen like this, in words; None: it may."""
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


# "off": never, also not by `wakeful dashboard`. None: closed until a person opens it.
HttpChoice = HttpSettings | Literal["off"] | None


def parse_address(text: str) -> TcpAddress:
    """HOST:PORT; raises ValueError with words."""
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
    """The flag or variable decides where it listens, or that it does not; everything else is the file's."""
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
