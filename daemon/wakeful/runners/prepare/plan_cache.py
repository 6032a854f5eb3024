"""A cache of plans: the paths that the last run of each session could touch, for its next run.

`Preparation` calls it for every confined run, on the loop and in threads. Making a plan takes about fifty queries to
the file system. Checking that their answers are unchanged takes a fifth of the time. Every path that matters is checked
again before a start, and if an answer differs, a new plan is made. A plan is a value: it holds no process, no thread
and no descriptor. Each session has one run at a time, so no two callers share a plan.
"""

from __future__ import annotations

import os
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.spec.budget import Amounts
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.reach import Plan, Protected, make_plan
from wakeful.runners.process.environment import make_folders
from wakeful.system.private_folders import make_private

# The most plans, about 5 KB each. Beyond that, the least recently used plan is dropped.
_MOST_KNOWN = 512


class _Known(Struct, frozen=True):
    """A plan, and the inputs from which it was made."""

    shape: RunOrder
    search_path: str
    protected: Protected
    plan: Plan

    def answers(self, shape: RunOrder, search_path: str, protected: Protected) -> bool:
        return (
            self.shape == shape
            and self.search_path == search_path
            and self.protected == protected
            and self.plan.looked.holds()
        )


class PlanCache:
    """The plans of the last runs, by session."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._bounding = Lock()

    def find_plan(
        self, order: RunOrder, environment: dict[str, str], protected: Protected, *, is_early: bool = False
    ) -> Plan:
        """Return a valid plan, from the cache or from `reach.make_plan`, whose errors it raises.

        Makes the folders of the run.
        """
        search_path, shape = environment.get("PATH", ""), _shape(order)
        known = self._known.pop(order.session, None)
        if known is None or not known.answers(shape, search_path, protected):
            make_folders(order)
            known = _Known(shape, search_path, protected, make_plan(order, environment, protected, is_early=is_early))
        else:
            # The folders that outlast a run exist, because the check of the plan included them.
            make_private(order.folder)
        # Plans with git repositories, or with a workspace made for one run, are not kept.
        if not order.repositories and order.workspace is None:
            self._keep(order.session, known)
        return known.plan

    def _keep(self, session: str, known: _Known) -> None:
        """Store the plan as the most recently used one."""
        with self._bounding:
            self._known[session] = known
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]


def _shape(order: RunOrder) -> RunOrder:
    """Reduce an order to the part that all runs of a session share, until its spec changes."""
    return replace(
        order,
        run=0, run_id="", attempt=0, folder=os.path.dirname(order.folder), staging=None, causes=b"", changed=(),
        secrets=(), token="", allowance=Amounts(), is_traced=False,
    )  # fmt: skip
