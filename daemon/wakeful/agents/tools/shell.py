"""The tool `shell`, offered only if a spec allows it: one command, with fewer rights than the run and a time limit.

The command runs in a domain of its own (shell_confinement.py), under a keeper that ends all its processes with it
(process_keeper.py). The files that it writes are not recorded one by one like those of other tools. The daemon finds
them when the run ends.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated

from msgspec import Meta, Struct

from wakeful.agents.contract import Tool
from wakeful.agents.tools import process_keeper as keeper
from wakeful.agents.tools.bound_files import Refused
from wakeful.agents.tools.result_pages import Redact, redact_nothing
from wakeful.agents.tools.shell_confinement import Narrowing, make_domain, select_environment
from wakeful.agents.tools.tool import KEPT_BYTES, Arguments, CheckedTool

_MOST_SECONDS = 600
# The bytes kept of a command's output, from its beginning and its end. A long result is paged.
_HEAD_BYTES, _TAIL_BYTES = KEPT_BYTES // 2, KEPT_BYTES // 4
# The bytes on each side of the dropped middle that are redacted too, because a secret may cross the cut.
_MARGIN_BYTES = 16 * 1024
_PIECE_BYTES = 1 << 16
# Seconds that the keeper has after SIGTERM to end all processes of the command.
_GRACE_SECONDS = keeper.PATIENCE_SECONDS + 2.0
_TICK_SECONDS = 0.05
# The keeper's program. It runs isolated and without site-packages, so it starts in some hundredths of a second, and
# imports nothing of a project.
_KEEPER = (
    "import sys; sys.path.append(sys.argv.pop(1)); from wakeful.agents.tools.process_keeper import main; "
    "sys.exit(main(sys.argv[1:]))"
)
_SOURCE = str(Path(keeper.__file__).parents[3])


class ShellArguments(Arguments, frozen=True):
    line: Annotated[str, Meta(description="a command line for sh -c")] = ""
    argv: Annotated[list[str], Meta(description="instead of `line`: a program and its arguments, without a shell")] = []
    timeout_seconds: Annotated[int, Meta(ge=1, le=_MOST_SECONDS)] = 120


class Ended(Struct, frozen=True):
    """How a command ended, and the beginning and end of its output."""

    code: int
    is_timed_out: bool
    seconds: float
    head: bytes
    tail: bytes
    total_bytes: int


class ShellTool:
    """The tool `shell`.

    With `narrowing` None a command has all rights of the run, including its token and keys. That is for sessions
    without isolation.
    """

    def __init__(
        self, root: str, narrowing: Narrowing | None, environ: Mapping[str, str], redact: Redact = redact_nothing
    ) -> None:
        self._root = root
        self._redact = redact
        self._narrowing = narrowing
        self._environment = select_environment(environ)

    def list_tools(self) -> Iterable[Tool]:
        network = "" if self._narrowing is None or self._narrowing.network else " It has no network."
        yield CheckedTool(
            "shell",
            f"Run a command in the session's root. It sees the bound files and the programs of the system.{network}",
            ShellArguments,
            self._run,
        )

    async def _run(self, given: ShellArguments, _: str) -> str:
        if bool(given.line) == bool(given.argv):
            raise Refused("give either line or argv")
        argv = ["/bin/sh", "-c", given.line] if given.line else given.argv
        if any("\0" in word for word in argv):
            raise Refused("a command cannot contain a NUL character")
        command = Command(argv, self._root, self._environment, self._narrowing, given.timeout_seconds)
        return await tell(await command.run(), self._redact)


def wrap(argv: Sequence[str], ruleset: str, program: bytes) -> tuple[str, ...]:
    """Return the command line of a keeper around a command, with the descriptor of its ruleset and its filter."""
    return (sys.executable, "-I", "-S", "-c", _KEEPER, _SOURCE, ruleset, program.hex(), *argv)


class Command:
    """One command under way."""

    def __init__(
        self,
        argv: list[str],
        root: str,
        environment: Mapping[str, str],
        narrowing: Narrowing | None,
        timeout_seconds: float,
    ) -> None:
        self._argv = argv
        self._root = root
        self._environment = dict(environment)
        self._narrowing = narrowing
        self._timeout = timeout_seconds
        self._is_given_up = False

    async def run(self) -> Ended:
        """Run the command. If the caller is cancelled, the command is ended as after its timeout, and waited for."""
        ended = asyncio.get_running_loop().run_in_executor(None, self._live)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._is_given_up = True
            await asyncio.wait([ended])
            raise

    def _live(self) -> Ended:
        """Run the command to its end. Blocking, up to the timeout."""
        began = monotonic()
        with self._start() as process:
            assert process.stdout is not None
            fd, said = process.stdout.fileno(), _Said()
            is_timed_out = not self._read(process, fd, said, began + self._timeout, lambda: self._is_given_up)
            if is_timed_out:
                process.send_signal(signal.SIGTERM)
                if not self._read(process, fd, said, monotonic() + _GRACE_SECONDS, lambda: False):
                    process.kill()
            process.stdout.close()
            return Ended(
                process.wait(), is_timed_out, monotonic() - began, bytes(said.head), bytes(said.tail), said.total_bytes
            )

    def _start(self) -> subprocess.Popen[bytes]:
        if self._narrowing is None:
            return self._spawn(keeper.UNCONFINED, b"", ())
        with make_domain(self._narrowing) as domain:
            return self._spawn(str(domain.ruleset_fd), domain.filter, (domain.ruleset_fd,))

    def _spawn(self, ruleset: str, program: bytes, fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            wrap(self._argv, ruleset, program), cwd=self._root, env=self._environment, pass_fds=fds, bufsize=0,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @staticmethod
    def _read(
        process: subprocess.Popen[bytes], fd: int, said: _Said, deadline: float, is_given_up: Callable[[], bool]
    ) -> bool:
        """Read output until the command has ended. False if the deadline or a cancellation came first."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        is_open = True
        while not is_given_up() and monotonic() < deadline:
            # A command may close its output and live on, and its children may keep the output open after it ended.
            if is_open and poll.poll(_TICK_SECONDS * 1000):
                piece = os.read(fd, _PIECE_BYTES)
                said.add(piece)
                is_open = bool(piece)
                continue
            if not is_open:
                try:
                    process.wait(_TICK_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
            if process.poll() is not None:
                return True
        return False


class _Said:
    def __init__(self) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.total_bytes = 0

    def add(self, piece: bytes) -> None:
        self.total_bytes += len(piece)
        room = _HEAD_BYTES + _MARGIN_BYTES - len(self.head)
        self.head += piece[:room]
        self.tail += piece[room:] if room > 0 else piece
        del self.tail[: -_TAIL_BYTES - _MARGIN_BYTES]


async def tell(ended: Ended, redact: Redact = redact_nothing) -> str:
    # If a signal ended the keeper itself, `Popen` gives a negative code.
    code = ended.code if ended.code >= 0 else 128 - ended.code
    how = f"exit code {code}" if code <= 128 else f"exit code {code} ({_say_signal(code - 128)})"
    if ended.is_timed_out:
        how = "its time was over: it and all processes it had started were ended"
    output = await _tell_output(ended, redact)
    return f"{how}, after {ended.seconds:.1f} s" + (f":\n{output}" if output else ", without output")


async def _tell_output(ended: Ended, redact: Redact) -> str:
    """Return the whole output, or its beginning and end. These are redacted with a margin, which is then cut off."""
    missing = ended.total_bytes - len(ended.head) - len(ended.tail)
    if not missing:
        return (ended.head + ended.tail).decode(errors="replace")
    head, tail = [await redact(said.decode(errors="replace")) for said in (ended.head, ended.tail)]
    cut = (
        f"\n[cut: {missing + 2 * _MARGIN_BYTES} bytes are missing here; send long output to a file, and search that]\n"
    )
    return head[:-_MARGIN_BYTES] + cut + tail[_MARGIN_BYTES:]


def _say_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
