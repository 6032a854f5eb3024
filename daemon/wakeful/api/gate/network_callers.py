"""Identifies the caller of a request over TCP by a token. A browser also needs the cookie of its token.

The kernel does not report the user at the other end of a TCP connection, so every caller must show a token. A process
of a run is refused, whatever it shows. Runs use the control socket, where the kernel identifies them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from wakeful.api.contract import Service
from wakeful.api.gate.access_tokens import Token, Tokens, find_shown, is_token, refuse_in_address
from wakeful.api.gate.browser_rules import NetworkPeer, judge_content_type, judge_head
from wakeful.api.gate.callers import Caller
from wakeful.api.gate.logins import LoginThrottle
from wakeful.api.problems import Forbidden, Unauthorised
from wakeful.system.private_files import ChangesInTurn
from wakeful.verbs.verb import Route

# The name of the cookie, to which the port is appended. A browser shares cookies between all ports of a host, and a
# host may have several daemons.
COOKIE = "wakeful_browser"
# The unidentified caller of a public route. Such a request changes no session.
STRANGER = Caller("stranger")


class NetworkCallers:
    """Identifies TCP callers. `identify_bearer` makes the caller from a valid token and the uid of the daemon."""

    def __init__(
        self,
        service: Service,
        tokens: Tokens,
        guesses: LoginThrottle,
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
        """Apply the browser rules, then identify the caller. Raises Forbidden, Unauthorised or WrongContentType."""
        judge_head(scope, peer.entrance)
        refuse_in_address(scope)
        if rule is None or not rule.takes_any_type:
            judge_content_type(scope)
        # A public route with the scope `read` gives more to a caller who shows a token, so the token is checked.
        if rule is not None and rule.is_public and (rule.scope != "read" or find_shown(scope) is None):
            return STRANGER
        token = await self.find_token(scope)
        await self.refuse_run(peer)
        now = self._service.moment().wall
        if token.is_use_due(now):
            await self._changes.make(partial(self._tokens.note_use, token.id, now))
        return self._identify_bearer(token, self._uid)

    async def find_token(self, scope: Scope) -> Token:
        """Find the token that a request shows. Raises Unauthorised if it is missing or not valid, or if it is a
        browser's token without its cookie."""
        text = find_shown(scope)
        if text is None:
            raise Unauthorised(
                "over TCP every call needs a token, Authorization: Bearer TOKEN; make one with: wakeful token new, or "
                "open a browser with: wakeful dashboard"
            )
        token = self._tokens.find(text, self._service.moment().wall) if is_token(text) else None
        if token is None:
            await self._guesses.refuse(
                "this token is not valid here: it never existed, has expired, or was revoked (wakeful token list shows "
                "the valid ones); a run's own token is valid at the control socket only",
                "token",
            )
        if not token.is_cookie(find_cookie(scope)):
            await self._guesses.refuse(
                "this token is a browser's, and is not valid without the cookie that was given with it; log in again "
                "with: wakeful dashboard",
                "token",
            )
        return token

    async def refuse_run(self, peer: NetworkPeer) -> None:
        """Raise Forbidden if a process of a run holds the other end. This is looked up once per connection, in a
        thread."""
        if peer.standing == "unjudged":
            peer.standing = await asyncio.to_thread(self._service.owner_of_connection, peer.local, peer.remote)
        if peer.standing is not None:
            raise Forbidden(
                f"a process of a run must use the control socket and that run's token, not TCP ({peer.standing})",
                "run",
            )


def find_cookie_name(scope: Scope) -> str:
    port = Headers(scope=scope).get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdigit() else COOKIE


def find_cookie(scope: Scope) -> str | None:
    """Find the browser's cookie. None if there is none, or more than one."""
    found = [
        value
        for header in Headers(scope=scope).getlist("cookie")
        for name, value in cookie_parser(header).items()
        if name == find_cookie_name(scope)
    ]
    return found[0] if len(found) == 1 else None
