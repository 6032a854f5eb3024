"""The client of agents and of the MCP server: connections stay open, and several requests may be under way.

Every step of an agent's loop passes here. If the daemon restarts, the client waits for it, up to a limit. A request
that may have been carried out is repeated only if that is harmless: a GET, or a call with an idempotency key.
"""

from __future__ import annotations

import asyncio
import json
import select
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from wakeful.client.refusals import (
    UNDER_WAY,
    DaemonAway,
    DaemonRefused,
    EffectUnknown,
    explain_failed_connect,
    explain_no_http,
    is_busy,
    read_refusal,
    read_version,
    refuse_stranger,
)
from wakeful.client.wire import (
    HEAD_END,
    LONGEST_HEAD_BYTES,
    PATIENCE_SECONDS,
    AnswerBody,
    LineBuffer,
    encode_query,
    is_repeatable,
    make_headers,
    parse_head,
    write_chunk,
    write_head,
    write_request,
)
from wakeful.errors import CallerError, OperatorError

# Seconds after which an unused connection is not used again. The daemon closes it after five seconds, and it must not
# close while we write.
IDLE_SECONDS = 3.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5
# The most bytes of an answer, far above any that we expect. A longer answer is an error, so that memory stays bounded.
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_LINES = "application/jsonl"
_PIECE_BYTES = 1 << 16


class Address(NamedTuple):
    """The daemon's address: the path of a socket, or a host and port.

    `owner` is the account of another user's daemon. If it is None, only our own daemon, or root's, is accepted.
    """

    path: str | None = None
    host: str = ""
    port: int = 0
    has_tls: bool = False
    owner: str | None = None

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


