"""How answers look: JSON documents, lines of JSON, errors as `{error: words}`, and the request's caller.

Shared by the routes that read and those that call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.gate.callers import Caller
from wakeful.api.service import Service
from wakeful.core.record.state import Session
from wakeful.errors import CallerError, OperatorError, UnknownSession, WakefulError

JSON = "application/json"
LINES = "application/jsonl"
NEWLINE = "\n"


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


def find_named(service: Service, name: str) -> Session:
    """The session of this name; of a name that only a refused spec has, the error says what is wrong with that."""
    refuse_refused(service, name)
    return service.core.state.by_name(name)


def refuse_refused(service: Service, name: str) -> None:
    """A new spec that was not taken makes no session: asked for by its name, it is its problem that people need."""
    problem = None if name in service.core.state.ids else service.problems().get(name)
    if problem is not None:
        # An answer is one line; several problems of one file are several lines.
        raise UnknownSession(f"{name} is refused: {problem.replace(NEWLINE, '; and ')}")


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller
