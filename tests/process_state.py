"""The kernel's view of a process, for tests: whether it is alive, stopped or at rest.

A process that is gone is no error.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path


def read_state(pid: int) -> str | None:
    """Return the state as a letter of proc(5), or None without such a process.
    It may end between opening and reading."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_alive(pid: int) -> bool:
    """Tell whether a process is alive. A zombie is not."""
    return read_state(pid) not in (None, "Z", "X")


def is_stopped(pid: int) -> bool:
    return read_state(pid) == "T"


def count_waits(pid: int) -> int:
    """Count how often the threads of a process began to wait. The number stands still while all of them wait."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = status.read_text().splitlines()
            found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return found


def watch_rest(pid: int, seconds: float) -> Callable[[], bool]:
    """Return a predicate for `eventually`: has no thread of the process done anything for so many seconds?"""
    counted, since = count_waits(pid), time.monotonic()

    def is_at_rest() -> bool:
        nonlocal counted, since
        now = count_waits(pid)
        if now != counted:
            counted, since = now, time.monotonic()
        return time.monotonic() - since >= seconds

    return is_at_rest
