"""The command line's client of the control socket: HTTP/1.1 over a UNIX socket, one request per connection.

system/http_wire.py parses and writes the bytes. A body that ends early is an error, never a short answer. If systemd
owns the socket, a command waits in the socket's queue while the daemon restarts. It then prints a message after
MOMENT_SECONDS and gives up after PATIENCE_SECONDS.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import struct
import sys
from collections.abc import Iterator
from time import monotonic
from typing import Any, NamedTuple

from wakeful import __version__
from wakeful.cli.daemon_location import find_socket, say_project_down
from wakeful.cli.exit_codes import DaemonBusy, Failure, NoDaemon
from wakeful.cli.text import clear_line, escape, write_over
from wakeful.system.http_wire import (
    HEAD_END,
    LONGEST_HEAD_BYTES,
    AnswerBody,
    find_stranger,
    is_busy,
    parse_head,
    read_peer,
    write_head,
)  # fmt: skip

# The environment variable that names the account of another user's daemon.
OWNER_VARIABLE = "WAKEFUL_OWNER"
# Seconds to wait for an answer. A daemon that folds or checks a lot needs seconds; one that SIGSTOP stopped never
# answers.
PATIENCE_SECONDS = 60.0
# Seconds without an answer until the command prints what it waits for.
MOMENT_SECONDS = 3.0
# Seconds after which the daemon disconnects a client that reads nothing (api/gate/protocol.py).
STALLED_SECONDS = 600.0
_PIECE_BYTES = 1 << 18
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# A `struct timeval`: seconds and microseconds.
_TIME = struct.Struct("ll")
_AWAY = "the daemon went away; start it with: wakeful daemon"


class DaemonLeft(NoDaemon):
    """The daemon ended before it answered. It may or may not have carried out the request."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Iterator[bytes]

    def read(self) -> bytes:
        return b"".join(self.body)


