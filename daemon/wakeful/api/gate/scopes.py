"""How far a caller reaches: each request is judged by its route in the table of verbs.

gate.py asks for every request. The daemon's own user without a token is not restricted. A token reaches what its
scopes name. A token for one session reaches only what is about that session alone. A run's token reaches the routes
that are marked for runs. A route that is not in the table is reached by no token: a new route begins closed. What a
client says of its own rights is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.datastructures import QueryParams
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute
from starlette.types import Scope as Asked

from wakeful.api.gate.callers import Caller
from wakeful.api.gate.tokens import Token
from wakeful.api.requests import Forbidden, decode_name
from wakeful.api.service import Service
from wakeful.verbs.table import list_routes
from wakeful.verbs.verb import Route

# The routes that belong to no verb: what a client asks first, MCP, and a run's own, which nobody else reaches.
OWN_ROUTES = (
    Route("GET", "/version", None, is_for_runs=True),
    # Each call that comes by it is judged by the route of its verb.
    Route("POST", "/mcp", None, is_for_runs=True),
    # A client of an older revision asks for a stream of its own, and is told that there is none.
    Route("GET", "/mcp", None, is_for_runs=True),
    Route("POST", "/work/begin", "owner", is_for_runs=True),
    Route("POST", "/work/steps", "owner", is_for_runs=True),
    Route("GET", "/work/rules", "owner", is_for_runs=True),
    Route("GET", "/work/skill", "owner", is_for_runs=True),
    Route("POST", "/work/words", "owner", is_for_runs=True),
    Route("POST", "/work/compress", "owner", is_for_runs=True),
    Route("POST", "/work/redact", "owner", is_for_runs=True),
    Route("POST", "/work/images", "owner", is_for_runs=True),
    Route("GET", "/work/images/{address}", "owner", is_for_runs=True),
    Route("POST", "/work/subagent", "owner", is_for_runs=True),
)
RULES: dict[str, Route] = {**list_routes(), **{route.key: route for route in OWN_ROUTES}}


def find_rule(routes: Sequence[Any], asked: Asked) -> tuple[Route | None, dict[str, str]]:
    """The rule of the route that will answer, found as the router finds it, and what the path names; no rule, no
    token.
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
    """Raise Forbidden where the caller's token does not reach; True where the body has still to be judged."""
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
    token = caller.token
    # Our own user, by the kernel's word.
    if token is None:
        return False
    if rule is None or rule.scope == "owner":
        raise Forbidden("no token reaches this; the daemon's own user does, without one")
    if rule.scope is not None and rule.scope not in token.scopes and "admin" not in token.scopes:
        raise Forbidden(
            f"this takes a token with the scope {rule.scope}; token {token.id} has {', '.join(token.scopes)}"
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


def judge_body(service: Service, caller: Caller, body: dict[str, Any]) -> None:
    """The same for a call, whose session stands in what was sent."""
    if caller.token is not None and caller.token.session is not None:
        _refuse_others(service, caller.token, [body.get("name")])


def _refuse_others(service: Service, token: Token, names: list[Any]) -> None:
    """Every name that is asked for, and at least one: without a name, all sessions are meant."""
    ids = service.core.state.ids
    if not names or any(not isinstance(name, str) or ids.get(name) != token.session for name in names):
        raise Forbidden(f"token {token.id} is for one session alone; name that one")
