"""The reading end of a run's output: on the loop, a turn's share at a time, into its capture.

`Process` and `AdoptedProcess` own one each. A flood never starves the loop, and a writer outside the run's tree never holds up its end.
"""

from __future__ import annotations

import asyncio
import os

from wakeful.runners.capture import Capture

_CHUNK_BYTES = 64 * 1024
# A flood gets this much of a turn of the loop (about 0.1 ms), then everybody else has theirs.
_CHUNKS_PER_TURN = 4
# How soon what was read is offered again where there was no memory for it; until then the program waits at a full pipe.
_AGAIN_SECONDS = 0.1


class OutputPipe:
    """From construction to `close`. The descriptor is its own."""

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
        """None once every writer closed it, or we did."""
        return self._fd

    def drain(self) -> None:
        """Read what is left, at most what a pipe can hold, and close."""
        for _ in range(16):
            if self._fd is None or not self._read():
                break
        self._capture.count_lost(len(self._untaken))
        self._untaken = b""
        self.close()

    def close(self) -> None:
        """Safe to repeat."""
        if self._again is not None:
            self._again.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _read(self) -> bool:
        """Take what is there, up to a turn's share; whether more may be waiting."""
        assert self._fd is not None
        if self._untaken and not self._offer(self._untaken):
            return False
        for _ in range(_CHUNKS_PER_TURN):
            try:
                chunk = os.read(self._fd, _CHUNK_BYTES)
            except BlockingIOError:
                return False
            # Every writer closed it. The program may live on without an output.
            if not chunk:
                self.close()
                return False
            if not self._offer(chunk):
                return False
        return True

    def _offer(self, chunk: bytes) -> bool:
        """Whether there was memory for it. Where not, nothing more is read until there is."""
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
