"""Ends processes that an earlier daemon left running: found by mark, confirmed by start time, signalled by pidfd.

One scan of /proc serves all runs (64 live runs are gone within a second). Descendants that have dropped their mark are
found through their parents. Blocking: `CommandRunner.recover` and `AdoptedProcess` call it in a thread. A run counts as
gone only if a scan finds none of its processes. If the kernel does not end a process, the scans are repeated without
end, and the run is never reported as gone.
"""

from __future__ import annotations

import os
import select
import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from threading import Event
from time import monotonic

from wakeful.runners.process import procfs
from wakeful.runners.process.cgroup import Cgroups
from wakeful.runners.process.process_mark import read_mark, read_run
from wakeful.runners.process.procfs import ProcessStat

GRACE_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
_AWAITED = 16
# The most rounds of `end_strays`. Each round kills strays, and their children are strays in the next round.
_STRAY_ROUNDS = 20


def end_orphans(
    runs: Mapping[int, str],
    state: str,
    cgroups: Cgroups | None,
    gone: Callable[[str], None],
    closing: Event,
    *,
    has_grace: bool = True,
) -> None:
    """End every process of these runs (mark -> run id) and call `gone` for each run that has none left."""
    waiting = dict(runs)
    kill_at = monotonic() + (GRACE_SECONDS if has_grace else 0.0)
    asked: set[tuple[int, float]] = set()
    pause = _FIRST_PAUSE_SECONDS
    while waiting and not closing.is_set():
        found = _find(waiting, state, cgroups)
        for mark, run_id in list(waiting.items()):
            if run_id not in found:
                del waiting[mark]
                _remove_group(cgroups, mark)
                gone(run_id)
        members = [stat for stats in found.values() for stat in stats]
        is_late = monotonic() >= kill_at
        # Send SIGTERM once to each process, because some programs take a second one as an order to drop everything.
        targets = members if is_late else [stat for stat in members if (stat.pid, stat.started) not in asked]
        asked.update((stat.pid, stat.started) for stat in targets)
        for stat in targets:
            _send(stat, signal.SIGKILL if is_late else signal.SIGTERM)
        _wait_for_any(members, pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS if is_late else max(0.0, kill_at - monotonic()) + 0.001)


def end_strays(cgroups: Cgroups, spared: Collection[int]) -> None:
    """End processes of an earlier daemon in our control groups that belong to no recorded run. Blocking.

    They are replays, probes and the daemon's own git. `spared` holds the marks of the runs in the log. A daemon marks
    every process that it starts, so an unmarked process was started by another program and is left alone. A process
    whose parent is in the same groups is left to that parent.
    """
    for mark in cgroups.marks():
        if mark not in spared:
            cgroups.kill(mark)
            cgroups.remove(mark)
    for _ in range(_STRAY_ROUNDS):
        members = {
            pid: stat for pid in cgroups.loose() if (stat := procfs.read_stat(pid)) is not None and stat.is_alive
        }
        kin = _self_and_ancestors(
            {pid: stat for pid in procfs.every_pid() if (stat := procfs.read_stat(pid)) is not None}
        )
        roots = (stat for pid, stat in members.items() if pid not in kin and stat.parent not in members)
        strays = [stat for stat in roots if (sign := read_mark(stat.pid)) is not None and sign not in spared]
        if not strays:
            return
        for stat in strays:
            _send(stat, signal.SIGKILL)
        _wait_for_any(strays, _FIRST_PAUSE_SECONDS)


def _find(runs: Mapping[int, str], state: str, cgroups: Cgroups | None) -> dict[str, list[ProcessStat]]:
    """Find the live processes of each run: marked, in the run's control group, or descended from such a process."""
    everyone = {
        pid: stat for pid in procfs.every_pid() if (stat := procfs.read_stat(pid)) is not None and stat.is_alive
    }
    spared = _self_and_ancestors(everyone)
    owner = {pid: run_id for pid in everyone if (run_id := read_run(pid, runs, state)) is not None}
    if cgroups is not None:
        owner.update((pid, run_id) for mark, run_id in runs.items() for pid in cgroups.members(mark))
    children = defaultdict(list)
    for stat in everyone.values():
        children[stat.parent].append(stat.pid)
    ahead = list(owner)
    while ahead:
        pid = ahead.pop()
        for child in children[pid]:
            if child not in owner:
                owner[child] = owner[pid]
                ahead.append(child)
    found: dict[str, list[ProcessStat]] = defaultdict(list)
    for pid, run_id in owner.items():
        if pid in everyone and pid not in spared:
            found[run_id].append(everyone[pid])
    return dict(found)


def _self_and_ancestors(everyone: Mapping[int, ProcessStat]) -> set[int]:
    """List this process and its ancestors. A run may have started this daemon, which must not end itself then."""
    spared: set[int] = set()
    pid = os.getpid()
    while pid in everyone and pid not in spared:
        spared.add(pid)
        pid = everyone[pid].parent
    return spared


def _send(stat: ProcessStat, number: int) -> None:
    fd = _open_confirmed(stat)
    if fd is None:
        return
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return
    finally:
        os.close(fd)


def _wait_for_any(members: list[ProcessStat], seconds: float) -> None:
    """Return when a process ends or the time is over. Watches only the first few, because descriptors are scarce."""
    opened = [fd for stat in members[:_AWAITED] if (fd := _open_confirmed(stat)) is not None]
    waiting = select.poll()
    try:
        for fd in opened:
            waiting.register(fd, select.POLLIN)
        if opened:
            waiting.poll(seconds * 1000)
    finally:
        for fd in opened:
            os.close(fd)


def _open_confirmed(stat: ProcessStat) -> int | None:
    """Open a pidfd of exactly this process; None if it is gone.

    Opened first and compared afterwards, so that a reused pid is noticed.
    """
    try:
        fd = os.pidfd_open(stat.pid)
    except ProcessLookupError:
        return None
    now = procfs.read_stat(stat.pid)
    if now is None or now.started != stat.started:
        os.close(fd)
        return None
    return fd


def _remove_group(cgroups: Cgroups | None, mark: int) -> None:
    if cgroups is not None:
        cgroups.remove(mark)
