"""The route of `search`: words over the logs of all sessions, answered by the log's own index, off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.answers import answer_lines, find_named, service_of
from wakeful.api.queries import read_bound, read_kinds, read_number
from wakeful.api.service import Service
from wakeful.errors import CallerError
from wakeful.views.finds import encode_find, split_words

FOUND = 20
# More than a page of finds is a question for `export`.
MOST_FOUND = 1_000


async def search(request: Request) -> Response:
    service = service_of(request)
    text, name = request.query_params.get("text", ""), request.query_params.get("name")
    if not any(sign.isalnum() for sign in text):
        raise CallerError(f"nothing to search for in {text!r}; give at least one word")
    limit = read_number(request, "last") or FOUND
    if limit > MOST_FOUND:
        raise CallerError(f"last={limit}: a search finds at most {MOST_FOUND}; narrow it by name, kind or time, or use `wakeful export`")
    bounds: dict[str, Any] = {
        "session": find_named(service, name).id if name is not None else None,
        "since": read_bound(request, service, "since"),
        "until": read_bound(request, service, "until"),
        "kinds": read_kinds(request),
        "author": request.query_params.get("author"),
    }
    return answer_lines(_answer(service, text, limit, bounds))


async def _answer(service: Service, text: str, limit: int, bounds: dict[str, Any]) -> AsyncIterator[bytes]:
    """The first search of a long log makes its index (half a minute for a million records): the headers do not wait for it,
    so that who asked knows that it is being worked on."""
    yield await asyncio.to_thread(_search, service, text, limit, bounds)


def _search(service: Service, text: str, limit: int, bounds: dict[str, Any]) -> bytes:
    sessions, words = service.core.state.sessions, split_words(text)
    found = service.log.search(text, limit=limit, **bounds)
    return b"".join(encode_find(record, sessions[record.session].name if record.session in sessions else record.session, words) for record in found)
