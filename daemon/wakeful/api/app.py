"""The routes, one verb each, and the gate every request goes through. No GET changes anything.

The gate reads who calls (the user and the process by the kernel's word, a run or a bearer by the token), refuses other
users and processes of runs that do not speak as their run, asks authorising.py how far the caller reaches, and tells
both sides' versions. Names may hold slashes, so the path is matched as it was sent: `hr%2Fpayroll` is one segment.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wakeful.api.answers import Forbidden, answer_error, find_status, handle_error
from wakeful.api.gate.callers import Caller, Peer, Unknown, find_absence, name_person, name_run, name_token
from wakeful.api.gate.connections import Connections
from wakeful.api.gate.protocol import VERSION_HEADER
from wakeful.api.gate.scopes import find_rule, judge_body, judge_request
from wakeful.api.gate.tokens import Tokens, is_token
from wakeful.api.routes import agent_work as working
from wakeful.api.routes import calls as calling
from wakeful.api.routes import context as assembling
from wakeful.api.routes import costs as costing
from wakeful.api.routes import diff as comparing
from wakeful.api.routes import export as exporting
from wakeful.api.routes import log as slices
from wakeful.api.routes import participants
from wakeful.api.routes import replay as replaying
from wakeful.api.routes import retention as retaining
from wakeful.api.routes import search as searching
from wakeful.api.routes import secrets as secret_names
from wakeful.api.routes import sessions as reading
from wakeful.api.routes import tokens as granting
from wakeful.api.routes import top as watching
from wakeful.api.routes import trace as tracing
from wakeful.api.routes import trust as trusting
from wakeful.api.routes import why as explaining
from wakeful.api.routes.calls import decode_body, read_body
from wakeful.api.service import Service
from wakeful.core.observations import ProcessOwner
from wakeful.errors import CallerError, WakefulError
from wakeful.views.session_rows import Rows

# The names under which clients of other programs put tokens into addresses.
TOKEN_PARAMETERS = frozenset(("token", "access_token", "api_key", "apikey", "authorization", "bearer"))


# What these answer is read from the log, where a state that `/sessions` showed a moment ago must be found.
# Not `/sessions` itself, nor
# `/doctor`: while the disk hangs, people must still see what there is.
FROM_THE_LOG = ("/sessions/", "/why", "/diff", "/export", "/costs", "/search")


class Unauthorised(CallerError):
    """Nobody we know: what was shown opens nothing."""


ROUTES = (
    # Asked in the turns of agents, and routes are tried in this order.
    Route("/work/steps", working.record_steps, methods=["POST"]),
    Route("/work/redact", working.redact, methods=["POST"]),
    Route("/work/words", working.take_words, methods=["POST"]),
    Route("/version", reading.read_version),
    Route("/sessions", reading.read_sessions),
    Route("/sessions/{name}", reading.read_session),
    Route("/sessions/{name}/log", slices.read_log),
    Route("/sessions/{name}/facts", reading.read_facts),
    Route("/sessions/{name}/output", reading.read_output),
    Route("/sessions/{name}/trace", tracing.read_trace),
    Route("/sessions/{name}/context", assembling.read_context),
    Route("/follow", reading.follow),
    Route("/top", watching.read_top),
    Route("/why", explaining.explain_why),
    Route("/diff", comparing.read_diff),
    Route("/export", exporting.export),
    Route("/costs", costing.read_costs),
    Route("/secrets", secret_names.read_secrets),
    Route("/search", searching.search),
    Route("/plan", explaining.explain_plan),
    Route("/doctor", explaining.explain_health),
    Route("/replay", replaying.replay, methods=["POST"]),
    Route("/bundle/{verb}", retaining.carry_all, methods=["POST"]),
    Route("/call/{verb}", calling.call, methods=["POST"]),
    Route("/work/begin", working.begin, methods=["POST"]),
    Route("/work/rules", working.read_rules),
    Route("/work/skill", working.read_skill),
    Route("/work/compress", working.compress, methods=["POST"]),
    Route("/work/images", working.keep_image, methods=["POST"]),
    Route("/work/images/{address}", working.read_image),
    Route("/work/subagent", working.begin_sub, methods=["POST"]),
    Route("/trust", trusting.list_trust),
    Route("/trust/{name}", trusting.show_trust),
    Route("/trust/accept", trusting.accept, methods=["POST"]),
    Route("/trust/attach", trusting.attach, methods=["POST"]),
    Route("/trust/detach", trusting.detach, methods=["POST"]),
    Route("/trust/follow", trusting.follow, methods=["POST"]),
    Route("/tokens", granting.list_tokens),
    Route("/tokens", granting.make_token, methods=["POST"]),
    Route("/tokens/revoke", granting.revoke_token, methods=["POST"]),
)


def build_app(service: Service, connections: Connections) -> ASGIApp:
    app = Starlette(
        routes=ROUTES,
        exception_handlers={
            WakefulError: handle_error,
            HTTPException: _handle_http,
            ClientDisconnect: _handle_leaving,
            Exception: _handle_defect,
        },
    )
    app.state.service = service
    app.state.rows = Rows()
    app.state.accounts = costing.Accounts()
    app.state.roster = participants.Roster()
    app.state.tokens = Tokens(service.places.state)
    app.state.connections = connections
    return Gate(app, service)


async def _handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: f"there is no {request.url.path}", 405: f"{request.method} is not what {request.url.path} takes"}
    return answer_error(words.get(error.status_code, error.detail), error.status_code)


async def _handle_leaving(request: Request, error: Exception) -> Response:
    """The client left within its request: that is no defect, and nobody reads the answer."""
    return answer_error("the client left before its request was complete", 400)


async def _handle_defect(request: Request, error: Exception) -> Response:
    return answer_error(
        f"a defect of wakeful: {type(error).__name__}: {error}; the daemon's output has the details", 500
    )


class Gate:
    """Every request passes here before it is routed: who calls, and whether that reaches so far."""

    def __init__(self, app: Starlette, service: Service) -> None:
        self._app = app
        self._service = service
        self._tokens: Tokens = app.state.tokens
        self._uid = os.geteuid()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[VERSION_HEADER] = self._service.version
            await send(message)

        answer: ASGIApp = self._app
        try:
            caller = self._identify(scope)
            scope["state"]["caller"] = caller
            rule, named = find_rule(self._app.routes, scope)
            if judge_request(self._service, caller, rule, named, QueryParams(scope["query_string"])):
                body = await read_body(Request(scope, receive))
                judge_body(self._service, caller, decode_body(body))
                receive = _repeat(body, receive)
            if scope["path"].startswith(FROM_THE_LOG):
                await self._service.recorded_so_far()
        except ClientDisconnect:
            return
        except Unauthorised as refusal:
            answer = answer_error(str(refusal), 401)
        except WakefulError as refusal:
            answer = answer_error(str(refusal), find_status(refusal))
        await answer(scope, receive, send_with_version)

    def _identify(self, scope: Scope) -> Caller:
        """Raise Unauthorised or Forbidden where nobody we know is at the other end."""
        scope["path"] = scope["raw_path"].decode("ascii")
        peer: Peer = scope["state"].pop("peer")
        connection = scope["state"].pop("connection")
        if peer.uid != self._uid:
            raise Forbidden(f"this daemon belongs to user {self._uid}; user {peer.uid} may not use it")
        # A process that hands its connection on and leaves may be a run's that wants to pass for a person.
        if (absence := find_absence(connection, peer)) is not None:
            raise Forbidden(absence)
        _refuse_in_address(scope)
        shown = Headers(scope=scope).getlist("authorization")
        if not shown:
            _refuse_no_person(peer)
            return Caller(name_person(peer.uid), uid=peer.uid)
        kind, _, text = shown[0].partition(" ")
        # Which of two would count is nobody's to guess.
        if len(shown) > 1 or kind.lower() != "bearer":
            raise Unauthorised("one header is expected, Authorization: Bearer TOKEN")
        return self._identify_by_token(text.strip(), peer)

    def _identify_by_token(self, text: str, peer: Peer) -> Caller:
        standing = peer.standing
        if isinstance(standing, Unknown) and not standing.may_show_token:
            raise Forbidden(standing.words)
        owner = standing if isinstance(standing, ProcessOwner) else None
        if is_token(text):
            token = self._tokens.find(text, self._service.moment().wall)
            if token is None:
                raise Unauthorised(
                    "this token opens nothing: it was never given, is over, or was revoked; "
                    "wakeful token list shows those there are"
                )
            if owner is not None and owner.run_id is not None:
                raise Forbidden("a process of a run speaks with that run's token, and with no other")
            return Caller(name_token(token), uid=peer.uid, token=token, person=name_person(peer.uid))
        run = self._service.run_identity(text)
        if run is None:
            raise Unauthorised("this token belongs to no run under way; a token ends with its run")
        if owner is not None and owner.run_id != run.run_id:
            raise Forbidden("this token was given to another run")
        return Caller(name_run(run), run)


def _refuse_no_person(peer: Peer) -> None:
    """Raise Forbidden unless a process of a person is at the other end."""
    match peer.standing:
        case Unknown(words=words):
            raise Forbidden(words)
        case ProcessOwner(run_id=None, sign=sign):
            raise Forbidden(
                f"process {peer.pid} belongs to a run of another daemon, or to one that is over, "
                f"and is no person here ({sign}); "
                "call from a shell that no run started, or show a token of this daemon (wakeful token)"
            )
        case ProcessOwner():
            raise Forbidden("a process of a run speaks with that run's token (WAKEFUL_TOKEN_FILE), or not at all")


def _refuse_in_address(scope: Scope) -> None:
    """A token in an address ends up in histories, logs and the pages that are linked to: it is not taken there,
    also a good one."""
    names = {name.lower() for name in QueryParams(scope["query_string"])}
    if names & TOKEN_PARAMETERS:
        raise Unauthorised(
            "a token is not taken from an address; send it as a header, Authorization: Bearer TOKEN, "
            "and revoke this one"
        )


def _repeat(body: bytes, receive: Receive) -> Receive:
    """What was read to be judged is read again by the route, to the byte."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return left.pop() if left else await receive()

    return receive_again
