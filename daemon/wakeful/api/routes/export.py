"""The route of `export`: records of all sessions, or of some, in the order they were recorded, as lines for other
tools.

The export ends where the log ended when the request came, so that it also ends while the log grows. The log is read in
pages off the loop, so that a million records do not delay the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.requests import Handlers, answer_lines, read_bound, read_kinds, service_of, visible_to
from wakeful.api.service import Service, find_named
from wakeful.errors import CallerError
from wakeful.eventlog.contract import Record
from wakeful.views.records import encode_export

PAGE = 1_000
FORMATS = ("jsonl",)


@dataclass(frozen=True, slots=True)
class ExportBounds:
    """The bounds of an export, each inclusive. None means no bound. `ids` are the ids of the sessions.

    `is_loaded`: include the loaded histories, which were recorded elsewhere."""

    ids: frozenset[str] | None
    kinds: tuple[str, ...] | None
    since: int | None
    until: int | None
    is_loaded: bool = False

    def has(self, record: Record) -> bool:
        return (
            (self.ids is None or record.session in self.ids)
            and (self.kinds is None or record.kind in self.kinds)
            and (self.since is None or record.at >= self.since)
            and (self.until is None or record.at <= self.until)
        )


async def export(request: Request) -> Response:
    service = service_of(request)
    form = request.query_params.get("format", FORMATS[0])
    if form not in FORMATS:
        raise CallerError(f"there is no format {form!r}; expected {' or '.join(FORMATS)}")
    names = request.query_params.getlist("name")
    ids = frozenset(find_named(service, name).id for name in names) if names else visible_to(request).list_ids()
    is_loaded = request.query_params.get("loaded") == "true"
    wanted = ExportBounds(
        ids,
        read_kinds(request),
        read_bound(request, service, "since"),
        read_bound(request, service, "until"),
        is_loaded,
    )
    # For one session, its own index avoids reading the records of all others. The order is the same.
    pages = (
        _pages_of_one(service, next(iter(ids)), wanted)
        if ids is not None and len(ids) == 1
        else _pages_of_all(service, wanted)
    )
    return answer_lines(_stream(service, pages))


async def _stream(service: Service, pages: Iterator[list[Record]]) -> AsyncIterator[bytes]:
    while (lines := await asyncio.to_thread(_encode_next, service, pages)) is not None:
        if lines:
            yield lines


def _encode_next(service: Service, pages: Iterator[list[Record]]) -> bytes | None:
    page = next(pages, None)
    if page is None:
        return None
    sessions = service.core.state.sessions
    # A loaded history that only its forks read is not a session here, so it has an id but no name.
    return b"".join(
        encode_export(record, sessions[record.session].name if record.session in sessions else None) for record in page
    )


def _pages_of_all(service: Service, wanted: ExportBounds) -> Iterator[list[Record]]:
    position, end = 0, service.log.position()
    while position < end:
        position, records = service.log.read_after(position, min(PAGE, end - position), imported=wanted.is_loaded)
        if not records:
            return
        yield [record for record in records if wanted.has(record)]


def _pages_of_one(service: Service, session_id: str, wanted: ExportBounds) -> Iterator[list[Record]]:
    first, head = 1, service.log.head(session_id).seq
    while first <= head:
        found = service.log.read(
            session_id,
            from_seq=first,
            to_seq=head,
            limit=PAGE,
            since=wanted.since,
            until=wanted.until,
            kinds=wanted.kinds,
        )
        page = list(found)
        if not page:
            return
        yield page
        first = page[-1].seq + 1


HANDLERS: Handlers = {
    "GET /export": export,
}
