"""The route of `costs`: the ledger of runs, brought up to the log's present end, and its sums.

The first question reads the whole log, off the loop, in pages (5 s of CPU for a million records); later ones only what was
recorded since.
"""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import answer_json, service_of
from wakeful.api.queries import read_bound
from wakeful.api.service import Service
from wakeful.eventlog.contract import EventLog
from wakeful.views.costs import COUNTED, Key, Ledger, read_keys, view_costs
from wakeful.views.times import show_time_or_none

PAGE = 1_000


class Accounts:
    """The one ledger of a daemon. Two questions at once must not take the same records twice."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._turn = Lock()

    def sum_by(self, log: EventLog, keys: tuple[Key, ...], since: int | None) -> dict[tuple[Any, ...], list[float]]:
        """Blocks as long as there are records it did not take yet."""
        with self._turn:
            ledger, end = self._ledger, log.position()
            while ledger.position < end:
                position, records = log.read_after(ledger.position, PAGE, COUNTED)
                for record in records:
                    ledger.take(record)
                # Behind the records it was taken with: what a failed read left out is read again.
                ledger.position = position
            return ledger.sum_by(keys, since)


async def read_costs(request: Request) -> Response:
    service = service_of(request)
    keys = read_keys(request.query_params.get("by", "session"))
    since = read_bound(request, service, "since")
    sums = await asyncio.to_thread(request.app.state.accounts.sum_by, service.log, keys, since)
    return answer_json({"since": show_time_or_none(since), **view_costs(sums, keys, _name_sessions(service))})


def _name_sessions(service: Service) -> dict[str, str]:
    return {session.id: session.name for session in service.core.state}
