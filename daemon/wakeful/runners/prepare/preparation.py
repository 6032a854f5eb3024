"""The one way to start a run: `prepare(order)` returns a ticket, `ticket.launch()` starts the process.

`CommandRunner` has one `Preparation`. All work that is done before a process exists is in this folder: folders and
files of the run, its reach (`plan_cache.py`), its confinement. The early part is done while the record of the start is
on its way to disk, and holds for a moment; a launch that comes later, or for other files, does it again. `prepare` and
`launch` are called on the loop. `complete` looks at the file system, makes folders, copies outputs and may try strace,
so it blocks; where that can take longer than a moment, `LiveRun` calls it in a thread of the pool (`is_quick`). It
starts no program of the run. A refusal is raised in words for the run's record, and then nothing is left open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping

from msgspec import UNSET, Struct
from msgspec.structs import replace

from wakeful.core.record.observations import Enforced, Traced
from wakeful.core.spec.session import Isolation
from wakeful.errors import OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch
from wakeful.runners.isolation.bubblewrap import find_unenforced as find_unenforced_in_view
from wakeful.runners.isolation.confined_spawn import ConfinedLaunch
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected, Reach, find_reach
from wakeful.runners.isolation.reach_check import Standards
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.system_places import SystemPlaces
from wakeful.runners.isolation.trace import Tracing, find_obstacle
from wakeful.runners.outputs.staging import Staging
from wakeful.runners.outputs.undeclared import Surveyed, survey
from wakeful.runners.outputs.workspace_outputs import WorkspaceArea
from wakeful.runners.prepare.plan_cache import PlanCache
from wakeful.runners.process import limits
from wakeful.runners.process.environment import build_environment, fill_folder, make_folders
from wakeful.runners.process.problems import refuse_unconfined, refuse_unjudged
from wakeful.runners.process.program import Launch, Surroundings, launch_bare

# How long early work holds: the record takes a millisecond, on a busy disk some ten. Later the world may be another.
FRESH_SECONDS = 0.05


class Prepared(Struct, frozen=True, kw_only=True):
    """How the programs of one run are launched, and what is noted of it. `close` when the last of them is gone."""

    cwd: str
    environment: dict[str, str]
    launch: Launch = launch_bare
    # The same launch, where it is one into a view of the run's own.
    view: BubblewrapLaunch | None = None
    isolation: Enforced | None = None
    # Folders that are opened wider than what may be written there.
    surveyed: tuple[Surveyed, ...] = ()
    # Where it writes instead of where its outputs are.
    area: Staging | WorkspaceArea | None = None
    tracing: Tracing | None = None
    # By what its denials are judged; None where nothing is enforced, or nobody knows any more.
    standards: Standards | None = None
    # Why it is not traced although it should be.
    untraced: str | None = None

    @property
    def starts_another(self) -> bool:
        """Is another program spawned, which starts the run's?"""
        return (
            self.view is not None
            or self.tracing is not None
            or (isinstance(self.launch, ConfinedLaunch) and self.launch.policy.needs_launcher)
        )

    def conclude_trace(self) -> Traced | None:
        """Blocks where it was traced."""
        if self.tracing is not None:
            return self.tracing.conclude()
        return Traced(is_observed=True, words=self.untraced) if self.untraced is not None else None

    def close(self) -> None:
        """Safe to repeat. The area itself stays until it has landed, or never will."""
        if isinstance(self.launch, ConfinedLaunch):
            self.launch.dismiss()
        if self.view is not None:
            self.view.close()
        if isinstance(self.area, Staging):
            self.area.close()


def is_staged(order: RunOrder) -> bool:
    """Is what it writes put in place after it, by somebody else?"""
    return order.staging is not None and (order.workspace is not None or order.confinement.level == "strict")


def _is_plain(order: RunOrder) -> bool:
    """Otherwise outputs are copied, every place of a view or workspace is looked at, strace is tried, or packages of
    MCP servers are looked for: not on the loop."""
    return (
        order.confinement.level in ("standard", "none")
        and order.workspace is None
        and not order.is_traced
        and not order.servers
    )


def _is_plain_view(order: RunOrder) -> bool:
    """A strict run of which nothing but its outputs is copied, and nothing is tried."""
    is_plain = order.workspace is None and not order.is_traced and not order.servers
    return order.confinement.level == "strict" and is_plain


