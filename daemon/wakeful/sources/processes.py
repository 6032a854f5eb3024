"""Starting and ending the short processes that sources ask: git and probes.

Two traps of asyncio are closed here, both found by tests that hung: a start that is cancelled half-way waits for ever for pipes it
never connected, and `Process.wait` waits for the pipes too, which a grandchild that left the group may keep open.
Every process has a session, and so a process group, of its own; ending it ends the group.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence


async def start_process(
    argv: Sequence[str], folder: str, env: dict[str, str], *, has_stdin: bool
) -> asyncio.subprocess.Process:
    """Start in a session of its own, with both outputs piped. Raises what `exec` raises."""
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
    """Kill all that is left of its group and let go of its pipes; harmless when it ended by itself."""
    signal_group(process.pid, signal.SIGKILL)
    # Process has no way of its own to close its outputs; without it the wait below ends only with the last holder of a
    # pipe. Pipe by pipe, because closing the transport as a whole may reap the child before the loop's watcher does.
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]
    for number in (0, 1, 2):
        if (pipe := transport.get_pipe_transport(number)) is not None:
            pipe.close()
    await process.wait()


def signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        # Nobody is left in it.
        pass
