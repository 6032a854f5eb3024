"""The limits of a run (`run: limits`), set before its first instruction by a shell that then becomes the program.

Limits set from outside, after the spawn, would be a race that a hostile program wins. Limits set on the daemon for the
moment of a spawn would also limit the daemon's own writers. So a run that declares limits, and only such a run, is
started through `sh`, which sets them and execs (0.7 ms). The kernel applies limits on memory, CPU and processes to one
process or one user, but the spec means the whole run. So these limits are also checked while the run lives
(`find_excess`), and are listed in `unenforced`.
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
from wakeful.runners.process import procfs
from wakeful.runners.process.problems import describe_overspent

Launched = TypeVar("Launched")

NO_LIMITS = RunLimits()
# How many of the processes that the user may have are reserved for the daemon and for people.
SPARED_PROCESSES = 64
# Seconds between two checks of a whole run with limits. If the run has only a budget, the pause doubles each time up to
# `LONGEST_PAUSE_SECONDS`. A later check misses nothing, because the usage that a budget counts only grows.
LOOK_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
# The parts of a budget that grow while a run lives.
_COUNTED = ("cpu_seconds", "written_bytes")
# The units of `ulimit`, the same in every shell that is installed as sh: blocks for `-f`, KiB for `-d`.
_BLOCK_BYTES, _MEMORY_BYTES = 512, 1024


def wrap(argv: Sequence[str], limits: RunLimits) -> tuple[str, ...]:
    """Return a command line that sets the limits and then becomes the program."""
    if limits == NO_LIMITS:
        return tuple(argv)
    settings = "".join(f"{setting} || exit 126\n" for setting in _list_settings(limits))
    return ("/bin/sh", "-c", f'{settings}exec "$@"', "sh", *argv)


def _list_settings(limits: RunLimits) -> list[str]:
    settings = []
    if limits.memory_bytes is not None:
        # Limit data (-d), not address space, because runtimes reserve hundreds of gigabytes that they never touch.
        settings.append(f"ulimit -d {max(1, limits.memory_bytes // _MEMORY_BYTES)}")
    if limits.cpu_seconds is not None:
        settings.append(f"ulimit -t {math.ceil(limits.cpu_seconds)}")
    if limits.open_files is not None:
        settings.append(f"ulimit -n {limits.open_files}")
    if limits.file_bytes is not None:
        settings.append(f"ulimit -f {max(1, limits.file_bytes // _BLOCK_BYTES)}")
    if limits.processes is not None:
        # The kernel counts all processes of the user, so add the present number. The option is -p in dash and busybox,
        # -u in bash.
        most = _count_of_user(os.getuid()) + limits.processes
        settings.append(f"ulimit -p {most} 2>/dev/null || ulimit -u {most}")
    return settings


def launch_sparing(launch: Callable[[], Launched]) -> tuple[Launched, bool]:
    """Launch with a lower process limit, so that the run meets the limit before the daemon and people do.

    The second value is False if the launch succeeded only without the lower limit. The daemon lowers its own soft limit
    for the moment of the spawn, as it does with the mark, so there is no gap. The kernel counts all processes of the
    user. If there are too many, the kernel refuses the spawn, and a second launch uses one of the reserved processes.
    The kernel does not hold root to the limit: `find_excess_processes` does that."""
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
    """Lower the process limit of a process that is already running, and of all it starts from now on."""
    if (most := _find_spared()) is not None:
        # The process is gone, or belongs to another user because of a set-uid program.
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (most, resource.prlimit(pid, resource.RLIMIT_NPROC)[1]))


def _find_spared() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY else soft - min(SPARED_PROCESSES, soft // 4)


def count_all() -> int | None:
    """Count all processes and threads of the machine, in a few microseconds; None if /proc does not report them."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read(128).split()[3].split(b"/")[1])
    except (OSError, IndexError, ValueError):
        return None


def count_oom_kills() -> int | None:
    """Count the processes that the kernel has killed for lack of memory since boot; None if /proc has no count."""
    try:
        with open("/proc/vmstat", "rb", buffering=0) as file:
            text = file.read()
    except OSError:
        return None
    start = text.find(b"\noom_kill ")
    return int(text[start + len(b"\noom_kill ") :].split(None, 1)[0]) if start >= 0 else None


def find_excess_processes(most: int, pid: int) -> str | None:
    """Describe that a run without a process limit of its own has more than `most` processes; None if it has not."""
    if len(procfs.descendants_of(pid)) < most:
        return None
    return (
        f"it had more than {most:,} processes at a time; if it needs them, say run.limits.processes in its spec, "
        "or limits.processes in wakeful.yaml"
    )


def find_excess(limits: RunLimits, pids: Sequence[int], counted_cpu_seconds: float = 0.0) -> str | None:
    """Describe the limit that the processes of a run exceed together; None if they exceed none.

    `counted_cpu_seconds` is the CPU time from the control group, which includes processes that have ended."""
    if limits.processes is not None and len(pids) > limits.processes:
        return f"it had more than {limits.processes} processes (run.limits.processes)"
    if limits.memory_bytes is not None and sum(map(procfs.own_memory, pids)) > limits.memory_bytes:
        return describe_memory(limits)
    if (
        limits.cpu_seconds is not None
        and max(counted_cpu_seconds, sum(map(procfs.cpu_time, pids))) > limits.cpu_seconds
    ):
        return f"it used more than {limits.cpu_seconds:g} s of CPU time (run.limits.cpu)"
    return None


def describe_memory(limits: RunLimits) -> str:
    if limits.memory_bytes is None:
        return "it was killed because there was no more memory"
    return f"it used more than {limits.memory_bytes / 1e6:.0f} MB of memory (run.limits.memory)"


def is_counted(allowance: Amounts) -> bool:
    return any(getattr(allowance, name) is not None for name in _COUNTED)


def find_overspent(allowance: Amounts, used: Usage) -> str | None:
    """Describe the part of its budget that a run has exceeded; None if it has exceeded none."""
    for name in _COUNTED:
        limit = getattr(allowance, name)
        if limit is not None and getattr(used, name) > limit:
            return describe_overspent(name, limit)
    return None


def find_unenforced(limits: RunLimits) -> tuple[str, ...]:
    """Describe the limits that are enforced only by a check ten times a second."""
    looked = [
        word
        for word, value in (
            ("memory", limits.memory_bytes),
            ("processes", limits.processes),
            ("cpu", limits.cpu_seconds),
        )
        if value is not None
    ]
    return (f"limits of the run as a whole ({', '.join(looked)}): checked every {LOOK_SECONDS:g} s",) if looked else ()


def _count_of_user(uid: int) -> int:
    """Count the user's processes. Each thread counts as one, as the kernel counts them."""
    count = 0
    for pid in procfs.every_pid():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return count
