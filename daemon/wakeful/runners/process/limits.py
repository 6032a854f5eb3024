"""Limits of a run (`run: limits`): set before its first instruction, by a shell that becomes the program.

Setting them from outside, after the spawn, is a race that a hostile program wins; setting them on the daemon for the
moment of a spawn would limit its own writers. So only a run that declares limits is started through `sh`, which sets
them and execs (0.7 ms). What counts per process in the kernel, and for a whole run in the spec, is also looked at while
the run lives (`find_excess`), and said in `unenforced`.
"""

from __future__ import annotations

import errno
import math
import os
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from wakeful.core.record.observations import Usage
from wakeful.core.spec.budget import Amounts
from wakeful.core.spec.session import RunLimits
from wakeful.runners.process import proc
from wakeful.runners.process.problems import describe_overspent

Launched = TypeVar("Launched")

NO_LIMITS = RunLimits()
# Of all processes that the user may have, so many are kept from runs.
SPARED_PROCESSES = 64
# How often a run with limits is looked at as a whole; one with a budget alone more and more rarely,
# since that counts on.
LOOK_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
# Of its budget, what grows while it runs.
_COUNTED = ("cpu_seconds", "written_bytes")
# `ulimit -f` counts blocks of this size in every shell that plays sh; memory is counted in KiB.
_BLOCK_BYTES, _MEMORY_BYTES = 512, 1024


def wrap(argv: Sequence[str], limits: RunLimits) -> tuple[str, ...]:
    """The same program under its limits."""
    if limits == NO_LIMITS:
        return tuple(argv)
    settings = "".join(f"{setting} || exit 126\n" for setting in _list_settings(limits))
    return ("/bin/sh", "-c", f'{settings}exec "$@"', "sh", *argv)


def _list_settings(limits: RunLimits) -> list[str]:
    settings = []
    if limits.memory_bytes is not None:
        # Data, not address space: runtimes reserve hundreds of gigabytes that they never touch.
        settings.append(f"ulimit -d {max(1, limits.memory_bytes // _MEMORY_BYTES)}")
    if limits.cpu_seconds is not None:
        settings.append(f"ulimit -t {math.ceil(limits.cpu_seconds)}")
    if limits.open_files is not None:
        settings.append(f"ulimit -n {limits.open_files}")
    if limits.file_bytes is not None:
        settings.append(f"ulimit -f {max(1, limits.file_bytes // _BLOCK_BYTES)}")
    if limits.processes is not None:
        # The kernel counts all of the user's, so those there are come on top. dash and busybox say -p, bash says -u.
        most = _count_of_user(os.getuid()) + limits.processes
        settings.append(f"ulimit -p {most} 2>/dev/null || ulimit -u {most}")
    return settings


def launch_sparing(launch: Callable[[], Launched]) -> tuple[Launched, bool]:
    """Launch with a lower process limit, so that the run meets the limit before the daemon and people do.

    The second value is False if the launch succeeded only without the lower limit. The daemon lowers its own soft limit
    for the moment of the spawn, as it does with the mark, so there is no gap. The kernel counts all processes of the
    user. If there are too many, the kernel refuses the spawn, and a second launch uses one of the reserved processes.
    The kernel does not hold root to the limit: `find_crowd` does that."""
    limits = resource.getrlimit(resource.RLIMIT_NPROC)
    if (most := _find_spared()) is None:
        return launch(), True
    resource.setrlimit(resource.RLIMIT_NPROC, (most, limits[1]))
    try:
        return launch(), True
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, limits)
    return launch(), False


def spare_processes(pid: int) -> None:
    """The same for a process that is there, and what it starts from now on."""
    if (most := _find_spared()) is not None:
        # It is gone already, or another user's by a set-uid program.
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (most, resource.prlimit(pid, resource.RLIMIT_NPROC)[1]))


def _find_spared() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY else soft - min(SPARED_PROCESSES, soft // 4)


def count_all() -> int | None:
    """All processes and threads of the machine, for a few microseconds; None where that is not told."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read(128).split()[3].split(b"/")[1])
    except (OSError, IndexError, ValueError):
        return None


def count_oom_kills() -> int | None:
    """How many processes of the machine the kernel ended for want of memory since it started;
    None where that is not told."""
    try:
        with open("/proc/vmstat", "rb", buffering=0) as file:
            text = file.read()
    except OSError:
        return None
    start = text.find(b"\noom_kill ")
    return int(text[start + len(b"\noom_kill ") :].split(None, 1)[0]) if start >= 0 else None


def find_crowd(most: int, pid: int) -> str | None:
    """Whether a run that names no limit has more processes than others leave it, in words."""
    if len(proc.descendants_of(pid)) < most:
        return None
    return (
        f"it had more than {most:,} processes at a time; if it needs them, say run.limits.processes in its spec, "
        "or limits.processes in wakeful.yaml"
    )


def find_excess(limits: RunLimits, pids: Sequence[int], counted_cpu_seconds: float = 0.0) -> str | None:
    """Describe the limit that the processes of a run exceed together; None if they exceed none.

    `counted_cpu_seconds` is the CPU time that the control group counted, with that of processes that have ended."""
    if limits.processes is not None and len(pids) > limits.processes:
        return f"it had more than {limits.processes} processes (run.limits.processes)"
    if limits.memory_bytes is not None and sum(map(proc.own_memory, pids)) > limits.memory_bytes:
        return describe_memory(limits)
    if limits.cpu_seconds is not None and max(counted_cpu_seconds, sum(map(proc.cpu_time, pids))) > limits.cpu_seconds:
        return f"it used more than {limits.cpu_seconds:g} s of CPU time (run.limits.cpu)"
    return None


def describe_memory(limits: RunLimits) -> str:
    if limits.memory_bytes is None:
        return "it was killed because there was no more memory"
    return f"it used more than {limits.memory_bytes / 1e6:.0f} MB of memory (run.limits.memory)"


def is_counted(allowance: Amounts) -> bool:
    return any(getattr(allowance, name) is not None for name in _COUNTED)


def find_overspent(allowance: Amounts, used: Usage) -> str | None:
    """The part of its budget that a run has used up, in words; None while it has used up none."""
    for name in _COUNTED:
        limit = getattr(allowance, name)
        if limit is not None and getattr(used, name) > limit:
            return describe_overspent(name, limit)
    return None


def find_unenforced(limits: RunLimits) -> tuple[str, ...]:
    """The limits that are enforced only by looking, ten times a second."""
    looked = [
        word
        for word, value in (
            ("memory", limits.memory_bytes),
            ("processes", limits.processes),
            ("cpu", limits.cpu_seconds),
        )
        if value is not None
    ]
    return (
        (f"limits of the run as a whole ({', '.join(looked)}): looked at every {LOOK_SECONDS:g} s",) if looked else ()
    )


def _count_of_user(uid: int) -> int:
    """Threads count as processes here, as the kernel counts them."""
    count = 0
    for pid in proc.every_pid():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return count
