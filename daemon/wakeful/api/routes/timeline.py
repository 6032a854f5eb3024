"""The routes of `timeline` and `graph`, which the dashboard draws. Both only read.

The first request for the timeline reads the whole log in pages, off the loop. Later requests read only the newer
records.
"""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.requests import answer_json, read_bound, read_number, service_of, visible_to
from wakeful.api.service import find_named
from wakeful.eventlog.contract import LogReader
from wakeful.views.session_graph import view_neighbourhood
from wakeful.views.timeline import KINDS, Bar, Mark, Timeline, view_timeline

PAGE = 1_000
DAY = 86_400_000_000
MOST = 5_000
SHOWN = 1_000
DEPTH = 2


class Timelines:
    """The timeline of the daemon, with a lock: two requests at once must not take the same records twice."""

    def __init__(self) -> None:
        self._timeline = Timeline()
        self._turn = Lock()

    def read(
        self, log: LogReader, ids: frozenset[str] | None, since: int, until: int, most: int
    ) -> tuple[list[Bar], list[Mark]]:
        """Take the new records and list the bars and marks. Blocking."""
        with self._turn:
            timeline, end = self._timeline, log.position()
            while timeline.position < end:
                position, records = log.read_after(timeline.position, PAGE, KINDS)
                for record in records:
                    timeline.take(record)
                timeline.position = max(position, timeline.position) if records else end
            bars = timeline.list_bars(ids, since, until, most)
            return bars, timeline.list_marks(ids, since, until, most)


async def read_timeline(request: Request) -> Response:
    service = service_of(request)
    now = service.moment().wall
    until = read_bound(request, service, "until") or now
    since = read_bound(request, service, "since") or until - DAY
    most = min(read_number(request, "limit") or SHOWN, MOST)
    wanted = request.query_params.getlist("name")
    ids = visible_to(request).list_ids()
    if wanted:
        named = frozenset(find_named(service, name).id for name in wanted)
        ids = named if ids is None else named & ids
    timelines: Timelines = request.app.state.timelines
    bars, marks = await asyncio.to_thread(timelines.read, service.log, ids, since, until, most)
    names = {session.id: session.name for session in service.core.state}
    return answer_json(view_timeline(bars, marks, names, since, until, most))


async def read_graph(request: Request) -> Response:
    service = service_of(request)
    focus: str | None = request.query_params.get("focus")
    depth = read_number(request, "depth")
    shown: dict[str, Any] = view_neighbourhood(
        service.core, focus, DEPTH if depth is None else depth, visible_to(request).list_ids()
    )
    return answer_json(shown)
