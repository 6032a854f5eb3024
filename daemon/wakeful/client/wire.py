"""Encodes requests and parses answers of HTTP/1.1 over the control socket. No I/O.

`sync_transport` and `async_client` read and write the bytes. Queries are encoded here, too, because urllib.parse would
cost every command 8 ms.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from wakeful import __version__
from wakeful.errors import CallerError

# Seconds to wait for an answer. A daemon that folds or checks a lot needs seconds. A daemon that was stopped by SIGSTOP
# never answers.
PATIENCE_SECONDS = 60.0
# The longest head that the daemon sends.
LONGEST_HEAD_BYTES = 1 << 16
HEAD_END = b"\r\n\r\n"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def make_headers(token: str | None, host: str = "wakeful") -> dict[str, str]:
    """Make the headers that every request has."""
    common = {"Host": host, "Wakeful-Version": __version__}
    return common if token is None else common | {"Authorization": f"Bearer {token}"}


def write_request(
    method: str, target: str, headers: Mapping[str, str], body: bytes = b"", key: str | None = None
) -> bytes:
    """Encode a whole request. With a key, the daemon carries it out only once, however often it is sent."""
    more = {"Content-Length": str(len(body))}
    if body:
        more["Content-Type"] = "application/json"
    if key is not None:
        if not key.isprintable():
            raise CallerError(f"key {key!r}: a key that makes a call safe to repeat is one line of plain characters")
        more["Idempotency-Key"] = key
    return write_head(method, target, {**headers, **more}) + body


def is_repeatable(method: str, key: str | None) -> bool:
    """May the request be sent again if it is unknown whether the daemon carried it out the first time?

    A GET has no effect, and a request with a key is carried out only once.
    """
    return method == "GET" or key is not None


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


class LineBuffer:
    """Extracts lines from the pieces of a body."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, piece: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their newlines. Empty lines are left out."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line for line in lines if line]


def encode_query(query: Mapping[str, Any] | None) -> str:
    """Encode a query, with its question mark. Values that are None, False or empty lists are left out."""
    pairs = [
        (name, one)
        for name, value in (query or {}).items()
        if value is not None and value is not False
        for one in (value if isinstance(value, list | tuple) else (value,))
    ]
    words = "&".join(f"{name}={'true' if one is True else quote_name(str(one))}" for name, one in pairs)
    return f"?{words}" if words else ""


def quote_name(name: str) -> str:
    """Quote a name as one segment of a URL path. Its slashes are escaped, too."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in os.fsencode(name))
