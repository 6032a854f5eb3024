"""What stands behind the `?` of a route, read into values: numbers, moments, kinds, and the session a path names.

Shared by the routes that read. A wrong value is refused in words, never taken for "no bound".
"""

from __future__ import annotations

import difflib
from urllib.parse import unquote

from starlette.requests import Request

from wakeful.api.answers import find_named
from wakeful.api.service import Service
from wakeful.core.record.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import KINDS
from wakeful.history.positions import read_moment

_KINDS = tuple(KINDS.values())


def find_session(request: Request, service: Service) -> Session:
    return find_named(service, decode_name(request.path_params["name"]))


def decode_name(segment: str) -> str:
    return unquote(segment)


def read_number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    # Longer numbers than SQLite's 64 bits would be refused there, in its words.
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise CallerError(f"{name}={text!r}: expected a number")
    return int(text)


def read_bound(request: Request, service: Service, name: str) -> int | None:
    """A moment in microseconds."""
    text = request.query_params.get(name)
    return read_moment(text, service.moment().wall) if text is not None else None


def read_kinds(request: Request) -> tuple[str, ...] | None:
    """The kinds asked for, None for all.

    One that no record can have is a slip of the finger, not a search without a find.
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
