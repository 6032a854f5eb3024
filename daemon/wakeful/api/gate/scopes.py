"""Authorisation: judges each request by its route in the table of verbs. gate.py calls it for every request.

- The daemon's own user, without a token, is not restricted.
- A token reaches the routes of its scopes. A token for one session reaches only requests about that session alone.
- A person whom the owner let in reaches what their role in the session allows. A token of theirs limits that further.
- A run's token reaches the routes that are marked for runs.
- A route that is not in the table is open to the owner only, so a new route begins closed.

Nothing that a client claims about its own rights is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from starlette.datastructures import QueryParams
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute
from starlette.types import Scope as Asked

from wakeful.api.bodies import decode_name
from wakeful.api.contract import Service
from wakeful.api.gate.access_tokens import Token
from wakeful.api.gate.callers import Caller
from wakeful.api.gate.people import Person, is_enough
from wakeful.api.problems import Forbidden
from wakeful.core.record.state import Session
from wakeful.core.spec.session import Role
from wakeful.verbs.answer_fields import VERSION
from wakeful.verbs.table import list_roles, list_routes
from wakeful.verbs.verb import Argument, Field, Route

# The routes for a run's own process (routes/agent_work.py). Only agents of this release use them.
OF_RUNS: tuple[tuple[Literal["GET", "POST"], str, str], ...] = (
    ("POST", "begin", "begin, and get the prompt of the model"),
    ("POST", "steps", "have steps recorded"),
    ("GET", "rules", "read the project rules of a folder"),
    ("GET", "skill", "read a file of a skill"),
    ("POST", "words", "pass on the text of an answer in progress"),
    ("POST", "compress", "replace old conversation by a summary"),
    ("POST", "redact", "have the values of secrets removed"),
    ("POST", "images", "keep an image"),
    ("GET", "images/{address}", "read an image"),
    ("POST", "subagent", "begin the work of a sub-agent"),
)
# The routes without a verb: the first requests of a client, MCP, webhooks, and the routes that only runs may reach.
OWN_ROUTES = (
    Route("GET", "/version", None, is_for_runs=True, words="the daemon's version and places", takes=(), gives=VERSION),
    Route("GET", "/openapi.json", None, words="this description", takes=(), gives=()),
    # The files of the dashboard, and the requests of a browser that has not logged in yet.
    Route("GET", "/", None, is_public=True, words="the dashboard", takes=(), gives=(), shape="bytes"),
    Route(
        "GET",
        "/assets/{path:path}",
        None,
        is_public=True,
        words="a file of the dashboard",
        takes=(Argument("path"),),
        gives=(),
        shape="bytes",
    ),
    Route(
        "POST",
        "/csp-report",
        None,
        is_public=True,
        takes_any_type=True,
        words="a browser's report about the policy of the page",
        takes=(),
        gives=(),
        is_open=True,
    ),
    Route(
        "POST",
        "/login",
        None,
        is_public=True,
        words="exchange a one-time code, or a token, for a browser's token and cookie; over TCP only",
        takes=(
            Argument(
                "code", is_required=False, help="The code of a link. Without it, the token in the header is exchanged."
            ),
        ),
        gives=(
            Field("token", "text", "the token, which the page keeps"),
            Field("person", "text", "the person who is logged in"),
            Field("scopes", "list", "the scopes of the login"),
        ),
    ),
    Route(
        "POST",
        "/logout",
        None,
        words="end a browser's login",
        takes=(),
        gives=(Field("words", "text", "what was done"),),
    ),
    Route(
        "GET",
        "/me",
        None,
        words="the caller, and the verbs that the caller may call",
        takes=(),
        gives=(
            Field("person", "text", "the caller's name"),
            Field("calls", "list", "the verbs the caller may call in every session that is not in `sessions`"),
            Field("sessions", "object", "the verbs the caller may call in each other session, by name"),
        ),
    ),
    # Each call inside an MCP message is judged again, by the route of its verb.
    Route(
        "POST",
        "/mcp",
        None,
        is_for_runs=True,
        words="the Model Context Protocol: one message of a client",
        takes=(),
        gives=(),
        is_open=True,
    ),
    # A client of an older MCP revision asks for a standing stream. The answer is that there is none.
    Route("GET", "/mcp", None, is_for_runs=True, words="there is no such stream", takes=(), gives=(), is_open=True),
    # Other systems deliver webhooks here. They show no token and may send a form, so the route checks their signature.
    Route(
        "POST",
        "/webhook/{address:path}",
        None,
        is_public=True,
        takes_any_type=True,
        words="a delivery to a webhook binding; its signature is checked",
        takes=(Argument("address"),),
        gives=(),
        is_open=True,
    ),
    *(
        Route(
            method,
            f"/work/{what}",
            "owner",
            is_for_runs=True,
            words=f"of a run's own process: {words}",
            takes=(),
            gives=(),
            is_open=True,
        )
        for method, what, words in OF_RUNS
    ),
)
RULES: dict[str, Route] = {**list_routes(), **{route.key: route for route in OWN_ROUTES}}
_ROLES = list_roles()
_CALL = "POST /call/"
# The calls about one session. Calls about all sessions at once need no role in a session, and are not listed here.
_CALLS = [
    (key.removeprefix(_CALL), RULES[key], role)
    for key, role in _ROLES.items()
    if key.startswith(_CALL) and role is not None
]
# The fields of a body that name existing sessions.
_NAMING = ("name", "fork")


def find_rule(routes: Sequence[Any], asked: Asked) -> tuple[Route | None, dict[str, str]]:
    """Find the rule of the route that will answer, and its path parameters. Routes are tried in the router's own order.

    The rule is None for a route that is not in the table; no token reaches such a route.
    """
    for route in routes:
        match, more = route.matches(asked)
        if match is Match.FULL and isinstance(route, StarletteRoute):
            named: dict[str, str] = more["path_params"]
            method = "GET" if asked["method"] == "HEAD" else asked["method"]
            return RULES.get(f"{method} {route.path.replace('{verb}', named.get('verb', ''))}"), named
    return None, {}


def judge_request(
    service: Service, caller: Caller, rule: Route | None, named: dict[str, str], query: QueryParams
) -> bool:
    """Raise Forbidden if the caller may not do this. Returns True if the body must be judged as well (`judge_body`)."""
    if caller.run is not None:
        if (
            rule is None
            or not rule.is_for_runs
            or (rule.session == "path" and decode_name(named["name"]) != caller.run.name)
        ):
            raise Forbidden(
                f"a run may note, send, remember, recall and read the history of its own session, {caller.run.name}, "
                "and nothing else"
            )
        return False
    is_body_judged = caller.member is not None and _judge_member(service, caller.member, rule, named, query)
    if caller.token is not None:
        is_body_judged |= _judge_token(service, caller.token, rule, named, query)
    return is_body_judged


def _judge_token(service: Service, token: Token, rule: Route | None, named: dict[str, str], query: QueryParams) -> bool:
    if rule is None or rule.scope == "owner":
        raise Forbidden("tokens cannot do this; only the daemon's own user can, without a token")
    if not _has_scope(token, rule):
        raise Forbidden(
            f"this needs a token with the scope {rule.scope}; token {token.id} has {', '.join(token.scopes)}"
        )
    if token.session is None or rule.scope is None:
        return False
    match rule.session:
        case None:
            raise Forbidden(f"token {token.id} is for one session, and this is about more than one")
        case "path":
            _refuse_others(service, token, [decode_name(named["name"])])
        case "query":
            _refuse_others(service, token, query.getlist("name"))
        case "body":
            return True
    return False


def find_needed_role(rule: Route) -> Role | None:
    """Find the least role that reaches a route. None if only the daemon's owner reaches it."""
    if rule.scope is None or rule.scope == "read":
        return "observer"
    return _ROLES.get(rule.key)


