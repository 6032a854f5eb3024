"""The route of `diff`: two sides, each NAME or NAME@POSITION, compared off the loop."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import answer_json, find_named, service_of
from wakeful.api.service import Service
from wakeful.core.events import RunFinished
from wakeful.core.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.past import find_seq, fold_until
from wakeful.views.differences import compare

# More runs than anyone reads of; the versions at both ends are exact all the same.
MOST_RUNS = 1_000


async def read_diff(request: Request) -> Response:
    service = service_of(request)
    sides = [find_side(service, request.query_params.get(side), side) for side in ("a", "b")]
    return answer_json(await asyncio.to_thread(_compare, service, sides, service.moment().wall))


def find_side(service: Service, text: str | None, side: str) -> tuple[Session, str | None]:
    """The session a side names, and the position behind the last `@`. A session's name may hold an `@` itself, and wins."""
    if not text:
        raise CallerError(f"{side} is missing; expected NAME or NAME@POSITION, such as payroll@12")
    name, mark, position = text.rpartition("@")
    if text in service.core.state.ids or not mark:
        return find_named(service, text), None
    return find_named(service, name), position


def _compare(service: Service, sides: list[tuple[Session, str | None]], now: int) -> dict[str, Any]:
    log = service.log
    a, b = (fold_until(log, session, session.seq if position is None else find_seq(log, session, position, now)) for session, position in sides)
    runs: list[RunFinished] = []
    if a.id == b.id:
        first, last = sorted((a.seq, b.seq))
        records = log.read(a.id, from_seq=first + 1, to_seq=last, kinds=("run_finished",), limit=MOST_RUNS)
        events = (decode(record.kind, record.payload) for record in records if record.payload is not None)
        runs = [event for event in events if isinstance(event, RunFinished)]
    times = [next((record.at for record in log.read(one.id, from_seq=one.seq, limit=1)), None) for one in (a, b)]
    return compare(a, b, runs, (times[0], times[1]))
