"""The route of `log`: the records of one session within bounds, as lines.

Records are read in pages off the loop, so that a million of them, or a search for one among a million, goes on beside the
daemon's own work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import LINES, answer_lines, service_of
from wakeful.api.queries import find_session, read_bound, read_kinds, read_number
from wakeful.api.service import Service
from wakeful.core.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Record, Span
from wakeful.narration import narrate
from wakeful.past import list_origins
from wakeful.views.records import encode_line, view_record
from wakeful.views.telling import tell

PAGE = 500
# `last` is answered in one piece, which has to fit in memory; whoever wants more asks for a range, which streams.
MOST_LAST = 10_000


async def read_log(request: Request) -> Response:
    service = service_of(request)
    session = find_session(request, service)
    bounds: dict[str, Any] = {
        "to_seq": read_number(request, "to"),
        "since": read_bound(request, service, "since"),
        "until": read_bound(request, service, "until"),
        "kinds": read_kinds(request),
        "run": read_number(request, "run"),
        "author": request.query_params.get("author"),
    }
    first, last = read_number(request, "from") or 1, read_number(request, "last")
    with_words = request.query_params.get("words") == "true"
    if last is not None and last > MOST_LAST:
        raise CallerError(f"last={last}: at most {MOST_LAST} at once; ask for more by seq (from, to) or by time (since, until)")
    archived = await asyncio.to_thread(service.log.archived, session.id)
    telling = Telling(with_words, archived, session.name)
    if request.query_params.get("past") == "true":
        return answer_lines(_stream_past(service, session, bounds, telling))
    if last is None:
        return answer_lines(_stream_log(service, session.id, first, bounds, telling))
    return Response(await asyncio.to_thread(_read_newest, service, session.id, first, last, bounds, telling), media_type=LINES)


class Telling(NamedTuple):
    """How records become lines. `words`: for people. `archived`: whose payloads are in a bundle. `of`: the session, where it is not the one asked for."""

    words: bool
    archived: Span | None
    name: str
    of: str | None = None


async def _stream_past(service: Service, session: Session, bounds: dict[str, Any], telling: Telling) -> AsyncIterator[bytes]:
    """The records that it came with, oldest first, then its own; each of those says whose it is."""
    for origin in reversed(await asyncio.to_thread(list_origins, service.log, session)):
        last = min(one for one in (origin.last, bounds["to_seq"]) if one is not None)
        async for lines in _stream_log(service, origin.session, 1, {**bounds, "to_seq": last}, telling._replace(of=origin.session)):
            yield lines
    async for lines in _stream_log(service, session.id, 1, bounds, telling):
        yield lines


def _read_newest(service: Service, session_id: str, first: int, last: int, bounds: dict[str, Any], telling: Telling) -> bytes:
    newest = list(service.log.read(session_id, from_seq=first, limit=last, newest_first=True, **bounds))
    return b"".join(_encode(record, telling) for record in reversed(newest))


async def _stream_log(service: Service, session_id: str, first: int, bounds: dict[str, Any], telling: Telling) -> AsyncIterator[bytes]:
    while True:
        lines, seq = await asyncio.to_thread(_read_page, service, session_id, first, bounds, telling)
        if lines:
            yield b"".join(lines)
        if len(lines) < PAGE:
            return
        first = seq + 1


def _read_page(service: Service, session_id: str, first: int, bounds: dict[str, Any], telling: Telling) -> tuple[list[bytes], int]:
    page = list(service.log.read(session_id, from_seq=first, limit=PAGE, **bounds))
    return [_encode(record, telling) for record in page], page[-1].seq if page else first


def _encode(record: Record, telling: Telling) -> bytes:
    """A line of the contract; `words`, for people, only when asked for. Every record has some."""
    if not telling.words:
        return encode_line(record, telling.of)
    event = decode(record.kind, record.payload) if record.payload is not None else None
    words = (narrate(event) or tell(event)) if event is not None else _say_missing(record, telling)
    view = {**view_record(record), "words": words} | ({"session": telling.of} if telling.of is not None else {})
    return msgspec.json.encode(view) + b"\n"


def _say_missing(record: Record, telling: Telling) -> str:
    span = telling.archived
    is_archived = span is not None and span.first <= record.seq <= span.last and telling.of is None
    return f"archived; `wakeful load {telling.name}` brings it back" if is_archived else "erased"
