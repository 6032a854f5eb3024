"""Runs commands and scripts: the runner behind `run: command` and `run: script`.

Keeps the runs under way and what they share, and tidies up the daemon's adopted children. The reactor calls it as
`contract.Runner` says. Latency first: the early part of a start is done while its record is being flushed (`prepare`),
`launch` spawns before it returns, and nothing is awaited between a durable intention and the command's first
instruction. Everything here is on the loop. Blocking work is done in threads of one pool, which saves output, removes
folders, prepares runs that are not quick and enters control groups; `recover` has a thread of the default executor.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex

from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.record.observations import Enforceable, ProcessEnded, ProcessOwner, RunAttached, RunRecovered
from wakeful.errors import OperatorError
from wakeful.runners.contract import LiveUsage, Report, RunOrder, StopWord
from wakeful.runners.isolation import trace as tracing
from wakeful.runners.isolation.gaps import find_kernel_gaps
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected, find_unenforced
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.system_places import CLOSED, CLOSED_FILE
from wakeful.runners.outputs.writers import Writers
from wakeful.runners.prepare.preparation import Preparation, Ticket
from wakeful.runners.process.cgroup import Cgroups
from wakeful.runners.process.children import Children
from wakeful.runners.process.connection_holder import find_end, find_holder
from wakeful.runners.process.environment import select_inherited
from wakeful.runners.process.mark import Sign, mark_of, read_sign
from wakeful.runners.process.orphans import end_orphans
from wakeful.runners.process.proc import read_status
from wakeful.runners.process.program import Surroundings
from wakeful.runners.run.kept_runs import KeptRuns, LeftRun
from wakeful.runners.run.probe_launch import ProbePlaces, launch_probe
from wakeful.runners.run.run import LiveRun, Shared
from wakeful.secrets.known import KnownSecrets
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

# How often orphans that ended by themselves are reaped while runs are under way. Without a run, no timer is armed.
_TIDY_SECONDS = 5.0
# A killed process takes a moment to die, and is reaped in the next round.
_AGAIN_SECONDS = 0.05
# Blocking work at a run's end: saving output, removing folders, entering control groups.
_POOL_SIZE = 2


class CommandRunner:
    """Constructed on the loop, after `become_subreaper`.

    `state` is the state folder: it tells our runs from another daemon's.
    """

    def __init__(
        self,
        *,
        report: Report,
        blobs: Blobs,
        state: str,
        children: Children,
        cgroups: Cgroups | None = None,
        protected: Protected = Protected(),
        writers: Writers | None = None,
        secrets: KnownSecrets | None = None,
        kept: KeptRuns | None = None,
        left: Iterable[str] = (),
        origin: Sign | None = None,
    ) -> None:
        """`left` are the ids of runs that an earlier daemon began and the log does not know the end of:
        `recover` follows for each.

        `origin` is the sign of the run that started this daemon, None where a person did."""
        self._report = report
        self._runs: dict[str, LiveRun] = {}
        # Their processes may be alive, and are a run's: no person's.
        self._left = set(left)
        self._origin = origin
        # No runs, and no persons either.
        self._probes: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = threading.Event()
        self._is_leaving = False
        self._tidying: asyncio.TimerHandle | None = None
        CLOSED.keep_in(os.path.join(state, CLOSED_FILE))
        self._around = Surroundings(
            loop=asyncio.get_running_loop(),
            pool=Pool(_POOL_SIZE, "runs"),
            children=children,
            cgroups=cgroups,
            state=os.path.realpath(state),
            secrets=secrets,
        )
        self._preparation = Preparation(self._around, select_inherited(os.environ), protected, self._start)
        self._kept = kept
        self._shared = Shared(self._around, self._preparation, blobs, writers or Writers(), kept)

    @property
    def protected(self) -> Protected:
        """The places that no run that starts now may change."""
        return self._preparation.protected

    def guard(self, places: tuple[str, ...]) -> None:
        """Besides what was named at construction, no run that starts from now on may change these: specs of attached
        projects."""
        self._preparation.guard(places)

    def prepare(self, order: RunOrder) -> Ticket:
        # The plan follows from state and may name the same run twice; there is one.
        return self._preparation.prepare(order) if order.run_id not in self._runs else Ticket(order, self._preparation)

    def _start(self, ticket: Ticket) -> None:
        order = ticket.order
        if order.run_id in self._runs:
            return
        run = self._add(order, self._make_memory(order))
        try:
            run.start(ticket)
        except Exception:
            # The caller reports it. A run that has a process already ends as any other.
            if not run.has_begun:
                self._runs.pop(order.run_id, None)
                if not self._runs:
                    self._idle.set()
            raise

    def _make_memory(self, order: RunOrder) -> int | None:
        """Where its output is captured, if somebody keeps that beyond us; a run that nobody has room to keep ends with
        the daemon."""
        kept = self._kept
        # A replay has no token: it is in no log, and nobody's to go on with.
        if kept is None or not order.token:
            return None
        try:
            return kept.make_memory(order.output_limit_bytes)
        except OSError:
            return None

    def _add(self, order: RunOrder, memory: int | None) -> LiveRun:
        mark = mark_of(self._around.state, order.run_id)
        run = self._runs[order.run_id] = LiveRun(order, mark, self._shared, self._take_end, memory)
        self._idle.clear()
        if self._tidying is None:
            self._tidying = self._around.loop.call_later(_TIDY_SECONDS, self.tidy)
        return run

    @asynccontextmanager
    async def launch_probe(self, target: ProbeTarget, places: ProbePlaces) -> AsyncIterator[subprocess.Popen[bytes]]:
        """It is in no log, and whoever asked reads what it says and ends it; what left its group is ended here.

        Raises as a start does.
        """
        if self._closing.is_set():
            raise OperatorError("the daemon is stopping")
        name = f"probe-{token_hex(6)}"
        self._probes.add(name)
        try:
            async with launch_probe(name, target, self._preparation, places) as popen:
                yield popen
        finally:
            self._probes.discard(name)
            self.tidy()

    def stop(self, run_id: str, how: StopWord, grace_seconds: float) -> None:
        if (run := self._runs.get(run_id)) is not None:
            run.stop(how, grace_seconds)

    async def recover(self, lost: Mapping[str, str]) -> None:
        around = self._around
        for run_id, session in lost.items():
            if run_id not in self._runs and self._adopt(run_id):
                self._report(RunAttached(session=session, run_id=run_id))
        marks = {mark_of(around.state, run_id): run_id for run_id in lost if run_id not in self._runs}

        def report_gone(run_id: str) -> None:
            recovered = RunRecovered(session=lost[run_id], run_id=run_id)
            around.loop.call_soon_threadsafe(self._left.discard, run_id)
            around.loop.call_soon_threadsafe(self._report, recovered)

        # In a thread of its own kind: two slow recoveries must not keep the runs' pool from saving output.
        await asyncio.to_thread(end_orphans, marks, around.state, around.cgroups, report_gone, self._closing)

    def _adopt(self, run_id: str) -> bool:
        """Go on with a run that an earlier daemon left, if it was kept for us."""
        around = self._around
        left = self._kept.take(run_id, around.state) if self._kept is not None else None
        if left is None or _was_ended_from_outside(left):
            return False
        if around.secrets is not None:
            around.secrets.remember(left.keepsake.order.secrets)
        self._add(left.keepsake.order, left.memory).adopt(left)
        self._left.discard(run_id)
        return True

    def keeps(self, run_id: str) -> bool:
        return self._kept is not None and self._kept.keeps(run_id)

    def forget(self, run_id: str) -> None:
        if self._kept is not None:
            self._kept.drop(run_id)

    def usage(self, run_id: str) -> LiveUsage | None:
        run = self._runs.get(run_id)
        return None if run is None else run.usage()

    async def settle(self) -> None:
        await self._around.loop.run_in_executor(self._around.pool, self._preparation.try_machine)

    def enforceable(self) -> Enforceable:
        cgroups = self._around.cgroups
        return Enforceable(
            landlock=probe_abi(),
            unenforced=find_unenforced(),
            gaps=find_kernel_gaps(),
            is_shielding=can_shield(),
            is_bounding=cgroups is not None and cgroups.is_bounding(),
            kept_closed=CLOSED.list_kept_closed(),
        )

    def find_tracing_obstacle(self) -> str | None:
        return tracing.find_obstacle()

    def owner(self, pid: int) -> ProcessOwner | None:
        sign = read_sign(pid, self._around.state)
        # A daemon that a run started reaches no further than that run, whose other processes are its people.
        if sign is None or (self._origin is not None and sign.mark == self._origin.mark):
            return None
        live = {mark_of(self._around.state, run_id): run_id for run_id in (*self._left, *self._runs, *self._probes)}
        return ProcessOwner(run_id=live.get(sign.mark), mark=sign.mark, sign=sign.words)

    def owner_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> str | None:
        return find_holder(local, remote, None if self._origin is None else self._origin.mark)

    def user_of_connection(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        found = find_end(remote, local)
        return found.uid if found is not None else None

    async def follow(self, run_id: str) -> AsyncIterator[bytes]:
        run = self._runs.get(run_id)
        if run is None:
            return
        async for chunk in run.capture.follow():
            yield chunk

    async def close(self, grace_seconds: float) -> None:
        self._closing.set()
        for run in list(self._runs.values()):
            run.stop("interrupt", grace_seconds)
        await self._idle.wait()
        await self._close_pools()

    async def leave(self) -> None:
        self._closing.set()
        self._is_leaving = True
        for run_id in [run_id for run_id in self._runs if self.keeps(run_id)]:
            self._runs.pop(run_id).abandon()
        if not self._runs:
            self._idle.set()
        await self.close(0.0)

    async def _close_pools(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
        # Folders are still being removed: wait for that, but not on the loop.
        await asyncio.to_thread(partial(self._around.pool.shutdown, wait=True))
        self._preparation.close()

    def _take_end(self, ended: ProcessEnded) -> None:
        # Left to the next daemon, which learns of the end itself.
        run = self._runs.pop(ended.run_id, None)
        if run is None:
            return
        if not self._runs:
            self._idle.set()
            # No run is left that a stray without a mark could belong to.
            self._tidy_after(0)
        self._report(ended)

    def tidy(self) -> None:
        """Reap and end what belongs to no run. Rings by itself while runs are under way; safe to call at any time."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        # Processes of runs that are left to the next daemon go on.
        if self._is_leaving:
            return
        live = {run.mark: run_id for run_id, run in self._runs.items()} | {
            mark_of(self._around.state, name): name for name in self._probes
        }
        oldest = min((run.started_boottime for run in self._runs.values()), default=None)
        left = self._around.children.tidy(live, oldest, self._around.state)
        if self._runs or left:
            self._tidy_after(_AGAIN_SECONDS if left else _TIDY_SECONDS)

    def _tidy_after(self, seconds: float) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
        self._tidying = self._around.loop.call_later(seconds, self.tidy)


def _was_ended_from_outside(left: LeftRun) -> bool:
    """Was it killed while no daemon was there?

    The same person or program most likely ended the daemon, too, so it is no failure of the run's own.
    """
    status = read_status(left.pidfd)
    if status is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in (signal.SIGTERM, signal.SIGKILL):
        return False
    for fd in (left.pidfd, left.output, left.memory):
        if fd is not None:
            os.close(fd)
    return True
