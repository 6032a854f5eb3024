"""What a caller may reach: one table over every route and call, and the judgement of each request by it.

The gate of app.py asks for every request, whatever it came by. The daemon's own user without a token is not narrowed. A
token reaches what its scopes name, and one for a single session only what is about that session alone; a run's token
reaches what is marked for runs. What is not in the table is reached by no token: a new route begins closed. Nothing a
client says of its own rights is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.routing import Match, Route
from starlette.types import Scope as Asked

from wakeful.api.answers import Forbidden
from wakeful.api.gate.callers import Caller
from wakeful.api.gate.tokens import Scope, Token
from wakeful.api.routes.queries import decode_name
from wakeful.api.service import Service

# Where a request says which one session it is about.
Place = Literal["path", "query", "body"]


class Rule(Struct, frozen=True):
    """`scope` None: any token. "owner": none at all. `session` None: about more than one session, or the machine.

    `is_for_runs`: a run reaches it for its own session; where it is a call,
    calling.py sees to whose session that is."""

    scope: Scope | Literal["owner"] | None
    session: Place | None = None
    is_for_runs: bool = False


READ, READ_ONE = Rule("read"), Rule("read", "path")
TALK, TALK_OF_RUNS, RUN = Rule("send", "body"), Rule("send", "body", is_for_runs=True), Rule("run", "body")
# Those of one session, and those that reach others, the machine's files, or every session.
ADMIN_ONE, ADMIN = Rule("admin", "body"), Rule("admin")

RULES: dict[str, Rule] = {
    "GET /version": Rule(None, is_for_runs=True),
    "GET /sessions": READ,
    "GET /sessions/{name}": READ_ONE,
    "GET /sessions/{name}/log": Rule("read", "path", is_for_runs=True),
    "GET /sessions/{name}/facts": Rule("read", "path", is_for_runs=True),
    "GET /sessions/{name}/output": READ_ONE,
    "GET /sessions/{name}/trace": READ_ONE,
    "GET /sessions/{name}/context": READ_ONE,
    "GET /follow": Rule("read", "query"),
    "GET /export": Rule("read", "query"),
    "GET /search": Rule("read", "query"),
    "GET /top": READ,
    "GET /why": READ,
    "GET /diff": READ,
    "GET /costs": READ,
    "GET /plan": READ,
    "GET /doctor": READ,
    "GET /secrets": ADMIN,
    # Runs any command there is.
    "POST /replay": ADMIN,
    # Who holds a token, an admin's included, makes none that outlives it.
    "GET /tokens": Rule("owner"),
    "POST /tokens": Rule("owner"),
    "POST /tokens/revoke": Rule("owner"),
    # What counts as a spec is a person's word, and no token's.
    "GET /trust": Rule("owner"),
    "GET /trust/{name}": Rule("owner"),
    "POST /trust/accept": Rule("owner"),
    "POST /trust/attach": Rule("owner"),
    "POST /trust/detach": Rule("owner"),
    "POST /trust/follow": Rule("owner"),
    # A run's own, and nobody else's.
    "POST /work/begin": Rule("owner", is_for_runs=True),
    "POST /work/steps": Rule("owner", is_for_runs=True),
    "GET /work/rules": Rule("owner", is_for_runs=True),
    "GET /work/skill": Rule("owner", is_for_runs=True),
    "POST /work/words": Rule("owner", is_for_runs=True),
    "POST /work/compress": Rule("owner", is_for_runs=True),
    "POST /work/redact": Rule("owner", is_for_runs=True),
    "POST /work/images": Rule("owner", is_for_runs=True),
    "GET /work/images/{address}": Rule("owner", is_for_runs=True),
    "POST /work/subagent": Rule("owner", is_for_runs=True),
    # They read and write files anywhere, as the daemon's user.
    "POST /bundle/save": ADMIN,
    "POST /bundle/load": ADMIN,
    "POST /bundle/archive": ADMIN,
    "POST /bundle/move": ADMIN,
    "POST /bundle/due": ADMIN,
    "POST /call/send": TALK_OF_RUNS,
    "POST /call/note": TALK_OF_RUNS,
    "POST /call/ask": RUN,
    "POST /call/remember": TALK_OF_RUNS,
    "POST /call/forget": TALK,
    "POST /call/todo": TALK_OF_RUNS,
    "POST /call/activate": RUN,
    "POST /call/resume": RUN,
    "POST /call/suspend": RUN,
    "POST /call/sleep": RUN,
    "POST /call/interrupt": RUN,
    "POST /call/cancel": RUN,
    # A yes to what was to be asked of a person is more than a wish to run.
    "POST /call/answer": ADMIN_ONE,
    # Observed, it runs without its isolation.
    "POST /call/trace": ADMIN_ONE,
    "POST /call/terminate": ADMIN_ONE,
    "POST /call/open": ADMIN_ONE,
    "POST /call/save": ADMIN_ONE,
    "POST /call/rewind": ADMIN_ONE,
    "POST /call/resolve": ADMIN_ONE,
    "POST /call/compress": ADMIN_ONE,
    "POST /call/migrate": ADMIN_ONE,
    "POST /call/erase": ADMIN_ONE,
    "POST /call/rename": ADMIN,
    "POST /call/fork": ADMIN,
    "POST /call/merge": ADMIN,
    "POST /call/sleep_all": ADMIN,
    "POST /call/resume_all": ADMIN,
}  # fmt: skip


def find_rule(routes: Sequence[Any], asked: Asked) -> tuple[Rule | None, dict[str, str]]:
    """The rule of the route that will answer, found as the router finds it, and what the path names; no rule,
    no token."""
    for route in routes:
        match, more = route.matches(asked)
        if match is Match.FULL and isinstance(route, Route):
            named: dict[str, str] = more["path_params"]
            method = "GET" if asked["method"] == "HEAD" else asked["method"]
            return RULES.get(f"{method} {route.path.replace('{verb}', named.get('verb', ''))}"), named
    return None, {}


def judge_request(
    service: Service, caller: Caller, rule: Rule | None, named: dict[str, str], query: QueryParams
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
