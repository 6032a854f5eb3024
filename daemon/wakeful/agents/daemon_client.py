"""The client of the control socket in the agent's process: HTTP/1.1 with JSON, over connections that are kept open.

Every step of the loop passes here, so HTTP is written and parsed by hand, in a fifth of the time of a general client.
If the daemon restarts, the client waits for it, up to a limit. A request that may have been carried out is repeated
only if that is harmless: a GET, or a call with an idempotency key. The run's own token gives this process its rights.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Mapping
from time import monotonic
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from wakeful import __version__
from wakeful.errors import CallerError, OperatorError
from wakeful.system.http_wire import (
    HEAD_END,
    LONGEST_HEAD_BYTES,
    AnswerBody,
    find_stranger,
    is_busy,
    parse_head,
    write_chunk,
    write_head,
)  # fmt: skip

# Seconds that a daemon may be away, or may take for an answer, before the run gives up.
PATIENCE_SECONDS = 60.0
# Seconds after which an unused connection is not used again. The daemon closes it after five seconds, and it must not
# close while we write.
IDLE_SECONDS = 3.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5
# The most bytes of an answer, far above any that we expect. A longer answer is an error, so that memory stays bounded.
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_LINES = "application/jsonl"
_PIECE_BYTES = 1 << 16


# The HTTP status if the first request with the same key is still under way.
_UNDER_WAY = 409


class DaemonRefused(CallerError):
    """The daemon refused the request. The message is the daemon's own."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class DaemonAway(OperatorError):
    """Our daemon does not answer, and nothing was done."""


class EffectUnknown(DaemonAway):
    """The daemon went away between the request and the answer. It is unknown whether it carried out the request."""


class _ConnectionLost(Exception):
    """The connection ended before the answer was complete."""


