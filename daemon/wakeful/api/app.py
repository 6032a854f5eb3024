"""The application: all routes with their handlers, behind the gate. No GET changes anything."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from wakeful.api.contract import Service
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
from wakeful.api.requests import Handlers
from wakeful.api.routes import (
    agent_work,
    bundles,
    calls,
    context,
    credentials,
    daemon,
    dashboard_files,
    diff,
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
from wakeful.api.tcp_port import TcpPort
from wakeful.errors import WakefulError
from wakeful.system.private_files import ChangesInTurn
from wakeful.views.session_rows import Rows

# The handlers of all routes. Each module of routes ends with its own table; a new module is added here. Agents use the
# routes of agent_work in every turn, so these are tried first.
HANDLERS: Handlers = {
    **agent_work.HANDLERS,
    **sessions.HANDLERS,
    **log.HANDLERS,
    **streams.HANDLERS,
    **questions.HANDLERS,
    **context.HANDLERS,
    **people.HANDLERS,
    **bundles.HANDLERS,
    **daemon.HANDLERS,
    **dashboard_files.HANDLERS,
    **logins.HANDLERS,
    **trace.HANDLERS,
    **why.HANDLERS,
    **diff.HANDLERS,
    **overviews.HANDLERS,
    **credentials.HANDLERS,
    **mcp.HANDLERS,
    **replay.HANDLERS,
    **webhooks.HANDLERS,
    **trust.HANDLERS,
    **notify.HANDLERS,
}
ROUTES = (
    # One handler for all calls, and one for all acts on bundles.
    Route("/call/{verb}", calls.call, methods=["POST"]),
    *(Route(RULES[key].path, handler, methods=[RULES[key].method]) for key, handler in HANDLERS.items()),
    Route("/bundle/{verb}", bundles.carry, methods=["POST"]),
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
    # An address with an additional slash at its end gets 404, not a redirect.
    app.router.redirect_slashes = False
    app.state.service = service
    # `day` is a local name, because a lookup in `app.state` for each row would take a third of the time of a list of
    # 10,000 rows.
    day = app.state.day = DayCosts()
    app.state.rows = Rows(lambda session_id: day.costs.get(session_id))
    app.state.presence = Presence()
    app.state.turns = SendTurns()
    app.state.feed = LiveFeed(service, app.state.rows, app.state.day, app.state.presence)
    app.state.keys = calls.KeysInUse()
    app.state.accounts = overviews.Accounts()
    app.state.timelines = overviews.Timelines()
    app.state.roster = participants.ParticipantCache()
    app.state.unrecorded = webhooks.UnrecordedDeliveries()
    app.state.tokens = Tokens(service.places.state)
    app.state.people = People(service.places.state, name_account(os.geteuid()))
    # Changes of tokens and of people take turns. Otherwise a token could be made for a person while the person is
    # removed, and would stay valid.
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
    words = {404: f"there is no {request.url.path}", 405: f"{request.url.path} does not accept {request.method}"}
    return answer_status(error.status_code, words.get(error.status_code, error.detail))


async def _handle_leaving(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected before its request was complete. This is no defect, and nobody reads the
    answer.
    """
    return answer_problem("bad-request", "the client disconnected before its request was complete")


async def _handle_defect(request: Request, error: Exception) -> Response:
    return answer_problem(
        "defect", f"a defect of wakeful: {type(error).__name__}: {error}; the daemon's output has the details"
    )