class Ticket:
    """One start of one run (`contract.Ticket`). Made by `Preparation`; `LiveRun` takes from it what was prepared early.

    The early part of a quick order is done at once. That of a strict one is done in a thread, while the record of the
    start is flushed: its outputs are copied, and every place of its view is looked at."""

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
        """Errors are found again by the launch, which reports them; so is what cannot be known without an effect."""
        order, around = self.order, self._preparation.around
        if self._preparation.is_quick(order):
            self._early = self._complete()
        elif _is_plain_view(order):
            self._in_thread = around.loop.run_in_executor(around.pool, self._complete)

    def take_early(self, take: Callable[[Prepared | None], None]) -> None:
        """`take` is called once with what was prepared a moment ago, if it holds still: now, or when the thread is
        done."""
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
            # Copies of outputs that may be others by now.
            self._clear()
        return None

    def _complete(self) -> Prepared | None:
        try:
            return self._preparation.complete(self.order, self._preparation.begin(self.order), is_early=True)
        except Exception:
            # `NotYet`, a refusal or a shortage.
            self._clear()
            return None

    def _remove(self, early: Prepared | None) -> None:
        if early is not None:
            early.close()
        self._preparation.around.pool.submit(self._clear)

    def _clear(self) -> None:
        """Blocks. Its own folders alone: the session's others may be in use by a run that followed."""
        for folder in (self.order.folder, self.order.staging):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


class Preparation:
    """Constructed on the loop. `start` begins the run of a ticket that is launched."""

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
        # None: this kernel cannot confine anything.
        self.system = SystemPlaces(around.pool) if probe_abi() else None
        self._inherited = inherited
        self._always_protected = protected
        self._plans = PlanCache()

    def guard(self, places: tuple[str, ...]) -> None:
        """Besides what was named at construction, no run that starts from now on may change these: specs of attached
        projects."""
        protected = replace(self._always_protected, rest=(*self._always_protected.rest, *places))
        if protected != self.protected:
            self.protected = protected

    def prepare(self, order: RunOrder) -> Ticket:
        ticket = Ticket(order, self)
        ticket.prepare_early()
        return ticket

    def try_machine(self) -> None:
        """Try what this machine can do, so that no run waits for it on the loop. Blocks: for an ordinary user an
        interpreter is started."""
        # For want of threads or descriptors, perhaps. The run that needs it tries again, and says what is wrong.
        with contextlib.suppress(OSError, RuntimeError, MemoryError):
            can_shield()
            if self.system is not None:
                self.system.guard()

    def is_quick(self, order: RunOrder) -> bool:
        """May it be completed on the loop? That takes some fifty looks at the file system, and waits for nothing."""
        if not _is_plain(order):
            return False
        return self.system is None or not order.confinement.is_enforced or self.system.is_ready()

    def close(self) -> None:
        """Nothing more will be started."""
        if self.system is not None:
            self.system.close()

    def begin(self, order: RunOrder) -> Prepared:
        """The part that is known without a look at anything."""
        area = (
            WorkspaceArea(order.staging, order.root, order.workspace)
            if order.workspace is not None and order.staging is not None
            else None
        )
        environment = build_environment(order, self._inherited)
        return Prepared(cwd=os.path.join(order.root, order.cwd), environment=environment, area=area)

    def complete(self, order: RunOrder, begun: Prepared, *, is_early: bool = False) -> Prepared:
        """Blocks. Raises OperatorError, or OSError and ValueError as a spawn does.

        `is_early`: the run is not on record yet. `NotYet` is raised where something outside of its
        own folders must be made.
        """
        if not order.confinement.is_enforced:
            make_folders(order)
        # Otherwise a plan comes with the folders.
        prepared = self.confine(order, begun, is_early=is_early)
        try:
            # First, so that a thread takes on the policy beside what follows.
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
        """Find out what it may touch. A staging of `begun` was filled before, and is used as it is."""
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
            isolation=_note("standard", (*reach.unenforced, *limits.find_unenforced(order.limits)), reach),
            surveyed=survey(reach.opened, reach.guarded),
            tracing=self._trace(order, begun, reach) if order.is_traced else None,
            standards=_set_standards(order, begun, reach),
        )

    def _observe(self, order: RunOrder, begun: Prepared) -> Prepared:
        """Nothing is denied; what `standard` would deny is found out, if it can be."""
        if self.system is None:
            return replace(begun, untraced=refuse_unjudged())
        try:
            reach = find_reach(order, begun.environment, self.system, self.protected)
            tracing = self._trace(order, begun, reach)
        except OperatorError as error:
            if order.is_traced:
                raise
            return replace(begun, untraced=str(error))
        # A confined program is told these variables. Without them it would ask here for what it otherwise would not.
        return replace(begun, environment=begun.environment | reach.environment, tracing=tracing)

    def _confine_strictly(self, order: RunOrder, begun: Prepared, *, is_early: bool) -> Prepared:
        plan = self._plans.find_plan(order, begun.environment, self.protected, is_early=is_early)
        reach = plan.conclude_view(order.folder)
        environment = begun.environment | reach.environment
        # Before anything is opened or copied: it may refuse.
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
            *limits.find_unenforced(order.limits),
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


def _set_standards(order: RunOrder, begun: Prepared, reach: Reach) -> Standards:
    return Standards(
        reach,
        order.root if order.workspace is None else order.workspace.real_root,
        has_view=order.confinement.level == "strict",
        is_observed=not order.confinement.is_enforced,
        moved=begun.area if isinstance(begun.area, WorkspaceArea) else None,
    )
