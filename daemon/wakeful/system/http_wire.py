"""HTTP/1.1 over our control socket, as bytes: requests are written, answers are parsed, the other end is identified.

`cli/client.py` (one request a connection) and `agents/daemon_client.py` (connections that are kept open) do the
reading and writing. By hand, because http.client takes longer to import than the daemon takes to answer a command,
and a general client takes five times as long for each step of an agent.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

# A longer head is none of ours.
LONGEST_HEAD_BYTES = 1 << 16
HEAD_END = b"\r\n\r\n"
# pid, uid and gid at the other end.
_CREDENTIALS = struct.Struct("3i")


def write_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


def write_chunk(part: bytes) -> bytes:
    """A part of a body whose length is not known yet; the empty part ends the body."""
    return b"%x\r\n%b\r\n" % (len(part), part)


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer, their names in lower case.

    Raises ValueError or IndexError where it is no HTTP.
    """
    status_line, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(status_line.split(" ", 2)[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def is_busy(status: int, headers: Mapping[str, str]) -> bool:
    """Did it read nothing of the request, and could it take the request in a moment?"""
    return status == 503 and "retry-after" in headers


class AnswerBody:
    """Cuts the body of an answer out of the bytes that arrive. `is_whole`: nothing of it is missing."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._is_chunked = headers.get("transfer-encoding") == "chunked"
        # How much is missing: of the present chunk, or of the whole body.
        self._left = 0 if self._is_chunked else int(headers.get("content-length", "0"))
        self._buffer = bytearray()
        # The line that ends a chunk comes next, or the line that ends the whole body.
        self._is_at_line_end = False
        self._is_last = False
        self.is_whole = not self._is_chunked and self._left == 0

    def take(self, data: bytes) -> bytes:
        """The part of the body that is in these bytes. Raises ValueError where the length of a chunk is none."""
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
        """Take what is there of a chunk, or one line; False where more bytes have to come first."""
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
    """The pid and the user of the process that listens, as the kernel knows them."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def find_stranger(connection: socket.socket) -> int | None:
    """The user who listens, where that is neither we nor root: it is not our daemon, whatever its name, and is told
    no token.

    Where systemd listens for the daemon, root does.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    _, uid = read_peer(connection)
    return uid if uid not in (os.geteuid(), 0) and os.geteuid() != 0 else None
