"""Sends one HTTP request on its own connection, and reads the beginning of the answer.

Checks of services and notifications use it. No library is used, no connection is kept open, and no redirect is
followed. Of the answer, only the status, up to 100 headers and some bytes are read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from wakeful.errors import OperatorError

_HEAD_BYTES = 16_384
# The most headers that are kept, and the most header lines before the answer is refused.
_KEPT_HEADERS = 100
_HEADER_LINES = 1000
_PORTS = {"http": 80, "https": 443}


class ServiceDown(OperatorError):
    """The service is down; the message says what happened."""


class AnswerHead(NamedTuple):
    """The head of an answer. The rest is read from `reader` as needed. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    reader: asyncio.StreamReader


def split_address(url: str) -> tuple[SplitResult, str, int]:
    """Split an address into its parts, host and port. Raises ServiceDown if it is not valid."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
        _encode_host(parts)
    except ValueError as error:
        raise ServiceDown(f"{url}: {error}") from error
    if not parts.hostname or port is None:
        raise ServiceDown(f"{url}: expected tcp://host:port, http://host, https://host or unix:/path")
    return parts, parts.hostname, port


def _encode_host(parts: SplitResult) -> str:
    """Return the value of the header `Host`. Raises UnicodeError, a ValueError, if DNS cannot have such a name."""
    host = (parts.hostname or "").encode("idna").decode("ascii")
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{parts.port}" if parts.port is not None else host


@asynccontextmanager
async def ask_http(url: str, method: str, headers: Mapping[str, str], body: bytes = b"") -> AsyncIterator[AnswerHead]:
    """Send a request. Raises ServiceDown if no HTTP answer comes back. Also raises the errors of connecting."""
    parts, host, port = split_address(url)
    # In a thread, because the machine's certificates are read from disk.
    security = await asyncio.to_thread(ssl.create_default_context) if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=security, limit=_HEAD_BYTES)
    try:
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe="/?%:@&=+$,;~!*'()")
        told = {"Host": _encode_host(parts), "User-Agent": "wakeful", "Connection": "close", **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in told.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        await writer.drain()
        yield await _read_head(url, reader)
    finally:
        leave(writer)


async def _read_head(url: str, reader: asyncio.StreamReader) -> AnswerHead:
    try:
        line = await reader.readuntil(b"\n")
        words = line.split(maxsplit=2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            raise ServiceDown(f"{url}: the server does not speak HTTP")
        headers: dict[str, str] = {}
        for _ in range(_HEADER_LINES):
            line = await reader.readuntil(b"\n")
            if not line.strip():
                return AnswerHead(int(words[1]), headers, reader)
            # Further headers are read, because the body begins after the last one.
            if len(headers) < _KEPT_HEADERS:
                key, _colon, value = line.decode("latin-1").partition(":")
                headers[key.strip().lower()] = value.strip()
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ServiceDown(f"{url}: the server closed the connection without an HTTP answer") from error
    raise ServiceDown(f"{url}: the answer has more than {_HEADER_LINES} headers")


def leave(writer: asyncio.StreamWriter) -> None:
    # The close is not awaited, because a server that never closes its side would block the check.
    writer.transport.abort()
