"""Probes: commands whose standard output is a version.

The reactor follows targets and asks for looks. A look starts the command in the same way as the runs of its session
(`LaunchProbe`). The command has no shell, its own process group, and hard limits on time and output. Any exit code
except 0 is unknown, with the reason in words (rule 5). Every `check_every`, a probe is reported as hinted. This module
decides nothing. After a look, no process of the command's group is left.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from wakeful.core.looking.targets import ProbeTarget
from wakeful.errors import OperatorError
from wakeful.sources.checks.source import Checked, CheckedSource
from wakeful.sources.contract import Defects, SourceReport
from wakeful.sources.processes import PipedProcess, signal_group

PROBES_AT_ONCE = 4
OUTPUT_LIMIT_BYTES = 1024 * 1024
STDERR_TAIL_BYTES = 500
GRACE_SECONDS = 2.0
_CHUNK_BYTES = 64 * 1024
# The messages that programs print when access was denied.
_DENIALS = ("Permission denied", "Operation not permitted", "Read-only file system")

# Starts the command, confined to the paths and hosts of its session, with both outputs piped. Raises OperatorError,
# OSError and ValueError. Leaving the context ends the command.
LaunchProbe = Callable[[ProbeTarget], AbstractAsyncContextManager[subprocess.Popen[bytes]]]
# Takes the end of the standard error, and returns the same text without the values of secrets.
Redact = Callable[[bytes], bytes]


class ProbeFailure(OperatorError):
    """The command gave no version. The message is the reason."""


class ProbeSource(CheckedSource[ProbeTarget]):
    """Runs probes, at most `at_once` at the same time."""

    def __init__(
        self,
        report: SourceReport,
        loop: asyncio.AbstractEventLoop,
        launch: LaunchProbe,
        redact: Redact = bytes,
        *,
        at_once: int = PROBES_AT_ONCE,
        defects: Defects | None = None,
    ) -> None:
        super().__init__(report, loop, at_once, defects)
        self._launch = launch
        self._redact = redact

    async def check(self, target: ProbeTarget) -> Checked:
        try:
            async with self._launch(target) as popen:
                return Checked(await read_probe(target, await PipedProcess.attend(popen), self._redact))
        except OperatorError as failure:
            return Checked(None, str(failure))
        except FileNotFoundError:
            return Checked(None, _say_missing(target))
        except (OSError, ValueError) as error:
            return Checked(None, f"probe {target.argv[0]} could not be started: {error}")


async def read_probe(target: ProbeTarget, process: PipedProcess, redact: Redact) -> str:
    """Return the digest of the command's output. Raises ProbeFailure. Afterwards the command and its process group have
    ended.
    """
    try:
        async with asyncio.timeout(target.timeout_seconds):
            version, complaint = await asyncio.gather(_digest(process.stdout), _read_tail(process.stderr, redact))
            code = await process.wait()
    except TimeoutError as error:
        await _ask_to_end(process)
        raise ProbeFailure(f"probe {target.argv[0]} did not end within {target.timeout_seconds:g} s") from error
    finally:
        # Processes that the command left in its group are ended as well, so that none outlives the look.
        await process.end()
    if code != 0:
        ended = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        raise ProbeFailure(
            f"probe {target.argv[0]} failed with "
            f"{ended}{': ' + complaint if complaint else ''}{_hint(target, complaint)}"
        )
    if version is None:
        raise ProbeFailure(
            f"probe {target.argv[0]} printed more than {OUTPUT_LIMIT_BYTES} bytes; let it print a digest instead"
        )
    return version


def _say_missing(target: ProbeTarget) -> str:
    if not os.path.isdir(target.root):
        return f"probe {target.argv[0]} cannot run: the folder {target.root} is not there"
    return f"probe {target.argv[0]} was not found in PATH or under {target.root}"


def _hint(target: ProbeTarget, complaint: str) -> str:
    if not target.confinement.is_enforced or not any(words in complaint for words in _DENIALS):
        return ""
    return "; it is confined as its session's runs are: bind what it reads, or name it under allow or network"


async def _digest(stream: asyncio.StreamReader) -> str | None:
    """Hash the output as it arrives. None if it is longer than the limit.

    The output is read to its end, so that the command does not block on a full pipe.
    """
    digest, size = hashlib.blake2b(digest_size=16), 0
    while chunk := await stream.read(_CHUNK_BYTES):
        size += len(chunk)
        if size <= OUTPUT_LIMIT_BYTES:
            digest.update(chunk)
    return digest.hexdigest() if size <= OUTPUT_LIMIT_BYTES else None


async def _read_tail(stream: asyncio.StreamReader, redact: Redact) -> str:
    tail = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        # Keep more than is shown, so that a secret across the cut is still recognized as a whole.
        tail = (tail + chunk)[-_CHUNK_BYTES:]
    text = redact(tail)[-STDERR_TAIL_BYTES:].decode("utf-8", "replace").strip()
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


async def _ask_to_end(process: PipedProcess) -> None:
    """Send SIGTERM to the group, and wait a short time for it to end."""
    signal_group(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        # The command ignored SIGTERM. The caller kills it.
        pass
