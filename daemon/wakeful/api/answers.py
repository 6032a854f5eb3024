"""How answers look: JSON documents, lines of JSON, errors as `{error: words}`, and the request's caller.

Shared by the routes that read and those that call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.peers import Caller
from wakeful.api.service import Service
from wakeful.errors import CallerError, OperatorError, UnknownSession, WakefulError

JSON = "application/json"
LINES = "application/jsonl"


class Forbidden(CallerError):
    """The caller may not do this."""


class BodyTooLarge(CallerError):
    """More than anyone says in one call."""


def answer_json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


def answer_lines(lines: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(lines, media_type=LINES)


def answer_error(words: str, status: int) -> Response:
    return answer_json({"error": words}, status)


async def handle_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WakefulError)
    return answer_error(str(error), find_status(error))


def find_status(error: WakefulError) -> int:
    match error:
        case Forbidden():
            return 403
        case UnknownSession():
            return 404
        case BodyTooLarge():
            return 413
        case CallerError():
            return 400
        case OperatorError():
            return 503
        case _:
            return 500


def service_of(request: Request) -> Service:
    return request.app.state.service


def caller_of(request: Request) -> Caller:
    return request.state.caller
