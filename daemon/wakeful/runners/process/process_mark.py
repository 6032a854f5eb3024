"""The mark that every process of a run has from before its first instruction, and passes on to all it starts.

The mark is in two places. `WAKEFUL_RUN=<run id>` in the environment (rule 41) is readable by people, and lost by
`env -i`. The soft limit RLIMIT_RTTIME survives fork, exec, setsid, a cleared environment and the daemon's death, and
a zombie still shows it. As a limit, a mark means more than 36,000 years, so it has no effect. The daemon sets the mark
on itself for the moment of a spawn, so no child can fork unmarked. The rest of the time the daemon has the mark OWN,
which its git and probe processes inherit. `read_mark_of` finds out whether a run or a person started a process,
whichever daemon started the run. It also accepts the name of a run's control group. This module never sends signals.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from wakeful.runners.process.procfs import SHORTAGES, read_file

# The lowest mark. Marks are microseconds in [2^60, 2^61), far above any limit set on purpose.
_LOWEST = 1 << 60
# The mark of the daemon itself, and of each process that it spawns outside a run.
OWN = _LOWEST
_LIMIT = resource.RLIMIT_RTTIME
_LIMIT_LINE = b"\nMax realtime timeout"
# The name of a run's control group (cgroup.py): its mark in hexadecimal, which always begins with a 1.
_GROUP = re.compile(rb"/wakeful-(1[0-9a-f]{15})(?=[/\n])")


class ProcessMark(Struct, frozen=True):
    """The evidence that a daemon started a process, for a run or for itself.

    `words` describe the evidence, for a message.
    """

    mark: int
    words: str


def mark_of(state: str, run_id: str) -> int:
    """Compute a run's mark.

    The mark depends on the state folder, so that a copied state does not claim the original's processes.
    """
    digest = hashlib.blake2b(os.fsencode(f"{state}\0{run_id}"), digest_size=8).digest()
    return _LOWEST | int.from_bytes(digest) & (_LOWEST - 1)


def mark_own() -> ProcessMark | None:
    """Set the mark OWN on this process. Called once per daemon, before it spawns anything.

    Returns the evidence that a run started this daemon; None if a person started it.
    """
    before = read_mark_of(os.getpid(), "")
    hard = resource.getrlimit(_LIMIT)[1]
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(_LIMIT, (OWN, hard))
    return before


@contextmanager
def mark_children(mark: int) -> Iterator[None]:
    """Give `mark` to every process that the daemon spawns inside the block. The caller must not await inside it."""
    before = resource.getrlimit(_LIMIT)
    hard = before[1]
    # If the hard limit was lowered before the daemon started, only the environment carries the mark.
    if hard != resource.RLIM_INFINITY:
        yield
        return
    resource.setrlimit(_LIMIT, (mark, hard))
    try:
        yield
    finally:
        resource.setrlimit(_LIMIT, before)


def is_run_mark(value: int) -> bool:
    """Is this soft limit the mark of a run, rather than that of a daemon's own processes?"""
    return OWN < value < 2 * _LOWEST


def read_mark(pid: int) -> int | None:
    """Read the mark from a process's limits; None if it has no mark or is gone."""
    return _find_mark(_read(f"/proc/{pid}/limits"))


def _find_mark(text: bytes) -> int | None:
    start = text.find(_LIMIT_LINE)
    if start < 0:
        return None
    soft = text[start + len(_LIMIT_LINE) :].split(None, 1)[0]
    value = int(soft) if soft.isdigit() else 0
    return value if _LOWEST <= value < 2 * _LOWEST else None


def read_run(pid: int, runs: Mapping[int, str], state: str) -> str | None:
    """Find which of these runs (mark -> run id) a process belongs to. `state` is the state folder, links resolved."""
    mark = read_mark(pid)
    # A daemon that a run started has the limit OWN, and names the run only in its environment.
    if mark is not None and mark != OWN:
        return runs.get(mark)
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    run_id = _value(environ, b"WAKEFUL_RUN")
    if run_id is None:
        return None
    # The scratch folder confirms the run id, because it lies in the state folder of the daemon that started the run.
    scratch = os.path.realpath(_value(environ, b"WAKEFUL_SCRATCH") or "/")
    return runs.get(mark_of(state, run_id)) if scratch.startswith(f"{state}/") else None


def read_mark_of(pid: int, state: str) -> ProcessMark | None:
    """Find the evidence that some daemon, not necessarily this one, started a process; None if a person started it.

    Raises ProcessLookupError if the process is gone, and OSError if no file descriptor is left to read /proc with.
    `state` is this daemon's state folder, links resolved."""
    limits = _read(f"/proc/{pid}/limits")
    # Any user may read the limits as long as the process, or its zombie, exists.
    if not limits:
        raise ProcessLookupError(f"process {pid} is gone")
    mark = _find_mark(limits)
    if mark is not None and mark != OWN:
        return ProcessMark(mark, f"its limit RLIMIT_RTTIME is the mark of a run, {mark}")
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    run_id = _value(environ, b"WAKEFUL_RUN")
    if run_id is not None:
        scratch = os.path.realpath(_value(environ, b"WAKEFUL_SCRATCH") or "/")
        return ProcessMark(
            mark_of(state if scratch.startswith(f"{state}/") else "", run_id), "WAKEFUL_RUN is set in its environment"
        )
    group = _GROUP.search(_read(f"/proc/{pid}/cgroup"))
    if group is not None:
        return ProcessMark(int(group[1], 16), f"its control group is that of a run, wakeful-{group[1].decode()}")
    return (
        None
        if mark is None
        else ProcessMark(mark, f"its limit RLIMIT_RTTIME is the mark of a daemon's own processes, {mark}")
    )


def _value(environ: bytes, name: bytes) -> str | None:
    start = environ.find(b"\0" + name + b"=")
    if start < 0:
        return None
    start += len(name) + 2
    end = environ.find(b"\0", start)
    return os.fsdecode(environ[start:] if end < 0 else environ[start:end])


def _read(path: str) -> bytes:
    """Read a file of /proc. Empty if its process is gone or we may not read it.

    Raises OSError if no file descriptor is left.
    """
    try:
        return read_file(path)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return b""
