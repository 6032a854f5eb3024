"""Reads the query and path of requests, and writes JSON answers. Shared by all routes.

The query has numbers, moments and kinds of record; the path names a session. A wrong value is refused with a message,
never treated as absent. Answers are JSON documents and lines of JSON; problems.py writes errors.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.bodies import decode_name
from wakeful.api.gate.callers import Caller
from wakeful.api.gate.visible_sessions import VisibleSessions
from wakeful.api.service import Service, find_named
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import KINDS
from wakeful.history.positions import read_moment
from wakeful.system.private_files import ChangesInTurn

JSON = "application/json"
LINES = "application/jsonl"
ResultT = TypeVar("ResultT")


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


async def change_credentials(request: Request, change: Callable[[], ResultT]) -> ResultT:
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
    # SQLite has 64-bit integers, and would refuse a longer number with a message of its own.
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise CallerError(f"{name}={text!r}: expected a number")
    return int(text)


def read_bound(request: Request, service: Service, name: str) -> int | None:
    """Read a moment, in microseconds UTC. None if the query does not have it."""
    text = request.query_params.get(name)
    return read_moment(text, service.moment().wall) if text is not None else None


def read_kinds(request: Request) -> tuple[str, ...] | None:
    """Read the kinds of record in the query, or None for all.

    An unknown kind is refused as a typing mistake, because it would find nothing.
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
