"""Gives an external agent an MCP server for its session: facts, messages, history, to-do list and hand-off.

The program starts servers itself, within its own confinement, where it cannot reach the control socket or the run's
token. So it starts a relay, which only has two named pipes. We start `wakeful mcp` at the other end of the pipes,
outside of the program's confinement but within the run's. That server offers the run's verbs, except those that the
session's policies deny. A relay reports the names of its pipes through a further pipe, on which we listen.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from acp import schema

from wakeful.agents.tools.tool_set import ToolBox

SERVER = "wakeful"
# Verb of the server's tool -> name of our own tool, which the policies use.
TOOLS = {
    "remember": "remember",
    "recall": "recall",
    "facts": "recall",
    "history": "history",
    "log": "history",
    "send": "send",
    "note": "hand_off",
    "todo": "todo",
}
# The names under which programs know the tools of a server: Claude Code, opencode, Codex, and the bare name.
_NAMES = {
    form.format(server=SERVER, tool=f"wakeful_{verb}"): tool
    for verb, tool in TOOLS.items()
    for form in ("mcp__{server}__{tool}", "{server}_{tool}", "{server}.{tool}", "{tool}")
}
# The most servers at a time. A program starts a server once, perhaps once more to inspect it.
MOST_SERVERS = 4
OPEN_SECONDS = 10.0
END_SECONDS = 5.0
_KNOCKS = "knocks"
_RELAY_NAME = re.compile(rb"[0-9]{1,10}")
# The relay, which the program starts within its own confinement. It is passed as text, because our code's folder is not
# reachable there.
_RELAY = """
import os, sys, threading
folder, name = sys.argv[1], str(os.getpid())
there, back = (os.path.join(folder, name + end) for end in (".there", ".back"))
os.mkfifo(there, 0o600)
os.mkfifo(back, 0o600)
with open(os.path.join(folder, "knocks"), "wb", buffering=0) as knocks:
    knocks.write(name.encode() + b"\\n")
def copy(source, target):
    while part := os.read(source, 65536):
        while part:
            part = part[os.write(target, part):]
    os.close(target)
sending = os.open(there, os.O_WRONLY)
receiving = os.open(back, os.O_RDONLY)
threading.Thread(target=copy, args=(0, sending), daemon=True).start()
copy(receiving, 1)
"""


def find_own_tool(name: str | None) -> str | None:
    """Return our name for a tool of the session's server, by the name that a program uses. None for any other tool."""
    return _NAMES.get(name or "")


def find_handed(tools: ToolBox) -> list[str]:
    """Return the verbs that the policies allow without asking, because no person can be asked during such a call."""
    return [verb for verb, tool in TOOLS.items() if tools.policy_of(tool) == "allow"]


@asynccontextmanager
async def hand_over(verbs: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[list[schema.McpServerStdio]]:
    """Provide the server, and yield its description for the program. The list is empty if no verb is allowed.

    At the end, all processes that were started for it are stopped.
    """
    if not verbs:
        yield []
        return
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="mcp-", dir=environ.get("TMPDIR"))
    host = _Host(folder, [word for verb in verbs for word in ("--only", verb)], environ)
    try:
        host.listen()
        yield [schema.McpServerStdio(name=SERVER, command=sys.executable, args=["-I", "-c", _RELAY, folder], env=[])]
    finally:
        await host.close()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


class _Host:
    """Starts a server for each relay that reports itself."""

    def __init__(self, folder: str, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._words = words
        self._environ = environ
        self._knocks = -1
        self._heard = b""
        self._serving: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        path = Path(self._folder) / _KNOCKS
        os.mkfifo(path, 0o600)
        # Open it for writing as well, because a pipe without a writer is at its end.
        self._knocks = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._knocks, self._hear)

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            self._heard += os.read(self._knocks, 4096)
        *names, self._heard = self._heard.split(b"\n")
        # A name has at most 10 digits, so a longer rest is garbage. Cut it.
        self._heard = self._heard[:64]
        for name in names:
            if _RELAY_NAME.fullmatch(name) and len(self._serving) < MOST_SERVERS:
                serving = asyncio.create_task(self._serve(name.decode()), name=f"mcp relay {name.decode()}")
                self._serving.add(serving)
                serving.add_done_callback(self._serving.discard)

    async def _serve(self, name: str) -> None:
        there, back = (os.path.join(self._folder, name + end) for end in (".there", ".back"))
        try:
            reading = _open_pipe(there, os.O_RDONLY)
        except OSError:
            # The file is missing or is not a pipe, so the program wrote a false name.
            return
        try:
            writing = await _open_answers(back)
        except (OSError, TimeoutError):
            os.close(reading)
            return
        try:
            # Not confined further: the server has the rights of this process.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "wakeful", "mcp", *self._words,
                stdin=reading, stdout=writing, env=dict(self._environ), cwd=self._folder,
            )  # fmt: skip
        finally:
            os.close(reading)
            os.close(writing)
        try:
            await process.wait()
        finally:
            await _end(process)

    async def close(self) -> None:
        if self._knocks >= 0:
            asyncio.get_running_loop().remove_reader(self._knocks)
            os.close(self._knocks)
        for serving in list(self._serving):
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


async def _open_answers(path: str) -> int:
    """Open the pipe for answers. The relay opens its end only after the other pipe, so try until then.

    Raises TimeoutError if the relay does not open it within OPEN_SECONDS.
    """
    async with asyncio.timeout(OPEN_SECONDS):
        while True:
            try:
                return _open_pipe(path, os.O_WRONLY)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
            await asyncio.sleep(0.02)


def _open_pipe(path: str, direction: int) -> int:
    """Open a named pipe. Raises OSError if it is not a pipe, because the program could have put anything there."""
    fd = os.open(path, direction | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a pipe", path)
    os.set_blocking(fd, True)
    return fd


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
