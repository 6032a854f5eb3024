"""The two ways in which clients reach the MCP server: standard input and output for one client, HTTP for many.

`wakeful mcp` and the daemon import this module late, because `mcp` is large and slow to import.
"""

from __future__ import annotations

import asyncio

from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from wakeful.client.async_client import DaemonClient
from wakeful.mcp_server.contract import Reach
from wakeful.mcp_server.server import FindReach, add_standing, build_server


def serve_stdio(client: DaemonClient, reach: Reach) -> None:
    """Serve one client over standard input and output, until it closes them.

    `reach` uses `client` to call the daemon. The connections of `client` are closed at the end.
    """
    asyncio.run(_serve_stdio(client, reach))


async def _serve_stdio(client: DaemonClient, reach: Reach) -> None:
    server = build_server(lambda _: reach, reach.own)
    standing = add_standing(server, lambda _: reach) if reach.own is None else None
    try:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options(NotificationOptions()))
    finally:
        if standing is not None:
            await standing.close()
        client.close()


class HttpServing:
    """The server over HTTP, inside the daemon. No state is kept between two requests.

    The gate has judged host, origin and token before a request arrives here. Call `start` before the first request, and
    `close` after the last request.
    """

    def __init__(self, find_reach: FindReach, most_bytes: int) -> None:
        self._sessions = StreamableHTTPSessionManager(
            build_server(find_reach), stateless=True, max_request_body_size=most_bytes
        )
        self._ended = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        started = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(started), name="mcp")
        await started.wait()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sessions.handle_request(scope, receive, send)

    async def close(self) -> None:
        self._ended.set()
        if self._serving is not None:
            await self._serving

    async def _serve(self, started: asyncio.Event) -> None:
        # The package requires that one task enters and leaves its context.
        async with self._sessions.run():
            started.set()
            await self._ended.wait()
