"""What the kernel says of a process, for tests: whether it lives, and whether it was stopped. One that is gone is no error."""

from pathlib import Path


def read_state(pid: int) -> str | None:
    """One letter, as in proc(5); None when there is no such process. It may leave between the opening and the reading."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_alive(pid: int) -> bool:
    """What has ended and waits for its parent is not."""
    return read_state(pid) not in (None, "Z", "X")


def is_stopped(pid: int) -> bool:
    return read_state(pid) == "T"
