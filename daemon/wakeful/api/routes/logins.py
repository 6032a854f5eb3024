"""The routes of browser logins: a person asks for a link (POST /dashboard), the page logs in with the code of the link
(POST /login), and later logs out (POST /logout).

A login gives a token, which the page keeps, and a cookie, which no script can read. They work only together, because
a browser sends a cookie to every port of a host, and a script can read the token. A person on another machine cannot
ask for a link, and logs in with a token from the owner.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from wakeful.api.bodies import read_body
from wakeful.api.gate.access_tokens import BrowserRights, Tokens
from wakeful.api.gate.browser_rules import NetworkPeer
from wakeful.api.gate.callers import Caller, name_person
from wakeful.api.gate.logins import LIFE_SECONDS, Codes, LoginThrottle
from wakeful.api.gate.network_callers import NetworkCallers, find_cookie, find_cookie_name
from wakeful.api.problems import Forbidden, WrongBody
from wakeful.api.requests import Handlers, answer_json, caller_of, change_credentials, service_of
from wakeful.api.tcp_port import TcpPort
from wakeful.errors import CallerError
from wakeful.views.times import show_time

# The names in User-Agent, the most specific first: Edge also names Chrome, and Chrome also names Safari.
_BROWSERS = ("Edg", "OPR", "Firefox", "Chrome", "Safari")
_SHOWN = {"Edg": "Edge", "OPR": "Opera"}
# The longest time that a browser keeps a cookie. The daemon ends unused logins sooner.
_COOKIE_SECONDS = 400 * 86400


class DashboardBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /dashboard. With `is_closing`, every browser is logged out and the port is closed."""

    is_closing: bool = False


class LoginBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /login. `code` is the code of a link, or None if the request shows a token instead."""

    code: str | None = None


async def open_dashboard(request: Request) -> Response:
    """Open the port and return a link with a one-time code. Only the daemon's own user reaches this route, at the
    control socket and without a token."""
    tcp: TcpPort = request.app.state.tcp
    body = await _read(request, DashboardBody)
    if body.is_closing:
        return answer_json(await _close(request, tcp))
    caller = caller_of(request)
    url = tcp.open_for_person()
    codes: Codes = request.app.state.codes
    assert caller.uid is not None
    code = codes.make(_find_rights(caller), caller.uid)
    ends_at = service_of(request).moment().wall + int(LIFE_SECONDS * 1_000_000)
    return answer_json({"url": url, "link": f"{url}/#code={code}", "ends_at": show_time(ends_at)})


def _find_rights(caller: Caller) -> BrowserRights:
    """Return all rights that a token can have. The routes of trust and of tokens are reached only at the control
    socket."""
    return BrowserRights()


async def _close(request: Request, tcp: TcpPort) -> dict[str, Any]:
    tokens: Tokens = request.app.state.tokens
    browsers = await change_credentials(request, tokens.revoke_browsers)
    tcp.close_for_person()
    words = "closed" if tcp.url is None else f"the port stays open by the settings, at {tcp.url}"
    return {"url": tcp.url, "words": f"{browsers} logged out; {words}"}


async def log_in(request: Request) -> Response:
    peer = _find_peer(request)
    body = await _read(request, LoginBody)
    rights = await (_take_token(request) if body.code is None else _take_code(request, peer, body.code))
    tokens: Tokens = request.app.state.tokens
    note = _name_browser(request.headers.get("user-agent", ""))
    now = service_of(request).moment().wall
    make = partial(tokens.make_for_browser, rights, now, note=note, shown=find_cookie(request.scope))
    token, cookie = await change_credentials(request, make)
    person = rights.person or name_person(os.geteuid()).removeprefix("person:")
    answer = answer_json({"token": token, "person": person, "scopes": rights.scopes})
    is_secure = peer.entrance.is_tls or request.headers.get("origin", "").startswith("https:")
    answer.set_cookie(
        find_cookie_name(request.scope),
        cookie,
        max_age=_COOKIE_SECONDS,
        httponly=True,
        samesite="strict",
        secure=is_secure,
    )
    return answer


async def _take_code(request: Request, peer: NetworkPeer, text: str) -> BrowserRights:
    service = service_of(request)
    codes: Codes = request.app.state.codes
    callers: NetworkCallers = request.app.state.network_callers
    await callers.refuse_run(peer)
    guesses: LoginThrottle = request.app.state.guesses
    uid = await asyncio.to_thread(service.user_of_connection, peer.local, peer.remote)
    code = codes.take(text)
    if code is None:
        await guesses.refuse(
            "this code is not valid: it was used already, or is older than five minutes; ask for another with: "
            "wakeful dashboard",
            "code",
        )
    if uid is not None and uid != code.uid:
        raise Forbidden(
            f"user {code.uid} asked for this code, but user {uid} sent it, so it is no longer valid; "
            "get your own with: wakeful dashboard, or log in with a token",
            "code",
        )
    return code.rights


async def _take_token(request: Request) -> BrowserRights:
    """Exchange a token for a login with the same rights, which ends when the token ends."""
    callers: NetworkCallers = request.app.state.network_callers
    token = await callers.find_token(request.scope)
    if token.cookie is not None:
        raise CallerError("this browser is logged in already; log out first, or use a token of: wakeful token new")
    return BrowserRights(
        scopes=token.scopes, session=token.session, expires_at=token.expires_at, person=token.person, parent=token.id
    )


async def log_out(request: Request) -> Response:
    token = caller_of(request).token
    if token is None or token.cookie is None:
        raise CallerError("only a browser can log out; revoke a token with: wakeful token revoke ID")
    tokens: Tokens = request.app.state.tokens
    await change_credentials(request, partial(tokens.revoke, token.id))
    answer = answer_json({"words": "logged out; the token and the cookie are not valid any more"})
    answer.delete_cookie(find_cookie_name(request.scope), httponly=True, samesite="strict")
    return answer


def _find_peer(request: Request) -> NetworkPeer:
    peer = getattr(request.state, "peer", None)
    if not isinstance(peer, NetworkPeer):
        raise CallerError("a browser logs in over TCP; at the control socket the kernel identifies the caller")
    return peer


def _name_browser(agent: str) -> str:
    """Name the browser for the list of tokens. The header could contain anything, so only a known name is kept."""
    name = next((one for one in _BROWSERS if f"{one}/" in agent), None)
    return f"browser, {_SHOWN.get(name, name)}" if name is not None else "browser"


async def _read(request: Request, kind: type[Any]) -> Any:
    body = await read_body(request)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WrongBody(f"the body is not valid: {error}") from None


HANDLERS: Handlers = {
    "POST /login": log_in,
    "POST /logout": log_out,
    "POST /dashboard": open_dashboard,
}
