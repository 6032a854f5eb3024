"""Checks an agent's MCP server: a URL must answer the first request of the protocol, a program must be found.

Called by `services` for bindings of `mcp:NAME`. It sends no key and starts no program, because a check has the daemon's
rights, which a run does not have. If a server opens a session for the check, that session is closed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil

import msgspec

from wakeful import __version__
from wakeful.core.spec.agent import McpServer
from wakeful.system.http_request import AnswerHead, ServiceDown, ask_http

_PROTOCOL = "2025-06-18"
_SESSION = "mcp-session-id"
_HELLO = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": _PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "wakeful", "version": __version__},
        },
    }
)
# The most bytes of an answer that are read. They suffice to recognize the protocol.
_ANSWER_BYTES = 65_536


async def check_server(server: McpServer, root: str) -> None:
    """Return if the server is available. Raises ServiceDown, and the errors of connecting."""
    if server.url is None:
        # In a thread, because folders of PATH may be on slow disks.
        await asyncio.to_thread(_find_program, server, root)
        return
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(_HELLO)),
    }
    async with ask_http(server.url, "POST", headers, _HELLO) as heard:
        await _judge(server.url, heard)
        session = heard.headers.get(_SESSION)
    if session is not None and session.isascii() and session.isprintable():
        # Some servers refuse this request; their session ends by itself.
        with contextlib.suppress(ServiceDown, OSError):
            async with ask_http(server.url, "DELETE", {_SESSION: session, "MCP-Protocol-Version": _PROTOCOL}):
                pass


async def _judge(url: str, heard: AnswerHead) -> None:
    # A server that demands a key is up. The run finds out whether its key is accepted.
    if heard.status in (401, 403):
        return
    if heard.status >= 400:
        raise ServiceDown(f"{url}: answered {heard.status} to the first request of MCP")
    found = b""
    while b'"jsonrpc"' not in found:
        chunk = await heard.reader.read(_ANSWER_BYTES)
        found += chunk
        if not chunk or len(found) > _ANSWER_BYTES:
            raise ServiceDown(f"{url}: the server does not speak MCP")


def _find_program(server: McpServer, root: str) -> None:
    program = server.argv[0]
    place = os.path.join(root, program) if "/" in program else shutil.which(program)
    if place is None:
        raise ServiceDown(f"the program {program} is not in PATH; install it, or write its whole path")
    if not os.path.isfile(place):
        raise ServiceDown(f"the program {place} is not there")
    if not os.access(place, os.X_OK):
        raise ServiceDown(f"the program {place} cannot be executed; chmod +x it, or put its interpreter first")
