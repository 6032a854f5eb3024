"""Tools of MCP servers: programs spoken to over their standard input and output, or addresses, as an agent's file declares them.

The library is imported when an agent has servers, and not before. Each server is started with the run, asked for its tools, and ended with it;
one that is down, or goes down, is a tool whose result says so, and is started again by the next call. What servers say is data: names are made
safe for models, descriptions and results are bounded. A program is kept from the run's token and keys (guarding.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from msgspec.structs import replace

from wakeful.agents.contract import Tool, ToolOffer, ToolResult
from wakeful.agents.tools.narrowing import Narrowing, select_environment
from wakeful.core.agent import MCP_TOOL_PREFIX, McpServer, ToolPolicy
from wakeful.errors import OperatorError
from wakeful.sendable import tell_sendable

START_SECONDS = 20.0
CALL_SECONDS = 120.0
_MOST_TOOLS = 100
_MOST_PAGES = 20
_LONGEST_DESCRIPTION = 2_000
_LARGEST_SCHEMA_BYTES = 16_384
# What every provider takes as a tool's name.
_LONGEST_NAME = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "properties": {}}


class ServerDown(OperatorError):
    """A server that cannot be started or reached, or left in the middle of a call."""


class McpTools:
    """The tools of all servers of one run. Made by `open_servers`."""

    def __init__(self, tools: Sequence[Tool], names: Mapping[str, str], problems: tuple[str, ...]) -> None:
        self._tools = tools
        self._names = names
        # Which servers could not be asked, in words.
        self.problems = problems

    def list_tools(self) -> Iterable[Tool]:
        return self._tools

    def find_policies(self, declared: Mapping[str, ToolPolicy]) -> dict[str, ToolPolicy]:
        """By the names models know: what was declared for the tool, else for its server. Who declares a server lets it be used."""
        return {safe: declared.get(name) or declared.get(name.partition("/")[0]) or "allow" for safe, name in self._names.items()}


@contextlib.asynccontextmanager
async def open_servers(servers: Sequence[McpServer], environ: Mapping[str, str], root: str, narrowing: Narrowing | None, read_key: Callable[[str], str | None]) -> AsyncIterator[McpTools]:
    """Start them all, and end them all. `read_key` finds a secret's value by its name; `narrowing` None leaves programs as free as the run."""
    opened = [_Server(server, _choose_transport(server, environ, root, narrowing, read_key)) for server in servers]
    try:
        found = await asyncio.gather(*(server.list_tools() for server in opened), return_exceptions=True)
        yield _gather(opened, found)
    finally:
        await asyncio.gather(*(server.close() for server in opened))


def make_safe_name(server: str, tool: str, taken: Iterable[str] = ()) -> str:
    """`mcp__<server>__<tool>`; where that had to be changed, or another tool has it, a mark keeps it its own."""
    wanted = "__".join(part for part in ("mcp", server, tool) if part)
    safe = _UNSAFE.sub("_", wanted)
    if safe == wanted and len(safe) <= _LONGEST_NAME and safe not in taken:
        return safe
    mark = hashlib.blake2b(f"{server}/{tool}".encode(errors="replace"), digest_size=4).hexdigest()
    return f"{safe[: _LONGEST_NAME - 9]}_{mark}"


def _gather(opened: Sequence[_Server], found: Sequence[Any]) -> McpTools:
    tools: dict[str, Tool] = {}
    names: dict[str, str] = {}
    problems: list[str] = []
    for server, listed in zip(opened, found, strict=True):
        if isinstance(listed, ServerDown):
            problems.append(str(listed))
            # The model is told when it asks, not by the absence of what it was promised.
            listed = [("", f"The MCP server {server.name} is down. Calling this tells why, and tries again.", _ANY_OBJECT)]
        elif isinstance(listed, BaseException):
            raise listed
        for tool, description, schema in listed:
            safe = make_safe_name(server.name, tool, tools)
            names[safe] = f"{MCP_TOOL_PREFIX}{server.name}" + (f"/{tool}" if tool else "")
            tools[safe] = _ServerTool(server, tool, ToolOffer(name=safe, description=description, parameters=schema))
    return McpTools(tuple(tools.values()), names, tuple(problems))


class _ServerTool:
    # What a server says of itself is not known to be so.
    is_look = False

    def __init__(self, server: _Server, name: str, offer: ToolOffer) -> None:
        self._server = server
        self._name = name
        self._offer = offer

    @property
    def offer(self) -> ToolOffer:
        return self._offer

    async def carry_out(self, arguments: Mapping[str, Any], call_id: str) -> ToolResult:
        try:
            if not self._name:
                listed = await self._server.list_tools()
                return ToolResult(f"{self._server.name} is up again, with {', '.join(name for name, *_ in listed)}: these can be called from the next run on")
            result = await self._server.call(self._name, dict(arguments))
        except ServerDown as down:
            return ToolResult(tell_sendable(str(down)), is_error=True)
        return ToolResult(tell_sendable(_read_content(result)), is_error=bool(result.is_error))


