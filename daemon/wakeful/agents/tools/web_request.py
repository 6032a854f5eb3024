"""Requests one page of the web: only from declared hosts and public addresses, and with limits on size and time.

Called by `fetch`. Every redirect is checked again: the host against the declared ones, then each address of the host.
The connection goes to a checked address, so a name that resolves differently a moment later (DNS rebinding) has no
effect. Only a plain GET is sent: no cookie, no key, nothing of the environment.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import h11
from msgspec import Struct

from wakeful import __version__
from wakeful.errors import CallerError

MOST_BYTES = 2 * 1024 * 1024
MOST_SECONDS = 30.0
_MOST_HOPS = 5
_HEAD_BYTES = 32 * 1024
_PIECE_BYTES = 1 << 16
_LONGEST_URL = 4_096
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = (301, 302, 303, 307, 308)
# The zlib parameter to detect a gzip or zlib header.
_ANY_HEADER = 47
# The IPv6 networks whose addresses contain an IPv4 address in their last 32 bits.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))

_Address = IPv4Address | IPv6Address


class FetchRefused(CallerError):
    """The page may not be requested, or was not received. The message is for the model."""


class Page(Struct, frozen=True, kw_only=True):
    """A page. `url` is its address after all redirects. `is_cut`: the page is longer than MOST_BYTES."""

    url: str
    status: int
    content_type: str
    body: bytes
    is_cut: bool = False


class _Hop(Struct, frozen=True, kw_only=True):
    status: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool


async def request_page(url: str, allowed: Sequence[str]) -> Page:
    """Request a page. Raises FetchRefused if it may not be requested, or cannot be received.

    `allowed` has entries such as `docs.example.org:443`, `*.example.org:443`, `10.0.0.5:8080`.
    """
    try:
        async with asyncio.timeout(MOST_SECONDS):
            return await _follow(url, allowed)
    except TimeoutError:
        raise FetchRefused(
            f"{url[:200]} did not arrive within {MOST_SECONDS:g} s; the partial answer was dropped"
        ) from None
    except ssl.SSLError as error:
        raise FetchRefused(f"{url[:200]}: its certificate was not accepted ({error.reason or error})") from None
    except (OSError, h11.RemoteProtocolError) as error:
        raise FetchRefused(f"{url[:200]}: {error or type(error).__name__}") from None


async def _follow(url: str, allowed: Sequence[str]) -> Page:
    for _ in range(_MOST_HOPS + 1):
        parts, host, port = split_url(url)
        check_host(host, port, allowed)
        addresses = check_addresses(host, port, await _resolve(host, port), allowed)
        hop = await _ask(parts, host, port, addresses)
        target = hop.headers.get("location")
        if hop.status not in _REDIRECTS or target is None:
            return Page(
                url=url,
                status=hop.status,
                content_type=hop.headers.get("content-type", ""),
                body=hop.body,
                is_cut=hop.is_cut,
            )
        url = urljoin(url, target)
    raise FetchRefused(f"it was redirected more than {_MOST_HOPS} times, last to {url[:200]}")


# -- allowed addresses ----------------------------------------------------------------------------


def split_url(url: str) -> tuple[SplitResult, str, int]:
    """Split a URL into its parts, the host in the form for lookups, and the port. Raises FetchRefused if invalid."""
    if len(url) > _LONGEST_URL or not url.isprintable() or " " in url:
        raise FetchRefused(f"this is not the address of a page: {url[:200]!r}")
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
        host = (
            (parts.hostname or "").rstrip(".").encode("idna").decode("ascii").lower()
            if not _is_literal(parts.hostname)
            else parts.hostname or ""
        )
    except (ValueError, UnicodeError):
        raise FetchRefused(f"this is not the address of a page: {url[:200]!r}") from None
    if parts.scheme not in _PORTS or not host or port is None:
        raise FetchRefused(f"{url[:200]!r} is not the address of a page; write https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise FetchRefused("an address with a user name or password is not fetched")
    return parts, host, port


def _is_literal(host: str | None) -> bool:
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True


def check_host(host: str, port: int, allowed: Sequence[str]) -> None:
    """Raise FetchRefused unless this host is declared, or is below a declared `*.HOST`."""
    for entry in allowed:
        name, _, declared = entry.rpartition(":")
        name = name.strip("[]")
        is_meant = name in ("*", host) or (name.startswith("*.") and host.endswith(name[1:])) or _is_same(name, host)
        if is_meant and int(declared) == port:
            return
    known = ", ".join(allowed)
    raise FetchRefused(
        f"{host}:{port} is not among the hosts that this session may fetch from ({known}); "
        "a person can add it under fetch"
    )


def _is_same(name: str, host: str) -> bool:
    return _is_literal(name) and _is_literal(host) and ip_address(name) == ip_address(host)


def check_addresses(host: str, port: int, found: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """Return the addresses. Raises FetchRefused if one of them is neither public nor declared as an address."""
    declared = {
        ip_address(name)
        for entry in allowed
        if int(entry.rpartition(":")[2]) == port and _is_literal(name := entry.rpartition(":")[0].strip("[]"))
    }
    for text in found:
        address = ip_address(text.partition("%")[0])
        if address not in declared and not is_public(address):
            where = host if host == text else f"{host} is {text}, which"
            raise FetchRefused(
                f"{where} is an address of this machine or of a private network; a person can declare it by address, "
                f"fetch: [{text}:{port}]"
            )
    return list(found)


def is_public(address: _Address) -> bool:
    """Is this address public? If it contains an IPv4 address, that one must be public too."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    wrapped = [address.sixtofour, *(address.teredo or ())]
    wrapped += [IPv4Address(int(address) & 0xFFFFFFFF)] if any(address in network for network in _TRANSLATED) else []
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_site_local
        and all(is_public(one) for one in wrapped if one is not None)
    )


