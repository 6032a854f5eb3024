"""HTTP/1.1 as our clients speak it, as bytes: requests are written, answers are parsed. No I/O.

`sync_transport` and `async_client` do the reading and writing. urllib.parse would cost every command 8 ms, so queries
are encoded here, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from wakeful import __version__
from wakeful.errors import CallerError

# A daemon that folds or looks at much may take seconds; one that was stopped never answers.
PATIENCE_SECONDS = 60.0
# A longer head is none of ours.
LONGEST_HEAD_BYTES = 1 << 16
HEAD_END = b"\r\n\r\n"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def make_headers(token: str | None, host: str = "wakeful") -> dict[str, str]:
    """The headers that every request has."""
    common = {"Host": host, "Wakeful-Version": __version__}
    return common if token is None else common | {"Authorization": f"Bearer {token}"}


def write_request(
    method: str, target: str, headers: Mapping[str, str], body: bytes = b"", key: str | None = None
) -> bytes:
    """A whole request. With a key it is carried out once, however often it is sent."""
    more = {"Content-Length": str(len(body))}
    if body:
        more["Content-Type"] = "application/json"
    if key is not None:
        if not key.isprintable():
            raise CallerError(f"key {key!r}: a key that makes a call safe to repeat is one printable line")
        more["Idempotency-Key"] = key
    return write_head(method, target, {**headers, **more}) + body


def is_repeatable(method: str, key: str | None) -> bool:
    """May the request be sent again when nobody knows whether the first one was read?

    Reading twice is reading once, and a key is carried out once.
    """
    return method == "GET" or key is not None


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


class LineBuffer:
    """Cuts lines out of the pieces of a body."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that are complete now, without their newline and without empty ones."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line for line in lines if line]


def encode_query(query: Mapping[str, Any] | None) -> str:
    """The query of an address, with its question mark. Values that are None, False or an empty list are left out."""
    pairs = [
        (name, one)
        for name, value in (query or {}).items()
        if value is not None and value is not False
        for one in (value if isinstance(value, list | tuple) else (value,))
    ]
    words = "&".join(f"{name}={'true' if one is True else quote_name(str(one))}" for name, one in pairs)
    return f"?{words}" if words else ""


def quote_name(name: str) -> str:
    """A name as one segment of a path, its slashes included."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in os.fsencode(name))