class _Server:
    """One server. The library wants the connection to be opened and closed by the same coroutine, so one owns it."""

    def __init__(self, server: McpServer, transport: Callable[[], Any]) -> None:
        self.name = server.name
        self._transport = transport
        self._owner: asyncio.Task[None] | None = None
        self._client: Any = None
        self._stop = asyncio.Event()
        self._starting = asyncio.Lock()

    async def list_tools(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        async def ask(client: Any) -> list[Any]:
            listed, cursor = [], None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                listed += page.tools
                cursor = page.next_cursor
                if cursor is None or len(listed) >= _MOST_TOOLS:
                    break
            return listed[:_MOST_TOOLS]

        return [(tool.name, (tool.description or "")[:_LONGEST_DESCRIPTION], _read_schema(tool.input_schema)) for tool in await self._ask(ask, START_SECONDS)]

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self._ask(lambda client: client.call_tool(name, arguments), CALL_SECONDS)

    async def close(self) -> None:
        self._stop.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    async def _ask(self, what: Callable[[Any], Awaitable[Any]], seconds: float) -> Any:
        client = await self._connect()
        try:
            async with asyncio.timeout(seconds):
                return await what(client)
        except TimeoutError:
            raise ServerDown(f"MCP server {self.name} did not answer within {seconds:g} s; whether it did what it was asked is not known") from None
        except Exception as error:
            # Whatever a server can cause, and the library has many names for it, is a result and no defect of ours.
            if not _is_refusal(error):
                self._stop.set()
            raise ServerDown(f"MCP server {self.name}: {_say_error(error)}") from error

    async def _connect(self) -> Any:
        async with self._starting:
            if self._owner is not None and not self._owner.done() and not self._stop.is_set():
                return self._client
            if self._owner is not None:
                await asyncio.wait([self._owner])
            self._stop = asyncio.Event()
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._own(ready, self._stop), name=f"mcp server {self.name}")
            try:
                async with asyncio.timeout(START_SECONDS):
                    self._client = await asyncio.shield(ready)
            except TimeoutError:
                self._owner.cancel()
                raise ServerDown(f"MCP server {self.name} did not start within {START_SECONDS:g} s") from None
            return self._client

    async def _own(self, ready: asyncio.Future[Any], stop: asyncio.Event) -> None:
        try:
            async with self._transport() as client:
                ready.set_result(client)
                await stop.wait()
        except Exception as error:
            # After `ready` it is told by the call that finds it gone.
            if not ready.done():
                ready.set_exception(ServerDown(f"MCP server {self.name} cannot be started or reached: {_say_error(error)}"))


def _choose_transport(server: McpServer, environ: Mapping[str, str], root: str, narrowing: Narrowing | None, read_key: Callable[[str], str | None]) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """What opens the connection, when it is needed."""

    def open_program() -> AbstractAsyncContextManager[Any]:
        client, stdio = importlib.import_module("mcp.client"), importlib.import_module("mcp.client.stdio")
        argv = list(server.argv)
        if narrowing is not None:
            own = replace(narrowing, reads=(*narrowing.reads, *_find_places(server.argv, root)))
            argv = [sys.executable, "-I", "-m", "wakeful.agents.tools.guarding", msgspec.json.encode(own).decode(), *argv]
        return client.Client(stdio.StdioServerParameters(command=argv[0], args=argv[1:], env=select_environment(environ), cwd=root))

    @contextlib.asynccontextmanager
    async def open_address() -> AsyncIterator[Any]:
        client, http = importlib.import_module("mcp.client"), importlib.import_module("mcp.client.streamable_http")
        key = read_key(server.key) if server.key is not None else None
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        async with http.create_mcp_http_client(headers=headers) as connection, client.Client(http.streamable_http_client(server.url, http_client=connection)) as opened:
            yield opened

    return open_address if server.url is not None else open_program


def _find_places(argv: Sequence[str], root: str) -> Iterator[str]:
    """The folders of what the command names: a server's script lies among the modules it loads."""
    for path in (os.path.join(root, word) for word in argv if "/" in word):
        if os.path.isfile(path):
            yield os.path.dirname(os.path.realpath(path))


def _read_schema(schema: Any) -> Mapping[str, Any]:
    """As the server gives it, where that is a schema of an object and of a sane size."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or len(msgspec.json.encode(schema)) > _LARGEST_SCHEMA_BYTES:
        return _ANY_OBJECT
    return {"properties": {}, **schema}


def _read_content(result: Any) -> str:
    """Text as it is; of everything else what it was. What has only structured content shows that."""
    parts = [_read_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [msgspec.json.encode(result.structured_content).decode()]
    return "\n".join(parts) or "done, without words"


def _read_part(part: Any) -> str:
    match part.type:
        case "text":
            return part.text
        case "resource" if hasattr(part.resource, "text"):
            return f"{part.resource.uri}:\n{part.resource.text}"
        case "resource_link":
            return f"[a link to {part.uri}]"
        case kind:
            data = getattr(part, "data", "")
            return f"[{kind} of {len(data) * 3 // 4} bytes, which cannot be shown here]"


def _is_refusal(error: Exception) -> bool:
    """Did the server answer, and say no? Then it is there."""
    return type(error).__name__ == "MCPError" and "closed" not in str(error).lower()


def _say_error(error: BaseException) -> str:
    """In one line; of several that came together, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    words = " ".join(str(error).split())[:500]
    return words if isinstance(error, OperatorError) else f"{words or 'it left'} ({type(error).__name__})"
