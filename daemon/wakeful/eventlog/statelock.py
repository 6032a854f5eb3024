"""One daemon per state folder, kept by the kernel.

The daemon locks its state folder before anything else; a restore takes the same lock. The lock is a `flock` that ends with the
process, however it ends. What the file says about its holder is for people: a stale text never keeps anyone out.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from wakeful.eventlog.contract import StateInUse, StoreUnsafe
from wakeful.folders import make_private
from wakeful.state_folder import ignore_in_git


class StateLock:
    """A held lock; `release` it or end the process."""

    def __init__(self, file: int) -> None:
        self._file = file

    def release(self) -> None:
        """Let go; releasing twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def find_holder(state_dir: Path) -> int | None:
    """The pid of the process that has the folder, as the kernel lists it; takes no lock, so it is never in anyone's way."""
    try:
        inode = os.stat(state_dir / "lock").st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    # "1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234567 0 EOF"; one that waits has "->" behind its number.
    for fields in map(str.split, locks):
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None


def lock_state(state_dir: Path, started_at: str = "") -> StateLock:
    """Take the folder for this process or raise StateInUse naming who has it. `started_at` is shown to the next who tries."""
    try:
        make_private(state_dir)
        ignore_in_git(str(state_dir))
        file = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnsafe(
            f"{state_dir} cannot be used as state folder: {error}; make it writable or choose another with --state"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
        os.close(file)
        raise StateInUse(f"{state_dir} is in use by {holder}; stop that daemon first or give this one its own --state") from error
    since = f" since {started_at}" if started_at else ""
    os.ftruncate(file, 0)
    os.pwrite(file, f"pid {os.getpid()}{since}\n".encode(), 0)
    return StateLock(file)
