"""Runs commands and scripts: the runner behind `run: command` and `run: script`.

Keeps the runs under way and what they share, and tidies up the daemon's adopted children. The reactor calls it as
`contract.Runner` says. Latency first: what a start needs is found out while its record is being flushed (`foresee`),
`start` spawns before it returns, and nothing is awaited between a durable intention and the command's first
instruction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.observations import Enforceable, ProcessEnded, ProcessOwner, RunAttached, RunRecovered
from wakeful.errors import OperatorError
from wakeful.runners.contract import LiveUsage, Report, RunOrder, StopWord
from wakeful.runners.isolation import closed_settings
from wakeful.runners.isolation import trace as tracing
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch
from wakeful.runners.isolation.closed_settings import CLOSED
from wakeful.runners.isolation.gaps import find_kernel_gaps
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import NotYet, Protected, find_unenforced
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.system_places import SystemPlaces
from wakeful.runners.outputs.writers import Writers
from wakeful.runners.prepare.plan_cache import MOST_READY, KnownPlans
from wakeful.runners.prepare.preparation import Prepared, begin, is_quick, prepare, prepare_next
from wakeful.runners.prepare.waiting_view import NextPlaces, WaitingView, WaitingViews, can_wait
from wakeful.runners.prepare.warm_server import WarmServer
from wakeful.runners.process.cgroup import Cgroups
from wakeful.runners.process.children import Children
from wakeful.runners.process.mark import Sign, mark_of, read_sign
from wakeful.runners.process.orphans import end_orphans
from wakeful.runners.process.pidfd import read_status
from wakeful.runners.process.program import Surroundings
from wakeful.runners.run.environment import build_environment, select_inherited
from wakeful.runners.run.kept_runs import KeptRuns, LeftRun
from wakeful.runners.run.probe_launch import ProbePlaces, launch_probe
from wakeful.runners.run.run import LiveRun
from wakeful.secrets.known import KnownSecrets
from wakeful.system.blobs import Blobs
from wakeful.system.blocking_pool import Pool

# How often orphans that ended by themselves are reaped while runs are under way. Without a run, no timer is armed.
_TIDY_SECONDS = 5.0
# What is killed takes a moment to die, and is reaped in the next round.
_AGAIN_SECONDS = 0.05
# How long what was found out for a start holds: the record takes a millisecond, on a busy disk some ten.
# Later the world may be another.
_FORESEEN_SECONDS = 0.05
# No run ended for so long: there is time to make ready for the next. Each takes half a millisecond,
# and others have their turn in between.
_QUIET_SECONDS = 0.05
_BREATH_SECONDS = 0.005
# Blocking work at a run's end: saving output, removing folders, entering control groups.
_POOL_SIZE = 2


class _Foreseen(Struct, frozen=True):
    """What a start will need, as it was at a moment (by the loop's clock)."""

    order: RunOrder
    prepared: Prepared
    around: Surroundings
    at: float


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
        warm: WarmServer | None = None,
        left: Iterable[str] = (),
        origin: Sign | None = None,
    ) -> None:
        """`left` are the ids of runs that an earlier daemon began and the log does not know the end of:
        `recover` follows for each.

        `origin` is the sign of the run that started this daemon, None where a person did."""
        self._report = report
        self._blobs = blobs
        self._inherited = select_inherited(os.environ)
        self._runs: dict[str, LiveRun] = {}
        # Their processes may be alive, and are a run's: no person's.
        self._left = set(left)
        self._origin = origin
        # No runs, and no persons either.
        self._probes: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._foreseen: dict[str, _Foreseen] = {}
        self._closing = threading.Event()
        self._is_leaving = False
        self._tidying: asyncio.TimerHandle | None = None
        # The last orders of sessions that nothing is ready for.
        self._ended: dict[str, RunOrder] = {}
        self._readying: asyncio.TimerHandle | None = None
        CLOSED.keep_in(os.path.join(state, closed_settings.FILE))
        pool = Pool(_POOL_SIZE, "runs")
        self._protected = protected
        self._around = Surroundings(
            loop=asyncio.get_running_loop(),
            pool=pool,
            children=children,
            cgroups=cgroups,
            state=os.path.realpath(state),
            system=SystemPlaces(pool) if probe_abi() else None,
            protected=protected,
            plans=KnownPlans(),
            views=WaitingViews(),
            writers=writers or Writers(),
            secrets=secrets,
            kept=kept,
            warm=warm,
        )

    def warm_up(self, libraries: Iterable[str]) -> None:
        warm = self._around.warm
        pid = warm.warm_up(libraries) if warm is not None else None
        if pid is not None:
            self._around.children.spawned(pid)

    @property
    def protected(self) -> Protected:
        """What no run that starts now may change."""
        return self._around.protected

    def guard(self, places: tuple[str, ...]) -> None:
        """Besides what was named at construction, no run that starts from now on may change these:
        specs of attached projects."""
        protected = replace(self._protected, rest=(*self._protected.rest, *places))
        if protected != self._around.protected:
            self._around = replace(self._around, protected=protected)

    def foresee(self, order: RunOrder) -> None:
        if order.run_id in self._runs or not is_quick(order):
            return
        # Whatever is wrong with it is found again by its start, which tells it;
        # so is what cannot be known without an effect.
        with contextlib.suppress(Exception):
            begun = begin(order, build_environment(order, self._inherited))
            self._foreseen[order.run_id] = _Foreseen(
                order, prepare(order, begun, self._around, is_ahead=True), self._around, self._around.loop.time()
            )

    def _take_foreseen(self, order: RunOrder) -> Prepared | None:
        foreseen = self._foreseen.pop(order.run_id, None)
        if foreseen is None:
            return None
        is_late = self._around.loop.time() - foreseen.at > _FORESEEN_SECONDS
        if foreseen.order is order and foreseen.around is self._around and not is_late:
            return foreseen.prepared
        foreseen.prepared.close()
        return None

    def start(self, order: RunOrder) -> None:
        # The plan follows from state and may name the same run twice; there is one.
        if order.run_id in self._runs:
            return
        run = self._add(order, self._make_memory(order))
        try:
            run.start(self._inherited, self._take_foreseen(order))
        except Exception:
            # Who called tells why. What has a process already ends as a run does.
            if not run.has_begun:
                self._runs.pop(order.run_id, None)
                if not self._runs:
                    self._idle.set()
            raise

    def _make_memory(self, order: RunOrder) -> int | None:
        """Where its output is captured, if somebody keeps that beyond us;
        a run that nobody has room to keep ends with the daemon."""
        kept = self._around.kept
        # A replay has no token: it is in no log, and nobody's to go on with.
        if kept is None or not order.token:
            return None
        try:
            return kept.make_memory(order.output_limit_bytes)
        except OSError:
            return None

    def _add(self, order: RunOrder, memory: int | None) -> LiveRun:
        mark = mark_of(self._around.state, order.run_id)
        run = self._runs[order.run_id] = LiveRun(order, mark, self._around, self._blobs, self._take_end, memory)
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
            async with launch_probe(name, target, self._around, self._inherited, places) as popen:
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
        left = around.kept.take(run_id, around.state) if around.kept is not None else None
        if left is None or _was_ended_from_outside(left):
            return False
        if around.secrets is not None:
            around.secrets.remember(left.keepsake.order.secrets)
        self._add(left.keepsake.order, left.memory).adopt(left)
        self._left.discard(run_id)
        return True

    def keeps(self, run_id: str) -> bool:
        kept = self._around.kept
        return kept is not None and kept.keeps(run_id)

    def forget(self, run_id: str) -> None:
        if (foreseen := self._foreseen.pop(run_id, None)) is not None:
            foreseen.prepared.close()
            # Its own folder alone: the session's others may be in use by a run that followed.
            self._around.pool.submit(shutil.rmtree, foreseen.order.folder, ignore_errors=True)
        if self._around.kept is not None:
            self._around.kept.drop(run_id)

    def unready(self, session: str) -> None:
        self._ended.pop(session, None)
        self._around.plans.forget(session)
        self._around.views.give_up(session)

    def usage(self, run_id: str) -> LiveUsage | None:
        run = self._runs.get(run_id)
        return None if run is None else run.usage()

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
        for foreseen in self._foreseen.values():
            foreseen.prepared.close()
        self._foreseen.clear()
        for timer in (self._tidying, self._readying):
            if timer is not None:
                timer.cancel()
        self._around.plans.give_up()
        await self._around.views.close()
        # Folders are still being removed: wait for that, but not on the loop.
        await asyncio.to_thread(partial(self._around.pool.shutdown, wait=True))
        if self._around.system is not None:
            self._around.system.close()
        if self._around.warm is not None:
            self._around.warm.close()

    def _take_end(self, ended: ProcessEnded) -> None:
        # Left to the next daemon, which learns of the end itself.
        run = self._runs.pop(ended.run_id, None)
        if run is None:
            return
        self._ready_after(run.order)
        if not self._runs:
            self._idle.set()
            # No run is left that a stray without a mark could belong to.
            self._tidy_after(0)
        self._report(ended)

    def _ready_after(self, order: RunOrder) -> None:
        """Be ready for the next run of a session that ran, once there is nothing else to do."""
        # A replay, which has no token, comes once.
        if not order.token or not (can_wait(order) or (is_quick(order) and order.confinement.level == "standard")):
            return
        self._ended.pop(order.session, None)
        self._ended[order.session] = order
        if len(self._ended) > MOST_READY:
            del self._ended[next(iter(self._ended))]
        if self._readying is not None:
            self._readying.cancel()
        self._readying = self._around.loop.call_later(_QUIET_SECONDS, self._ready)

    def _ready(self) -> None:
        """One at a time, the newest last: that is the one to be kept longest."""
        self._readying, around = None, self._around
        session = next(iter(self._ended), None)
        if session is None or around.system is None or self._closing.is_set():
            return
        order = self._ended.pop(session)
        # One that is under way again comes back here with its end.
        if all(run.order.session != session for run in self._runs.values()):
            environment = build_environment(order, self._inherited)
            if order.confinement.level == "strict":
                self._ready_view(order, environment)
            else:
                # Whatever is wrong with it is found by its start, which tells it.
                with contextlib.suppress(OSError, OperatorError, NotYet):
                    around.plans.ready(order, environment, around.system, around.protected)
        self._readying = around.loop.call_later(_BREATH_SECONDS, self._ready)

    def _ready_view(self, order: RunOrder, environment: dict[str, str]) -> None:
        around, places = self._around, NextPlaces(order)
        if around.views.holds(order.session):
            return

        def wait_in(making: asyncio.Future[BubblewrapLaunch | None]) -> None:
            # As above.
            with contextlib.suppress(OSError, OperatorError, NotYet):
                view = making.result()
                if view is not None and self._closing.is_set():
                    view.close()
                    places.remove()
                elif view is not None:
                    around.views.add(order.session, WaitingView(view, places, around.children, around.state))

        around.loop.run_in_executor(
            around.pool, prepare_next, order, environment, places, around.protected
        ).add_done_callback(wait_in)

    def tidy(self) -> None:
        """Reap and end what belongs to no run. Rings by itself while runs are under way; safe to call at any time."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        # What runs left behind goes on with them.
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

    Then most likely by whoever ended the daemon, too: that is no failure of the run's own.
    """
    status = read_status(left.pidfd)
    if status is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in (signal.SIGTERM, signal.SIGKILL):
        return False
    for fd in (left.pidfd, left.output, left.memory):
        if fd is not None:
            os.close(fd)
    return True