class _Answer(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class DaemonLink:
    """A client of the daemon. Several calls may be under way at once.

    Use it as `async with DaemonLink.from_environment(os.environ) as link:`.
    """

    def __init__(self, path: str, token: str | None = None, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._path = path
        self._patience = patience_seconds
        self._common = {"Host": "wakeful", "Wakeful-Version": __version__}
        if token is not None:
            self._common["Authorization"] = f"Bearer {token}"
        self._idle: list[Connection] = []

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, patience_seconds: float = PATIENCE_SECONDS) -> DaemonLink:
        """Make a client from a run's variables: the path of the socket, and the path of a file with the token."""
        try:
            path, place = environ["WAKEFUL_SOCKET"], environ["WAKEFUL_TOKEN_FILE"]
        except KeyError as missing:
            raise OperatorError(
                f"{missing.args[0]} is not set: an agent thinks inside a run, which the daemon starts"
            ) from None
        try:
            with open(place, encoding="ascii") as file:
                token = file.read().strip()
        except OSError as error:
            raise OperatorError(
                f"cannot read the run's token at {place}: {error.strerror}; it ends with the run"
            ) from None
        return cls(path, token, patience_seconds=patience_seconds)

    async def __aenter__(self) -> DaemonLink:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def call(self, verb: str, fields: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
        """Make one of the daemon's calls. Fields that are None are left out.

        With a key the call is carried out only once, however often it is sent.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        answer: dict[str, Any] = await self.post(f"/call/{quote(verb, safe='')}", given, key)
        return answer

    async def post(self, path: str, body: object, key: str | None = None) -> Any:
        return await self._ask("POST", path, msgspec.json.encode(body), key)

    def post_lines(self, path: str) -> LinePost:
        return LinePost(self, path)

    async def look(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Read a route that changes nothing. Parameters that are None are left out. JSON lines are read into a list."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        return await self._ask("GET", f"{path}?{urlencode(given, doseq=True)}" if given else path, b"", None)

    async def _ask(self, method: str, target: str, body: bytes, key: str | None) -> Any:
        # A GET has no effect, and a request with a key is carried out only once.
        is_repeatable = method == "GET" or key is not None
        return await self.exchange(
            f"{method} {target}", self._write(method, target, body, key), is_repeatable=is_repeatable
        )

    async def exchange(self, what: str, request: bytes, *, is_repeatable: bool, begun: Connection | None = None) -> Any:
        """Send a request and read its answer. If it was already sent over `begun`, only read the answer."""
        deadline = monotonic() + self._patience
        while True:
            connection = begun or await self.take(deadline)
            try:
                async with asyncio.timeout_at(_on_loop(deadline)):
                    answer = await connection.exchange(b"" if begun else request)
            except (_ConnectionLost, TimeoutError):
                connection.close()
                if not is_repeatable:
                    raise EffectUnknown(
                        f"the daemon at {self._path} left before it answered {what}; whether that was done is not known"
                    ) from None
                if monotonic() >= deadline:
                    raise EffectUnknown(
                        f"the daemon at {self._path} did not answer {what} within {self._patience:g} s"
                    ) from None
                begun = None
                continue
            except BaseException:
                # The caller was cancelled. Close, so that the rest of this answer is not taken for the next one.
                connection.close()
                raise
            is_early = is_busy(answer.status, answer.headers) or (is_repeatable and answer.status == _UNDER_WAY)
            if is_early and monotonic() + LONGEST_PAUSE_SECONDS < deadline:
                # Either the daemon had no place for the connection and read nothing, so any request can be repeated.
                # Or the first request with this key, whose connection broke, is still under way.
                connection.close()
                begun = None
                await asyncio.sleep(LONGEST_PAUSE_SECONDS)
                continue
            self._put_back(connection, answer)
            return _read(answer, self._path)

    def write_head(self, method: str, target: str, more: dict[str, str]) -> bytes:
        return write_head(method, target, self._common | more)

    def _write(self, method: str, target: str, body: bytes, key: str | None) -> bytes:
        if key is not None and not (key.isascii() and key.isprintable()):
            raise CallerError(f"key {key!r}: a key that makes a call safe to repeat is one line of plain characters")
        once = {"Idempotency-Key": key} if key is not None else {}
        return self.write_head(method, target, {**once, "Content-Length": str(len(body))}) + body

    async def take(self, deadline: float | None = None) -> Connection:
        """Return an idle connection, or open a new one. Waits while no daemon listens.

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
                return await Connection.open(self._path)
            except PermissionError:
                raise DaemonAway(
                    f"{self._path} may not be opened by this process: the socket is not ours, "
                    "or the run's isolation closes it"
                ) from None
            except (FileNotFoundError, ConnectionError, BlockingIOError) as error:
                if monotonic() + pause > deadline:
                    raise DaemonAway(
                        f"no daemon answers at {self._path} ({error.strerror or error}); "
                        f"waited {self._patience:g} s for one"
                    ) from None
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _put_back(self, connection: Connection, answer: _Answer) -> None:
        if answer.headers.get("connection", "").lower() == "close":
            connection.close()
        else:
            connection.rest()
            self._idle.append(connection)


class LinePost:
    """One request whose lines are sent as they come. The daemon answers when the request is ended.

    If the daemon restarts, all lines are sent again. This is safe, because each line has its own idempotency key.
    """

    def __init__(self, link: DaemonLink, path: str) -> None:
        self._link = link
        self._path = path
        self._lines: list[bytes] = []
        self._connection: Connection | None = None

    async def send(self, value: object) -> None:
        """Send a line, without knowing yet whether it arrives."""
        self._lines.append(msgspec.json.encode(value) + b"\n")
        if self._connection is None:
            self._connection = await self._link.take()
            self._connection.write(
                self._link.write_head("POST", self._path, {"Transfer-Encoding": "chunked"})
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
        request = self._link.write_head("POST", self._path, {"Content-Length": str(len(body))}) + body
        return await self._link.exchange(f"POST {self._path}", request, is_repeatable=True, begun=self._connection)


class Connection:
    """A connection to the daemon, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rests_since = 0.0
        self._ends = select.poll()
        self._ends.register(writer.get_extra_info("socket").fileno(), select.POLLIN)

    @classmethod
    async def open(cls, path: str) -> Connection:
        reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST_HEAD_BYTES)
        try:
            _refuse_stranger(writer.get_extra_info("socket"), path)
        except DaemonAway:
            writer.close()
            raise
        return cls(reader, writer)

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
        """Write a part of a request. If that fails, `exchange` raises the error when it reads the answer."""
        self._writer.write(part)

    async def exchange(self, request: bytes) -> _Answer:
        """Send a request, or the rest of one, and read the answer."""
        try:
            self._writer.write(request)
            await self._writer.drain()
            status, headers = parse_head(await self._reader.readuntil(HEAD_END))
            return _Answer(status, headers, await self._read_body(headers))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
            raise _ConnectionLost from error

    async def _read_body(self, headers: dict[str, str]) -> bytes:
        body = AnswerBody(headers)
        found = bytearray()
        while not body.is_whole:
            data = await self._reader.read(_PIECE_BYTES)
            if not data:
                raise asyncio.IncompleteReadError(bytes(found), None)
            found += body.take(data)
            if len(found) > LARGEST_ANSWER_BYTES:
                raise CallerError(f"the answer has more than {LARGEST_ANSWER_BYTES} bytes; ask for less at once")
        return bytes(found)


def _read(answer: _Answer, path: str) -> Any:
    if "wakeful-version" not in answer.headers:
        raise DaemonAway(f"what answers at {path} is not wakeful")
    if answer.status >= 400:
        raise DaemonRefused(answer.status, _read_refusal(answer))
    if answer.headers.get("content-type", "").startswith(_LINES):
        return msgspec.json.decode(b"[" + b",".join(line for line in answer.body.split(b"\n") if line) + b"]")
    return msgspec.json.decode(answer.body)


def _read_refusal(answer: _Answer) -> str:
    try:
        found = msgspec.json.decode(answer.body)
        # Earlier releases of the daemon have `error` instead of `detail`.
        return str(found["detail"] if "detail" in found else found["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"the daemon answered {answer.status}: {answer.body[:200].decode(errors='replace')}"


def _refuse_stranger(connection: socket.socket, path: str) -> None:
    uid = find_stranger(connection)
    if uid is not None:
        raise DaemonAway(f"user {uid} listens on {path}, and we are user {os.geteuid()}: nothing was sent")


def _on_loop(deadline: float) -> float:
    """Convert a `monotonic()` deadline to the loop's clock, which may be a different clock."""
    return asyncio.get_running_loop().time() + deadline - monotonic()
