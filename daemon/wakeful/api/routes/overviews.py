"""The routes of `timeline`, `graph` and `costs`: overviews of all sessions, from the whole log. All of them only read.

The first request for the timeline or the costs reads the whole log in pages, off the loop (5 s of CPU for a million
records). Later requests read only the newer records.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.contract import Service, find_named
from wakeful.api.requests import Handlers, answer_json, read_bound, read_number, service_of, visible_to
from wakeful.bundles.format import BundleRefused
from wakeful.bundles.load import read_payloads
from wakeful.core.record.state import Archived
from wakeful.eventlog.contract import LogReader, Record
from wakeful.views.costs import COUNTED, Key, Ledger, read_keys, view_costs
from wakeful.views.session_graph import view_neighbourhood
from wakeful.views.timeline import KINDS, Bar, Mark, Timeline, view_timeline
from wakeful.views.times import show_time_or_none

# The number of records that are read at once.
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


class Accounts:
    """The ledger of the daemon, with a lock: two requests at once must not count the same records twice."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._turn = Lock()
        # The payloads of archived sessions whose runs are not counted yet, by session and seq. They are needed for
        # sessions that were archived before this daemon started.
        self._archived: dict[str, dict[int, bytes]] = {}

    def sum_by(
        self,
        log: LogReader,
        keys: tuple[Key, ...],
        since: int | None,
        archives: dict[str, Path],
        ids: frozenset[str] | None = None,
    ) -> dict[tuple[Any, ...], list[float]]:
        """Count the new records and return the sums. Blocking.

        `archives` are the bundles of archived sessions, by session id. `ids` are the sessions to count, or None for
        all.
        """
        with self._turn:
            ledger, end = self._ledger, log.position()
            while ledger.position < end:
                position, records = log.read_after(ledger.position, PAGE, COUNTED)
                for record in records:
                    ledger.take(record, self._find_archived(record, archives) if record.payload is None else None)
                # The position is set only after the records were counted, so that a failed read is repeated.
                ledger.position = position
            self._archived.clear()
            return ledger.sum_by(keys, since, ids)

    def _find_archived(self, record: Record, archives: dict[str, Path]) -> bytes | None:
        """Find the payload of a record in the bundle of its session. A bundle is read once, for all its runs.

        If a bundle cannot be read, its runs count without figures, and `doctor` reports it.
        """
        path = archives.get(record.session)
        if path is None:
            return None
        if record.session not in self._archived:
            try:
                self._archived[record.session] = read_payloads(path, COUNTED)
            except (BundleRefused, OSError):
                self._archived[record.session] = {}
        return self._archived[record.session].pop(record.seq, None)


async def read_costs(request: Request) -> Response:
    service = service_of(request)
    keys = read_keys(request.query_params.get("by", "session"))
    since = read_bound(request, service, "since")
    folder = Path(service.places.state) / "archive"
    archives = {one.id: folder / one.closed.bundle for one in service.core.state if isinstance(one.closed, Archived)}
    ids = visible_to(request).list_ids()
    sums = await asyncio.to_thread(request.app.state.accounts.sum_by, service.log, keys, since, archives, ids)
    return answer_json({"since": show_time_or_none(since), **view_costs(sums, keys, _name_sessions(service))})


def _name_sessions(service: Service) -> dict[str, str]:
    return {session.id: session.name for session in service.core.state}


HANDLERS: Handlers = {
    "GET /costs": read_costs,
    "GET /timeline": read_timeline,
    "GET /graph": read_graph,
}
