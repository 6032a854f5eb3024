"""A run's output in memory: its beginning and its end, each up to half of the limit, and its total length.

Output is bytes: it may be binary, endless, or without a single line end. The capture never holds more than the limit.
Followers read by position, so a slow follower costs nothing. A message reports how much it missed. The capture holds
the bytes of secrets, but `kept` and `follow` redact their results. Redacting on output keeps a flood cheap. It also
finds secrets that became known only after the output was captured. The bytes lie in one block of memory after their
count, so a later daemon needs only a descriptor of that memory to go on.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from wakeful.secrets.redact import RedactedStream, Redactor
from wakeful.text.display import describe_gap

NOTHING_SECRET = Redactor()
_CHUNK_BYTES = 64 * 1024
_COUNT = struct.Struct("=Q")


def measure_memory(limit_bytes: int) -> int:
    """Compute the size of the memory file that holds the output kept under this limit."""
    return _COUNT.size + limit_bytes


class Kept(NamedTuple):
    """The kept parts of an output, and its total length. In both, each secret is replaced by its name."""

    head: bytes
    tail: bytes
    total_bytes: int


class Capture:
    """The head and the tail of a stream. `redactor` is called whenever output is read.

    `memory` is the descriptor of a memory file: empty, or with the output that an earlier daemon captured under the
    same limit. Without it, the output is private to this process. The capture does not close `memory`, which must stay
    open until the first output was captured.
    """

    def __init__(
        self, limit_bytes: int, redactor: Callable[[], Redactor] = lambda: NOTHING_SECRET, memory: int | None = None
    ) -> None:
        self._redactor = redactor
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._fd = memory
        self._memory: mmap.mmap | None = None
        self.total_bytes: int
        (self.total_bytes,) = _COUNT.unpack(os.pread(memory, _COUNT.size, 0)) if memory is not None else (0,)
        if self.total_bytes:
            self._map()
        self._is_closed = False
        self._waiting: list[asyncio.Future[None]] = []

    def _map(self) -> mmap.mmap:
        """Map the memory, when the first output arrives. A start does not wait for it, and many runs print nothing."""
        # The kernel allocates a page only when it is first written.
        size = measure_memory(self._head_limit + self._tail_limit)
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE) if self._fd is None else mmap.mmap(self._fd, size)
        return self._memory

    def add(self, chunk: bytes) -> None:
        """Capture a chunk. Raises OSError or MemoryError if there is no memory for it; none of it was captured then."""
        memory = self._memory or self._map()
        total_bytes = self.total_bytes + len(chunk)
        kept = memoryview(chunk)
        room = self._head_limit - self.total_bytes
        if room > 0:
            head, kept = kept[:room], kept[room:]
            self._put(self.total_bytes, head)
        if kept:
            self._keep_last(kept, total_bytes)
        # Counted after it was stored, so a daemon that is killed in between loses one chunk and corrupts nothing.
        self.total_bytes = total_bytes
        _COUNT.pack_into(memory, 0, total_bytes)
        if self._waiting:
            self._wake()

    def count_lost(self, lost_bytes: int) -> None:
        """Add to the total the length of output that was lost because there was no memory for it."""
        self.total_bytes += lost_bytes

    def close(self) -> None:
        """End the stream and its followers."""
        self._is_closed = True
        self._wake()

    def kept(self) -> Kept:
        """Return the redacted output. Blocking for some milliseconds if it is long and secrets are known."""
        redactor = self._redactor()
        head, tail = self._head(), self._tail()
        middle_bytes = self.total_bytes - len(head) - len(tail)
        if not redactor or (not middle_bytes and redactor.find(head + tail) is None):
            return Kept(head, tail, self.total_bytes)
        if middle_bytes:
            # A part of a secret may stand on either side of the gap.
            bare = redactor.trim_end(head), redactor.trim_start(tail)
            middle_bytes = self.total_bytes - len(bare[0]) - len(bare[1])
            head, tail = map(redactor.redact, bare)
        else:
            whole = redactor.redact(head + tail)
            head, tail = whole[: self._head_limit], whole[self._head_limit :]
        total_bytes = len(head) + middle_bytes + len(tail)
        # Cut again, because a secret's name may be longer than its value.
        return Kept(head[: self._head_limit], tail[-self._tail_limit :], total_bytes)

    async def follow(self) -> AsyncIterator[bytes]:
        """Yield the output kept so far, then new output, until `close`. Redacted."""
        redactor = self._redactor()
        stream = RedactedStream(redactor)
        position = 0
        while True:
            skipped, chunk = self._from(position)
            if skipped:
                rest = stream.flush()
                # The next chunk may begin with the end of a secret.
                lost = len(chunk) - len(redactor.trim_start(chunk))
                position, chunk = position + lost, chunk[lost:]
                yield rest + describe_gap(skipped + lost).encode()
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

    def ends(self, most_bytes: int) -> bytes:
        """Return the last bytes of the head and of the tail. Unredacted: for searches, never to be shown."""
        return self._head()[-most_bytes:] + b"\n" + self._tail()[-most_bytes:]

    def mentions(self, words: Iterable[bytes]) -> bool:
        return any(word in text for text in (self._head(), self._tail()) for word in words)

    @property
    def _head_bytes(self) -> int:
        return min(self.total_bytes, self._head_limit)

    @property
    def _tail_bytes(self) -> int:
        return min(self.total_bytes - self._head_bytes, self._tail_limit)

    def _head(self) -> bytes:
        return self._get(0, self._head_bytes)

    def _tail(self) -> bytes:
        oldest = self._index(self.total_bytes - self._tail_bytes)
        return self._get(oldest, self._head_limit + self._tail_bytes - oldest) + self._get(
            self._head_limit, oldest - self._head_limit
        )

    def _from(self, position: int) -> tuple[int, bytes]:
        """Return how many bytes from this position on are lost, and the next chunk after them."""
        if position < self._head_bytes:
            return 0, self._get(position, min(_CHUNK_BYTES, self._head_bytes - position))
        skipped = max(0, self.total_bytes - self._tail_bytes - position)
        start = self._index(position + skipped)
        length = min(_CHUNK_BYTES, self.total_bytes - position - skipped, self._head_limit + self._tail_limit - start)
        return skipped, self._get(start, length)

    def _keep_last(self, chunk: memoryview, total_bytes: int) -> None:
        """Write into the tail, a ring buffer. Each byte overwrites the byte that came `_tail_limit` bytes earlier."""
        chunk = chunk[max(0, len(chunk) - self._tail_limit) :]
        start = self._index(total_bytes - len(chunk))
        room = self._head_limit + self._tail_limit - start
        self._put(start, chunk[:room])
        self._put(self._head_limit, chunk[room:])

    def _index(self, position: int) -> int:
        """Return the index in memory of a byte after the head."""
        behind = position - self._head_limit
        return self._head_limit + (behind % self._tail_limit if self._tail_limit and behind > 0 else 0)

    def _get(self, start: int, length: int) -> bytes:
        start += _COUNT.size
        return self._memory[start : start + length] if self._memory is not None else b""

    def _put(self, start: int, content: memoryview) -> None:
        assert self._memory is not None
        start += _COUNT.size
        self._memory[start : start + len(content)] = content

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


# The most chunks read from one pipe per loop turn (about 0.1 ms), so that a flood does not delay other work.
_CHUNKS_PER_TURN = 4
# Seconds until the capture is offered a chunk again, if there was no memory for it. The program meanwhile waits at a
# full pipe.
_AGAIN_SECONDS = 0.1


class OutputPipe:
    """Reads a pipe into a capture, from construction to `close`. Owns the descriptor."""

    def __init__(self, fd: int, capture: Capture, loop: asyncio.AbstractEventLoop) -> None:
        self._fd: int | None = fd
        self._capture = capture
        self._loop = loop
        self._untaken = b""
        self._again: asyncio.TimerHandle | None = None
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    @property
    def fd(self) -> int | None:
        """The descriptor; None once every writer has closed the pipe, or `close` was called."""
        return self._fd

    def drain(self) -> None:
        """Read the rest, up to what a pipe can hold, and close."""
        for _ in range(16):
            if self._fd is None or not self._read():
                break
        self._capture.count_lost(len(self._untaken))
        self._untaken = b""
        self.close()

    def close(self) -> None:
        """Stop reading and close the descriptor. Safe to repeat."""
        if self._again is not None:
            self._again.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _read(self) -> bool:
        """Read the available output, up to `_CHUNKS_PER_TURN`. True if more may be waiting."""
        assert self._fd is not None
        if self._untaken and not self._offer(self._untaken):
            return False
        for _ in range(_CHUNKS_PER_TURN):
            try:
                chunk = os.read(self._fd, _CHUNK_BYTES)
            except BlockingIOError:
                return False
            # Every writer has closed the pipe. The program may live on without an output.
            if not chunk:
                self.close()
                return False
            if not self._offer(chunk):
                return False
        return True

    def _offer(self, chunk: bytes) -> bool:
        """Give a chunk to the capture. False if there was no memory; reading then stops until there is."""
        try:
            self._capture.add(chunk)
        except (OSError, MemoryError):
            self._untaken = chunk
            assert self._fd is not None
            self._loop.remove_reader(self._fd)
            self._again = self._loop.call_later(_AGAIN_SECONDS, self._listen)
            return False
        self._untaken = b""
        return True

    def _listen(self) -> None:
        self._again = None
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._read)
            self._read()
