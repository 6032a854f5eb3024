"""Encodes requests and parses answers of HTTP/1.1 over the control socket, and identifies the process that listens.

`cli/client.py` (one request per connection) and `agents/daemon_client.py` (connections that stay open) read and write
the bytes. Written by hand, because http.client takes longer to import than the daemon takes to answer a command, and a
general client takes five times as long for each step of an agent.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

# The longest head that the daemon sends.
LONGEST_HEAD_BYTES = 1 << 16
HEAD_END = b"\r\n\r\n"
# pid, uid and gid at the other end.
_CREDENTIALS = struct.Struct("3i")


def write_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


def write_chunk(part: bytes) -> bytes:
    """Encode a part of a body whose length is not known yet. An empty part ends the body."""
    return b"%x\r\n%b\r\n" % (len(part), part)


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Parse the status and the headers of an answer. Header names become lower case.

    Raises ValueError or IndexError if the head is not HTTP.
    """
    status_line, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(status_line.split(" ", 2)[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def is_busy(status: int, headers: Mapping[str, str]) -> bool:
    """Did the daemon refuse the request unread, because it is busy for a moment? The client may repeat it."""
    return status == 503 and "retry-after" in headers


class AnswerBody:
    """Extracts the body of an answer from the bytes that arrive. `is_whole`: the body is complete."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._is_chunked = headers.get("transfer-encoding") == "chunked"
        # The number of missing bytes: of the current chunk, or of the whole body.
        self._left = 0 if self._is_chunked else int(headers.get("content-length", "0"))
        self._buffer = bytearray()
        # `_is_at_line_end`: next comes the line that ends a chunk. `_is_last`: next comes the line that ends the body.
        self._is_at_line_end = False
        self._is_last = False
        self.is_whole = not self._is_chunked and self._left == 0

    def take(self, data: bytes) -> bytes:
        """Return the part of the body in these bytes. Raises ValueError if the length of a chunk is not a number."""
        if not self._is_chunked:
            piece = data[: self._left]
            self._left -= len(piece)
            self.is_whole = self._left == 0
            return piece
        self._buffer += data
        pieces = bytearray()
        while self._take_chunk(pieces) and not self.is_whole:
            continue
        return bytes(pieces)

    def _take_chunk(self, pieces: bytearray) -> bool:
        """Take the buffered part of a chunk, or one line. Returns False if more bytes must arrive first."""
        if self._left:
            piece = self._buffer[: self._left]
            del self._buffer[: self._left]
            self._left -= len(piece)
            pieces += piece
            self._is_at_line_end = True
            return self._left == 0
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        if self._is_last:
            self.is_whole = True
        elif self._is_at_line_end:
            self._is_at_line_end = False
        else:
            self._left = int(line, 16)
            self._is_last = self._left == 0
        return True


def read_peer(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user id of the process that listens, as the kernel reports them."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def find_stranger(connection: socket.socket) -> int | None:
    """Return the user id of the listening process if it is neither ours nor root's. None otherwise.

    A process of another user is not our daemon, and must not get a token. Root is accepted, because systemd may listen
    for the daemon.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    _, uid = read_peer(connection)
    return uid if uid not in (os.geteuid(), 0) and os.geteuid() != 0 else None
