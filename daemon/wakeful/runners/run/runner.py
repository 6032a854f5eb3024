"""Runs commands and scripts: the runner behind `run: command` and `run: script`.

Owns the runs under way and their shared parts, and ends the daemon's adopted children. The reactor calls it through
`contract.Runner`. It is built for low latency. The early part of a start is done while its record is being flushed
(`prepare`). `launch` spawns before it returns, and nothing is awaited between a durable intention and the command's
first instruction. Everything here is on the loop, except blocking work. One pool of threads saves output, removes
folders, prepares runs that are not quick and enters control groups. `recover` uses the default executor.
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
from wakeful.runners.isolation.kernel_gaps import find_kernel_gaps
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected, find_unenforced, resolve_protected
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.system_places import CLOSED, CLOSED_FILE
from wakeful.runners.outputs.undeclared_changes import Writers
from wakeful.runners.preparation import Preparation, Ticket
from wakeful.runners.process.cgroup import Cgroups
from wakeful.runners.process.children import Children
from wakeful.runners.process.connection_holder import find_end, find_holder
from wakeful.runners.process.environment import select_inherited
from wakeful.runners.process.orphans import end_orphans
from wakeful.runners.process.process_mark import ProcessMark, mark_of, read_mark_of
from wakeful.runners.process.procfs import read_status
from wakeful.runners.process.program import Surroundings
from wakeful.runners.run.kept_runs import KeptRuns, LeftRun
from wakeful.runners.run.live_run import LiveRun, Shared
from wakeful.runners.run.probe_launch import ProbePlaces, launch_probe
from wakeful.secrets.known_secrets import KnownSecrets
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

# Seconds between two calls of `tidy` while runs are under way. Without a run, no timer is armed.
_TIDY_SECONDS = 5.0
# Seconds until the next call of `tidy` if killed processes are still dying.
_AGAIN_SECONDS = 0.05
# The number of threads for blocking work: saving output, removing folders, preparing runs, entering control groups.
_POOL_SIZE = 2


class CommandRunner:
    """The runner of commands and scripts. Constructed on the loop, after `become_subreaper`.

    `state` is the state folder, by which this daemon's runs differ from another daemon's.
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
        origin: ProcessMark | None = None,
    ) -> None:
        """`left` holds the ids of runs that an earlier daemon began and whose end is not in the log.

        The caller must call `recover` for each of them. `origin` is the mark of the run that started this daemon; None
        if a person started it.
        """
        self._report = report
        self._runs: dict[str, LiveRun] = {}
        # Processes of these runs may be alive. They belong to a run, not to a person.
        self._left = set(left)
        self._origin = origin
        # The names of live probes. Their processes belong neither to a run nor to a person.
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

    def list_guarded(self) -> tuple[str, ...]:
        """Return the real paths that no run may change, and that no output may replace."""
        protected = self._preparation.protected
        return (*resolve_protected(protected)[0], *map(os.path.realpath, protected.hidden))

    def guard(self, places: tuple[str, ...]) -> None:
        """Protect these paths too, for runs that start from now on: specs of attached projects."""
        self._preparation.guard(places)

    def prepare(self, order: RunOrder) -> Ticket:
        ticket = Ticket(order, self._preparation)
        # The plan follows from state and may name the same run twice. It is started only once.
        if order.run_id not in self._runs:
            ticket.prepare_early()
        return ticket

    def _start(self, ticket: Ticket) -> None:
        order = ticket.order
        if order.run_id in self._runs:
            return
        run = self._add(order, self._make_memory(order))
        try:
            run.start(ticket)
        except Exception:
            # The caller reports the error. A run that already has a process ends like any other run.
            if not run.has_begun:
                self._runs.pop(order.run_id, None)
                if not self._runs:
                    self._idle.set()
            raise

    def _make_memory(self, order: RunOrder) -> int | None:
        """Make the memory file for the output of a run that can outlive the daemon; None if it ends with the daemon."""
        kept = self._kept
        # A replay has no token. It is in no log, so no later daemon can go on with it.
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
        """Start a probe. The caller reads its output and ends it.

        A probe is in no log. On exit, the processes that left its process group are ended. Raises OperatorError,
        OSError and ValueError.
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

        # Not in the pool of the runs, because two slow recoveries would keep it from saving output.
        await asyncio.to_thread(end_orphans, marks, around.state, around.cgroups, report_gone, self._closing)

    def _adopt(self, run_id: str) -> bool:
        """Go on with a run of an earlier daemon. False if it was not kept, or was killed meanwhile."""
        around = self._around
        left = self._kept.take(run_id, around.state) if self._kept is not None else None
        if left is None or _was_ended_from_outside(left):
            return False
        if around.secrets is not None:
            around.secrets.remember(left.kept_state.order.secrets)
        self._add(left.kept_state.order, left.memory).adopt(left)
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
        sign = read_mark_of(pid, self._around.state)
        # For a daemon that a run started, the other processes of that run count as people.
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
        # Wait, but not on the loop, until folders are removed.
        await asyncio.to_thread(partial(self._around.pool.shutdown, wait=True))
        self._preparation.close()

    def _take_end(self, ended: ProcessEnded) -> None:
        # None if the run is left to the next daemon, which notices the end itself.
        run = self._runs.pop(ended.run_id, None)
        if run is None:
            return
        if not self._runs:
            self._idle.set()
            # An adopted process without a mark cannot belong to a live run any more, so end it now.
            self._tidy_after(0)
        self._report(ended)

    def tidy(self) -> None:
        """Reap and end processes that belong to no run. May be called at any time; a timer repeats it during runs."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        # The runs that are left to the next daemon go on, so end nothing.
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
    """Was the run killed by SIGTERM or SIGKILL while no daemon was running? If so, close its descriptors.

    Most likely the same person or program ended the daemon too, so it does not count as a failure of the run.
    """
    status = read_status(left.pidfd)
    if status is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in (signal.SIGTERM, signal.SIGKILL):
        return False
    for fd in (left.pidfd, left.output, left.memory):
        if fd is not None:
            os.close(fd)
    return True
