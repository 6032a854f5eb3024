"""The mark every process of a run carries from before its first instruction, and inherits to all it starts.

It stands in two places. `WAKEFUL_RUN=<run id>` in the environment (rule 41) is readable by people, and
lost by `env -i`. The soft limit RLIMIT_RTTIME is not lost: fork, exec, setsid, a cleared environment and the daemon's
own death leave it alone, a zombie still shows it, and a value of more than 36,000 years limits nobody. The daemon sets
it on itself for the moment of a spawn, so there is no gap in which a child could fork unmarked; the rest of the time it
carries OWN, by which its own git and probe processes are known. `read_sign` tells a run's process from a person's,
whichever daemon started the run; the name of a run's control group counts there, too. Never signals anybody.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from wakeful.runners.process import reserve

# Microseconds: marks lie in [2^60, 2^61), far above what anybody sets on purpose.
_LOWEST = 1 << 60
# The mark of the daemon itself, and of everything it spawns that is no run.
OWN = _LOWEST
_LIMIT = resource.RLIMIT_RTTIME
_LIMIT_LINE = b"\nMax realtime timeout"
# The name of a run's control group (cgroup.py): its mark in hexadecimal, which always begins with a 1.
_GROUP = re.compile(rb"/wakeful-(1[0-9a-f]{15})(?=[/\n])")


class Sign(Struct, frozen=True):
    """The evidence that a daemon started a process, for a run or for itself.

    `words` say where the evidence was found.
    """

    mark: int
    words: str


def mark_of(state: str, run_id: str) -> int:
    """The run's number. The state folder is part of it: a copied state must not claim the original's processes."""
    digest = hashlib.blake2b(os.fsencode(f"{state}\0{run_id}"), digest_size=8).digest()
    return _LOWEST | int.from_bytes(digest) & (_LOWEST - 1)


def mark_own() -> Sign | None:
    """Once per daemon, before it spawns anything.

    Returns the sign this process had before: a run may have started this daemon.
    """
    before = read_sign(os.getpid(), "")
    hard = resource.getrlimit(_LIMIT)[1]
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(_LIMIT, (OWN, hard))
    return before


@contextmanager
def marking(mark: int) -> Iterator[None]:
    """Processes that the daemon spawns inside the block carry `mark`. The caller must not await inside the block."""
    before = resource.getrlimit(_LIMIT)
    hard = before[1]
    # Where somebody limited it before us, only the environment carries the mark.
    if hard != resource.RLIM_INFINITY:
        yield
        return
    resource.setrlimit(_LIMIT, (mark, hard))
    try:
        yield
    finally:
        resource.setrlimit(_LIMIT, before)


def is_run_mark(value: int) -> bool:
    """Whether this soft limit is the mark of a run, and not of a daemon's own processes."""
    return OWN < value < 2 * _LOWEST


def read_mark(pid: int) -> int | None:
    """The mark in the process's limits, None if it has none or is gone."""
    return _find_mark(_read(f"/proc/{pid}/limits"))


def _find_mark(text: bytes) -> int | None:
    start = text.find(_LIMIT_LINE)
    if start < 0:
        return None
    soft = text[start + len(_LIMIT_LINE) :].split(None, 1)[0]
    value = int(soft) if soft.isdigit() else 0
    return value if _LOWEST <= value < 2 * _LOWEST else None


def read_run(pid: int, runs: Mapping[int, str], state: str) -> str | None:
    """Which of these runs (mark -> run id) the process belongs to. `state` is the state folder, links resolved."""
    mark = read_mark(pid)
    # A daemon inside a run carries OWN, and the run's mark only in its environment.
    if mark is not None and mark != OWN:
        return runs.get(mark)
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    run_id = _value(environ, b"WAKEFUL_RUN")
    if run_id is None:
        return None
    # The scratch folder confirms: it lies in the state folder of the daemon that started the run.
    scratch = os.path.realpath(_value(environ, b"WAKEFUL_SCRATCH") or "/")
    return runs.get(mark_of(state, run_id)) if scratch.startswith(f"{state}/") else None


def read_sign(pid: int, state: str) -> Sign | None:
    """Find the evidence that some daemon, not necessarily this one, started a process. None: a person started it.

    Raises ProcessLookupError when the process is gone, and OSError where there is no descriptor to look with.
    `state` is this daemon's state folder, links resolved."""
    limits = _read(f"/proc/{pid}/limits")
    # Everybody may read it as long as the process, or its zombie, is there.
    if not limits:
        raise ProcessLookupError(f"process {pid} is gone")
    mark = _find_mark(limits)
    if mark is not None and mark != OWN:
        return Sign(mark, f"its limit RLIMIT_RTTIME is the mark of a run, {mark}")
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    run_id = _value(environ, b"WAKEFUL_RUN")
    if run_id is not None:
        scratch = os.path.realpath(_value(environ, b"WAKEFUL_SCRATCH") or "/")
        return Sign(
            mark_of(state if scratch.startswith(f"{state}/") else "", run_id), "WAKEFUL_RUN is set in its environment"
        )
    group = _GROUP.search(_read(f"/proc/{pid}/cgroup"))
    if group is not None:
        return Sign(int(group[1], 16), f"its control group is that of a run, wakeful-{group[1].decode()}")
    return (
        None if mark is None else Sign(mark, f"its limit RLIMIT_RTTIME is the mark of a daemon's own processes, {mark}")
    )


def _value(environ: bytes, name: bytes) -> str | None:
    start = environ.find(b"\0" + name + b"=")
    if start < 0:
        return None
    start += len(name) + 2
    end = environ.find(b"\0", start)
    return os.fsdecode(environ[start:] if end < 0 else environ[start:end])


def _read(path: str) -> bytes:
    """A file of /proc, empty when its process is gone or not ours to look at.

    Raises OSError where there is no descriptor to look with.
    """
    try:
        return reserve.read_file(path)
    except OSError as error:
        if error.errno in reserve.SHORTAGES:
            raise
        return b""
