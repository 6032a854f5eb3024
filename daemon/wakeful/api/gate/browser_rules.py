"""The browser rules for requests over TCP: the allowed `Host`, the allowed origin of a page, the type of a body.

A browser is a confused deputy: any page can make it send requests to this machine. So the head of a request is judged
before anything else is read:
- The target is a path, and `Host` is exactly one of our names.
- `Origin` and `Sec-Fetch-Site` show that no other site sent the request.
- A POST is JSON, which a form cannot send.

network_callers.py calls this module for each request. Nothing here knows tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Scope

from wakeful.api.problems import Forbidden, WrongContentType
from wakeful.core.spec.http_settings import LOCALHOST, LOOPBACK_NAMES, HttpSettings, TcpAddress

JSON_TYPE = "application/json"
# Seconds after which a wrong token or code is no longer counted (logins.py).
RETRY_SECONDS = "3"
# The dashboard page: the only path that a link in a mail or a notification may open.
PAGE = "/"
# Default ports, which a browser leaves out of `Host` and `Origin`.
_USUAL_PORTS = {"http": 80, "https": 443}
# The values of `Sec-Fetch-Site` that are accepted. `none` means that a person typed the address or a program opened it.
# `same-site` is refused, because another port of this machine is the same site.
_OWN_SITES = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The addresses of a port: each `Host` by which it may be reached, with the allowed origins of its pages."""

    scheme: str
    origins: Mapping[str, frozenset[str]]

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"


@dataclass(slots=True, eq=False)
class NetworkPeer:
    """The other end of a TCP connection. `standing` describes the run that holds that end, or is None if no run does.
    It stays `unjudged` until a token is first shown on the connection."""

    entrance: AllowedHosts
    local: tuple[str, int]
    remote: tuple[str, int]
    standing: str | Literal["unjudged"] | None = "unjudged"


def make_entrance(settings: HttpSettings, bound: TcpAddress) -> AllowedHosts:
    """List the hosts and origins of a port. `bound` is its actual address; the system may have chosen the port."""
    scheme = "https" if settings.is_tls else "http"
    own = dict.fromkeys(_list_names(bound, scheme), frozenset({scheme}))
    # A further name in `hosts` belongs to a proxy. The proxy has the certificate, so https is allowed for that name.
    further = dict.fromkeys(settings.hosts, frozenset({"https", scheme}))
    origins = {
        host: frozenset(f"{scheme}://{host}" for scheme in schemes) for host, schemes in {**further, **own}.items()
    }
    return AllowedHosts(scheme, origins)


def _list_names(bound: TcpAddress, scheme: str) -> list[str]:
    if bound.is_any:
        names = [*LOOPBACK_NAMES]
    else:
        names = [f"[{bound.host}]" if bound.is_v6 else bound.host, *((LOCALHOST,) if bound.is_loopback else ())]
    usual = [*names] if bound.port == _USUAL_PORTS[scheme] else []
    return [*usual, *(f"{name}:{bound.port}" for name in names)]


def judge_head(scope: Scope, entrance: AllowedHosts) -> None:
    """Raise Forbidden unless the request is addressed to this port, and no other site sent it."""
    headers = Headers(scope=scope)
    if not scope["raw_path"].startswith(b"/"):
        raise Forbidden("the target of a request must be a path that begins with /, not a whole address", "host")
    hosts = headers.getlist("host")
    host = hosts[0].lower() if len(hosts) == 1 else ""
    if host not in entrance.origins:
        raise Forbidden(
            f"Host is {host or 'missing'!r}, and this port answers only to {', '.join(entrance.origins)}; use one of "
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
    """Did a person follow a link from another site to the dashboard page?

    That is safe. The page opens at the top level, where the other site cannot read it, and its file contains no user
    data. No other path may be opened in this way.
    """
    return (
        scope["method"] == "GET"
        and scope["raw_path"] == PAGE.encode()
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def judge_content_type(scope: Scope) -> None:
    """Raise WrongContentType unless the body is JSON. A form on another site can send some types without a CORS
    preflight, but it cannot send JSON."""
    if scope["method"] in ("GET", "HEAD"):
        return
    found = Headers(scope=scope).getlist("content-type")
    if len(found) != 1 or found[0].partition(";")[0].strip().lower() != JSON_TYPE:
        raise WrongContentType(
            f"Content-Type is {found[0] if found else 'missing'!r}; send the body as JSON, with "
            f"Content-Type: {JSON_TYPE}"
        )


# The headers of every answer over TCP. A header that the route set itself stays, such as the policy of the page.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def add_headers(headers: MutableHeaders, status: int) -> None:
    """Add the headers that keep other pages from reading or framing an answer, and caches from storing it."""
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    if status == 401:
        headers.setdefault("WWW-Authenticate", "Bearer")
    if status == 429:
        headers.setdefault("Retry-After", RETRY_SECONDS)