def list_calls(caller: Caller, role: Role) -> list[str]:
    """List the verbs that a caller with this role in a session may call there."""
    token = caller.token
    return [
        verb
        for verb, rule, needed in _CALLS
        if is_enough(role, needed) and (token is None or _opens_in_session(token, rule))
    ]


def _opens_in_session(token: Token, rule: Route) -> bool:
    """May this token make the call in a session that the token is for? A token for one session may not make calls about
    more than one session."""
    return _has_scope(token, rule) and (token.session is None or rule.session is not None)


def _has_scope(token: Token, rule: Route) -> bool:
    return rule.scope is None or rule.scope in token.scopes or "admin" in token.scopes


def _judge_member(
    service: Service, member: Person, rule: Route | None, named: dict[str, str], query: QueryParams
) -> bool:
    needed = find_needed_role(rule) if rule is not None else None
    if rule is None or needed is None:
        raise Forbidden(f"only the owner of this daemon may do this, and {member.name} is not; ask them")
    if rule.scope is None:
        return False
    match rule.session:
        case "path":
            _refuse_by_roles(service, member, [decode_name(named["name"])], needed)
        case "query" if query.getlist("name"):
            _refuse_by_roles(service, member, query.getlist("name"), needed)
        case _ if rule.method == "POST":
            return True
        case _ if not rule.is_filtered and not member.is_everywhere:
            raise Forbidden(f"this is about every session, and {member.name} has a role for single ones only")
    return False


