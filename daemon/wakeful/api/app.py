"""The routes, one verb each, and the gate every request goes through. No GET changes anything.

The gate reads who calls (the user and the process by the kernel's word, a run by its token), refuses other users and
processes of runs that do not speak as their run, and tells both sides' versions. Names may hold slashes, so the path is matched as it was sent: `hr%2Fpayroll` is one segment.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wakeful.api import calling, comparing, costing, explaining, exporting, participants, reading, replaying, retaining, searching, secret_names, slices, watching
from wakeful.api.answers import answer_error, handle_error
from wakeful.api.peers import Caller, name_person, name_run
from wakeful.api.queries import decode_name
from wakeful.api.service import RunIdentity, Service
from wakeful.errors import WakefulError

VERSION_HEADER = "Wakeful-Version"
# What a run may do with its token; whose session it is about is judged by the routes.
RUN_READS = ("facts", "log")
RUN_CALLS = ("note", "send", "remember")


def build_app(service: Service) -> ASGIApp:
    app = Starlette(
        routes=[
            Route("/version", reading.read_version),
            Route("/sessions", reading.read_sessions),
            Route("/sessions/{name}", reading.read_session),
            Route("/sessions/{name}/log", slices.read_log),
            Route("/sessions/{name}/facts", reading.read_facts),
            Route("/sessions/{name}/output", reading.read_output),
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
        ],
        exception_handlers={WakefulError: handle_error, HTTPException: _handle_http, Exception: _handle_defect},
    )
    app.state.service = service
    app.state.rows = reading.Rows()
    app.state.accounts = costing.Accounts()
    app.state.roster = participants.Roster()
    return Gate(app, service)


async def _handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: f"there is no {request.url.path}", 405: f"{request.method} is not what {request.url.path} takes"}
    return answer_error(words.get(error.status_code, error.detail), error.status_code)


async def _handle_defect(request: Request, error: Exception) -> Response:
    return answer_error(f"a defect of wakeful: {type(error).__name__}: {error}; the daemon's output has the details", 500)


class Gate:
    """Every request passes here before it is routed."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._uid = os.geteuid()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[VERSION_HEADER] = self._service.version
            await send(message)

        refusal = self._admit(scope)
        await (refusal or self._app)(scope, receive, send_with_version)

    def _admit(self, scope: Scope) -> Response | None:
        scope["path"] = scope["raw_path"].decode("ascii")
        uid = scope["state"].pop("peer_uid")
        if uid != self._uid:
            return answer_error(f"this daemon belongs to user {self._uid}; user {uid} may not use it", 403)
        try:
            owner = self._find_owner(scope["state"].pop("peer_pid"))
        except ProcessLookupError:
            # It handed its connection on and left: so does a process of a run that wants to pass for a person.
            return answer_error("the process that connected is gone, so nobody knows who calls; call again", 403)
        authorization = Headers(scope=scope).get("authorization")
        if authorization is None:
            if owner is not None:
                return answer_error("a process of a run speaks with that run's token (WAKEFUL_TOKEN_FILE), or not at all", 403)
            scope["state"]["caller"] = Caller(name_person(uid), uid=uid)
            return None
        kind, _, token = authorization.partition(" ")
        run = self._service.run_identity(token.strip()) if kind.lower() == "bearer" else None
        if run is None:
            return answer_error("this token belongs to no run under way; a token ends with its run", 401)
        if owner not in (None, run.run_id):
            return answer_error("this token was given to another run", 403)
        scope["state"]["caller"] = Caller(name_run(run), run)
        return None if _is_open_to_runs(scope, run) else answer_error(_refuse_run(run), 403)

    def _find_owner(self, pid: int | None) -> str | None:
        # Systems that do not tell the process do not confine runs either.
        return None if pid is None else self._service.owner_of_process(pid)


def _is_open_to_runs(scope: Scope, run: RunIdentity) -> bool:
    match scope["path"].split("/")[1:]:
        case ["version"]:
            return True
        case ["sessions", name, what]:
            return what in RUN_READS and decode_name(name) == run.name
        case ["call", verb]:
            return verb in RUN_CALLS
        case _:
            return False


def _refuse_run(run: RunIdentity) -> str:
    return f"a run may note, send, remember, recall and read the history of its own session, {run.name}, and nothing else"
