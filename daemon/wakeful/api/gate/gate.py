"""The gate that every request passes before it is routed.

It identifies the caller: the kernel reports the user and the process, and a token identifies a run or another bearer.
It refuses other users, and processes of runs that do not show their run's token. It asks scopes.py whether the caller
may make the request, and adds the daemon's version and log position to the answer. Names may contain slashes, so the
path is matched as it was sent: `hr%2Fpayroll` is one segment.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wakeful.api.bodies import decode_body, decode_name, read_body
from wakeful.api.contract import Service
from wakeful.api.gate.access_tokens import Token, Tokens, find_shown, is_token, refuse_in_address
from wakeful.api.gate.browser_rules import NetworkPeer, add_headers
from wakeful.api.gate.callers import (
    Caller,
    Peer,
    Unknown,
    find_absence,
    name_account,
    name_person,
    name_run,
    name_token,
)
from wakeful.api.gate.network_callers import STRANGER, NetworkCallers
from wakeful.api.gate.people import People
from wakeful.api.gate.protocol import POSITION_HEADER, VERSION_HEADER
from wakeful.api.gate.scopes import find_rule, judge_body, judge_request
from wakeful.api.presence import Presence
from wakeful.api.problems import Forbidden, Refusals, RefusedRequest, Unauthorised, answer_problem, name_problem
from wakeful.core.calls.roles import PERSON
from wakeful.core.record.observations import ProcessOwner
from wakeful.errors import OperatorError, WakefulError
from wakeful.verbs.verb import Route


class Gate:
    """The ASGI application around the routes."""

    def __init__(self, app: Starlette, service: Service) -> None:
        self._app = app
        self._service = service
        self._tokens: Tokens = app.state.tokens
        self._people: People = app.state.people
        self._presence: Presence = app.state.presence
        self._refusals: Refusals = app.state.refusals
        self._network = NetworkCallers(
            service, self._tokens, app.state.guesses, app.state.credential_changes, self._identify_bearer
        )
        app.state.network_callers = self._network
        self._uid = os.geteuid()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope["state"]["peer"]
        position: int | None = None
        # An unidentified caller does not get the log position, which would reveal how busy the daemon is.
        is_known = False

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[VERSION_HEADER] = self._service.version
                if isinstance(peer, NetworkPeer):
                    add_headers(headers, message["status"])
                # A call is durable by now, so its position includes its own records.
                told = position if scope["method"] in ("GET", "HEAD") else self._find_position()
                if told is not None and is_known:
                    headers[POSITION_HEADER] = str(told)
                self._service.monitoring.measures.note_request(
                    scope["method"], rule.path if rule is not None else None, message["status"]
                )
            await send(message)

        rule: Route | None = None
        answer: ASGIApp = self._app
        try:
            scope["path"] = scope["raw_path"].decode("ascii")
            if isinstance(peer, NetworkPeer):
                # The route is found before the caller is identified, because some routes are public.
                rule, named = find_rule(self._app.routes, scope)
                caller = await self._network.identify(scope, peer, rule)
            else:
                caller = self._identify(scope)
                rule, named = find_rule(self._app.routes, scope)
            is_known = caller is not STRANGER
            receive = await self._judge(caller, rule, named, scope, receive)
            # Taken before anything is read. So a stream from this position has every record that the answer does not
            # reflect.
            position = self._find_position()
        except ClientDisconnect:
            return
        except WakefulError as refusal:
            answer = self._refuse(refusal)
        await answer(scope, receive, send_with_headers)

    async def answer_as(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that the daemon makes for an identified caller. It is judged as if the caller made it."""
        answer: ASGIApp = self._app
        try:
            rule, named = find_rule(self._app.routes, scope)
            receive = await self._judge(caller, rule, named, scope, receive)
        except WakefulError as refusal:
            answer = self._refuse(refusal)
        await answer(scope, receive, send)

    async def _judge(
        self, caller: Caller, rule: Route | None, named: dict[str, str], scope: Scope, receive: Receive
    ) -> Receive:
        """Raise Forbidden if the caller may not do this. Returns the `receive` from which the route gets the body."""
        scope["state"]["caller"] = caller
        if judge_request(self._service, caller, rule, named, QueryParams(scope["query_string"])):
            body = await read_body(Request(scope, receive))
            judge_body(self._service, caller, rule, decode_body(body))
            receive = _repeat(body, receive)
        self._note_look(caller, rule, named, scope)
        if rule is not None and rule.is_from_log:
            await self._service.recorded_so_far()
        return receive

    def _refuse(self, refusal: WakefulError) -> Response:
        if isinstance(refusal, RefusedRequest):
            self._refusals.count(refusal.kind)
        return answer_problem(name_problem(refusal), str(refusal))

    def _find_position(self) -> int | None:
        """Find the newest position of the log. None if the log cannot be read; requests are still answered then."""
        try:
            return self._service.log.position()
        except OperatorError:
            return None

    async def close(self) -> None:
        """End the work that goes on between requests, because the daemon stops."""
        await self._app.state.feed.close()
        await self._app.state.mcp.close()

    def _note_look(self, caller: Caller, rule: Route | None, named: dict[str, str], scope: Scope) -> None:
        """Note the caller as present in each session that a GET request names."""
        if caller.run is not None or rule is None or rule.method != "GET" or rule.session is None:
            return
        names = (
            [decode_name(named["name"])]
            if rule.session == "path"
            else QueryParams(scope["query_string"]).getlist("name")
        )
        for name in names:
            session_id = self._service.core.state.ids.get(name)
            if session_id is not None:
                self._presence.note(caller.shown_name, session_id, "looks", self._service.moment().wall)

    def _identify(self, scope: Scope) -> Caller:
        """Identify the caller at the control socket. Raises Unauthorised or Forbidden if that is not possible."""
        peer: Peer = scope["state"].pop("peer")
        connection = scope["state"].pop("connection")
        person = self._find_account(peer.uid) if peer.uid != self._uid else None
        # The judged process may have passed its connection to another process and exited. That process could belong to
        # a run, and would pose as a person.
        if (absence := find_absence(connection, peer)) is not None:
            raise Forbidden(absence)
        refuse_in_address(scope)
        text = find_shown(scope)
        if text is None:
            _refuse_no_person(peer)
            if person is not None:
                return self._identify_member(person, uid=peer.uid)
            return Caller(name_person(peer.uid), uid=peer.uid)
        caller = self._identify_by_token(text, peer)
        # Another account may use only the tokens of its own person, not the tokens of the owner or of other people.
        if person is not None and (caller.member is None or caller.member.name != person):
            raise Forbidden(f"user {peer.uid} is {person} here, and this token is not theirs; leave it out")
        return caller

    def _find_account(self, uid: int) -> str:
        """Find the person of another account of this machine, by `people.accounts` in wakeful.yaml. Raises Forbidden if
        the account is not listed."""
        accounts = self._service.core.settings.accounts
        # The mapping is empty by default. The account database is not queried in that case.
        person = accounts.get(name_account(uid)) or accounts.get(str(uid)) if accounts else None
        if person is None:
            raise Forbidden(
                f"this daemon belongs to user {self._uid}; user {uid} may not use it, unless its owner names that "
                "account in wakeful.yaml (people: accounts:)"
            )
        return person

    def _identify_by_token(self, text: str, peer: Peer) -> Caller:
        standing = peer.standing
        if isinstance(standing, Unknown) and not standing.may_show_token:
            raise Forbidden(standing.words)
        owner = standing if isinstance(standing, ProcessOwner) else None
        if is_token(text):
            token = self._tokens.find(text, self._service.moment().wall)
            if token is None:
                raise Unauthorised(
                    "this token is not valid: it never existed, has expired, or was revoked; "
                    "wakeful token list shows the valid ones"
                )
            if owner is not None and owner.run_id is not None:
                raise Forbidden("a process of a run must use that run's token (WAKEFUL_TOKEN_FILE)")
            if token.cookie is not None:
                raise Unauthorised("this token is a browser's, and is not valid here; make one with: wakeful token new")
            return self._identify_bearer(token, peer.uid)
        run = self._service.run_identity(text)
        if run is None:
            raise Unauthorised("this token belongs to no run under way; a token ends with its run")
        if owner is not None and owner.run_id != run.run_id:
            raise Forbidden("this token was given to another run")
        return Caller(name_run(run), run)

    def _identify_bearer(self, token: Token, uid: int) -> Caller:
        """Make the caller of a valid token. `uid` is the daemon's own user."""
        if token.person is not None:
            return self._identify_member(token.person, token)
        # The owner's browser acts as the owner, so the owner is the author of its records.
        author = name_token(token) if token.cookie is None else name_person(uid)
        return Caller(author, uid=uid, token=token, person=name_person(uid))

    def _identify_member(self, name: str, token: Token | None = None, uid: int | None = None) -> Caller:
        """Make the caller of a person whom the owner let in, identified by token or account. Raises Unauthorised if the
        person has been removed."""
        member = self._people.find(name)
        if member is None:
            raise Unauthorised(f"{name} is not among the people of this daemon; ask its owner (wakeful people add)")
        return Caller(f"{PERSON}{name}", uid=uid, token=token, member=member)


def _refuse_no_person(peer: Peer) -> None:
    """Raise Forbidden unless the peer is a person's process."""
    match peer.standing:
        case Unknown(words=words):
            raise Forbidden(words)
        case ProcessOwner(run_id=None, sign=sign):
            raise Forbidden(
                f"process {peer.pid} belongs to a run of another daemon or to a run that has ended, not to a person "
                f"({sign}); call from a shell that no run started, or show a token of this daemon (wakeful token)"
            )
        case ProcessOwner():
            raise Forbidden("a process of a run must use that run's token (WAKEFUL_TOKEN_FILE)")


def _repeat(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the route the body, which was already read to be judged."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return left.pop() if left else await receive()

    return receive_again
