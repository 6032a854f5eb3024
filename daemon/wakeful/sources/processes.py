"""Starts and ends the short processes of sources: git and probes.

This module avoids two problems of asyncio that made tests hang. A start that is cancelled half-way waits forever for
pipes that it never connected. `Process.wait` also waits for the pipes, which a grandchild outside the group may keep
open. The runner spawns and confines a probe; this module reads and ends it. Every process has its own session, and so
its own process group. Ending the process ends the group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO


async def start_process(
    argv: Sequence[str], folder: str, env: dict[str, str], *, has_stdin: bool
) -> asyncio.subprocess.Process:
    """Start a process in its own session, with both outputs piped. Raises the errors of `exec`."""
    pipe = asyncio.subprocess.PIPE
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            cwd=folder,
            env=env,
            stdin=pipe if has_stdin else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await end_process(await starting)
        raise


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Kill the rest of the process group and close the pipes. Harmless if the process ended by itself."""
    signal_group(process.pid, signal.SIGKILL)
    # Process has no method to close its outputs. Without this, the wait below lasts until the last holder closes its
    # pipe. Each pipe is closed by itself, because closing the whole transport may reap the child before the loop's
    # watcher does.
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]
    for number in (0, 1, 2):
        if (pipe := transport.get_pipe_transport(number)) is not None:
            pipe.close()
    await process.wait()


class PipedProcess:
    """A child process that was just spawned, with both outputs piped. It is read, waited for and ended on the loop."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._pipes: list[asyncio.ReadTransport] = []
        self._is_over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._take_end)

    @classmethod
    async def attend(cls, popen: subprocess.Popen[bytes]) -> PipedProcess:
        """Attach to a process. Raises OSError if there are no descriptors left; the child is ended then."""
        try:
            process = cls(popen)
        except OSError:
            signal_group(popen.pid, signal.SIGKILL)
            popen.communicate()
            raise
        try:
            process.stdout = await process._connect(popen.stdout)
            process.stderr = await process._connect(popen.stderr)
        except BaseException:
            await process.end()
            raise
        return process

    async def wait(self) -> int:
        """Wait until the program itself has ended. Returns its exit code, or the negative number of the signal that
        ended it.
        """
        await self._is_over.wait()
        return self._popen.returncode

    async def end(self) -> None:
        """Kill the rest of the process group and close the pipes. Harmless if the process ended by itself."""
        signal_group(self.pid, signal.SIGKILL)
        for transport in self._pipes:
            transport.close()
        for pipe in (self._popen.stdout, self._popen.stderr)[len(self._pipes) :]:
            if pipe is not None:
                pipe.close()
        # Shielded, so that a cancelled caller does not leave the end of the process unhandled.
        await asyncio.shield(self._is_over.wait())

    async def _connect(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(loop=self._loop)
        transport, _ = await self._loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=self._loop), pipe
        )
        self._pipes.append(transport)
        return reader

    def _take_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._popen.wait()
        self._is_over.set()


def signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        # No process is left in the group.
        pass