class Reply(NamedTuple):
    """An answer of the daemon. The names of headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    def decode(self) -> Any:
        """Decode the answer: a document, or a list if the answer is lines of JSON."""
        if self.headers.get("content-type", "").startswith(_LINES):
            return msgspec.json.decode(b"[" + b",".join(line for line in self.body.split(b"\n") if line) + b"]")
        return msgspec.json.decode(self.body)


class DaemonClient:
    """A client of the daemon at one address. Use it as `async with DaemonClient(path, token) as client:`.

    A patient client waits for a daemon that does not listen yet. An impatient client reports the failed connection at
    once.
    """

    def __init__(
        self,
        address: Address | str,
        token: str | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        is_patient: bool = True,
    ) -> None:
        self.address = Address(address) if isinstance(address, str) else address
        self._patience = patience_seconds
        self._is_patient = is_patient
        self._common = make_headers(token, "wakeful" if self.address.path is not None else _write_host(self.address))
        self._idle: list[Connection] = []

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], *, patience_seconds: float = PATIENCE_SECONDS
    ) -> DaemonClient:
        """Make a client from a run's variables: the path of the socket, and the path of a file with the token."""
        try:
            path, place = environ["WAKEFUL_SOCKET"], environ["WAKEFUL_TOKEN_FILE"]
        except KeyError as missing:
            raise OperatorError(
                f"{missing.args[0]} is not set: an agent works only inside a run, which the daemon starts"
            ) from None
        try:
            with open(place, encoding="ascii") as file:
                token = file.read().strip()
        except OSError as error:
            raise OperatorError(
                f"cannot read the run's token at {place}: {error.strerror}; it ends with the run"
            ) from None
        return cls(path, token, patience_seconds=patience_seconds)

    async def __aenter__(self) -> DaemonClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def call(self, verb: str, fields: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
        """Make one of the daemon's calls. Fields that are None are left out.

        With a key, the call is carried out only once, however often it is sent.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        answer: dict[str, Any] = await self.post(f"/call/{quote(verb, safe='')}", given, key)
        return answer

    async def post(self, path: str, body: object, key: str | None = None) -> Any:
        return (await self._ask("POST", path, msgspec.json.encode(body), key)).decode()

    def post_lines(self, path: str) -> LinePost:
        return LinePost(self, path)

    async def look(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Read a route that changes nothing. Parameters that are None are left out. JSON lines are read into a list."""
        return (await self._ask("GET", path + encode_query(params), b"", None)).decode()

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Reply:
        """Send a request to any route, and return its answer undecoded."""
        content = json.dumps(body).encode() if body is not None else b""
        return await self._ask(method, path + encode_query(query), content, key)

    @asynccontextmanager
    async def follow(self, names: Sequence[str]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Follow the new records of these sessions, or of all if `names` is empty. The context is entered when the
        daemon has begun to follow.
        """
        target = "/follow" + encode_query({"name": list(names), "words": True})
        deadline = monotonic() + self._patience
        connection = await self.take(deadline, is_patient=self._is_patient)
        try:
            async with asyncio.timeout_at(_on_loop(deadline)):
                status, headers = await connection.send(write_request("GET", target, self._common))
                if status >= 400:
                    raise DaemonRefused(read_refusal(await connection.read_body(headers), status), status)
            yield read_lines(connection.read_pieces(headers))
        except (ConnectionLost, TimeoutError) as error:
            raise DaemonAway(f"the daemon at {self.address} went away") from error
        finally:
            connection.close()

    async def _ask(self, method: str, target: str, content: bytes, key: str | None) -> Reply:
        request = write_request(method, target, self._common, content, key)
        return await self.exchange(f"{method} {target}", request, is_repeatable=is_repeatable(method, key))

    async def exchange(
        self, what: str, request: bytes, *, is_repeatable: bool, begun: Connection | None = None
    ) -> Reply:
        """Send a request and read its answer. If the request was already sent over `begun`, only read the answer."""
        deadline = monotonic() + self._patience
        is_patient, pause = self._is_patient, FIRST_PAUSE_SECONDS
        while True:
            connection = begun or await self.take(deadline, is_patient=is_patient)
            try:
                async with asyncio.timeout_at(_on_loop(deadline)):
                    status, headers = await connection.send(b"" if begun else request)
                    body = await connection.read_body(headers)
            except (ConnectionLost, TimeoutError):
                connection.close()
                if not is_repeatable:
                    raise EffectUnknown(
                        f"the daemon at {self.address} disconnected before it answered {what}; "
                        "it is not known whether the call was carried out"
                    ) from None
                if monotonic() + pause >= deadline:
                    raise EffectUnknown(
                        f"the daemon at {self.address} did not answer {what} within {self._patience:g} s"
                    ) from None
                # A daemon listened a moment ago, so wait for the next daemon.
                begun, is_patient = None, True
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                continue
            except BaseException:
                # The caller was cancelled. Close the connection. Otherwise the rest of this answer would be read as the
                # next answer.
                connection.close()
                raise
            is_early = is_busy(status, headers) or (is_repeatable and status == UNDER_WAY)
            if is_early and monotonic() + LONGEST_PAUSE_SECONDS < deadline:
                # Either the daemon had no place for the connection and read nothing, so any request can be repeated.
                # Or the first request with this key, whose connection broke, is still under way.
                connection.close()
                begun = None
                await asyncio.sleep(LONGEST_PAUSE_SECONDS)
                continue
            self._put_back(connection, headers)
            if status >= 400:
                raise DaemonRefused(read_refusal(body, status), status)
            return Reply(headers, body)

    def write_head(self, method: str, target: str, more: dict[str, str]) -> bytes:
        return write_head(method, target, self._common | more)

    async def take(self, deadline: float | None = None, *, is_patient: bool = True) -> Connection:
        """Return an idle connection, or open a new one. If `is_patient`, wait while no daemon listens.

        Waiting is safe for every request, because nothing has been sent yet.
        """
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        pause = FIRST_PAUSE_SECONDS
        deadline = deadline or monotonic() + self._patience
        while True:
            try:
                async with asyncio.timeout_at(_on_loop(deadline)):
                    return await Connection.open(self.address)
            except OSError as error:
                # A full queue means that a daemon listens.
                is_waited_for = isinstance(error, BlockingIOError) or (
                    is_patient and isinstance(error, FileNotFoundError | ConnectionError)
                )
                if not is_waited_for or monotonic() + pause > deadline:
                    waited = f"waited {self._patience:g} s for one"
                    remedy = waited if is_waited_for else "start it with: wakeful daemon"
                    raise explain_failed_connect(error, str(self.address), remedy) from None
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _put_back(self, connection: Connection, headers: Mapping[str, str]) -> None:
        if headers.get("connection", "").lower() == "close":
            connection.close()
        else:
            connection.rest()
            self._idle.append(connection)


class LinePost:
    """One request whose lines are sent as they come. The daemon answers when the request is ended.

    If the daemon restarts, all lines are sent again. This is safe, because each line has its own idempotency key.
    """

    def __init__(self, client: DaemonClient, path: str) -> None:
        self._client = client
        self._path = path
        self._lines: list[bytes] = []
        self._connection: Connection | None = None

    async def send(self, value: object) -> None:
        """Send a line. Whether it arrived is known only after `end`."""
        self._lines.append(msgspec.json.encode(value) + b"\n")
        if self._connection is None:
            self._connection = await self._client.take()
            self._connection.write(
                self._client.write_head("POST", self._path, {"Transfer-Encoding": "chunked"})
                + write_chunk(b"".join(self._lines))
            )
        else:
            self._connection.write(write_chunk(self._lines[-1]))

    async def end(self, value: object) -> Any:
        """Send the last line, and return the answer to all lines."""
        self._lines.append(msgspec.json.encode(value) + b"\n")
        if self._connection is not None:
            self._connection.write(write_chunk(self._lines[-1]) + write_chunk(b""))
        body = b"".join(self._lines)
        request = self._client.write_head("POST", self._path, {"Content-Length": str(len(body))}) + body
        what = f"POST {self._path}"
        reply = await self._client.exchange(what, request, is_repeatable=True, begun=self._connection)
        return reply.decode()


class ConnectionLost(Exception):
    """The connection ended before the answer was complete."""


class Connection:
    """A connection to the daemon, for one request at a time."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._rests_since = 0.0
        self._ends = select.poll()
        self._ends.register(writer.get_extra_info("socket").fileno(), select.POLLIN)

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """Connect to the daemon. Raises NotOurDaemon if a stranger listens there."""
        if address.path is None:
            secured = ssl.create_default_context() if address.has_tls else None
            streams = await asyncio.open_connection(address.host, address.port, ssl=secured, limit=LONGEST_HEAD_BYTES)
            return cls(address, *streams)
        reader, writer = await asyncio.open_unix_connection(address.path, limit=LONGEST_HEAD_BYTES)
        try:
            refuse_stranger(writer.get_extra_info("socket"), address.path, address.owner)
        except BaseException:
            writer.close()
            raise
        return cls(address, reader, writer)

    def rest(self) -> None:
        self._rests_since = monotonic()

    def is_usable(self) -> bool:
        """Can this idle connection still be used?

        The daemon never sends anything unasked, so a readable socket has been closed. The kernel is asked directly,
        because the event loop may not have noticed yet.
        """
        if self._writer.is_closing() or self._reader.at_eof() or monotonic() - self._rests_since >= IDLE_SECONDS:
            return False
        return not self._ends.poll(0)

    def close(self) -> None:
        self._writer.close()

    def write(self, part: bytes) -> None:
        """Write a part of a request. If that fails, `send` raises the error when it reads the answer."""
        self._writer.write(part)

    async def send(self, request: bytes) -> tuple[int, dict[str, str]]:
        """Send a request, or the rest of a request, and read the status and the headers of the answer."""
        try:
            self._writer.write(request)
            await self._writer.drain()
            head = await self._reader.readuntil(HEAD_END)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ConnectionLost from error
        except asyncio.LimitOverrunError:
            raise explain_no_http(str(self._address)) from None
        try:
            status, headers = parse_head(head)
        except (ValueError, IndexError):
            raise explain_no_http(str(self._address)) from None
        read_version(headers, str(self._address))
        return status, headers

    async def read_pieces(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the parts of a body as they arrive. Raises ConnectionLost if the body ends early."""
        try:
            body = AnswerBody(headers)
            while not body.is_whole:
                data = await self._reader.read(_PIECE_BYTES)
                if not data:
                    raise ConnectionLost
                if piece := body.take(data):
                    yield piece
        except OSError as error:
            raise ConnectionLost from error
        except ValueError:
            raise explain_no_http(str(self._address)) from None

    async def read_body(self, headers: Mapping[str, str]) -> bytes:
        found = bytearray()
        async for piece in self.read_pieces(headers):
            found += piece
            if len(found) > LARGEST_ANSWER_BYTES:
                raise CallerError(f"the answer has more than {LARGEST_ANSWER_BYTES} bytes; ask for less at once")
        return bytes(found)


async def read_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Yield the decoded JSON lines in the parts of a body."""
    lines = LineBuffer()
    async for piece in pieces:
        for line in lines.take(piece):
            yield msgspec.json.decode(line)


def _write_host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


def _on_loop(deadline: float) -> float:
    """Convert a `monotonic()` deadline to the loop's clock, which may be a different clock."""
    return asyncio.get_running_loop().time() + deadline - monotonic()
