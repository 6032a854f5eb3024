"""An MCP server that is a program, started under a keeper in a domain of its own. Messages use its standard streams.

The library's own transport for programs reports neither the exit code nor the error output. This one keeps both, so
that there is a reason if a server does not start. Imported only if a run has such a server, because importing the
library takes a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from wakeful.agents.tools import process_keeper as keeper
from wakeful.agents.tools.shell import wrap
from wakeful.agents.tools.shell_confinement import Narrowing, make_domain
from wakeful.core.looking.patterns import contains
from wakeful.runners.isolation.denials import find_complaints
from wakeful.text.unicode import make_json_sendable

# The most bytes of one message, including images.
_LONGEST_LINE_BYTES = 32 * 1024 * 1024
_TAIL_BYTES = 4_096
_LAST_LINES = 6
_LONGEST_REASON = 1_000
_PIECE_BYTES = 1 << 14
# Seconds that a server has to end by itself after its input was closed. A server that never answered is ended at once.
_GRACE_SECONDS = 2.0
_KILL_SECONDS = keeper.PATIENCE_SECONDS + 2.0


class ServerProgram:
    """One start of a program. `open` is a transport for the library. `say_end` describes why the program ended."""

    def __init__(
        self, argv: Sequence[str], root: str, environment: Mapping[str, str], narrowing: Narrowing | None
    ) -> None:
        self._argv = argv
        self._root = root
        self._environment = dict(environment)
        self._narrowing = narrowing
        self._tail = b""
        self._code: int | None = None
        # The server has answered, so it gets time to end by itself.
        self.is_polite = False

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        process = await self._spawn()
        arriving, arrived = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        leaving, left = anyio.create_memory_object_stream[SessionMessage](0)
        readers = [
            asyncio.create_task(self._read(process, arriving), name="mcp output"),
            asyncio.create_task(self._listen(process), name="mcp errors"),
        ]
        writer = asyncio.create_task(_write(process, left, arriving), name="mcp input")
        try:
            yield arrived, leaving
        finally:
            writer.cancel()
            with anyio.CancelScope(shield=True):
                await self._end(process)
                await asyncio.wait([*readers, writer])
            for stream in (arrived, arriving, leaving, left):
                stream.close()

    def say_end(self) -> str | None:
        """Describe how the program ended, with its last lines. None while it lives, or if we ended it."""
        if self._code is None:
            return None
        lines = [line for line in self._tail.decode(errors="replace").splitlines() if line.strip()][-_LAST_LINES:]
        words = shlex.join(self._argv)[:200]
        if self._code in (keeper.NOT_FOUND, keeper.NOT_EXECUTABLE, keeper.NOT_CONFINED) and lines:
            return f"{words}: {lines[-1]}"
        said = f": {' / '.join(lines)[-_LONGEST_REASON:]}" if lines else ", without a message"
        return f"{words} ended with exit code {self._code}{said}{self._say_denied()}"

    def _say_denied(self) -> str:
        """Describe what the isolation denied, by the program's last lines: the network, or the first path they name."""
        if self._narrowing is None:
            return ""
        granted = [*self._narrowing.reads, *self._narrowing.writes]
        for complaint in find_complaints(self._tail.decode(errors="replace"), shlex.join(self._argv)):
            if complaint.access == "connect":
                return (
                    "; it was denied the network: list its addresses under network of the session"
                    if not self._narrowing.network
                    else ""
                )
            path = os.path.normpath(os.path.join(self._root, complaint.what))
            is_path = complaint.what.startswith("/") or os.path.lexists(path)
            if is_path and not complaint.is_absent and not any(contains(place, path) for place in granted):
                return f"; it was denied {path}: add that to allow of the session, {{read: [{path}]}} or {{write: …}}"
        return ""

    async def _spawn(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        with make_domain(self._narrowing) if self._narrowing is not None else nullcontext() as domain:
            words = (
                wrap(self._argv, str(domain.ruleset_fd), domain.filter)
                if domain is not None
                else wrap(self._argv, keeper.UNCONFINED, b"")
            )
            fds = (domain.ruleset_fd,) if domain is not None else ()
            return await asyncio.create_subprocess_exec(
                *words,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=self._root,
                env=self._environment,
                pass_fds=fds,
                limit=_LONGEST_LINE_BYTES,
            )

    async def _read(self, process: asyncio.subprocess.Process, arriving: Any) -> None:
        """Pass every line to the library, as a message or as an error. The end of the output ends the connection."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                await arriving.send(_parse(line))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            # The session is over. Drain the rest, because a full pipe would keep the program from ending.
            while await process.stdout.read(_PIECE_BYTES):
                pass
        except ValueError as too_long:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await arriving.send(too_long)
        finally:
            if process.stdout.at_eof() and not self._is_ending:
                # Get the exit code before the stream is closed, so that the reason is known by then.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_SECONDS):
                        self._code = await process.wait()
            arriving.close()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Copy the program's error output to the run's output, and keep the last of it."""
        assert process.stderr is not None
        while piece := await process.stderr.read(_PIECE_BYTES):
            self._tail = (self._tail + piece)[-_TAIL_BYTES:]
            sys.stderr.buffer.write(piece)
            sys.stderr.flush()

    _is_ending = False

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Close the program's input, wait a moment, then end all its processes. Every wait has a limit."""
        self._is_ending = True
        assert process.stdin is not None
        process.stdin.close()
        if self.is_polite and await _has_ended(process, _GRACE_SECONDS):
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        if not await _has_ended(process, _KILL_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await _has_ended(process, _KILL_SECONDS)


async def _write(process: asyncio.subprocess.Process, left: Any, arriving: Any) -> None:
    assert process.stdin is not None
    try:
        async for message in left:
            process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()
    except (OSError, anyio.ClosedResourceError):
        # The program does not read any more. `_read` notices when its output ends.
        return


def _parse(line: bytes) -> SessionMessage | Exception:
    try:
        # Replace lone surrogates. The library drops a message that has one, and its caller would wait in vain.
        return SessionMessage(
            mcp_types.jsonrpc_message_adapter.validate_json(
                make_json_sendable(line.decode(errors="replace")), by_name=False
            )
        )
    except ValueError as error:
        return error


async def _has_ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True
