"""What the last run of each session could touch, for its next run: the same,
as long as its order and the file system say the same.

The runner has one; `preparing` asks it where a run is prepared on the loop, and the runner tells it what may come again
(`ready`). Telling from scratch what a run may touch takes some fifty questions to the file system; asking whether the
answers are still the same takes a fifth of that. For the sessions that ran last even the thread that will spawn the
next run has taken on its policy. Nothing is believed unseen: every place that counts is looked at again before a start,
and what was readied for other files than are there now is given up.
"""

from __future__ import annotations

import contextlib
import os

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.spec.budget import Amounts
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.confined_spawn import (
    ConfinedLaunch,
    Confinement,
    Policy,
    begin_confined,
    prepare_another,
)
from wakeful.runners.isolation.mounts import Mounts
from wakeful.runners.isolation.reach import Plan, Protected, Reach, make_plan
from wakeful.runners.isolation.system_places import SystemPlaces
from wakeful.runners.run.environment import make_folder, make_folders

# Plans, some 5 KB each; and those that a thread waits with, some 50 KB.
_MOST_KNOWN = 512
MOST_READY = 16
# What the folder of a run is called that is not begun: it is given its own name when it is.
NEXT_SUFFIX = ".next"


class Readied(Struct, frozen=True):
    """A thread, mostly, that has taken on a policy, and the folder of its run,
    which that opens whatever it is called."""

    confined: Confinement
    policy: Policy
    folder: str
    # Those of everybody, where it has mounts of its own: what was mounted since may not be there for it.
    mounts: Mounts | None

    def suits(self, policy: Policy) -> bool:
        """Is it the one it took on, but for the name of the folder? /etc may be another since,
        or merely have been looked through again."""
        is_alike = self.policy.guard is policy.guard and self._list_others(self.policy) == self._list_others(policy)
        return is_alike and all(mounts is None or mounts.are_same() for mounts in (self.mounts, self.confined.mounts))

    @staticmethod
    def _list_others(policy: Policy) -> tuple[object, ...]:
        """The folder of the run comes first."""
        return policy.grants[1:], policy.shielded, policy.kept_writable

    def become(self, folder: str) -> bool:
        """Give the folder its name; False where that cannot be, and something else must be launched."""
        # While it is on its way, it still goes by the name.
        if not self.confined.has_taken_on:
            return False
        try:
            os.rename(self.folder, folder)
        except OSError:
            return False
        self._close()
        return True

    def give_up(self) -> None:
        self._close()
        self.confined.dismiss()
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)

    def _close(self) -> None:
        if self.mounts is not None:
            self.mounts.close()


class _Known(Struct):
    """A plan, and the questions to which it is the answer."""

    shape: RunOrder
    search_path: str
    protected: Protected
    plan: Plan
    readied: Readied | None = None

    def answers(self, shape: RunOrder, search_path: str, protected: Protected) -> bool:
        return (
            self.shape == shape
            and self.search_path == search_path
            and self.protected == protected
            and self.plan.looked.holds()
        )

    def take_readied(self) -> Readied | None:
        readied, self.readied = self.readied, None
        return readied

    def give_up(self) -> None:
        if (readied := self.take_readied()) is not None:
            readied.give_up()


