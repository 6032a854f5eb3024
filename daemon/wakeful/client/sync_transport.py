"""The blocking transport of the command line: one request per connection, and no slow imports.

A body that ends early is an error, never a short answer. `cli/client.py` decides which requests are repeated, and tells
the person what the command waits for.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from time import monotonic
from typing import NamedTuple

from wakeful.client.refusals import DaemonAway, EffectUnknown, explain_failed_connect, explain_no_http, refuse_stranger
from wakeful.client.wire import HEAD_END, LONGEST_HEAD_BYTES, PATIENCE_SECONDS, AnswerBody, LineBuffer, parse_head
from wakeful.errors import CallerError
from wakeful.text.display import escape

# Seconds after which the daemon disconnects a client that reads nothing (api/gate/protocol.py).
STALLED_SECONDS = 600.0
_PIECE_BYTES = 1 << 18
# A `struct timeval`: seconds and microseconds.
_TIME = struct.Struct("ll")
_AWAY = "the daemon went away; start it with: wakeful daemon"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Iterator[bytes]

    def read(self) -> bytes:
        return b"".join(self.body)


def connect(path: str, owner: str) -> socket.socket:
    """Connect to the daemon at this socket. Raises NotOurDaemon if a stranger listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # With SO_SNDTIMEO, connect() waits in the kernel while the queue is full, and clients are served in order. A
        # Python timeout would make the socket non-blocking, and connect() would fail while the queue is full.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(PATIENCE_SECONDS), 0))
        connection.connect(path)
        connection.settimeout(PATIENCE_SECONDS)
        refuse_stranger(connection, path, owner)
    except OSError as error:
        connection.close()
        remedy = "start one with: wakeful daemon, or say where it listens with --socket"
        raise explain_failed_connect(error, path, remedy) from None
    except BaseException:
        connection.close()
        raise
    return connection


def exchange(connection: socket.socket, request: bytes, path: str, wait: Callable[[socket.socket], None]) -> Answer:
    """Send a request, and read the head of its answer. The body is read as it arrives.

    `wait` returns at the first byte of the answer, or at the end of the connection.
    """
    try:
        # A busy daemon answers without reading the request, and may close before the request is sent. Its answer
        # can still be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        wait(connection)
        return _read_answer(connection, path)
    except TimeoutError:
        raise DaemonAway(
            f"the daemon at {escape(path)} does not answer; is it stopped? wakeful doctor tells more"
        ) from None
    except OSError as error:
        raise EffectUnknown(f"{_AWAY} ({error.strerror})") from None


def _read_answer(connection: socket.socket, path: str) -> Answer:
    buffer = bytearray()
    while (end := buffer.find(HEAD_END)) < 0:
        piece = connection.recv(_PIECE_BYTES)
        if not piece or len(buffer) > LONGEST_HEAD_BYTES:
            raise EffectUnknown(_AWAY)
        buffer += piece
    try:
        status, headers = parse_head(bytes(buffer[:end]))
    except (ValueError, IndexError):
        raise explain_no_http(path) from None
    return Answer(status, headers, _read_body(connection, headers, bytes(buffer[end + len(HEAD_END) :])))


def _read_body(connection: socket.socket, headers: dict[str, str], first: bytes) -> Iterator[bytes]:
    """Yield the pieces of a body as they arrive. Raises DaemonAway if the body ends early."""
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
        raise DaemonAway(_AWAY)
    raise CallerError(
        f"disconnected: this command read nothing for {longest_pause / 60:.0f} minutes, and the daemon waits for "
        f"{STALLED_SECONDS / 60:.0f}; repeat it; wakeful log NAME --from SEQ prints the records in between"
    )


def split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    lines = LineBuffer()
    for piece in pieces:
        yield from lines.take(piece)
