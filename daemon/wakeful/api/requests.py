"""Reads the query and path of requests, and writes JSON answers and their pages. Shared by all routes.

The query has numbers, moments and kinds of record; the path names a session. A wrong value is refused with a message,
never treated as absent. Answers are JSON documents and lines of JSON; problems.py writes errors. `limit` is the size of
a page, and a cursor is the place where the next page begins. Clients send a cursor back unchanged. The next page has
the same filters; its address is in the header `Link`.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.bodies import decode_name
from wakeful.api.contract import Service, find_named
from wakeful.api.gate.callers import Caller, VisibleSessions
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import KINDS
from wakeful.history.positions import read_moment
from wakeful.system.private_files import ChangesInTurn

JSON = "application/json"
LINES = "application/jsonl"
CURSOR_HEADER = "Wakeful-Cursor"
MOST_ON_A_PAGE = 10_000
T = TypeVar("T")
# The handlers of a module of routes, by the key of the route in the table of verbs, such as "GET /sessions".
Handlers = dict[str, Callable[[Request], Awaitable[Response]]]


def answer_json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


def answer_lines(lines: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(lines, media_type=LINES)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def change_credentials(request: Request, change: Callable[[], T]) -> T:
    """Change tokens or people in a thread, when no other change of them is under way."""
    changes: ChangesInTurn = request.app.state.credential_changes
    return await changes.make(change)


def visible_to(request: Request) -> VisibleSessions:
    """The sessions that the caller may see."""
    return VisibleSessions(service_of(request).core.state, request.app.state.people, caller_of(request))


_KINDS = tuple(KINDS.values())


def find_session(request: Request, service: Service) -> Session:
    return find_named(service, decode_name(request.path_params["name"]))


def read_number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return read_digits(name, text) if text is not None else None


def read_digits(name: str, text: str) -> int:
    # SQLite has 64-bit integers, and would refuse a longer number with its own message.
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise CallerError(f"{name}={text!r}: expected a number")
    return int(text)


def read_bound(request: Request, service: Service, name: str) -> int | None:
    """Read a moment, in microseconds UTC. None if the query does not have it."""
    text = request.query_params.get(name)
    return read_moment(text, service.moment().wall) if text is not None else None


def read_kinds(request: Request) -> tuple[str, ...] | None:
    """Read the kinds of record in the query, or None for all.

    An unknown kind would find nothing, so it is refused as a typing mistake.
    """
    kinds = tuple(request.query_params.getlist("kind"))
    for kind in kinds:
        if kind not in _KINDS:
            near = difflib.get_close_matches(kind, _KINDS, 1)
            raise CallerError(
                f"there is no kind {kind!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(_KINDS))}")
            )
    return kinds or None


def read_limit(request: Request, most: int = MOST_ON_A_PAGE) -> int | None:
    """Read the size of a page. None if the request has no `limit`."""
    limit = read_number(request, "limit")
    if limit is not None and not 1 <= limit <= most:
        raise CallerError(f"limit={limit}: a page has 1 to {most}")
    return limit


def read_cursor(request: Request, kind: type[T]) -> T | None:
    """Read the place where the page begins. None for the first page."""
    text = request.query_params.get("cursor")
    if text is None:
        return None
    try:
        return msgspec.json.decode(base64.b64decode(text.encode(), altchars=b"-_", validate=True), type=kind)
    except (binascii.Error, msgspec.DecodeError, UnicodeEncodeError):
        raise CallerError(
            f"cursor={text[:100]!r} is not a valid cursor; send {CURSOR_HEADER} of the previous page"
        ) from None


def write_next(request: Request, place: object) -> dict[str, str]:
    """Return the headers that announce the next page, which begins at `place`."""
    cursor = base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {CURSOR_HEADER: cursor, "Link": write_link(request, [*query, ("cursor", cursor)], "next")}


def write_link(request: Request, query: list[tuple[str, str]], relation: str) -> str:
    return f'<{request.url.path}?{urlencode(query)}>; rel="{relation}"'
