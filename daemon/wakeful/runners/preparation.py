"""Prepares the start of a run: `Ticket.prepare_early` does what can be done before the run is on record, and
`Ticket.launch` starts the process. Both are called on the loop.

`CommandRunner` has one `Preparation`, which does all the work before a process exists: the folders and files of the
run, its reach (`PlanCache`) and its confinement. Early work is done while the record of the start is being written to
disk, and is valid for a moment (`FRESH_SECONDS`). A later launch, or one with other protected paths, does it again.
`complete` is blocking, and `LiveRun` calls it in a thread of the pool unless it is short (`is_quick`). It starts no
program of the run. A refusal is raised with a message for the run's record, and then nothing is left open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from threading import Lock

from msgspec import UNSET, Struct
from msgspec.structs import replace

from wakeful.core.record.observations import Enforced, Traced
from wakeful.core.spec.budget import Amounts
from wakeful.core.spec.session import Isolation
from wakeful.errors import OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch
from wakeful.runners.isolation.bubblewrap import find_unenforced as find_unenforced_in_view
from wakeful.runners.isolation.confined_spawn import ConfinedLaunch
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Plan, Protected, Reach, find_reach, make_plan
from wakeful.runners.isolation.reach_check import JudgedRun
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.system_places import SystemPlaces
from wakeful.runners.isolation.trace import Tracing, find_obstacle
from wakeful.runners.outputs.staging import Staging
from wakeful.runners.outputs.undeclared_changes import Surveyed, survey
from wakeful.runners.outputs.workspace_outputs import WorkspaceArea
from wakeful.runners.process import resource_limits
from wakeful.runners.process.environment import build_environment, fill_folder, make_folders
from wakeful.runners.process.problems import refuse_unconfined, refuse_unjudged
from wakeful.runners.process.program import Launch, Surroundings, launch_bare
from wakeful.system.private_files import make_private

# The most plans, about 5 KB each. Beyond that, the least recently used plan is dropped.
_MOST_KNOWN = 512


# The inputs of a plan besides the file system: the shape of an order, the search path, the protected places.
_Inputs = tuple[RunOrder, str, Protected]


class PlanCache:
    """The paths that the last run of each session could touch, for its next run. Called on the loop and in threads.

    Making a plan takes 1.5 ms. Checking that the file system still gives the same answers takes a tenth of that. If an
    answer differs, a new plan is made. Each session has one run at a time, so no two callers share a plan.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Inputs, Plan]] = {}
        self._bounding = Lock()

    def find_plan(
        self, order: RunOrder, environment: dict[str, str], protected: Protected, *, is_early: bool = False
    ) -> Plan:
        """Return a valid plan, from the cache or from `reach.make_plan`, whose errors it raises.

        Makes the folders of the run.
        """
        inputs = _shape(order), environment.get("PATH", ""), protected
        known_inputs, plan = self._known.pop(order.session, (None, None))
        if plan is not None and known_inputs == inputs and plan.answers.still_hold():
            # The folders that outlast a run exist, because the check of the plan included them.
            make_private(order.folder)
        else:
            make_folders(order)
            plan = make_plan(order, environment, protected, is_early=is_early)
        # Plans with git repositories, or with a workspace made for one run, are not kept.
        if not order.repositories and order.workspace is None:
            with self._bounding:
                self._known[order.session] = inputs, plan
                if len(self._known) > _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
        return plan


def _shape(order: RunOrder) -> RunOrder:
    """Reduce an order to the part that all runs of a session share, until its spec changes."""
    return replace(
        order,
        run=0, run_id="", attempt=0, folder=os.path.dirname(order.folder), staging=None, causes=b"", changed=(),
        secrets=(), token="", allowance=Amounts(), is_traced=False,
    )  # fmt: skip


# Seconds for which early work is valid. Writing the record takes 1 ms, on a busy disk about 10 ms. Later, files and
# folders may have changed.
FRESH_SECONDS = 0.05


