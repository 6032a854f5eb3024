"""A cache of plans: which places the last run of each session could touch, for its next run.

`Preparation` asks it for every confined run, on the loop and in threads. Making a plan takes some fifty questions to
the file system; asking whether the answers are still the same takes a fifth of that. Nothing is believed unseen: every
place that counts is looked at again before a start, and a plan with another answer is made anew. A plan is a value: it
holds no process, no thread and no descriptor. Each session has one run at a time, so no two callers share a plan.
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

# Plans, some 5 KB each. Beyond that, the one that was needed longest ago goes.
_MOST_KNOWN = 512


class _Known(Struct, frozen=True):
    """A plan, and the questions to which it is the answer."""

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
    """By session."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._bounding = Lock()

    def find_plan(
        self, order: RunOrder, environment: dict[str, str], protected: Protected, *, is_early: bool = False
    ) -> Plan:
        """As `reach.make_plan`, and raises the same. Makes the run's folders."""
        search_path, shape = environment.get("PATH", ""), _shape(order)
        known = self._known.pop(order.session, None)
        if known is None or not known.answers(shape, search_path, protected):
            make_folders(order)
            known = _Known(shape, search_path, protected, make_plan(order, environment, protected, is_early=is_early))
        else:
            # The folders that outlast a run are there: the plan was asked whether they are still the same.
            make_private(order.folder)
        # Where commits lie, and places laid out for one run alone, are asked for each time.
        if not order.repositories and order.workspace is None:
            self._keep(order.session, known)
        return known.plan

    def _keep(self, session: str, known: _Known) -> None:
        """At the end, as the one that was needed last."""
        with self._bounding:
            self._known[session] = known
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]


def _shape(order: RunOrder) -> RunOrder:
    """The part of an order that all runs of a session share, until its spec changes."""
    return replace(
        order,
        run=0, run_id="", attempt=0, folder=os.path.dirname(order.folder), staging=None, causes=b"", changed=(),
        secrets=(), token="", allowance=Amounts(), is_traced=False,
    )  # fmt: skip
