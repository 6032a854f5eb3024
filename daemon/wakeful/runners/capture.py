"""A run's output in memory: the first half of the limit, the last half, and the true count.

Bytes in, bytes out: output may be binary, endless, or without a single line end. Whatever a run writes, no more than the limit
is held. Followers read by position, so that a slow one costs nothing: what it was too slow for, it is told about in words.
The bytes of secrets are held here and let out nowhere: `kept` and `follow` redact what they give. Not as it comes in: a flood
costs nothing, and a secret that became known during the run is found in what came before, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from wakeful.counting import count
from wakeful.secrets.redact import RedactedStream, Redactor

NOTHING_SECRET = Redactor()
_CHUNK_BYTES = 64 * 1024


class Kept(NamedTuple):
    """What is kept of an output, and how long the whole was, with each secret counted as its name."""

    head: bytes
    tail: bytes
    total_bytes: int


class Capture:
    """Head and tail of a stream. `redactor` is asked whenever something is let out."""

    def __init__(self, limit_bytes: int, redactor: Callable[[], Redactor] = lambda: NOTHING_SECRET) -> None:
        self._redactor = redactor
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        # A ring once it is full: the oldest byte is at `_oldest`.
        self._ring = bytearray()
        self._oldest = 0
        self.total_bytes = 0
        self._is_closed = False
        self._waiting: list[asyncio.Future[None]] = []

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._keep_last(chunk)
        if self._waiting:
            self._wake()

    def close(self) -> None:
        """Nothing more comes: followers end."""
        self._is_closed = True
        self._wake()

    def kept(self) -> Kept:
        """What may be written down. Blocks for some milliseconds where much was said and secrets are known."""
        redactor = self._redactor()
        head, tail = bytes(self._head), self._tail()
        middle_bytes = self.total_bytes - len(head) - len(tail)
        if not redactor or (not middle_bytes and redactor.find(head + tail) is None):
            return Kept(head, tail, self.total_bytes)
        if middle_bytes:
            # Half of a secret may stand at either side of what was not kept.
            bare = redactor.trim_end(head), redactor.trim_start(tail)
            middle_bytes = self.total_bytes - len(bare[0]) - len(bare[1])
            head, tail = map(redactor.redact, bare)
        else:
            whole = redactor.redact(head + tail)
            head, tail = whole[: self._head_limit], whole[self._head_limit :]
        total_bytes = len(head) + middle_bytes + len(tail)
        # A name may be longer than its value.
        return Kept(head[: self._head_limit], tail[-self._tail_limit :], total_bytes)

    async def follow(self) -> AsyncIterator[bytes]:
        """Everything kept so far, then what comes, until `close`."""
        redactor = self._redactor()
        stream = RedactedStream(redactor)
        position = 0
        while True:
            skipped, chunk = self._from(position)
            if skipped:
                rest = stream.flush()
                # What comes next may begin with the end of a secret.
                lost = len(chunk) - len(redactor.trim_start(chunk))
                position, chunk = position + lost, chunk[lost:]
                yield rest + f"\n[not kept: {count(skipped + lost, 'byte')}]\n".encode()
            if chunk or skipped:
                position += skipped + len(chunk)
                if shown := stream.push(chunk):
                    yield shown
                continue
            if self._is_closed:
                if rest := stream.flush():
                    yield rest
                return
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def mentions(self, words: Iterable[bytes]) -> bool:
        return any(word in text for text in (bytes(self._head), self._tail()) for word in words)

    def _tail(self) -> bytes:
        return bytes(self._ring[self._oldest :] + self._ring[: self._oldest])

    def _from(self, position: int) -> tuple[int, bytes]:
        """How many bytes from here on are lost, and the next that are not."""
        if position < len(self._head):
            return 0, bytes(self._head[position : position + _CHUNK_BYTES])
        first_kept = self.total_bytes - len(self._ring)
        skipped = max(0, first_kept - position)
        offset = position + skipped - first_kept
        start = (self._oldest + offset) % len(self._ring) if self._ring else 0
        length = min(_CHUNK_BYTES, len(self._ring) - offset, len(self._ring) - start)
        return skipped, bytes(self._ring[start : start + length])

    def _keep_last(self, chunk: bytes) -> None:
        limit = self._tail_limit
        if len(chunk) >= limit:
            self._ring = bytearray(chunk[len(chunk) - limit :])
            self._oldest = 0
            return
        room = limit - len(self._ring)
        if room > 0:
            self._ring += chunk[:room]
            chunk = chunk[room:]
        end = self._oldest + len(chunk)
        if end <= limit:
            self._ring[self._oldest : end] = chunk
            self._oldest = end % limit if limit else 0
            return
        split = limit - self._oldest
        self._ring[self._oldest :] = chunk[:split]
        self._ring[: end - limit] = chunk[split:]
        self._oldest = end - limit

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
