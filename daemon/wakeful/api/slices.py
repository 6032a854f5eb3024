"""The route of `log`: the records of one session within bounds, as lines.

Records are read in pages off the loop, so that a million of them, or a search for one among a million, goes on beside the
daemon's own work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import LINES, answer_lines, service_of
from wakeful.api.queries import find_session, read_bound, read_kinds, read_number
from wakeful.api.service import Service
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Record
from wakeful.narration import narrate
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
    if last is None:
        return answer_lines(_stream_log(service, session.id, first, bounds, with_words))
    return Response(await asyncio.to_thread(_read_newest, service, session.id, first, last, bounds, with_words), media_type=LINES)


def _read_newest(service: Service, session_id: str, first: int, last: int, bounds: dict[str, Any], with_words: bool) -> bytes:
    newest = list(service.log.read(session_id, from_seq=first, limit=last, newest_first=True, **bounds))
    return b"".join(_encode(record, with_words) for record in reversed(newest))


async def _stream_log(service: Service, session_id: str, first: int, bounds: dict[str, Any], with_words: bool) -> AsyncIterator[bytes]:
    while True:
        lines, seq = await asyncio.to_thread(_read_page, service, session_id, first, bounds, with_words)
        if lines:
            yield b"".join(lines)
        if len(lines) < PAGE:
            return
        first = seq + 1


def _read_page(service: Service, session_id: str, first: int, bounds: dict[str, Any], with_words: bool) -> tuple[list[bytes], int]:
    page = list(service.log.read(session_id, from_seq=first, limit=PAGE, **bounds))
    return [_encode(record, with_words) for record in page], page[-1].seq if page else first


def _encode(record: Record, with_words: bool) -> bytes:
    """A line of the contract; `words`, for people, only when asked for. Every record has some."""
    if not with_words:
        return encode_line(record)
    event = decode(record.kind, record.payload) if record.payload is not None else None
    words = (narrate(event) or tell(event)) if event is not None else "erased"
    return msgspec.json.encode({**view_record(record), "words": words}) + b"\n"