class Prepared(Struct, frozen=True, kw_only=True):
    """How to launch the programs of one run, and what is recorded about its isolation.

    The owner calls `close` when the last of these programs has ended.
    """

    cwd: str
    environment: dict[str, str]
    launch: Launch = launch_bare
    # The same object as `launch` if the run gets a file system view of its own (strict); otherwise None.
    view: BubblewrapLaunch | None = None
    isolation: Enforced | None = None
    # The folders that confinement opens wider than the run may write. They are searched for undeclared changes.
    surveyed: tuple[Surveyed, ...] = ()
    # The area that the run writes to instead of the real places of its outputs.
    area: Staging | WorkspaceArea | None = None
    tracing: Tracing | None = None
    # The rules by which denials are explained. None if nothing is enforced, or if an earlier daemon started the run.
    standards: JudgedRun | None = None
    # Describes why the run is not traced although it should be; None otherwise.
    untraced: str | None = None

    @property
    def starts_another(self) -> bool:
        """Is another program spawned, which then starts the run's program?"""
        return (
            self.view is not None
            or self.tracing is not None
            or (isinstance(self.launch, ConfinedLaunch) and self.launch.policy.needs_launcher)
        )

    def conclude_trace(self) -> Traced | None:
        """Return the result of tracing; None if the run was not to be traced. Blocking if the run was traced."""
        if self.tracing is not None:
            return self.tracing.conclude()
        return Traced(is_observed=True, words=self.untraced) if self.untraced is not None else None

    def close(self) -> None:
        """Close all that was opened. Safe to repeat. The area's files stay until they have landed or are discarded."""
        if isinstance(self.launch, ConfinedLaunch):
            self.launch.dismiss()
        if self.view is not None:
            self.view.close()
        if isinstance(self.area, Staging):
            self.area.close()


def is_staged(order: RunOrder) -> bool:
    """Are the run's outputs staged, and put in place after the run by `Landing`?"""
    return order.staging is not None and (order.workspace is not None or order.confinement.level == "strict")


def _is_plain(order: RunOrder) -> bool:
    """Can this run be prepared without examining a workspace, trying strace, or searching packages of MCP servers?"""
    return order.workspace is None and not order.is_traced and not order.servers


class Ticket:
    """One start of one run (`contract.Ticket`). The runner makes it, and `LiveRun` takes the early work from it.

    The early part of a quick order is done at once. For a strict order, a thread copies the outputs and examines every
    path of the view, while the record of the start is being flushed.
    """

    def __init__(self, order: RunOrder, preparation: Preparation) -> None:
        self.order = order
        self._preparation = preparation
        self._protected = preparation.protected
        self._early: Prepared | None = None
        self._early_at = preparation.around.loop.time()
        self._in_thread: asyncio.Future[Prepared | None] | None = None
        self._is_launched = False

    def launch(self) -> None:
        self._is_launched = True
        self._preparation.start(self)

    def discard(self) -> None:
        if self._is_launched:
            return
        if self._in_thread is not None:
            self._in_thread.add_done_callback(lambda done: self._remove(done.result()))
        elif self._early is not None:
            self._remove(self._early)
        self._early = self._in_thread = None

    def prepare_early(self) -> None:
        """Do the early part. If that fails, or would change something outside the run's folders, the launch does it."""
        order, around = self.order, self._preparation.around
        if self._preparation.is_quick(order):
            self._early = self._complete()
        elif order.confinement.level == "strict" and _is_plain(order):
            self._in_thread = around.loop.run_in_executor(around.pool, self._complete)

    def take_early(self, take: Callable[[Prepared | None], None]) -> None:
        """Call `take` once with the early work, or with None if there is none or it is out of date.

        `take` is called now, or when the thread is done.
        """
        is_late = self._preparation.around.loop.time() - self._early_at > FRESH_SECONDS
        is_fresh = self._protected is self._preparation.protected and not is_late
        early, in_thread = self._early, self._in_thread
        self._early = self._in_thread = None
        if in_thread is not None:
            in_thread.add_done_callback(lambda done: take(self._keep_fresh(done.result(), is_fresh=is_fresh)))
        else:
            take(self._keep_fresh(early, is_fresh=is_fresh))

    def _keep_fresh(self, early: Prepared | None, *, is_fresh: bool) -> Prepared | None:
        if early is None or is_fresh:
            return early
        early.close()
        if early.view is not None:
            # The early work copied outputs, which may have changed since.
            self._clear()
        return None

    def _complete(self) -> Prepared | None:
        try:
            return self._preparation.complete(self.order, self._preparation.begin(self.order), is_early=True)
        except Exception:
            # The error is `NotYet`, a refusal or a shortage. The launch meets it again and reports it.
            self._clear()
            return None

    def _remove(self, early: Prepared | None) -> None:
        if early is not None:
            early.close()
        self._preparation.around.pool.submit(self._clear)

    def _clear(self) -> None:
        """Remove the run's own folders. Blocking. A later run may already use the session's other folders."""
        for folder in (self.order.folder, self.order.staging):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


