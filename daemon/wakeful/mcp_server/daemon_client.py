"""A client of the daemon's API, over the UNIX socket, or over TCP with a token. Each request has its own connection.

If the daemon restarts during a request, the request is sent again, provided that it only reads or has an idempotency
key.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from wakeful import __version__
from wakeful.errors import CallerError
from wakeful.mcp_server.contract import DaemonAway, DaemonRefused, Reply, encode_query, read_refusal
from wakeful.system.http_wire import HEAD_END, LONGEST_HEAD_BYTES, AnswerBody, find_stranger, parse_head, write_head

# Seconds to wait for an answer, or for a new daemon during a restart. A start with many records takes seconds.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.3
# The largest answer, far more than a model can read.
LARGEST_ANSWER_BYTES = 32 * 1024 * 1024
_PIECE_BYTES = 1 << 16


class Address(NamedTuple):
    """The daemon's address: the path of a socket, or a host and port."""

    path: str | None = None
    host: str = ""
    port: int = 0
    has_tls: bool = False

    def __str__(self) -> str:
        return self.path or f"{'https' if self.has_tls else 'http'}://{self.host}:{self.port}"


def read_address(text: str) -> Address:
    """Read the value of `--http`: a URL, or HOST:PORT. Raises CallerError if it is neither."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or (443 if parts.scheme == "https" else None)
    except ValueError:
        parts, port = None, None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise CallerError(f"--http {text!r}: expected HOST:PORT or a URL, such as http://127.0.0.1:8420")
    return Address(host=parts.hostname, port=port, has_tls=parts.scheme == "https")


class DaemonClient:
    """The daemon at one address. `token` is the caller's token, or that of the run that calls."""

    def __init__(self, address: Address, token: str | None) -> None:
        self._address = address
        host = "wakeful" if address.path is not None else _write_host(address)
        self._common = {"Host": host, "Connection": "close", "Wakeful-Version": __version__}
        if token is not None:
            self._common["Authorization"] = f"Bearer {token}"

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Reply:
        request = self._write(method, path, query, body, key)
        is_repeatable = method == "GET" or key is not None
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            # A failed connection is reported at once, and not tried again.
            reader, writer = await self._connect()
            try:
                async with asyncio.timeout_at(deadline):
                    writer.write(request)
                    return await self._read_reply(reader)
            except (OSError, asyncio.IncompleteReadError) as error:
                is_late = asyncio.get_running_loop().time() >= deadline
                if is_late or not is_repeatable:
                    raise DaemonAway(
                        f"the daemon at {self._address} left before it answered {method} {path}"
                        + ("" if is_repeatable else "; whether that was done is not known")
                    ) from error
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                writer.close()

    @asynccontextmanager
    async def follow(self, names: Sequence[str]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        reader, writer = await self._connect()
        try:
            writer.write(self._write("GET", "/follow", {"name": list(names), "words": True}, None, None))
            async with asyncio.timeout(PATIENCE_SECONDS):
                headers = await self._read_head(reader)
            yield self._read_lines(reader, headers)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise DaemonAway(f"the daemon at {self._address} went away") from error
        finally:
            writer.close()

    def _write(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        key: str | None,
    ) -> bytes:
        content = json.dumps(body).encode() if body is not None else b""
        more = {"Content-Length": str(len(content))}
        if body is not None:
            more["Content-Type"] = "application/json"
        if key is not None:
            more["Idempotency-Key"] = key
        return write_head(method, path + encode_query(query), self._common | more) + content

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self._address
        try:
            if address.path is not None:
                reader, writer = await asyncio.open_unix_connection(address.path, limit=LONGEST_HEAD_BYTES)
            else:
                secured = ssl.create_default_context() if address.has_tls else None
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=secured, limit=LONGEST_HEAD_BYTES
                )
        except OSError as error:
            raise DaemonAway(
                f"no daemon answers at {address} ({error.strerror or error}); start it with: wakeful daemon"
            ) from None
        if address.path is not None:
            uid = find_stranger(writer.get_extra_info("socket"))
            if uid is not None:
                writer.close()
                raise DaemonAway(f"user {uid} listens on {address}, and that is not our daemon: nothing was sent")
        return reader, writer

    async def _read_reply(self, reader: asyncio.StreamReader) -> Reply:
        headers = await self._read_head(reader)
        body = bytearray()
        async for piece in _read_pieces(reader, AnswerBody(headers)):
            body += piece
            if len(body) > LARGEST_ANSWER_BYTES:
                raise CallerError(f"the answer has more than {LARGEST_ANSWER_BYTES} bytes; ask for less at once")
        return Reply(headers, bytes(body))

    async def _read_head(self, reader: asyncio.StreamReader) -> dict[str, str]:
        """Read the headers of an answer. Raises DaemonRefused if the answer is an error."""
        try:
            status, headers = parse_head(await reader.readuntil(HEAD_END))
        except (ValueError, IndexError, asyncio.LimitOverrunError):
            raise DaemonAway(f"what answers at {self._address} does not speak HTTP") from None
        if "wakeful-version" not in headers:
            raise DaemonAway(f"what answers at {self._address} is not wakeful")
        if status >= 400:
            body = b"".join([piece async for piece in _read_pieces(reader, AnswerBody(headers))])
            raise DaemonRefused(read_refusal(body, status), status)
        return headers

    async def _read_lines(
        self, reader: asyncio.StreamReader, headers: Mapping[str, str]
    ) -> AsyncIterator[dict[str, Any]]:
        rest = b""
        async for piece in _read_pieces(reader, AnswerBody(headers)):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line:
                    yield json.loads(line)


async def _read_pieces(reader: asyncio.StreamReader, body: AnswerBody) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they arrive. Raises IncompleteReadError if the body ends early."""
    while not body.is_whole:
        data = await reader.read(_PIECE_BYTES)
        if not data:
            raise asyncio.IncompleteReadError(b"", None)
        if piece := body.take(data):
            yield piece


def _write_host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
