"""The daemon's own rounds of retention: sessions that are due are archived every hour, the outputs of old runs every
day.

`api/operations/retention.py` carries a round out, as `wakeful archive --due` does. Nothing is ever deleted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from wakeful.api.operations.bundles import BundleWork
from wakeful.api.operations.retention import archive_due, archive_outputs, find_due, find_outputs
from wakeful.api.service import Service
from wakeful.core.deciding.decision import DAEMON
from wakeful.errors import WakefulError

PAUSE_SECONDS = 3600.0
ROUNDS_A_DAY = 24


async def keep_archiving(service: Service, tell_problem: Callable[[str], None]) -> None:
    """Archive what is due until cancelled. A failed round is reported, and the next one follows in an hour."""
    work = BundleWork(service, DAEMON, tell_nobody)
    for number in itertools.count():
        await asyncio.sleep(PAUSE_SECONDS)
        try:
            await archive_round(work, number)
        except (WakefulError, OSError) as problem:
            tell_problem(f"archiving what is due failed: {problem}")


async def archive_round(work: BundleWork, number: int) -> None:
    """Make one round. Outputs are archived in the first round and then once a day, because every run of the log is
    checked.
    """
    await archive_due(work, await find_due(work.service))
    if number % ROUNDS_A_DAY == 0:
        await archive_outputs(work, await find_outputs(work))


def tell_nobody(done: int, total: int) -> None:
    """A progress callback that does nothing."""