class Client:
    """Calls the daemon behind one socket, with the run's token inside a run.

    `project` is the state folder of the expected daemon, and `pid` the process id recorded there. A connection to
    another process is refused."""

    def __init__(
        self, path: str, token: str | None = None, *, pid: int | None = None, project: str | None = None
    ) -> None:
        self.path = path
        self._token = token
        self._pid = pid
        self.project = project
        self._has_compared = False

    def get_bytes(self, route: str, **query: Any) -> bytes:
        return self._ask("GET", route, query).read()

    def get(self, route: str, **query: Any) -> Any:
        return json.loads(self.get_bytes(route, **query))

    def get_answer(self, route: str, **query: Any) -> Answer:
        return self._ask("GET", route, query)

    def stream(self, route: str, **query: Any) -> Iterator[bytes]:
        """Yield the pieces of an answer as they arrive, without a timeout."""
        return self._ask("GET", route, query, is_patient=True).body

    def stream_lines(self, route: str, **query: Any) -> Iterator[bytes]:
        """Yield the lines of a JSON stream, without their newlines."""
        return split_lines(self.stream(route, **query))

    def post_lines(self, route: str, **body: Any) -> Iterator[bytes]:
        """Yield the lines of a JSON stream, without their newlines and without a timeout. If the caller stops
        reading, the daemon cancels the request."""
        given = {name: value for name, value in body.items() if value is not None}
        return split_lines(self._ask("POST", route, {}, body=json.dumps(given).encode(), is_patient=True).body)

    def post(self, route: str, **body: Any) -> Any:
        given = {name: value for name, value in body.items() if value is not None}
        return json.loads(self._ask("POST", route, {}, body=json.dumps(given).encode()).read())

    def call(self, verb: str, key: str | None = None, /, **body: Any) -> dict[str, Any]:
        given = {name: value for name, value in body.items() if value is not None}
        headers = {"Idempotency-Key": key} if key is not None else {}
        answer: dict[str, Any] = json.loads(
            self._ask("POST", f"/call/{verb}", {}, body=json.dumps(given).encode(), extra=headers).read()
        )
        return answer

    def _ask(
        self,
        method: str,
        route: str,
        query: dict[str, Any],
        *,
        body: bytes = b"",
        extra: dict[str, str] | None = None,
        is_patient: bool = False,
    ) -> Answer:
        given = {name: value for name, value in query.items() if value is not None and value is not False}
        target = route + (f"?{encode_query(given)}" if given else "")
        headers = {
            "Host": "wakeful",
            "Connection": "close",
            "Wakeful-Version": __version__,
            "Content-Length": str(len(body)),
            **(extra or {}),
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = write_head(method, target, headers) + body
        try:
            answer = self._exchange(request, is_patient=is_patient)
        except DaemonLeft:
            # A GET and a call with an idempotency key can be repeated safely, so retry once. This hides a restart of
            # the daemon at this moment.
            if method != "GET" and "Idempotency-Key" not in headers:
                raise
            answer = self._exchange(request, is_patient=is_patient)
        self._compare_versions(answer)
        if is_busy(answer.status, answer.headers):
            raise DaemonBusy(escape(read_error(answer)))
        if answer.status >= 400:
            raise Failure(escape(read_error(answer)))
        return answer

    def _exchange(self, request: bytes, *, is_patient: bool) -> Answer:
        connection = self._connect()
        try:
            # A busy daemon answers without reading the request, and may close before the request is sent. Its answer
            # can still be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(request)
            self._await_answer(connection)
            answer = read_answer(connection)
        except TimeoutError:
            raise NoDaemon(
                f"the daemon at {escape(self.path)} does not answer; is it stopped? wakeful doctor tells more"
            ) from None
        except OSError as error:
            raise DaemonLeft(f"{_AWAY} ({error.strerror})") from None
        if is_patient:
            connection.settimeout(None)
        return answer

    def _connect(self) -> socket.socket:
        if self.project is None:
            return connect(self.path)
        try:
            connection = connect(self.path)
        except NoDaemon:
            raise NoDaemon(say_project_down(self.project)) from None
        # The kernel reports pid 0 for a process of another container, which cannot be compared.
        if self._pid is not None and read_peer(connection)[0] not in (0, self._pid):
            # The daemon of the project was killed, and another process now listens at its socket.
            connection.close()
            raise NoDaemon(say_project_down(self.project))
        return connection

    def _await_answer(self, connection: socket.socket) -> None:
        """Wait for the first byte of the answer or the end of the connection, without consuming data."""
        if sys.stderr.isatty():
            self._await_visibly(connection)
        else:
            connection.settimeout(MOMENT_SECONDS)
            try:
                connection.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                print(
                    f"wakeful: the daemon at {escape(self.path)} is busy or starting; waiting up to "
                    f"{PATIENCE_SECONDS:.0f} s for its answer",
                    file=sys.stderr,
                    flush=True,
                )
        connection.settimeout(PATIENCE_SECONDS)

    def _await_visibly(self, connection: socket.socket) -> None:
        """Show the seconds that pass on the terminal. A first search, the costs of a long log or a merge of many files
        take a while."""
        connection.settimeout(1.0)
        waited = 0
        try:
            while True:
                try:
                    connection.recv(1, socket.MSG_PEEK)
                    return
                except TimeoutError:
                    waited += 1
                    if waited >= PATIENCE_SECONDS:
                        raise
                    write_over(f"waiting for the daemon: {waited} s of at most {PATIENCE_SECONDS:.0f}")
        finally:
            if waited:
                clear_line()

    def _compare_versions(self, answer: Answer) -> None:
        theirs = answer.headers.get("wakeful-version")
        if self._has_compared or theirs == __version__:
            return
        self._has_compared = True
        if theirs is None:
            raise NoDaemon(f"what answers at {self.path} is not wakeful; give the right place with --socket")
        print(
            f"wakeful: this command is version {__version__}, the daemon is {escape(theirs)}: "
            "restart the daemon (systemctl --user restart wakeful), or upgrade the older of the two",
            file=sys.stderr,
        )


def connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # With SO_SNDTIMEO the kernel queues the connection and serves clients in order. A Python timeout makes the
        # socket non-blocking, so that connect() fails while the queue is full.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(PATIENCE_SECONDS), 0))
        connection.connect(path)
        connection.settimeout(PATIENCE_SECONDS)
        _refuse_stranger(connection, path)
    except BlockingIOError:
        connection.close()
        raise DaemonBusy(
            f"the daemon at {escape(path)} is busy: more clients want to connect than it can take, or it is stopped; "
            "wakeful doctor tells more"
        ) from None
    except Failure:
        connection.close()
        raise
    except PermissionError:
        connection.close()
        raise Failure(f"{escape(path)} belongs to another user's daemon; give your own with --socket") from None
    except OSError as error:
        connection.close()
        raise NoDaemon(
            f"no daemon answers at {escape(path)} ({error.strerror or error}); start one with: wakeful daemon, "
            "or say where it listens with --socket"
        ) from None
    return connection


def _refuse_stranger(connection: socket.socket, path: str) -> None:
    uid = find_stranger(connection)
    if uid is not None and not _is_expected(uid, os.environ.get(OWNER_VARIABLE, "")):
        raise Failure(
            f"user {uid} listens on {escape(path)}, and you are user {os.geteuid()}: nothing was sent; "
            f"give your own with --socket, or say whose daemon you mean: {OWNER_VARIABLE}={uid}"
        )


def _is_expected(uid: int, owner: str) -> bool:
    """Does OWNER_VARIABLE name this account, by its name or number?"""
    if not owner or owner == str(uid):
        return bool(owner)
    try:
        return pwd.getpwnam(owner).pw_uid == uid
    except KeyError:
        return False


def read_error(answer: Answer) -> str:
    body = answer.read()
    try:
        found = json.loads(body)
        # A daemon of an earlier release sends `error`.
        return str(found["detail"] if "detail" in found else found["error"])
    except (ValueError, KeyError, TypeError):
        return f"the daemon answered {answer.status}: {body[:200].decode(errors='replace')}"


def read_answer(connection: socket.socket) -> Answer:
    buffer = bytearray()
    while (end := buffer.find(HEAD_END)) < 0:
        piece = connection.recv(_PIECE_BYTES)
        if not piece or len(buffer) > LONGEST_HEAD_BYTES:
            raise DaemonLeft(_AWAY)
        buffer += piece
    status, headers = parse_head(bytes(buffer[:end]))
    return Answer(status, headers, _read_body(connection, headers, bytes(buffer[end + len(HEAD_END) :])))


def _read_body(connection: socket.socket, headers: dict[str, str], first: bytes) -> Iterator[bytes]:
    """Yield the pieces of a body as they arrive. Raises NoDaemon if the body ends early."""
    body = AnswerBody(headers)
    longest_pause = 0.0
    data = first
    try:
        while True:
            if piece := body.take(data):
                read_at = monotonic()
                yield piece
                longest_pause = max(longest_pause, monotonic() - read_at)
            if body.is_whole:
                return
            data = _receive(connection, longest_pause)
    finally:
        connection.close()


def _receive(connection: socket.socket, longest_pause: float) -> bytes:
    try:
        data = connection.recv(_PIECE_BYTES)
    except OSError:
        data = b""
    if data:
        return data
    if longest_pause < STALLED_SECONDS:
        raise NoDaemon(_AWAY)
    raise Failure(
        f"disconnected: this command read nothing for {longest_pause / 60:.0f} minutes, and the daemon waits for "
        f"{STALLED_SECONDS / 60:.0f}; repeat it; wakeful log NAME --from SEQ prints the records in between"
    )


def split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line for line in lines if line)


