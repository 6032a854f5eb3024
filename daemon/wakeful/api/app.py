"""The application: the handler of each route, behind the gate. No GET changes anything."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from wakeful.api.day_costs import DayCosts
from wakeful.api.event_stream import SendTurns
from wakeful.api.gate.access_tokens import Tokens
from wakeful.api.gate.callers import name_account
from wakeful.api.gate.connections import Connections
from wakeful.api.gate.gate import Gate
from wakeful.api.gate.logins import Codes, LoginThrottle
from wakeful.api.gate.people import People
from wakeful.api.gate.scopes import RULES
from wakeful.api.live_feed import LiveFeed
from wakeful.api.operations import participants
from wakeful.api.presence import Presence
from wakeful.api.problems import Refusals, RefusedRequest, answer_problem, answer_status, name_problem
from wakeful.api.routes import (
    agent_work,
    bundles,
    calls,
    context,
    credentials,
    daemon,
    dashboard_files,
    diff,
    export,
    log,
    logins,
    mcp,
    notify,
    overviews,
    people,
    questions,
    replay,
    sessions,
    streams,
    trace,
    trust,
    webhooks,
    why,
)
from wakeful.api.service import Service
from wakeful.api.tcp_port import TcpPort
from wakeful.errors import WakefulError
from wakeful.system.private_files import ChangesInTurn
from wakeful.views.session_rows import Rows

# The handlers of the routes in the table of verbs and in gate/scopes.py. The calls share one handler, and so do the
# verbs on bundles.
HANDLERS: dict[str, Callable[[Request], Awaitable[Response]]] = {
    "GET /version": daemon.read_version,
    "GET /": dashboard_files.read_page,
    "GET /assets/{path:path}": dashboard_files.read_asset,
    "POST /csp-report": dashboard_files.take_policy_report,
    "POST /login": logins.log_in,
    "POST /logout": logins.log_out,
    "POST /dashboard": logins.open_dashboard,
    "GET /sessions": sessions.read_sessions,
    "GET /sessions/{name}": sessions.read_session,
    "GET /sessions/{name}/log": log.read_log,
    "GET /sessions/{name}/facts": sessions.read_facts,
    "GET /sessions/{name}/output": sessions.read_output,
    "GET /sessions/{name}/trace": trace.read_trace,
    "GET /sessions/{name}/context": context.read_context,
    "GET /follow": streams.follow,
    "GET /live": streams.read_live,
    "GET /sessions/{name}/question": questions.read_question,
    "GET /sessions/{name}/spec": sessions.read_spec,
    "GET /top": sessions.read_top,
    "GET /why": why.explain_why,
    "GET /diff": diff.read_diff,
    "GET /export": export.export,
    "GET /costs": overviews.read_costs,
    "GET /secrets": credentials.read_secrets,
    "GET /search": log.search,
    "GET /plan": why.explain_plan,
    "GET /timeline": overviews.read_timeline,
    "GET /graph": overviews.read_graph,
    "GET /doctor": why.explain_health,
    "GET /health": daemon.read_health,
    "GET /metrics": daemon.read_metrics,
    "POST /mcp": mcp.answer_mcp,
    "GET /mcp": mcp.refuse_stream,
    "GET /sessions/{name}/bundle": bundles.send_bundle,
    "GET /openapi.json": daemon.read_description,
    "POST /replay": replay.replay,
    "POST /work/begin": agent_work.begin,
    "GET /work/rules": agent_work.read_rules,
    "GET /work/skill": agent_work.read_skill,
    "POST /work/compress": agent_work.compress,
    "POST /work/images": agent_work.keep_image,
    "GET /work/images/{address}": agent_work.read_image,
    "POST /work/subagent": agent_work.begin_sub,
    "POST /webhook/{address:path}": webhooks.receive,
    "GET /webhooks": webhooks.list_webhooks,
    "POST /webhooks/test": webhooks.test,
    "GET /trust": trust.list_trust,
    "GET /trust/{name}": trust.show_trust,
    "POST /trust/accept": trust.accept,
    "POST /trust/attach": trust.attach,
    "POST /trust/detach": trust.detach,
    "POST /trust/follow": trust.follow,
    "GET /tokens": credentials.list_tokens,
    "POST /tokens": credentials.make_token,
    "POST /tokens/revoke": credentials.revoke_token,
    "GET /people": people.list_people,
    "POST /people/add": people.add_person,
    "POST /people/role": people.set_role,
    "POST /people/remove": people.remove_person,
    "GET /me": people.read_me,
    "GET /presence": people.read_presence,
    "POST /presence": people.say_presence,
    "GET /notify": notify.read_notifiers,
    "POST /notify/test": notify.send_test,
}
ROUTES = (
    # Routes are tried in this order, and agents use the first three in every turn.
    Route("/work/steps", agent_work.record_steps, methods=["POST"]),
    Route("/work/redact", agent_work.redact, methods=["POST"]),
    Route("/work/words", agent_work.take_words, methods=["POST"]),
    Route("/call/{verb}", calls.call, methods=["POST"]),
    Route("/bundle/import", bundles.take_bundle, methods=["POST"]),
    Route("/bundle/{verb}", bundles.carry, methods=["POST"]),
    *(Route(RULES[key].path, handler, methods=[RULES[key].method]) for key, handler in HANDLERS.items()),
)


def build_app(service: Service, connections: Connections, tcp: TcpPort) -> Gate:
    app = Starlette(
        routes=ROUTES,
        exception_handlers={
            WakefulError: _handle_error,
            HTTPException: _handle_http,
            ClientDisconnect: _handle_leaving,
            Exception: _handle_defect,
        },
    )
    # An address with an additional slash at its end is not found, instead of being redirected.
    app.router.redirect_slashes = False
    app.state.service = service
    # A local name, because the lookup in `app.state` would take a third of the time of a list of 10,000 rows.
    day = app.state.day = DayCosts()
    app.state.rows = Rows(lambda session_id: day.costs.get(session_id))
    app.state.presence = Presence()
    app.state.turns = SendTurns()
    app.state.feed = LiveFeed(service, app.state.rows, app.state.day, app.state.presence)
    app.state.keys = calls.KeysInUse()
    app.state.accounts = overviews.Accounts()
    app.state.timelines = overviews.Timelines()
    app.state.roster = participants.ParticipantCache()
    app.state.knocks = webhooks.UnrecordedDeliveries()
    app.state.tokens = Tokens(service.places.state)
    app.state.people = People(service.places.state, name_account(os.geteuid()))
    # One for both: a token for a person who is being removed would outlive them.
    app.state.credential_changes = ChangesInTurn()
    app.state.connections = connections
    app.state.tcp = tcp
    app.state.refusals = Refusals()
    app.state.guesses = LoginThrottle()
    app.state.codes = Codes()
    app.state.pages = dashboard_files.Pages()
    gate = Gate(app, service)
    app.state.mcp = mcp.McpServing(gate.answer_as)
    return gate


async def _handle_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WakefulError)
    if isinstance(error, RefusedRequest):
        request.app.state.refusals.count(error.kind)
    return answer_problem(name_problem(error), str(error))


async def _handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: f"there is no {request.url.path}", 405: f"{request.method} is not what {request.url.path} takes"}
    return answer_status(error.status_code, words.get(error.status_code, error.detail))


async def _handle_leaving(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected within its request. It is not a defect, and the answer is not read."""
    return answer_problem("bad-request", "the client left before its request was complete")


async def _handle_defect(request: Request, error: Exception) -> Response:
    return answer_problem(
        "defect", f"a defect of wakeful: {type(error).__name__}: {error}; the daemon's output has the details"
    )
