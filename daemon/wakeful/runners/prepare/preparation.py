"""What is found out before anything of a run exists: how its command and check are launched, and what is noted of it.

`LiveRun` asks once per run, and once more for the check of a run that an earlier daemon started. Looks at the file
system, makes folders, copies outputs and may try strace, so it blocks; where that can take longer than a moment it is
asked in a thread (`is_quick`). Starts no program of the run. What it refuses is raised in words for the run's record,
and then nothing is left open.
"""

from __future__ import annotations

import os

from msgspec import UNSET, Struct
from msgspec.structs import replace

from wakeful.core.observations import Enforced, Traced
from wakeful.core.spec.session import Isolation
from wakeful.errors import OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import BubblewrapLaunch
from wakeful.runners.isolation.bubblewrap import find_unenforced as find_unenforced_in_view
from wakeful.runners.isolation.confined_spawn import ConfinedLaunch, Launch, launch_bare
from wakeful.runners.isolation.reach import Protected, Reach, find_reach, find_view, make_plan
from wakeful.runners.isolation.reach_check import Standards
from wakeful.runners.isolation.trace import Tracing, find_obstacle
from wakeful.runners.outputs.staging import Staging
from wakeful.runners.outputs.undeclared import Surveyed, survey
from wakeful.runners.outputs.workspace_outputs import WorkspaceArea
from wakeful.runners.prepare.plan_cache import KnownPlans
from wakeful.runners.prepare.waiting_view import NextPlaces, WaitingView
from wakeful.runners.process import limits
from wakeful.runners.process.program import Surroundings
from wakeful.runners.run.environment import fill_folder, make_folders
from wakeful.runners.run.problems import refuse_unconfined, refuse_unjudged


class Prepared(Struct, frozen=True, kw_only=True):
    """How the programs of one run are launched, and what is noted of it. `close` when the last of them is gone."""

    cwd: str
    environment: dict[str, str]
    launch: Launch = launch_bare
    # The same launch, where it is one into a view of the run's own.
    view: BubblewrapLaunch | None = None
    # A shell in a view that was made before, for the first launch if that is still the same view.
    # Its taker's to give up.
    waiting: WaitingView | None = None
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


def begin(order: RunOrder, environment: dict[str, str], waiting: WaitingView | None = None) -> Prepared:
    """What is known without a look at anything."""
    area = (
        WorkspaceArea(order.staging, order.root, order.workspace)
        if order.workspace is not None and order.staging is not None
        else None
    )
    return Prepared(cwd=os.path.join(order.root, order.cwd), environment=environment, area=area, waiting=waiting)


def is_staged(order: RunOrder) -> bool:
    """Is what it writes put in place after it, by somebody else?"""
    return order.staging is not None and (order.workspace is not None or order.confinement.level == "strict")


def is_quick(order: RunOrder) -> bool:
    """Otherwise outputs are copied, every place of a view or workspace is looked at, or strace is tried:
    not on the loop."""
    return (
        order.confinement.level in ("standard", "none")
        and order.workspace is None
        and not order.is_traced
        and not order.is_agent
    )


def prepare(order: RunOrder, begun: Prepared, around: Surroundings, *, is_ahead: bool = False) -> Prepared:
    """Raises OperatorError, or OSError and ValueError as a spawn does.

    `is_ahead`, of a quick order: its start is not sure yet. `NotYet` is raised where something would have to be made
    outside of the run's own folders."""
    # A plan comes with the folders.
    plans = around.plans if is_quick(order) and order.confinement.level == "standard" else None
    if plans is None:
        make_folders(order)
    if begun.waiting is not None:
        begun.waiting.places.become(order)
    prepared = confine(order, begun, around, plans, is_ahead=is_ahead)
    try:
        fill_folder(order)
        if isinstance(prepared.area, WorkspaceArea):
            prepared.area.take_stock()
        if is_ahead and isinstance(prepared.launch, ConfinedLaunch):
            prepared.launch.take_on()
    except BaseException:
        prepared.close()
        raise
    return prepared


