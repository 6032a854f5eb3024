"""A run's output in memory: the first half of the limit, the last half, and the true count.

Bytes in, bytes out: output may be binary, endless, or without a single line end. Whatever a run writes, no more than the limit
is held. Followers read by position, so that a slow one costs nothing: what it was too slow for, it is told about in words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

_CHUNK_BYTES = 64 * 1024


class Capture:
    """Head and tail of a stream."""

    def __init__(self, limit_bytes: int) -> None:
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

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        return bytes(self._ring[self._oldest :] + self._ring[: self._oldest])

    @property
    def kept_bytes(self) -> int:
        return len(self._head) + len(self._ring)

    async def follow(self) -> AsyncIterator[bytes]:
        """Everything kept so far, then what comes, until `close`."""
        position = 0
        while True:
            skipped, chunk = self._from(position)
            if skipped:
                yield f"\n[{skipped} bytes were not kept]\n".encode()
            if chunk:
                position += skipped + len(chunk)
                yield chunk
                continue
            if self._is_closed:
                return
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

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