def read_token() -> str | None:
    """Return the token in WAKEFUL_TOKEN_FILE or WAKEFUL_TOKEN. Inside a run, it is the token of the run."""
    path = os.environ.get("WAKEFUL_TOKEN_FILE")
    if path is None:
        return os.environ.get("WAKEFUL_TOKEN")
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError as error:
        raise Failure(
            f"cannot read the token at {path}: {error.strerror}; the token of a run is removed when the run ends"
        ) from None


def encode_query(given: dict[str, Any]) -> str:
    pairs = (
        (name, one) for name, value in given.items() for one in (value if isinstance(value, list | tuple) else (value,))
    )
    return "&".join(f"{name}={'true' if one is True else quote_name(str(one))}" for name, one in pairs)


def quote_name(name: str) -> str:
    """Quote a name as one segment of a URL path, with its slashes. urllib.parse would cost every command 8 ms."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in os.fsencode(name))


class Options(NamedTuple):
    """The options that every verb has: `--socket` and `--json`, given before or after the verb."""

    socket: str | None = None
    is_json: bool = False

    def client(self) -> Client:
        """Make a client. Inside a run it uses the run's token, so that a verb can do no more than the run may."""
        place = find_socket(self.socket)
        return Client(place.path, read_token(), pid=place.pid, project=place.project)
