"""The routes of people: the people whom the owner lets in (GET /people, POST /people/add, /people/role,
/people/remove), the people who are present (GET /presence, POST /presence), and the rights of the caller (GET /me).

Only the daemon's own user reaches /people. Presence omits the sessions that the caller may not see.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_body
from wakeful.api.contract import Service, find_named
from wakeful.api.gate.access_tokens import Tokens
from wakeful.api.gate.people import People, Person, say_reach
from wakeful.api.gate.scopes import list_calls, refuse_member
from wakeful.api.live_feed import view_present
from wakeful.api.presence import Presence
from wakeful.api.problems import Forbidden
from wakeful.api.requests import Handlers, answer_json, caller_of, change_credentials, service_of, visible_to
from wakeful.core.calls.roles import ROLES, find_role, find_smaller
from wakeful.core.spec.session import Role
from wakeful.errors import CallerError
from wakeful.text.display import count
from wakeful.views.times import show_time


class AddBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /people/add. The role is for the session of the name `session`, or for all sessions if it is
    None."""

    name: str
    role: Role
    session: str | None = None


class RoleBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /people/role. If `role` is None, the role is removed."""

    name: str
    role: Role | None
    session: str | None = None


class RemoveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str


async def list_people(request: Request) -> Response:
    service, people = service_of(request), people_of(request)
    tokens: Tokens = request.app.state.tokens
    held = [one.person for one in tokens.list_all()]
    rows = [_view(service, one) | {"tokens": held.count(one.name)} for one in people.list_all()]
    accounts = {name: account for account, name in service.core.settings.accounts.items()}
    for row in rows:
        row["account"] = accounts.get(row["name"])
    changes = [
        {"at": show_time(one.at), "by": one.by, "name": one.name, "words": one.words} for one in people.list_changes()
    ]
    return answer_json({"people": rows, "changes": changes})


async def add_person(request: Request) -> Response:
    service, body = service_of(request), await _read(request, AddBody)
    session = find_named(service, body.session) if body.session is not None else None
    words = f"let in as {body.role} of {session.name if session is not None else 'every session'}"
    add = partial(
        people_of(request).add,
        body.name,
        body.role,
        session.id if session is not None else None,
        words,
        by=caller_of(request).author,
        now=service.moment().wall,
    )
    person = await change_credentials(request, add)
    return answer_json(_view(service, person) | {"words": words})


async def set_role(request: Request) -> Response:
    service, body = service_of(request), await _read(request, RoleBody)
    where = body.session if body.session is not None else "every session"
    words = f"now {body.role} of {where}" if body.role is not None else f"the role for {where} was removed"
    change = partial(
        people_of(request).set_role,
        body.name,
        body.role,
        _find_id(service, people_of(request), body) if body.session is not None else None,
        words,
        by=caller_of(request).author,
        now=service.moment().wall,
    )
    person = await change_credentials(request, change)
    return answer_json(_view(service, person) | {"words": words})


def _find_id(service: Service, people: People, body: RoleBody) -> str:
    """Find the id of the session in the body. To remove a role, the id itself is accepted, because the session may no
    longer exist."""
    assert body.session is not None
    if body.role is None and body.session in people.get(body.name).sessions:
        return body.session
    return find_named(service, body.session).id


async def remove_person(request: Request) -> Response:
    service, body = service_of(request), await _read(request, RemoveBody)
    tokens: Tokens = request.app.state.tokens
    people, author, now = people_of(request), caller_of(request).author, service.moment().wall

    def remove() -> tuple[int, str]:
        people.get(body.name)
        # Revoke the tokens first. Otherwise they would work again if a person of this name is added later.
        revoked = tokens.revoke_of(body.name)
        words = "removed" + (f", with {count(revoked, 'token')}" if revoked else "")
        people.remove(body.name, words, by=author, now=now)
        return revoked, words

    revoked, words = await change_credentials(request, remove)
    return answer_json({"name": body.name, "words": words, "revoked": revoked})


def _view(service: Service, person: Person) -> dict[str, Any]:
    """View a person. A session that no longer exists is shown by its id."""
    name = _namer(service)
    return {
        "name": person.name,
        "role": person.role,
        "sessions": {name(one): role for one, role in person.sessions.items()},
        "reach": say_reach(person, name),
        "made_at": show_time(person.made_at),
        "made_by": person.made_by,
    }


def _namer(service: Service) -> Callable[[str], str]:
    sessions = service.core.state.sessions
    return lambda one: sessions[one].name if one in sessions else one


def people_of(request: Request) -> People:
    people: People = request.app.state.people
    return people


def presence_of(request: Request) -> Presence:
    presence: Presence = request.app.state.presence
    return presence


async def read_me(request: Request) -> Response:
    """Return the verbs that the caller may call, so that a page offers only these. The gate still judges each call,
    because a role may change in between."""
    service, caller, visible = service_of(request), caller_of(request), visible_to(request)
    only = caller.token.session if caller.token is not None else None
    usual: Role | None = None if only is not None else "maintainer" if caller.member is None else caller.member.role
    calls = {role: list_calls(caller, role) for role in ROLES}
    roles = {}
    for session in service.core.state:
        given = visible.find_role(session) if only in (None, session.id) else None
        if given is None:
            continue
        role = find_smaller(find_role(session, caller.judged_as, caller.uid), given)
        if role != usual:
            roles[session.name] = role
    return answer_json(
        {
            "person": caller.shown_name,
            "calls": calls[usual] if usual is not None else [],
            "sessions": {name: calls[role] for name, role in roles.items()},
        }
    )


async def read_presence(request: Request) -> Response:
    service, name = service_of(request), request.query_params.get("name")
    visible = visible_to(request)
    if name is not None and not visible.sees_name(name):
        return answer_json([])
    session = find_named(service, name).id if name is not None else None
    return answer_json(
        [
            view_present(one, service.core.state.get(one.session).name)
            for one in presence_of(request).list_present(session)
            if visible.sees(one.session) and one.session in service.core.state.sessions
        ]
    )


async def say_presence(request: Request) -> Response:
    """Note that the caller is still present or is typing. Sent by a page that stays open."""
    service, caller, body = service_of(request), caller_of(request), await _read(request, PresenceBody)
    if not visible_to(request).sees_name(body.name):
        raise Forbidden(
            f"you have no role in a session called {body.name!r}; `wakeful list` shows the sessions you may see"
        )
    session = find_named(service, body.name)
    if caller.token is not None and caller.token.session not in (None, session.id):
        raise Forbidden(f"token {caller.token.id} is for one session only; name that session")
    if caller.run is None:
        if caller.member is not None and body.doing == "writes":
            refuse_member(service, caller.member, session, "contributor")
        presence_of(request).note(caller.shown_name, session.id, body.doing, service.moment().wall)
    return answer_json([view_present(one, session.name) for one in presence_of(request).list_present(session.id)])


class PresenceBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    doing: Literal["looks", "writes"] = "looks"


async def _read(request: Request, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(await read_body(request), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CallerError(f"the body is not valid: {error}") from None


HANDLERS: Handlers = {
    "GET /people": list_people,
    "POST /people/add": add_person,
    "POST /people/role": set_role,
    "POST /people/remove": remove_person,
    "GET /me": read_me,
    "GET /presence": read_presence,
    "POST /presence": say_presence,
}
