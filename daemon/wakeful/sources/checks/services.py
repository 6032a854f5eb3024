"""Services as conditions: `tcp://host:port`, `http://…`, `https://…`, `unix:/path` and `mcp:NAME`, each up or down.

The reactor follows targets and asks for looks. A look connects, sends a request over HTTP, and reports "up", or "down"
with the reason. "Down" is a version, not unknown: the session sleeps while a service is down. Every `check_every`, a
service is reported as hinted. A look sends one HEAD request, or the first request of MCP. No connection outlives its
look.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from wakeful.core.looking.targets import ServiceTarget
from wakeful.core.spec.agent import McpServer
from wakeful.sources.checks.mcp_servers import check_server
from wakeful.sources.checks.source import Checked, CheckedSource
from wakeful.sources.contract import Defects, SourceReport
from wakeful.system.http_request import ServiceDown, ask_http, leave, split_address

UP = "up"
DOWN = "down"
SERVICES_AT_ONCE = 16
# Finds a server by its agent's name and its own name. None if the agent has no such server.
FindServer = Callable[[str, str], McpServer | None]


class ServiceSource(CheckedSource[ServiceTarget]):
    """Checks services, at most `at_once` at the same time."""

    def __init__(
        self,
        report: SourceReport,
        loop: asyncio.AbstractEventLoop,
        find_server: FindServer = lambda agent, name: None,
        *,
        at_once: int = SERVICES_AT_ONCE,
        defects: Defects | None = None,
    ) -> None:
        super().__init__(report, loop, at_once, defects)
        self._find_server = find_server

    async def check(self, target: ServiceTarget) -> Checked:
        try:
            await self._check_one(target)
        except ServiceDown as down:
            return Checked(DOWN, str(down))
        return Checked(UP)

    async def _check_one(self, target: ServiceTarget) -> None:
        if target.server is None:
            await check_service(target.url, target.timeout_seconds)
            return
        # Found again at each check, because an agent's file is read again after each save.
        server = self._find_server(target.agent, target.server)
        if server is None:
            raise ServiceDown(f"agent {target.agent} has no server {target.server}")
        await check_bound_server(target.url, server, target.root, target.timeout_seconds)


async def check_service(url: str, timeout_seconds: float) -> None:
    """Return if the service is up. Raises ServiceDown with the reason if not."""
    await _bound(url, timeout_seconds, _check(url))


async def check_bound_server(name: str, server: McpServer, root: str, timeout_seconds: float) -> None:
    """Return if a server of an agent is up. Raises ServiceDown with the reason if not."""
    await _bound(server.url or name, timeout_seconds, check_server(server, root))


async def _bound(what: str, timeout_seconds: float, checking: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            await checking
    except TimeoutError as error:
        raise ServiceDown(f"{what}: no answer within {timeout_seconds:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise ServiceDown(f"{what}: its certificate is not trusted: {error.verify_message}") from error
    except (OSError, UnicodeError) as error:
        # UnicodeError is raised for an invalid host name, such as one with an empty label.
        raise ServiceDown(f"{what}: {getattr(error, 'strerror', None) or error}") from error


async def _check(url: str) -> None:
    if url.startswith("unix:"):
        await _connect_and_leave(asyncio.open_unix_connection(url.removeprefix("unix:")))
        return
    parts, host, port = split_address(url)
    match parts.scheme:
        case "tcp":
            await _connect_and_leave(asyncio.open_connection(host, port))
        case "http" | "https":
            await _ask(url)
        case other:
            raise ServiceDown(f"{url}: {other!r} is no kind of service; expected tcp, http, https or unix")


async def _connect_and_leave(connecting: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    _, writer = await connecting
    leave(writer)


async def _ask(url: str) -> None:
    """Ask by HTTP. Any status below 500 counts as up, because a server that answers 401 or 404 works."""
    async with ask_http(url, "HEAD", {"Accept": "*/*"}) as heard:
        if heard.status >= 500:
            raise ServiceDown(f"{url}: answered {heard.status}")
