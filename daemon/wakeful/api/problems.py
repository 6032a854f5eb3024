"""Errors as they leave the daemon: problem details (RFC 9457), `application/problem+json`.

Every refusal has a name from the table below, which becomes its `type` (`urn:wakeful:NAME`). Its `detail` is a message
that says what is wrong and what to do. Routes, the gate and the protocol write their errors with this module. The
description of the API and `docs/http.md` list the table.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from starlette.responses import Response

from wakeful.errors import CallerError, KeyReused, OperatorError, UnknownSession, WakefulError

# The kinds of refusal:
# - `token`: no token, a wrong token, or a browser's token without its cookie
# - `code`: a one-time code that is wrong or expired
# - `host`, `origin`, `content_type`, `body`: the part of the request that was wrong
# - `address`: a token in the address
# - `scope`: a valid token without the right for this request
# - `run`: a process of a run over TCP
# - `signature`: a webhook with a wrong signature
# - `policy`: a browser's report that a page broke its content security policy
RefusalKind = Literal[
    "token", "code", "host", "origin", "content_type", "body", "address", "scope", "run", "signature", "policy"
]
KINDS: tuple[RefusalKind, ...] = get_args(RefusalKind)


class Refusals:
    """Counts the refused requests of one daemon, by kind."""

    def __init__(self) -> None:
        self._counts: Counter[RefusalKind] = Counter()

    def count(self, kind: RefusalKind) -> None:
        self._counts[kind] += 1

    def read(self) -> dict[RefusalKind, int]:
        """Return every kind with its count."""
        return {kind: self._counts[kind] for kind in KINDS}


MEDIA_TYPE = "application/problem+json"
URN = "urn:wakeful:"


class Problem(NamedTuple):
    """A kind of refusal: its status, and the title that all of its kind share."""

    status: int
    title: str


PROBLEMS: dict[str, Problem] = {
    "bad-request": Problem(400, "The request cannot be carried out as it stands"),
    "unauthorised": Problem(401, "The caller is not known"),
    "forbidden": Problem(403, "The caller may not do this"),
    "not-found": Problem(404, "There is nothing at this address"),
    "unknown-session": Problem(404, "No session has this name"),
    "wrong-method": Problem(405, "This address does not accept this method"),
    "too-slow": Problem(408, "The request was not complete in time"),
    "key-in-use": Problem(409, "The first call with this key is under way"),
    "gone": Problem(410, "This address accepts nothing any more"),
    "too-large": Problem(413, "The body is too large"),
    "wrong-type": Problem(415, "This address does not accept this type of body"),
    "key-reused": Problem(422, "The key was used for another call"),
    "too-many-tries": Problem(429, "Too many wrong tokens or codes"),
    "defect": Problem(500, "A defect of wakeful"),
    "unavailable": Problem(503, "The daemon cannot do this now"),
    "busy": Problem(503, "The daemon is busy"),
}
# The name of a problem, by its status. If several problems share a status, the first of the table counts.
_BY_STATUS = {problem.status: name for name, problem in reversed(PROBLEMS.items())}


class RefusedRequest(CallerError):
    """A request that is refused because of its form or its caller. `Refusals` counts these requests by `kind`."""

    kind: RefusalKind = "body"

    def __init__(self, words: str, kind: RefusalKind | None = None) -> None:
        super().__init__(words)
        if kind is not None:
            self.kind = kind


class Unauthorised(RefusedRequest):
    """The caller is not identified: there is no token, or it is not valid."""

    kind = "token"


class TooManyTries(RefusedRequest):
    """Wrong tokens or codes come faster than a person types them."""

    kind = "token"


class Forbidden(RefusedRequest):
    """The caller may not do this."""

    kind = "scope"


class WrongContentType(RefusedRequest):
    """The body is not of the type that the route takes."""

    kind = "content_type"


class WrongBody(RefusedRequest):
    """The body is not a JSON object, or does not have the fields that the route takes."""


class BodyTooLarge(RefusedRequest):
    """The body is larger than the route takes."""


class KeyInUse(CallerError):
    """The first call with this idempotency key is still under way."""


# The name of the problem for each class of error. The first class that matches counts.
_BY_CLASS: tuple[tuple[type[WakefulError], str], ...] = (
    (Unauthorised, "unauthorised"),
    (Forbidden, "forbidden"),
    (UnknownSession, "unknown-session"),
    (BodyTooLarge, "too-large"),
    (WrongContentType, "wrong-type"),
    (TooManyTries, "too-many-tries"),
    (KeyInUse, "key-in-use"),
    (KeyReused, "key-reused"),
    (CallerError, "bad-request"),
    (OperatorError, "unavailable"),
)


def name_problem(error: WakefulError) -> str:
    return next((name for kind, name in _BY_CLASS if isinstance(error, kind)), "defect")


def view_problem(name: str, words: str) -> dict[str, Any]:
    problem = PROBLEMS[name]
    return {"type": f"{URN}{name}", "title": problem.title, "status": problem.status, "detail": words}


def view_error(error: WakefulError) -> dict[str, Any]:
    return view_problem(name_problem(error), str(error))


def answer_problem(name: str, words: str) -> Response:
    return Response(encode_problem(name, words), status_code=PROBLEMS[name].status, media_type=MEDIA_TYPE)


def answer_status(status: int, words: str) -> Response:
    """Answer with the problem that belongs to a status. If the table has no such status, the answer has no name."""
    name = _BY_STATUS.get(status)
    if name is not None:
        return answer_problem(name, words)
    body = {"type": "about:blank", "title": words, "status": status, "detail": words}
    return Response(msgspec.json.encode(body), status_code=status, media_type=MEDIA_TYPE)


def encode_problem(name: str, words: str) -> bytes:
    return msgspec.json.encode(view_problem(name, words))