class KnownPlans:
    """By session. Asked and told on the loop alone."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def find_reach(
        self,
        order: RunOrder,
        environment: dict[str, str],
        system: SystemPlaces,
        protected: Protected,
        *,
        is_ahead: bool = False,
    ) -> tuple[Reach, ConfinedLaunch | None]:
        """As `reach.find_reach`, and raises what that does; and how to launch it, where that was readied.

        Makes the run's folders.
        """
        known = self._recall(order, environment, protected)
        # Where one is known, the folders that last are there: it has been looked whether they are still the same.
        if known is None:
            make_folders(order)
            known = self._plan(order, environment, protected, is_ahead=is_ahead)
        readied = known.take_readied()
        if readied is None:
            # What is kept writable is found by looking whether it is there.
            make_folder(order.folder)
            return known.plan.conclude(system, order.folder), None
        reach = known.plan.conclude(system, order.folder)
        if readied.suits(reach.policy) and readied.become(order.folder):
            return reach, ConfinedLaunch(reach.policy, readied.confined)
        readied.give_up()
        make_folder(order.folder)
        return reach, None

    def ready(self, order: RunOrder, environment: dict[str, str], system: SystemPlaces, protected: Protected) -> None:
        """A run with this order is over: be ready for one that differs from it only in what each run has of its own."""
        # A plan is for who has its folders; where they were taken away, a start makes them.
        if not _is_lasting(order) or not (os.path.isdir(order.scratch) and os.path.isdir(order.temporary)):
            return
        known = self._recall(order, environment, protected) or self._plan(order, environment, protected, is_ahead=True)
        if known.readied is not None:
            return
        folder = f"{os.path.dirname(order.folder)}/{order.session}{NEXT_SUFFIX}"
        make_folder(folder)
        policy = known.plan.conclude(system, folder).policy
        if policy.guard is None or not _can_wait(policy, folder):
            os.rmdir(folder)
            return
        granted = (os.path.join(grant.beneath or "/", grant.path) for grant in policy.grants[1:])
        for place in (*granted, *policy.shielded, *policy.kept_writable, *policy.emptied):
            # It is opened now and for the next run, so it must be the same file then.
            known.plan.looked.is_there(place)
        # Before the thread has its own: what is mounted in between is a change, too.
        mounts = Mounts("self") if policy.shielded else None
        known.readied = Readied(begin_confined(policy), policy, folder, mounts)
        prepare_another(policy)
        self._bound()

    def forget(self, session: str) -> None:
        """Its next run will be another, or none."""
        if (known := self._known.pop(session, None)) is not None:
            known.give_up()

    def give_up(self) -> None:
        """Nothing more will be started."""
        for known in self._known.values():
            known.give_up()

    def _recall(self, order: RunOrder, environment: dict[str, str], protected: Protected) -> _Known | None:
        """What is known, if it is the answer still."""
        known = self._known.pop(order.session, None)
        if known is None:
            return None
        if not known.answers(_shape(order), environment.get("PATH", ""), protected):
            known.give_up()
            return None
        return self._keep(order, known)

    def _plan(self, order: RunOrder, environment: dict[str, str], protected: Protected, *, is_ahead: bool) -> _Known:
        plan = make_plan(order, environment, protected, is_ahead=is_ahead)
        return self._keep(order, _Known(_shape(order), environment.get("PATH", ""), protected, plan))

    def _keep(self, order: RunOrder, known: _Known) -> _Known:
        """At the end, as the one that was needed last."""
        if _is_lasting(order):
            self._known[order.session] = known
            if len(self._known) > _MOST_KNOWN:
                self._known.pop(next(iter(self._known))).give_up()
        return known

    def _bound(self) -> None:
        ready = [known for known in self._known.values() if known.readied is not None]
        for known in ready[:-MOST_READY]:
            known.give_up()


def _is_lasting(order: RunOrder) -> bool:
    """Where its commits lie, and what was laid out for one run alone, is asked for each time."""
    return not order.repositories and order.workspace is None


def _can_wait(policy: Policy, folder: str) -> bool:
    """Mounts go by names, of which the run's folder gets another; and what lies beside something hidden was listed
    one by one, and may be joined by more."""
    if policy.spared:
        return False
    if policy.shielded:
        return os.path.realpath(folder) not in policy.kept_writable
    places = (os.path.join(grant.beneath or "/", grant.path) for grant in policy.grants)
    return not any(policy.hidden.is_inside(place) for place in places)


def _shape(order: RunOrder) -> RunOrder:
    """What all runs of a session have in common, until its spec changes."""
    return replace(
        order,
        run=0, run_id="", attempt=0, folder=os.path.dirname(order.folder), staging=None, causes=b"", changed=(),
        secrets=(), token="", allowance=Amounts(), is_traced=False,
    )  # fmt: skip
