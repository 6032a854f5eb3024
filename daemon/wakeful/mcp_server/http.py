"""Serves MCP clients over HTTP, inside the daemon. No state is kept between two requests.

The daemon imports this module when the first client connects, because `mcp` is large and slow to import. The gate has
judged host, origin and token before a request arrives here.
"""

from __future__ import annotations

import asyncio

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from wakeful.mcp_server.server import FindReach, build_server


class HttpServing:
    """The HTTP server. Call `start` before the first request, and `close` after the last."""

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
