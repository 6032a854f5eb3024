"""Services as conditions: `tcp://host:port`, `http://…`, `https://…` and `unix:/path`, each up or down.

The reactor follows targets and asks for looks; a look connects, for HTTP also asks, and reports "up" or "down" with words.
Down is a version, not unknown: while it holds the session sleeps. A service hints itself every `check_every`.
Nothing is sent but one HEAD request, and no connection outlives its look.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from urllib.parse import SplitResult, quote, urlsplit

from wakeful.core.target import ServiceTarget
from wakeful.errors import OperatorError
from wakeful.sources.checked import Checked, CheckedSource
from wakeful.sources.contract import SourceReport

UP = "up"
DOWN = "down"
SERVICES_AT_ONCE = 16
_STATUS_LINE_BYTES = 4096
_PORTS = {"http": 80, "https": 443}


class ServiceDown(OperatorError):
    """The service did not answer as one that is up: what happened, in words."""


class ServiceSource(CheckedSource[ServiceTarget]):
    """Checks services, some at once."""

    def __init__(self, report: SourceReport, loop: asyncio.AbstractEventLoop, *, at_once: int = SERVICES_AT_ONCE) -> None:
        super().__init__(report, loop, at_once)

    async def check(self, target: ServiceTarget) -> Checked:
        try:
            await check_service(target.url, target.timeout_seconds)
        except ServiceDown as down:
            return Checked(DOWN, str(down))
        return Checked(UP)


async def check_service(url: str, timeout_seconds: float) -> None:
    """Return when the service is up; say in words why it is not."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await _check(url)
    except TimeoutError as error:
        raise ServiceDown(f"{url}: no answer within {timeout_seconds:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise ServiceDown(f"{url}: its certificate is not trusted: {error.verify_message}") from error
    except (OSError, UnicodeError) as error:
        # UnicodeError: a host name that is none, such as one with an empty label.
        raise ServiceDown(f"{url}: {getattr(error, 'strerror', None) or error}") from error


async def _check(url: str) -> None:
    if url.startswith("unix:"):
        await _connect_and_leave(asyncio.open_unix_connection(url.removeprefix("unix:")))
        return
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise ServiceDown(f"{url}: {error}") from error
    if not parts.hostname or port is None:
        raise ServiceDown(f"{url}: expected tcp://host:port, http://host, https://host or unix:/path")
    match parts.scheme:
        case "tcp":
            await _connect_and_leave(asyncio.open_connection(parts.hostname, port))
        case "http" | "https":
            await _ask(url, parts, port)
        case other:
            raise ServiceDown(f"{url}: {other!r} is no kind of service; expected tcp, http, https or unix")


async def _connect_and_leave(connecting: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    _, writer = await connecting
    _leave(writer)


async def _ask(url: str, parts: SplitResult, port: int) -> None:
    """Any answer below 500 is up: also 401 and 404 are given by a server that works."""
    security = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=security, limit=_STATUS_LINE_BYTES)
    try:
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe="/?%:@&=+$,;~!*'()")
        host = parts.netloc.rpartition("@")[2].encode("idna").decode("ascii")
        request = f"HEAD {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: wakeful\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        writer.write(request.encode("ascii"))
        await writer.drain()
        try:
            line = await reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ServiceDown(f"{url}: closed the connection without an answer of HTTP") from error
    finally:
        _leave(writer)
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ServiceDown(f"{url}: what answers does not speak HTTP")
    if int(words[1]) >= 500:
        raise ServiceDown(f"{url}: answered {int(words[1])}")


def _leave(writer: asyncio.StreamWriter) -> None:
    # Not awaited to its end: a server that never closes its side would hold the look.
    writer.transport.abort()
