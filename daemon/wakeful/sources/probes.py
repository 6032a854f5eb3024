"""Probes: commands whose standard output is a version.

The reactor follows targets and asks for looks; a look runs the command without a shell, in a process group of its own, with
an allow-listed environment and a hard limit in time and output. Anything but exit code 0 is unknown, with words (rule 5).
A probe hints itself every `check_every`. It decides nothing, and nothing of its group outlives its look.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from wakeful.core.target import ProbeTarget
from wakeful.errors import OperatorError
from wakeful.sources.checked import Checked, CheckedSource
from wakeful.sources.contract import SourceReport
from wakeful.sources.processes import end_process, signal_group, start_process

PROBES_AT_ONCE = 4
OUTPUT_LIMIT_BYTES = 1024 * 1024
STDERR_TAIL_BYTES = 500
GRACE_SECONDS = 2.0
_CHUNK_BYTES = 64 * 1024
# What a program needs to find its tools, its home and its language. Never what systemd gave to the daemon alone
# (NOTIFY_SOCKET, LISTEN_*, CREDENTIALS_DIRECTORY, WATCHDOG_*, INVOCATION_ID, JOURNAL_STREAM).
_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL")


# The variables that name the secrets of a probe, for as long as it runs; and the end of its complaints without their values.
Lend = Callable[[tuple[str, ...]], AbstractContextManager[Mapping[str, str]]]
Redact = Callable[[bytes], bytes]


def lend_nothing(names: tuple[str, ...]) -> AbstractContextManager[Mapping[str, str]]:
    return nullcontext({})


class ProbeFailure(OperatorError):
    """The command gave no version: what happened, in words."""


def allowed_environment() -> dict[str, str]:
    """The part of our environment that a probe sees."""
    return {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("LC_")}


class ProbeSource(CheckedSource[ProbeTarget]):
    """Runs probes, a few at once."""

    def __init__(
        self, report: SourceReport, loop: asyncio.AbstractEventLoop, *, lend: Lend = lend_nothing, redact: Redact = bytes, at_once: int = PROBES_AT_ONCE
    ) -> None:
        super().__init__(report, loop, at_once)
        self._lend = lend
        self._redact = redact

    async def check(self, target: ProbeTarget) -> Checked:
        try:
            with self._lend(target.secrets) as variables:
                return Checked(await run_probe(target, variables, self._redact))
        except (OperatorError, OSError) as failure:
            return Checked(None, str(failure))


async def run_probe(target: ProbeTarget, variables: Mapping[str, str], redact: Redact) -> str:
    """The digest of what the command prints, or a failure in words."""
    process = await _start(target, variables)
    try:
        async with asyncio.timeout(target.timeout_seconds):
            version, complaint = await asyncio.gather(_digest(process.stdout), _read_tail(process.stderr, redact))
            code = await process.wait()
    except TimeoutError as error:
        await _ask_to_end(process)
        raise ProbeFailure(f"probe {target.argv[0]} did not end within {target.timeout_seconds:g} s") from error
    finally:
        # What it left in its group is ended as well: a look that is over has no processes.
        await end_process(process)
    if code != 0:
        ended = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        raise ProbeFailure(f"probe {target.argv[0]} failed with {ended}{': ' + complaint if complaint else ''}")
    if version is None:
        raise ProbeFailure(f"probe {target.argv[0]} printed more than {OUTPUT_LIMIT_BYTES} bytes; let it print a digest instead")
    return version


async def _start(target: ProbeTarget, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await start_process(target.argv, target.root, allowed_environment() | variables, has_stdin=False)
    except FileNotFoundError as error:
        if not os.path.isdir(target.root):
            raise ProbeFailure(f"probe {target.argv[0]} cannot run: the folder {target.root} is not there") from error
        raise ProbeFailure(f"probe {target.argv[0]} was not found in PATH or under {target.root}") from error
    except (OSError, ValueError) as error:
        raise ProbeFailure(f"probe {target.argv[0]} could not be started: {error}") from error


async def _digest(stream: asyncio.StreamReader) -> str | None:
    """Hashed as it comes; None where it is more than a version has any use for. Read to its end, so that nobody blocks."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    while chunk := await stream.read(_CHUNK_BYTES):
        size += len(chunk)
        if size <= OUTPUT_LIMIT_BYTES:
            digest.update(chunk)
    return digest.hexdigest() if size <= OUTPUT_LIMIT_BYTES else None


async def _read_tail(stream: asyncio.StreamReader, redact: Redact) -> str:
    tail = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        # More than is shown: a secret that lies across the cut is seen as a whole.
        tail = (tail + chunk)[-_CHUNK_BYTES:]
    text = redact(tail)[-STDERR_TAIL_BYTES:].decode("utf-8", "replace").strip()
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


async def _ask_to_end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to the group, and a moment for it to obey."""
    signal_group(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        # It did not obey; whoever called kills it.
        pass