async def _resolve(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
    except OSError as error:
        raise FetchRefused(f"{host} was not found ({error.strerror or error})") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


# -- one request ----------------------------------------------------------------------------------


async def _ask(parts: SplitResult, host: str, port: int, addresses: Sequence[str]) -> _Hop:
    security = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await _connect(addresses, port, security, host)
    try:
        peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        writer.write(
            peer.send(h11.Request(method="GET", target=_spell_target(parts), headers=_make_headers(parts)))
            + peer.send(h11.EndOfMessage())
        )
        await writer.drain()
        return await _hear(peer, reader)
    finally:
        # Abort without waiting, because a server may never close its side.
        writer.transport.abort()


async def _connect(
    addresses: Sequence[str], port: int, security: ssl.SSLContext | None, host: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first checked address that answers. The host's name is used only for the certificate."""
    fault: OSError | None = None
    for address in addresses:
        try:
            return await asyncio.open_connection(
                address, port, ssl=security, server_hostname=host if security is not None else None
            )
        except ssl.SSLError:
            raise
        except OSError as error:
            fault = error
    raise fault or OSError(f"{host} has no address")


def _spell_target(parts: SplitResult) -> str:
    return quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe="/?%:@&=+$,;~!*'()[]")


def _make_headers(parts: SplitResult) -> list[tuple[str, str]]:
    named = parts.netloc.rpartition("@")[2]
    return [
        ("Host", named if named.isascii() else named.encode("idna").decode("ascii")),
        ("User-Agent", f"wakeful/{__version__}"),
        ("Accept", "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5"),
        ("Accept-Encoding", "gzip, deflate"),
        ("Connection", "close"),
    ]


async def _hear(peer: h11.Connection, reader: asyncio.StreamReader) -> _Hop:
    """Read the head and the body of an answer, up to MOST_BYTES of the decompressed body."""
    status, headers, body = 0, dict[str, str](), _Body(None)
    while True:
        match peer.next_event():
            case h11.NEED_DATA:
                peer.receive_data(await reader.read(_PIECE_BYTES))
            case h11.Response(status_code=status, headers=told):
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in told}
                if status in _REDIRECTS:
                    break
                body = _Body(headers.get("content-encoding"))
            case h11.Data(data=data):
                body.add(bytes(data))
                if body.is_cut:
                    break
            case h11.EndOfMessage():
                body.end()
                break
            case h11.ConnectionClosed():
                raise FetchRefused("the server closed the connection without an answer")
            case h11.InformationalResponse():
                continue
            case other:
                raise FetchRefused(f"the server does not speak HTTP ({other})")
    return _Hop(status=status, headers=headers, body=bytes(body.content), is_cut=body.is_cut)


class _Body:
    """The kept part of a body. It is decompressed piece by piece, because a small body may grow to terabytes."""

    def __init__(self, encoding: str | None) -> None:
        self.content = bytearray()
        self.is_cut = False
        match (encoding or "identity").strip().lower():
            case "identity":
                self._unpacking = None
            case "gzip" | "x-gzip" | "deflate":
                self._unpacking = zlib.decompressobj(_ANY_HEADER)
            case other:
                raise FetchRefused(f"the answer is compressed as {other[:40]!r}, which was not requested")

    def add(self, data: bytes) -> None:
        room = MOST_BYTES - len(self.content)
        try:
            plain = data if self._unpacking is None else self._unpacking.decompress(data, room + 1)
        except zlib.error as error:
            raise FetchRefused(f"the answer cannot be decompressed ({error})") from None
        self.content += plain[:room]
        self.is_cut = len(plain) > room

    def end(self) -> None:
        if self._unpacking is not None and not self._unpacking.eof:
            raise FetchRefused("the end of the compressed answer is missing")
