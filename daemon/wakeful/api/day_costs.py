"""The cost of each session's runs that ended today, for its row in lists and live streams.

A cache of the log, updated by `catch_up` before each use. Today begins at midnight UTC. The first record of today is
found by a binary search, so that a long history costs nothing. Used on the loop only; long reads run in a thread.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from wakeful.core.record.observations import Usage
from wakeful.eventlog.contract import LogReader, Record
from wakeful.views.session_rows import FAILURES, DayCost

_DAY = 86_400_000_000
_PAGE = 1_000
# The most records that are read on the loop. More are read in a thread.
_READ_AT_ONCE = 200
_ENDS = ("run_finished",)


class _Finished(Struct):
    outcome: str
    usage: Usage = Usage()


_DECODE = msgspec.json.Decoder(_Finished).decode


class DayCosts:
    """The costs of today, by session id. `costs` has only the sessions with a run that ended today."""

    def __init__(self) -> None:
        self.costs: dict[str, DayCost] = {}
        self._day = -1
        self._position = 0
        self._turn = asyncio.Lock()

    async def catch_up(self, log: LogReader, wall: int) -> None:
        """Add the runs that ended since the last call. A run whose payload was erased counts as a run without cost."""
        async with self._turn:
            is_new_day, newest = wall // _DAY != self._day, log.position()
            if is_new_day or newest - self._position > _READ_AT_ONCE:
                await asyncio.to_thread(self._read, log, wall)
            elif newest > self._position:
                self._read(log, wall)

    def _read(self, log: LogReader, wall: int) -> None:
        day = wall // _DAY
        costs, position = dict(self.costs), self._position
        if day != self._day:
            costs, position = {}, _find_position(log, day * _DAY)
        while True:
            position, records = log.read_after(position, _PAGE, _ENDS)
            for record in records:
                if record.at >= day * _DAY:
                    costs[record.session] = _add(costs.get(record.session, DayCost()), record)
            if len(records) < _PAGE:
                break
        self.costs, self._position, self._day = costs, position, day


def _find_position(log: LogReader, at: int) -> int:
    """Find a position before which every record is older than `at`, by a binary search. Times grow with positions,
    unless the clock was set back."""
    low, high = 0, log.position()
    while low < high:
        middle = (low + high) // 2
        _, records = log.read_after(middle, 1)
        if records and records[0].at < at:
            low = middle + 1
        else:
            high = middle
    return low


def _add(cost: DayCost, record: Record) -> DayCost:
    if record.payload is None:
        return cost._replace(runs=cost.runs + 1)
    finished = _DECODE(record.payload)
    usage = finished.usage
    return DayCost(
        runs=cost.runs + 1,
        failed=cost.failed + (finished.outcome in FAILURES),
        tokens=cost.tokens + usage.tokens,
        usd=cost.usd + usage.usd,
    )
