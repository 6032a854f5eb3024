"""Serves one MCP client over standard input and output, until the client closes them."""

from __future__ import annotations

import asyncio

from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server

from wakeful.client.async_client import DaemonClient
from wakeful.mcp_server.contract import Reach
from wakeful.mcp_server.server import add_standing, build_server


def serve(client: DaemonClient, reach: Reach) -> None:
    """`client` is the port of `reach` to the daemon; its connections are closed at the end."""
    asyncio.run(_serve(client, reach))


async def _serve(client: DaemonClient, reach: Reach) -> None:
    server = build_server(lambda _: reach, reach.own)
    standing = add_standing(server, lambda _: reach) if reach.own is None else None
    try:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options(NotificationOptions()))
    finally:
        if standing is not None:
            await standing.close()
        client.close()
