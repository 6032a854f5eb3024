"""The route of `search`: finds words in the logs of all sessions, by the log's own index, off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.requests import (
    LINES,
    answer_lines,
    read_bound,
    read_cursor,
    read_kinds,
    read_limit,
    read_number,
    service_of,
    visible_to,
    write_next,
)
from wakeful.api.service import Service, find_named
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.history.positions import list_origins
from wakeful.views.search_results import encode_find, split_words

FOUND = 20
# The most results of a search. `export` serves those who need more.
MOST_FOUND = 1_000


async def search(request: Request) -> Response:
    service = service_of(request)
    text, name = request.query_params.get("text", ""), request.query_params.get("name")
    if not any(sign.isalnum() for sign in text):
        raise CallerError(f"nothing to search for in {text!r}; give at least one word")
    limit = read_number(request, "last") or FOUND
    if limit > MOST_FOUND:
        raise CallerError(
            f"last={limit}: a search finds at most {MOST_FOUND}; narrow it by name, kind or time, "
            "or use `wakeful export`"
        )
    bounds: dict[str, Any] = {
        "session": None,
        "since": read_bound(request, service, "since"),
        "until": read_bound(request, service, "until"),
        "kinds": read_kinds(request),
        "author": request.query_params.get("author"),
    }
    session = find_named(service, name) if name is not None else None
    ids = visible_to(request).list_ids() if session is None else None
    page, cursor = read_limit(request, MOST_FOUND), read_cursor(request, Place)
    if page is not None or cursor is not None:
        return await _answer_page(request, service, text, page or FOUND, cursor, bounds, session, ids)
    return answer_lines(_answer(service, text, limit, bounds, session, ids))


class Place(NamedTuple):
    """The beginning of a page: the results up to the time `until`, without the first `skipped`."""

    until: int
    skipped: int


async def _answer_page(
    request: Request,
    service: Service,
    text: str,
    limit: int,
    place: Place | None,
    bounds: dict[str, Any],
    session: Session | None,
    ids: frozenset[str] | None,
) -> Response:
    """Answer one page. `until` is fixed by the first page, so newer records do not shift results to the next page."""
    until, skipped = place or Place(bounds["until"] or service.moment().wall, 0)
    if skipped > MOST_FOUND:
        raise CallerError(f"a search finds at most {MOST_FOUND} in all; narrow it, or use `wakeful export`")
    most = skipped + limit + 1
    found = await asyncio.to_thread(_search, service, text, most, {**bounds, "until": until}, session, ids)
    lines = found.splitlines(keepends=True)[skipped:]
    is_more = len(lines) > limit and skipped + limit <= MOST_FOUND
    headers = write_next(request, Place(until, skipped + limit)) if is_more else {}
    return Response(b"".join(lines[:limit]), media_type=LINES, headers=headers)


async def _answer(
    service: Service,
    text: str,
    limit: int,
    bounds: dict[str, Any],
    session: Session | None,
    ids: frozenset[str] | None,
) -> AsyncIterator[bytes]:
    """Yield the results. They are streamed, so that the headers are sent at once: the first search of a long log builds
    its index, which takes half a minute for a million records."""
    yield await asyncio.to_thread(_search, service, text, limit, bounds, session, ids)


def _search(
    service: Service,
    text: str,
    limit: int,
    bounds: dict[str, Any],
    session: Session | None,
    ids: frozenset[str] | None,
) -> bytes:
    """Search the log. A search of one session includes the records it was forked or loaded with.

    `ids` are the sessions that the caller may see, or None for all.
    """
    sessions, words = service.core.state.sessions, split_words(text)
    if session is None and ids is not None:
        # Search each session separately, so that results of hidden sessions do not use up the limit.
        found = [
            record
            for one in sorted(ids)
            for record in service.log.search(text, limit=limit, **{**bounds, "session": one})
        ]
        found.sort(key=lambda record: record.at, reverse=True)
    elif session is None:
        found = service.log.search(text, limit=limit, **bounds)
    else:
        pasts = {one.session: one.last for one in list_origins(service.log, session)}
        found = service.log.search(text, limit=limit, **{**bounds, "session": session.id})
        for past, last in pasts.items():
            records = service.log.search(text, limit=limit, **{**bounds, "session": past})
            found += [record for record in records if last is None or record.seq <= last]
    # Loaded records that belong to no session here are shown under the name of the session that was loaded from them.
    named = {
        one.lineage.origin.session: f"{one.name}, before it was loaded"
        for one in sessions.values()
        if one.lineage.origin is not None and one.lineage.origin.session not in sessions
    }
    return b"".join(
        encode_find(
            record,
            sessions[record.session].name if record.session in sessions else named.get(record.session, record.session),
            words,
        )
        for record in found[:limit]
    )
