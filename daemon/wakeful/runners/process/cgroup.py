"""A control group per run, where systemd delegated a subtree to the daemon: killed as a whole, by name.

Beside the mark, never instead of it: a process enters its group a moment after it started, so what it forked
before that is outside. Entering takes 0.1 to 8 ms (measured: the kernel waits for a grace period), so it is done
in a thread; killing and removing take 0.05 ms. CPU time is counted for every group; memory and processes are bounded
where their controllers can be switched on, which needs a daemon that sits in a group of its own (DelegateSubgroup=).
Without delegation: nothing here is used.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from wakeful.core.spec.session import RunLimits

_PREFIX = "wakeful-"
_CONTROLLERS = ("memory", "pids")
_HEXADECIMAL = re.compile("[0-9a-f]+")
_DELEGATE_ATTRIBUTES = ("user.delegate", "trusted.delegate")


class Cgroups:
    """The control groups of runs, as folders below one that is ours."""

    def __init__(self, folder: str, own: str | None = None) -> None:
        """`own` is the daemon's, where that is another one."""
        self._folder = folder
        self._own = own or folder

    def enter(self, mark: int, pid: int, limits: RunLimits = RunLimits()) -> None:
        """Blocks. `pid` must be an unreaped child until this returns."""
        folder = self._path(mark)
        os.makedirs(folder, exist_ok=True)
        for name, value in _list_bounds(limits):
            # The controller that it belongs to is not ours to use here: the run is looked at instead.
            with contextlib.suppress(FileNotFoundError):
                _write(f"{folder}/{name}", value)
        _write(f"{folder}/cgroup.procs", str(pid))

    def kill(self, mark: int) -> None:
        """End every member, however it forks meanwhile."""
        try:
            _write(f"{self._path(mark)}/cgroup.kill", "1")
        except FileNotFoundError:
            # The run ended before it had entered.
            return

    def members(self, mark: int) -> list[int]:
        return _list_members(self._path(mark))

    def is_starved(self, mark: int) -> bool:
        """Was a member killed because the group had no more memory?"""
        return int(_read_counts(f"{self._path(mark)}/memory.events").get("oom_kill", 0)) > 0

    def cpu_seconds(self, mark: int) -> float:
        """The CPU time of the group's members since they entered, dead members included.

        The kernel counts it with or without a controller."""
        return int(_read_counts(f"{self._path(mark)}/cpu.stat").get("usage_usec", 0)) / 1e6

    def marks(self) -> list[int]:
        """Of every run that has a group, whichever daemon made it."""
        names = (name.removeprefix(_PREFIX) for name in os.listdir(self._folder) if name.startswith(_PREFIX))
        return [int(name, 16) for name in names if _HEXADECIMAL.fullmatch(name)]

    def loose(self) -> list[int]:
        """The processes beside the groups of runs: this daemon, and its own children."""
        return [pid for folder in {self._folder, self._own} for pid in _list_members(folder)]

    def remove(self, mark: int) -> bool:
        """False while a member is still dying."""
        try:
            os.rmdir(self._path(mark))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def is_bounding(self) -> bool:
        """Are memory and processes of a run bounded by its group?"""
        try:
            with open(f"{self._folder}/cgroup.subtree_control", encoding="ascii") as file:
                return set(_CONTROLLERS) <= set(file.read().split())
        except OSError:
            return False

    def _path(self, mark: int) -> str:
        return f"{self._folder}/{_PREFIX}{mark:x}"


def find_delegated() -> Cgroups | None:
    """The subtree systemd gave us (Delegate=yes), or None.

    Being root is not enough: an undelegated tree has another writer.
    """
    mount = _find_mount()
    own = _find_own()
    if mount is None or own is None:
        return None
    # With DelegateSubgroup= the daemon itself sits one level below what was delegated.
    for path in (own, os.path.dirname(own)):
        folder = os.path.normpath(f"{mount}/{path}")
        if _is_delegated(folder):
            if path != own:
                _switch_on(folder)
            return Cgroups(folder, os.path.normpath(f"{mount}/{own}"))
    return None


def _switch_on(folder: str) -> None:
    """Let the groups of runs be bounded.

    Only where no process sits in `folder` itself, or systemd could not start the next daemon in it.
    """
    with open(f"{folder}/cgroup.controllers", encoding="ascii") as file:
        wanted = [f"+{name}" for name in file.read().split() if name in _CONTROLLERS]
    if wanted:
        try:
            _write(f"{folder}/cgroup.subtree_control", " ".join(wanted))
        except OSError:
            # Somebody sits in it all the same: runs are looked at, as everywhere else.
            return


def _list_bounds(limits: RunLimits) -> Iterator[tuple[str, str]]:
    if limits.memory_bytes is not None:
        yield "memory.max", str(limits.memory_bytes)
        # Without swap, all of the run's memory counts against the limit.
        yield "memory.swap.max", "0"
        # A run without one of its processes is no run.
        yield "memory.oom.group", "1"
    if limits.processes is not None:
        yield "pids.max", str(limits.processes)


def _read_counts(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="ascii") as file:
            return dict(line.split() for line in file)
    except OSError:
        return {}


def _is_delegated(folder: str) -> bool:
    for name in _DELEGATE_ATTRIBUTES:
        try:
            is_marked = os.getxattr(folder, name) == b"1"
        except OSError:
            continue
        if is_marked:
            # cgroup.kill came with Linux 5.14.
            return os.access(folder, os.W_OK) and os.path.exists(f"{folder}/cgroup.kill")
    return False


def _find_mount() -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                return before.split(" ")[4]
    return None


def _find_own() -> str | None:
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].rstrip("\n")
    return None


def _list_members(folder: str) -> list[int]:
    try:
        with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
            return [int(line) for line in file]
    except FileNotFoundError:
        return []


def _write(path: str, text: str) -> None:
    # No O_CREAT: a file that is not there is a group that is not there.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
