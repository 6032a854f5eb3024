"""The kernel's view of a process, for tests: whether it is alive or stopped. A process that is gone is no error."""

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
