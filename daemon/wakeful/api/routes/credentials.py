"""The routes of tokens that people hand out (GET /tokens, POST /tokens, POST /tokens/revoke), and of the names of
secrets (GET /secrets).

Only the daemon's own user reaches the tokens. The text of a token is only in the answer to the request that makes it.
No answer has the value of a secret. Secrets are looked up again for each answer, so that a new secret is shown.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_routed
from wakeful.api.contract import Service, find_named
from wakeful.api.gate.access_tokens import LONGEST_NOTE, Token, Tokens
from wakeful.api.problems import WrongBody
from wakeful.api.requests import Handlers, answer_json, change_credentials, service_of
from wakeful.core.deciding.acting_agent import list_secrets_of_start, list_signing_secrets
from wakeful.verbs.verb import SCOPES
from wakeful.views.times import show_time, show_time_or_none

# The longest life of a token: a century. A longer one could not be shown as a date.
LONGEST_SECONDS = 100 * 365 * 86400.0


async def list_tokens(request: Request) -> Response:
    service = service_of(request)
    return answer_json([_view(service, one) for one in _tokens_of(request).list_all()])


async def make_token(request: Request) -> Response:
    service = service_of(request)
    body = await read_routed(request, "POST /tokens")
    _check_new(body)
    now = service.moment().wall
    session = find_named(service, body.session).id if body.session is not None else None
    expires_at = now + int(body.seconds * 1_000_000) if body.seconds is not None else None
    tokens, people = _tokens_of(request), request.app.state.people
    scopes = tuple(one for one in SCOPES if one in (body.scopes or ())) or SCOPES

    def make() -> tuple[Token, str]:
        person = people.get(body.person).name if body.person is not None else None
        return tokens.make(scopes, now, session=session, expires_at=expires_at, note=body.note, person=person)

    token, text = await change_credentials(request, make)
    return answer_json({**_view(service, token), "token": text})


def _check_new(body: Any) -> None:
    # A token of a person needs no scope, because the person's role limits it.
    if not body.scopes and body.person is None:
        raise WrongBody(f"a token has at least one scope: {', '.join(SCOPES)}")
    if body.seconds is not None and not 0 < body.seconds <= LONGEST_SECONDS:
        raise WrongBody("the life of a token is more than 0 seconds and at most a hundred years")
    if body.note is not None and len(body.note) > LONGEST_NOTE:
        raise WrongBody(f"--note has at most {LONGEST_NOTE} characters")


async def revoke_token(request: Request) -> Response:
    body = await read_routed(request, "POST /tokens/revoke")
    await change_credentials(request, partial(_tokens_of(request).revoke, body.id))
    return answer_json({"id": body.id, "words": "revoked; it is not valid any more"})


def _view(service: Service, token: Token) -> dict[str, Any]:
    """View a token, without its digest. A session that no longer exists is shown by its id."""
    session = service.core.state.sessions.get(token.session) if token.session is not None else None
    return {
        "id": token.id,
        "scopes": token.scopes,
        "session": session.name if session is not None else token.session,
        "person": token.person,
        "made_at": show_time(token.made_at),
        "expires_at": show_time_or_none(token.expires_at),
        "is_over": token.is_over(service.moment().wall),
        "note": token.note,
        "is_browser": token.cookie is not None,
        "used_at": show_time_or_none(token.used_at),
    }


def _tokens_of(request: Request) -> Tokens:
    tokens: Tokens = request.app.state.tokens
    return tokens


async def read_secrets(request: Request) -> Response:
    service = service_of(request)
    users: dict[str, list[str]] = {}
    for session in sorted(service.core.state, key=lambda session: session.name):
        if session.declaration.is_declared:
            for name in dict.fromkeys((*list_secrets_of_start(service.core, session), *list_signing_secrets(session))):
                users.setdefault(name, []).append(session.name)
    known, folder = service.secrets()
    rows = [
        {"name": one.name, "source": one.source, "problem": one.problem, "sessions": users.get(one.name, [])}
        for one in known
    ]
    return answer_json({"folder": folder, "secrets": rows})


HANDLERS: Handlers = {
    "GET /secrets": read_secrets,
    "GET /tokens": list_tokens,
    "POST /tokens": make_token,
    "POST /tokens/revoke": revoke_token,
}
