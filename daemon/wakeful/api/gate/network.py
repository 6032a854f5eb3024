"""The rules for requests over TCP: who may be named as `Host`, where a page may come from, what a body may be.

A browser is a confused deputy: any page can make it send requests to this machine. So a request is judged by its head
before anything else is read: the target is a path, `Host` is one of ours to the letter, `Origin` and `Sec-Fetch-Site`
say that no other site sent it, a POST is JSON, which a form cannot send. gate.py asks for each request; nothing here
knows tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Scope

from wakeful.api.problems import Forbidden, WrongContentType
from wakeful.core.spec.http import LOCALHOST, LOOPBACK_NAMES, HttpSettings, TcpAddress

JSON_TYPE = "application/json"
# After so long a wrong token or code has been forgotten (guesses.py).
RETRY_SECONDS = "3"
# The page itself: the one address that a link in a mail or a notification leads to.
PAGE = "/"
# A browser leaves the port out of `Host` and `Origin` where it is the usual one of the scheme.
_USUAL_PORTS = {"http": 80, "https": 443}
# `none`: typed, or opened by a program. `same-site` is not enough: another port of this machine is the same site.
_OWN_SITES = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Entrance:
    """A port as browsers know it: each `Host` under which it may be reached, with the origins of its pages."""

    scheme: str
    origins: Mapping[str, frozenset[str]]

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"


@dataclass(slots=True, eq=False)
class NetworkPeer:
    """The other end of a TCP connection. `standing` says in words which run has it, and is None where none has; it is
    found when a token is first shown on the connection."""

    entrance: Entrance
    local: tuple[str, int]
    remote: tuple[str, int]
    standing: str | Literal["unjudged"] | None = "unjudged"


def make_entrance(settings: HttpSettings, bound: TcpAddress) -> Entrance:
    """`bound` is the address with the port that the system chose."""
    scheme = "https" if settings.is_tls else "http"
    own = dict.fromkeys(_list_names(bound, scheme), frozenset({scheme}))
    # Under a further name a proxy answers, which has the certificate.
    further = dict.fromkeys(settings.hosts, frozenset({"https", scheme}))
    origins = {
        host: frozenset(f"{scheme}://{host}" for scheme in schemes) for host, schemes in {**further, **own}.items()
    }
    return Entrance(scheme, origins)


def _list_names(bound: TcpAddress, scheme: str) -> list[str]:
    if bound.is_any:
        names = [*LOOPBACK_NAMES]
    else:
        names = [f"[{bound.host}]" if bound.is_v6 else bound.host, *((LOCALHOST,) if bound.is_loopback else ())]
    usual = [*names] if bound.port == _USUAL_PORTS[scheme] else []
    return [*usual, *(f"{name}:{bound.port}" for name in names)]


def judge_head(scope: Scope, entrance: Entrance) -> None:
    """Raise Forbidden unless the request is meant for us and no other site sent it."""
    headers = Headers(scope=scope)
    if not scope["raw_path"].startswith(b"/"):
        raise Forbidden("the target of a request is a path that begins with /, and no whole address", "host")
    hosts = headers.getlist("host")
    host = hosts[0].lower() if len(hosts) == 1 else ""
    if host not in entrance.origins:
        raise Forbidden(
            f"Host is {host or 'missing'!r}, and this port answers to {', '.join(entrance.origins)} alone; use one of "
            "these, or add the name to hosts under http in wakeful.yaml",
            "host",
        )
    origins = headers.getlist("origin")
    if origins and (len(origins) > 1 or origins[0].lower() not in entrance.origins[host]):
        raise Forbidden(
            f"a page of {origins[0]!r} sent this, and only pages of {' or '.join(sorted(entrance.origins[host]))} may",
            "origin",
        )
    site = headers.get("sec-fetch-site", "same-origin")
    if site not in _OWN_SITES and not _is_followed_link(scope, headers):
        raise Forbidden(
            f"a page of another site sent this (Sec-Fetch-Site: {site}); open the dashboard itself", "origin"
        )


def _is_followed_link(scope: Scope, headers: Headers) -> bool:
    """A person followed a link to the page from elsewhere: a window of its own, which the other page cannot look into.
    Nothing but the page is opened so, and it has nothing of anybody."""
    return (
        scope["method"] == "GET"
        and scope["raw_path"] == PAGE.encode()
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def judge_content_type(scope: Scope) -> None:
    """A form or an image of another page can send other types without asking us first; this one it cannot."""
    if scope["method"] in ("GET", "HEAD"):
        return
    found = Headers(scope=scope).getlist("content-type")
    if len(found) != 1 or found[0].partition(";")[0].strip().lower() != JSON_TYPE:
        raise WrongContentType(
            f"Content-Type is {found[0] if found else 'missing'!r}; send the body as JSON, with "
            f"Content-Type: {JSON_TYPE}"
        )


# Of every answer over TCP. Of a page, its own policy goes before this one.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def add_headers(headers: MutableHeaders, status: int) -> None:
    """No other page reads, frames or keeps an answer."""
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    if status == 401:
        headers.setdefault("WWW-Authenticate", "Bearer")
    if status == 429:
        headers.setdefault("Retry-After", RETRY_SECONDS)