class Preparation:
    """Prepares the runs of one runner. Constructed on the loop. `start` is called with each ticket that is launched."""

    def __init__(
        self,
        around: Surroundings,
        inherited: Mapping[str, str],
        protected: Protected,
        start: Callable[[Ticket], None],
    ) -> None:
        self.around = around
        self.start = start
        self.protected = protected
        # None if this kernel has no Landlock.
        self.system = SystemPlaces(around.pool) if probe_abi() else None
        self._inherited = inherited
        self._always_protected = protected
        self._plans = PlanCache()

    def guard(self, places: tuple[str, ...]) -> None:
        """Protect these paths too, for runs that start from now on: specs of attached projects."""
        protected = replace(self._always_protected, rest=(*self._always_protected.rest, *places))
        if protected != self.protected:
            self.protected = protected

    def try_machine(self) -> None:
        """Try what this machine can do, so that no run waits for it on the loop. Blocks: for an ordinary user an
        interpreter is started."""
        # The reason may be a lack of threads or descriptors. The run that needs the result tries again, and reports the
        # problem.
        with contextlib.suppress(OSError, RuntimeError, MemoryError):
            can_shield()
            if self.system is not None:
                self.system.guard()

    def is_quick(self, order: RunOrder) -> bool:
        """May this order be completed on the loop? Completing it then takes a few file system calls and waits for
        nothing.

        Otherwise outputs are copied, or every path of a view or workspace is examined. A thread does that.
        """
        if order.confinement.level not in ("standard", "none") or not _is_plain(order):
            return False
        return self.system is None or not order.confinement.is_enforced or self.system.is_ready()

    def close(self) -> None:
        """Close the system's places, because no more runs will be started."""
        if self.system is not None:
            self.system.close()

    def begin(self, order: RunOrder) -> Prepared:
        """Make the part of a preparation that needs no look at the file system."""
        area = (
            WorkspaceArea(order.staging, order.root, order.workspace)
            if order.workspace is not None and order.staging is not None
            else None
        )
        environment = build_environment(order, self._inherited)
        return Prepared(cwd=os.path.join(order.root, order.cwd), environment=environment, area=area)

    def complete(self, order: RunOrder, begun: Prepared, *, is_early: bool = False) -> Prepared:
        """Finish a preparation. Blocking. Raises OperatorError, or OSError and ValueError as a spawn does.

        `is_early` is True if the run is not recorded yet. Then `NotYet` is raised if something must be made outside the
        run's own folders.
        """
        if not order.confinement.is_enforced:
            make_folders(order)
        # Otherwise finding the plan makes the folders.
        prepared = self.confine(order, begun, is_early=is_early)
        try:
            # The policy comes first, so that a thread applies it while the files are written.
            if is_early and isinstance(prepared.launch, ConfinedLaunch):
                prepared.launch.take_on()
            fill_folder(order)
            if isinstance(prepared.area, WorkspaceArea):
                prepared.area.take_stock()
        except BaseException:
            prepared.close()
            raise
        return prepared

    def confine(self, order: RunOrder, begun: Prepared, *, is_early: bool = False) -> Prepared:
        """Compute which places the run may touch, and how to launch it. A staging area in `begun` stays as it is."""
        if not order.confinement.is_enforced:
            noted = replace(begun, isolation=Enforced(order.confinement.level, ("everything",)))
            return self._observe(order, noted) if order.is_traced or order.confinement.level == "observe" else noted
        if order.confinement.level == "strict":
            return self._confine_strictly(order, begun, is_early=is_early)
        if self.system is None:
            raise OperatorError(refuse_unconfined())
        plan = self._plans.find_plan(order, begun.environment, self.protected, is_early=is_early)
        reach = plan.conclude(self.system, order.folder)
        return replace(
            begun,
            environment=begun.environment | reach.environment,
            launch=ConfinedLaunch(reach.policy),
            isolation=_note("standard", (*reach.unenforced, *resource_limits.find_unenforced(order.limits)), reach),
            surveyed=survey(reach.opened, reach.guarded),
            tracing=self._trace(order, begun, reach) if order.is_traced else None,
            standards=_set_standards(order, begun, reach),
        )

    def _observe(self, order: RunOrder, begun: Prepared) -> Prepared:
        """Deny nothing, but trace the accesses that `standard` would deny, if tracing is possible."""
        if self.system is None:
            return replace(begun, untraced=refuse_unjudged())
        try:
            reach = find_reach(order, begun.environment, self.system, self.protected)
            tracing = self._trace(order, begun, reach)
        except OperatorError as error:
            if order.is_traced:
                raise
            return replace(begun, untraced=str(error))
        # A confined program gets these variables, and so avoids some paths. The traced program must avoid them as well.
        return replace(begun, environment=begun.environment | reach.environment, tracing=tracing)

    def _confine_strictly(self, order: RunOrder, begun: Prepared, *, is_early: bool) -> Prepared:
        plan = self._plans.find_plan(order, begun.environment, self.protected, is_early=is_early)
        reach = plan.conclude_view(order.folder)
        environment = begun.environment | reach.environment
        # Before anything is opened or copied, because it may raise.
        tracing = self._trace(order, begun, reach) if order.is_traced else None
        staging = begun.area if isinstance(begun.area, Staging) else None
        if begun.area is None and order.staging is not None:
            staging = Staging(order.staging, order.root, reach.areas)
        try:
            view = BubblewrapLaunch(order, environment, reach, staging)
        except BaseException:
            if staging is not None:
                staging.close()
            raise
        unenforced = (
            *find_unenforced_in_view(order.confinement.network),
            *reach.unenforced,
            *resource_limits.find_unenforced(order.limits),
        )
        return replace(
            begun,
            environment=environment,
            launch=view,
            view=view,
            isolation=_note("strict", unenforced, reach),
            area=staging or begun.area,
            tracing=tracing,
            standards=_set_standards(order, begun, reach),
        )

    def _trace(self, order: RunOrder, begun: Prepared, reach: Reach) -> Tracing:
        obstacle = find_obstacle()
        if obstacle is not None:
            raise OperatorError(obstacle)
        around = self.around
        return Tracing(
            _set_standards(order, begun, reach), begun.cwd, lambda text: around.find_redactor().redact_text(text)
        )


def _note(level: Isolation, unenforced: tuple[str, ...], reach: Reach) -> Enforced:
    return Enforced(level, unenforced, derived=reach.derived or UNSET, not_derived=reach.not_derived or UNSET)


def _set_standards(order: RunOrder, begun: Prepared, reach: Reach) -> JudgedRun:
    return JudgedRun(
        reach,
        order.root if order.workspace is None else order.workspace.real_root,
        has_view=order.confinement.level == "strict",
        is_observed=not order.confinement.is_enforced,
        moved=begun.area if isinstance(begun.area, WorkspaceArea) else None,
    )
