"""A control group per run, which can be killed as a whole. Used only if systemd delegated a subtree to the daemon.

The group supplements the mark and never replaces it. A process enters its group a moment after it started, so processes
that it forked before are outside. Entering takes 0.1 to 8 ms (measured: the kernel waits for a grace period), so a
thread does it. Killing and removing take 0.05 ms. CPU time is counted for every group. Memory and processes are limited
only if their controllers can be switched on, which needs a daemon in a group of its own (DelegateSubgroup=).
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
    """The control groups of runs, as folders below the folder that was delegated to the daemon."""

    def __init__(self, folder: str, own: str | None = None) -> None:
        """`folder` holds the groups of runs. `own` is the daemon's own group, if it is another folder."""
        self._folder = folder
        self._own = own or folder

    def enter(self, mark: int, pid: int, limits: RunLimits = RunLimits()) -> None:
        """Move a process into the run's group, with the run's limits. Blocking.

        `pid` must be an unreaped child until this returns.
        """
        folder = self._path(mark)
        os.makedirs(folder, exist_ok=True)
        for name, value in _list_bounds(limits):
            # The file is missing if its controller is not switched on. The run's limits are then checked by samples.
            with contextlib.suppress(FileNotFoundError):
                _write(f"{folder}/{name}", value)
        _write(f"{folder}/cgroup.procs", str(pid))

    def kill(self, mark: int) -> None:
        """Kill every member, also those that are forked meanwhile."""
        try:
            _write(f"{self._path(mark)}/cgroup.kill", "1")
        except FileNotFoundError:
            # The run ended before it entered its group.
            return

    def members(self, mark: int) -> list[int]:
        return _list_members(self._path(mark))

    def is_starved(self, mark: int) -> bool:
        """Was a member killed because the group ran out of memory?"""
        return int(_read_counts(f"{self._path(mark)}/memory.events").get("oom_kill", 0)) > 0

    def cpu_seconds(self, mark: int) -> float:
        """Return the CPU time of the group's members since they entered, dead members included.

        The kernel counts it with or without a controller."""
        return int(_read_counts(f"{self._path(mark)}/cpu.stat").get("usage_usec", 0)) / 1e6

    def marks(self) -> list[int]:
        """List the mark of every run that has a group, whichever daemon made the group."""
        names = (name.removeprefix(_PREFIX) for name in os.listdir(self._folder) if name.startswith(_PREFIX))
        return [int(name, 16) for name in names if _HEXADECIMAL.fullmatch(name)]

    def loose(self) -> list[int]:
        """List the processes outside the groups of runs: this daemon and its own children."""
        return [pid for folder in {self._folder, self._own} for pid in _list_members(folder)]

    def remove(self, mark: int) -> bool:
        """Remove the run's group. Returns False while a member is still dying."""
        try:
            os.rmdir(self._path(mark))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def is_bounding(self) -> bool:
        """Does a run's group limit its memory and processes?"""
        try:
            with open(f"{self._folder}/cgroup.subtree_control", encoding="ascii") as file:
                return set(_CONTROLLERS) <= set(file.read().split())
        except OSError:
            return False

    def _path(self, mark: int) -> str:
        return f"{self._folder}/{_PREFIX}{mark:x}"


def find_delegated() -> Cgroups | None:
    """Find the subtree that systemd delegated to the daemon (Delegate=yes); None if there is none.

    Being root is not enough, because another program writes to a tree that was not delegated.
    """
    mount = _find_mount()
    own = _find_own()
    if mount is None or own is None:
        return None
    # With DelegateSubgroup= the daemon's group is one level below the delegated group.
    for path in (own, os.path.dirname(own)):
        folder = os.path.normpath(f"{mount}/{path}")
        if _is_delegated(folder):
            if path != own:
                _switch_on(folder)
            return Cgroups(folder, os.path.normpath(f"{mount}/{own}"))
    return None


def _switch_on(folder: str) -> None:
    """Switch on the controllers that limit memory and processes for the groups of runs.

    `folder` itself must hold no process, because otherwise systemd could not start the next daemon in it.
    """
    with open(f"{folder}/cgroup.controllers", encoding="ascii") as file:
        wanted = [f"+{name}" for name in file.read().split() if name in _CONTROLLERS]
    if wanted:
        try:
            _write(f"{folder}/cgroup.subtree_control", " ".join(wanted))
        except OSError:
            # `folder` holds a process anyway. The limits of runs are then checked by samples, as without delegation.
            return


def _list_bounds(limits: RunLimits) -> Iterator[tuple[str, str]]:
    if limits.memory_bytes is not None:
        yield "memory.max", str(limits.memory_bytes)
        # Without swap, all of the run's memory counts against the limit.
        yield "memory.swap.max", "0"
        # Kill the whole run: with one of its processes missing, its result would be worthless.
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
    # Without O_CREAT, a missing group raises FileNotFoundError.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
