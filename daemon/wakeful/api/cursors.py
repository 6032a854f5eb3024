"""Pagination: `limit` is the size of a page, and a cursor is the place where the next page begins.

A cursor is opaque to clients: they send it back unchanged. The next page has the same filters; its address is in the
header `Link`.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request

from wakeful.api.requests import read_number
from wakeful.errors import CallerError

CURSOR_HEADER = "Wakeful-Cursor"
MOST_ON_A_PAGE = 10_000
T = TypeVar("T")


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