def judge_body(service: Service, caller: Caller, rule: Route | None, body: dict[str, Any]) -> None:
    """Raise Forbidden if the caller may not do this with the sessions that the body names."""
    if caller.token is not None and caller.token.session is not None:
        _refuse_others(service, caller.token, [body.get("name")])
    needed = find_needed_role(rule) if rule is not None else None
    if caller.member is None or needed is None:
        return
    _refuse_by_roles(service, caller.member, [body[field] for field in _NAMING if field in body], needed)
    if body.get("workspace"):
        raise Forbidden("only the owner of this daemon may choose a folder of the machine; leave the folder out")


def refuse_member(service: Service, member: Person, session: Session, needed: Role) -> None:
    """Raise Forbidden if the person's role in the session is not enough."""
    role = member.find_role(session, service.core.state.sessions.get)
    if role is None:
        raise Forbidden(_say_unseen(member, session.name))
    if not is_enough(role, needed):
        raise Forbidden(
            f"{member.name} is {_ARTICLES[role]} of {session.name}, and this needs {_ARTICLES[needed]}; "
            "the owner of the daemon gives roles (wakeful people role)"
        )


_ARTICLES: dict[Role, str] = {
    "observer": "an observer",
    "contributor": "a contributor",
    "maintainer": "a maintainer",
}


def _say_unseen(member: Person, name: str) -> str:
    """Return the refusal for a session in which the person has no role. It does not reveal whether the session
    exists."""
    return f"{member.name} has no role in a session called {name!r}; `wakeful list` shows the sessions they may see"


def _refuse_by_roles(service: Service, member: Person, names: list[Any], needed: Role) -> None:
    """Raise Forbidden unless the person has the needed role in each named session. Without names, the role is needed
    for every session.

    If a session does not exist, a person with a role for all sessions passes. The route then reports that it does not
    exist.
    """
    state = service.core.state
    for name in names:
        session_id = state.ids.get(name) if isinstance(name, str) else None
        if session_id is not None:
            refuse_member(service, member, state.get(session_id), needed)
        elif not member.is_everywhere:
            raise Forbidden(_say_unseen(member, str(name)))
        elif not is_enough(member.role, needed):
            raise Forbidden(
                f"{member.name} is {_ARTICLES[member.role or 'observer']} here, and this needs {_ARTICLES[needed]}; "
                "the owner of the daemon gives roles (wakeful people role)"
            )
    if not names and not is_enough(member.role, needed):
        raise Forbidden(f"this needs {_ARTICLES[needed]} of every session, and {member.name} is not")


def _refuse_others(service: Service, token: Token, names: list[Any]) -> None:
    """Raise Forbidden unless the request names the token's session and no other. A request without a name would concern
    all sessions."""
    ids = service.core.state.ids
    if not names or any(not isinstance(name, str) or ids.get(name) != token.session for name in names):
        raise Forbidden(f"token {token.id} is for one session only; name that session")
