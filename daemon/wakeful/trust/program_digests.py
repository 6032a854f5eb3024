"""Computes the digests of programs that specs name, because trusting a spec means trusting the code it runs.

Called at every reading of pinned specs and again before each of their runs. A file that did not change is not read
again. Files that a program loads by itself (modules, other scripts) are not known here.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from typing import BinaryIO

from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import CommandRun, SessionSpec
from wakeful.specs.command_words import find_program
from wakeful.trust.ledger import ABSENT

# The age from which a file's stat key is reliable. A younger file may change again within one tick of the file system's
# clock.
_RACY_NANOSECONDS = 2_000_000_000


def list_programs(spec: SessionSpec, agent: AgentSpec | None = None) -> list[str]:
    """List the absolute paths of scripts inside root that the commands of a spec name.

    These are its command, check and probes, and the commands that its agent starts.
    """
    cwd = spec.run.cwd if spec.run is not None else None
    found = [spec.program]
    if isinstance(spec.run, CommandRun):
        found.append(find_program(spec.run.argv, spec.root, cwd))
    if spec.run is not None and spec.run.check is not None:
        found.append(find_program(spec.run.check, spec.root, cwd))
    found += [find_program(binding.command, spec.root, None) for binding in spec.bindings if binding.command]
    if agent is not None:
        found += [
            find_program(argv, spec.root, cwd) for argv in (agent.acp, *(server.argv for server in agent.mcp)) if argv
        ]
    return list(dict.fromkeys(os.path.normpath(os.path.join(spec.root, one)) for one in found if one is not None))


class Programs:
    """Digests by path. A digest is cached while the stat key of its file is unchanged."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int, int], str]] = {}

    def digest(self, path: str) -> str:
        try:
            found = os.stat(path)
            # Opening a FIFO would wait for a writer for ever.
            if not stat.S_ISREG(found.st_mode):
                return "no regular file"
            key = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
            known = self._known.get(path)
            if known is not None and known[0] == key:
                return known[1]
            with open(path, "rb") as stream:
                digest = _digest_stream(stream)
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _RACY_NANOSECONDS:
            self._known[path] = key, digest
        return digest


def _digest_stream(stream: BinaryIO) -> str:
    """Compute the digest of a stream, as `specs/folder_reading` does for a file."""
    digest = hashlib.blake2b(digest_size=16)
    while piece := stream.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()
