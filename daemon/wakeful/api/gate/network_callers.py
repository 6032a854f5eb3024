"""Identifies the caller of a request over TCP: by a token, always; a browser by its token and its cookie.

The kernel says nothing about the user at the other end, so nobody is anybody without a token. A process of a run is
refused whatever it shows: runs speak at the control socket, where the kernel says which run it is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from wakeful.api.gate.callers import Caller
from wakeful.api.gate.guesses import Guesses
from wakeful.api.gate.network import NetworkPeer, judge_content_type, judge_head
from wakeful.api.gate.shown_tokens import find_shown, refuse_in_address
from wakeful.api.gate.tokens import Token, Tokens, is_token
from wakeful.api.problems import Forbidden, Unauthorised
from wakeful.api.service import Service
from wakeful.system.private_files import ChangesInTurn
from wakeful.verbs.verb import Route

# With the port behind it: a host has one jar of cookies for all of its ports, and may have several daemons.
COOKIE = "wakeful_browser"
# The caller of a public route, whom nobody knows. Such a request changes no session.
STRANGER = Caller("stranger")


class NetworkCallers:
    """`identify_bearer` makes the caller of a good token; the number is the daemon's own user."""

    def __init__(
        self,
        service: Service,
        tokens: Tokens,
        guesses: Guesses,
        changes: ChangesInTurn,
        identify_bearer: Callable[[Token, int], Caller],
    ) -> None:
        self._service = service
        self._tokens = tokens
        self._guesses = guesses
        self._changes = changes
        self._identify_bearer = identify_bearer
        self._uid = os.geteuid()

    async def identify(self, scope: Scope, peer: NetworkPeer, rule: Route | None) -> Caller:
        """Raise Forbidden, Unauthorised or WrongContentType, by the rules for browsers first."""
        judge_head(scope, peer.entrance)
        refuse_in_address(scope)
        if rule is None or not rule.takes_any_type:
            judge_content_type(scope)
        # A public route that has a scope tells more to a caller who shows a token.
        if rule is not None and rule.is_public and (rule.scope != "read" or find_shown(scope) is None):
            return STRANGER
        token = await self.find_token(scope)
        await self.refuse_run(peer)
        now = self._service.moment().wall
        if token.is_use_due(now):
            await self._changes.make(partial(self._tokens.note_use, token.id, now))
        return self._identify_bearer(token, self._uid)

    async def find_token(self, scope: Scope) -> Token:
        """The good token that a request shows, with its cookie if it is a browser's."""
        text = find_shown(scope)
        if text is None:
            raise Unauthorised(
                "over TCP every call shows a token, Authorization: Bearer TOKEN; make one with: wakeful token new, or "
                "open a browser with: wakeful dashboard"
            )
        token = self._tokens.find(text, self._service.moment().wall) if is_token(text) else None
        if token is None:
            await self._guesses.refuse(
                "this token opens nothing here: it was never given, is over, or was revoked (wakeful token list shows "
                "those there are); a run's own token is good at the control socket alone",
                "token",
            )
        if not token.is_cookie(find_cookie(scope)):
            await self._guesses.refuse(
                "this token is a browser's, and opens nothing without the cookie that was given with it; log in again "
                "with: wakeful dashboard",
                "token",
            )
        return token

    async def refuse_run(self, peer: NetworkPeer) -> None:
        """Raise Forbidden where a process of a run has the other end of the connection. Found out once for each."""
        if peer.standing == "unjudged":
            peer.standing = await asyncio.to_thread(self._service.owner_of_connection, peer.local, peer.remote)
        if peer.standing is not None:
            raise Forbidden(
                "a process of a run speaks at the control socket, with that run's token, and not over TCP "
                f"({peer.standing})",
                "run",
            )


def find_cookie_name(scope: Scope) -> str:
    port = Headers(scope=scope).get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdigit() else COOKIE


def find_cookie(scope: Scope) -> str | None:
    """The browser's cookie; None where there is none, or several."""
    found = [
        value
        for header in Headers(scope=scope).getlist("cookie")
        for name, value in cookie_parser(header).items()
        if name == find_cookie_name(scope)
    ]
    return found[0] if len(found) == 1 else None