def prepare_next(
    order: RunOrder, environment: dict[str, str], places: NextPlaces, protected: Protected
) -> BubblewrapLaunch | None:
    """The view of a run that differs from this strict one only in what each run has of its own;
    None where it cannot be made before there is one.

    Raises as `prepare` does, and `NotYet`; then nothing is left."""
    coming = replace(order, folder=places.folder, staging=places.staging)
    view = None
    try:
        make_folders(coming)
        reach = make_plan(coming, environment, protected, is_ahead=True).conclude_view(coming.folder)
        staging = (
            Staging(coming.staging, coming.root, reach.areas, is_ahead=True) if coming.staging is not None else None
        )
        made = BubblewrapLaunch(coming, environment, reach, staging)
        # A stand-in in a write area that is not filled yet would be taken for an output.
        if made.mounts_in_outputs():
            made.close()
        else:
            view = made
    finally:
        if view is None:
            places.remove()
    return view


def confine(
    order: RunOrder, begun: Prepared, around: Surroundings, plans: KnownPlans | None = None, *, is_ahead: bool = False
) -> Prepared:
    """Find out what it may touch.

    A staging of `begun` is one that was filled before, and is used as it is. `plans` are for the loop alone.
    """
    if not order.confinement.is_enforced:
        noted = replace(begun, isolation=Enforced(order.confinement.level, ("everything",)))
        return _observe(order, noted, around) if order.is_traced or order.confinement.level == "observe" else noted
    if order.confinement.level == "strict":
        return _confine_strictly(order, begun, around)
    if around.system is None:
        raise OperatorError(refuse_unconfined())
    if plans is None:
        reach, launch = find_reach(order, begun.environment, around.system, around.protected), None
    else:
        reach, launch = plans.find_reach(order, begun.environment, around.system, around.protected, is_ahead=is_ahead)
    return replace(
        begun,
        environment=begun.environment | reach.environment,
        launch=launch or ConfinedLaunch(reach.policy),
        isolation=_note("standard", (*reach.unenforced, *limits.find_unenforced(order.limits)), reach),
        surveyed=survey(reach.opened, reach.guarded),
        tracing=_trace(order, begun, reach, around) if order.is_traced else None,
        standards=_set_standards(order, begun, reach),
    )


def _observe(order: RunOrder, begun: Prepared, around: Surroundings) -> Prepared:
    """Nothing is denied; what `standard` would deny is found out, if it can be."""
    if around.system is None:
        return replace(begun, untraced=refuse_unjudged())
    try:
        reach = find_reach(order, begun.environment, around.system, around.protected)
        tracing = _trace(order, begun, reach, around)
    except OperatorError as error:
        if order.is_traced:
            raise
        return replace(begun, untraced=str(error))
    # What a confined program is told, it is told here, too, or it would ask for what it otherwise would not.
    return replace(begun, environment=begun.environment | reach.environment, tracing=tracing)


def _confine_strictly(order: RunOrder, begun: Prepared, around: Surroundings) -> Prepared:
    reach = find_view(order, begun.environment, around.protected)
    environment = begun.environment | reach.environment
    # Before anything is opened or copied: it may refuse.
    tracing = _trace(order, begun, reach, around) if order.is_traced else None
    staging = begun.area if isinstance(begun.area, Staging) else None
    if begun.area is None and order.staging is not None:
        staging = Staging(order.staging, order.root, reach.areas, is_laid_out=begun.waiting is not None)
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


def _note(level: Isolation, unenforced: tuple[str, ...], reach: Reach) -> Enforced:
    return Enforced(level, unenforced, derived=reach.derived or UNSET, not_derived=reach.not_derived or UNSET)


def _trace(order: RunOrder, begun: Prepared, reach: Reach, around: Surroundings) -> Tracing:
    obstacle = find_obstacle()
    if obstacle is not None:
        raise OperatorError(obstacle)
    return Tracing(
        _set_standards(order, begun, reach), begun.cwd, lambda text: around.find_redactor().redact_text(text)
    )


def _set_standards(order: RunOrder, begun: Prepared, reach: Reach) -> Standards:
    return Standards(
        reach,
        order.root if order.workspace is None else order.workspace.real_root,
        has_view=order.confinement.level == "strict",
        is_observed=not order.confinement.is_enforced,
        moved=begun.area if isinstance(begun.area, WorkspaceArea) else None,
    )
