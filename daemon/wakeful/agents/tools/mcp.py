"""The tools of an agent's MCP servers: programs with standard input and output, or addresses.

The library is imported only if an agent has servers. All servers start with the run and end with it. A run waits a
short time for the tools of each server. Before each request it notices servers that came later, went down or changed
their tools. A server that is down has one tool, which starts the server again, or returns the reason. Text from servers
is data: names are made safe for models, descriptions and results are limited.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import importlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from wakeful.agents.contract import Tool, ToolOffer, ToolResult
from wakeful.agents.tools.image import MOST_IMAGES, describe_image, find_obstacle
from wakeful.agents.tools.shell_confinement import Narrowing
from wakeful.core.agents.turns import DownServer
from wakeful.core.spec.agent import MCP_TOOL_PREFIX, McpServer, ToolPolicy
from wakeful.errors import OperatorError
from wakeful.text.unicode import tell_sendable

# The most seconds for the start of a server. The run itself continues without it after the declared `start_timeout`.
LONGEST_START_SECONDS = 120.0
# The most seconds for the start of a server during a call.
AGAIN_SECONDS = 20.0
CALL_SECONDS = 120.0
LIST_SECONDS = 10.0
_MOST_TOOLS = 100
_MOST_PAGES = 20
_LONGEST_DESCRIPTION = 2_000
_LARGEST_SCHEMA_BYTES = 16_384
# The most characters of a tool name, and the characters it may not have, for every provider to accept it.
_LONGEST_NAME = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "properties": {}}

# A tool as its server describes it: name, description, schema of the arguments.
_Listed = tuple[str, str, Mapping[str, Any]]


class ServerDown(OperatorError):
    """A server cannot be started or reached, or ended during a call."""


class ServerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for starting servers.

    `narrowing` has the paths that programs may reach. With None they have all rights of the run.
    """

    root: str
    narrowing: Narrowing | None
    # The command line and the variables of each server, by its name.
    words: Mapping[str, tuple[str, ...]]
    environments: Mapping[str, Mapping[str, str]]
    # Returns a secret's value by its name.
    read_key: Callable[[str], str | None]


class McpTools:
    """The present tools of all servers of one run. Made by `open_servers`."""

    def __init__(self, servers: Sequence[_Server]) -> None:
        self._servers = servers
        self._names: dict[str, str] = {}

    @property
    def revision(self) -> int:
        """A number that changes whenever tools changed or a server went down."""
        return sum(server.revision for server in self._servers)

    @property
    def down(self) -> tuple[DownServer, ...]:
        """The servers that are down, each with the reason."""
        return tuple(server.down for server in self._servers if server.down is not None)

    async def wait(self, failing: Iterable[DownServer] = ()) -> None:
        """Wait until each server has listed its tools, or its time is over.

        Servers in `failing`, which were too slow in a recent run, are not waited for.
        """
        known = {one.name: one for one in failing}
        await asyncio.gather(*(server.wait(known.get(server.name)) for server in self._servers))

    async def refresh(self) -> None:
        """Ask the servers that reported a change for their tools again."""
        await asyncio.gather(*(server.refresh() for server in self._servers))

    def list_tools(self) -> Iterable[Tool]:
        tools: dict[str, Tool] = {}
        self._names = {}
        for server in self._servers:
            for tool, description, schema in server.list_known():
                safe = make_safe_name(server.name, tool, tools)
                self._names[safe] = f"{MCP_TOOL_PREFIX}{server.name}" + (f"/{tool}" if tool else "")
                tools[safe] = _ServerTool(
                    server, tool, ToolOffer(name=safe, description=description, parameters=schema)
                )
        return tuple(tools.values())

    def find_policies(self, declared: Mapping[str, ToolPolicy]) -> dict[str, ToolPolicy]:
        """Return the policy of each tool by its safe name: the one declared for the tool, else for its server.

        The default is to allow, because the agent declares the server.
        """
        return {
            safe: declared.get(name) or declared.get(name.partition("/")[0]) or "allow"
            for safe, name in self._names.items()
        }


@contextlib.asynccontextmanager
async def open_servers(servers: Sequence[McpServer], place: ServerPlace) -> AsyncIterator[McpTools]:
    """Begin to start all servers, without waiting for them. Ends them all at exit."""
    opened = [_Server(server, place) for server in servers]
    for server in opened:
        server.begin()
    try:
        yield McpTools(opened)
    finally:
        await asyncio.gather(*(server.close() for server in opened))


def make_safe_name(server: str, tool: str, taken: Iterable[str] = ()) -> str:
    """Return the name `mcp__<server>__<tool>`. If it is invalid or taken, it is changed and gets a hash at its end."""
    wanted = "__".join(part for part in ("mcp", server, tool) if part)
    safe = _UNSAFE.sub("_", wanted)
    if safe == wanted and len(safe) <= _LONGEST_NAME and safe not in taken:
        return safe
    mark = hashlib.blake2b(f"{server}/{tool}".encode(errors="replace"), digest_size=4).hexdigest()
    return f"{safe[: _LONGEST_NAME - 9]}_{mark}"


class _ServerTool:
    # A server's own claim that a tool is read-only is not trusted.
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
                listed = await self._server.list_anew()
                return ToolResult(
                    f"{self._server.name} is up; its tools can be called now: "
                    f"{', '.join(name for name, *_ in listed) or 'it has none'}"
                )
            result = await self._server.call(self._name, dict(arguments))
        except ServerDown as down:
            return ToolResult(tell_sendable(str(down)), is_error=True)
        return ToolResult(
            tell_sendable(_read_content(result)), is_error=bool(result.is_error), images=_read_images(result)
        )


class _Server:
    """One server. A task of its own opens and closes the connection, because the library requires one task for both."""

    def __init__(self, server: McpServer, place: ServerPlace) -> None:
        self.name = server.name
        # The reason why the server is down. None while it starts, and when it is up.
        self.down: DownServer | None = None
        self.revision = 0
        self._spec = server
        self._place = place
        self._listed: list[_Listed] | None = None
        self._is_stale = False
        self._beginning: asyncio.Task[None] | None = None
        self._owner: asyncio.Task[None] | None = None
        self._client: Any = None
        self._stop = asyncio.Event()
        self._starting = asyncio.Lock()

    # -- the tools of the server --------------------------------------------------------------

    def begin(self) -> None:
        self._beginning = asyncio.create_task(self._begin(), name=f"start mcp server {self.name}")

    async def _begin(self) -> None:
        """Start the server. If it is down, `list_anew` has stored the reason."""
        with contextlib.suppress(ServerDown):
            await self.list_anew(LONGEST_START_SECONDS)

    async def wait(self, failed: DownServer | None) -> None:
        assert self._beginning is not None
        seconds = self._spec.start_seconds if failed is None else 0.0
        await asyncio.wait([self._beginning], timeout=seconds)
        if not self._beginning.done():
            words = (
                f"MCP server {self.name} did not start within {seconds:g} s (start_timeout): "
                "the run continued without its tools"
            )
            self._put_down(failed or DownServer(name=self.name, words=words, is_slow=True))

    async def refresh(self) -> None:
        if not self._is_stale:
            return
        with contextlib.suppress(ServerDown):
            await self.list_anew()

    def list_known(self) -> Iterable[_Listed]:
        """Return the known tools.

        If they are not known yet, return one tool that starts the server or returns the reason.
        """
        if self._listed is not None:
            return self._listed
        return [("", f"The MCP server {self.name} is down. Call this tool to see why, and to try again.", _ANY_OBJECT)]

    async def list_anew(self, start_seconds: float = AGAIN_SECONDS) -> list[_Listed]:
        async def ask(client: Any) -> list[Any]:
            listed, cursor = [], None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                listed += page.tools
                cursor = page.next_cursor
                if cursor is None or len(listed) >= _MOST_TOOLS:
                    break
            return listed[:_MOST_TOOLS]

        self._is_stale = False
        try:
            found = await self._ask(ask, LIST_SECONDS, start_seconds)
        except ServerDown as down:
            if self._listed is None:
                self._put_down(DownServer(name=self.name, words=str(down)))
            raise
        listed = [
            (tool.name, (tool.description or "")[:_LONGEST_DESCRIPTION], _read_schema(tool.input_schema))
            for tool in found
        ]
        if listed != self._listed or self.down is not None:
            self._listed, self.down = listed, None
            self.revision += 1
        return listed

    def _put_down(self, down: DownServer) -> None:
        if down != self.down:
            self.down = down
            self.revision += 1

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self._ask(lambda client: client.call_tool(name, arguments), CALL_SECONDS, AGAIN_SECONDS)

    # -- the connection -----------------------------------------------------------------------

    async def close(self) -> None:
        self._stop.set()
        begun = [one for one in (self._beginning, self._owner) if one is not None and not one.done()]
        if self._beginning is not None:
            self._beginning.cancel()
        if self._client is None and self._owner is not None:
            # The server never answered, so its task does not wait for `_stop` yet.
            self._owner.cancel()
        if begun:
            await asyncio.wait(begun)

    async def _ask(self, what: Callable[[Any], Awaitable[Any]], seconds: float, start_seconds: float) -> Any:
        client = await self._connect(start_seconds)
        try:
            async with asyncio.timeout(seconds):
                return await what(client)
        except TimeoutError:
            raise ServerDown(
                f"MCP server {self.name} did not answer within {seconds:g} s; whether the call took effect is not known"
            ) from None
        except Exception as error:
            # Every error that a server can cause is a result, not our defect. The library has many types for them.
            if not _is_refusal(error):
                self._stop.set()
            raise ServerDown(f"MCP server {self.name}: {_say_error(error)}") from error

    async def _connect(self, seconds: float) -> Any:
        async with self._starting:
            if self._owner is not None and not self._owner.done() and not self._stop.is_set():
                return self._client
            if self._owner is not None:
                await asyncio.wait([self._owner])
            self._stop, self._client = asyncio.Event(), None
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._own(ready, self._stop), name=f"mcp server {self.name}")
            try:
                async with asyncio.timeout(seconds):
                    self._client = await asyncio.shield(ready)
            except TimeoutError:
                self._owner.cancel()
                raise ServerDown(f"MCP server {self.name} did not start within {seconds:g} s") from None
            return self._client

    async def _own(self, ready: asyncio.Future[Any], stop: asyncio.Event) -> None:
        tell_end: Callable[[], str | None] = _say_nothing
        try:
            transport, tell_end, tell_answered = self._make_transport()
            async with transport as client:
                tell_answered()
                ready.set_result(client)
                async with self._noticing(client):
                    await stop.wait()
        except Exception as error:
            # After `ready` the next call reports the error.
            if not ready.done():
                words = tell_end() or _say_error(error)
                ready.set_exception(ServerDown(f"MCP server {self.name} cannot be started or reached: {words}"))

    @contextlib.asynccontextmanager
    async def _noticing(self, client: Any) -> AsyncIterator[None]:
        """Subscribe to changes of the tools. Servers of the newer protocol report them only to subscribers."""
        subscribing = asyncio.create_task(self._subscribe(client), name=f"mcp server {self.name}: changes")
        try:
            yield
        finally:
            subscribing.cancel()
            await asyncio.wait([subscribing])

    async def _subscribe(self, client: Any) -> None:
        """Receive changes until the server ends the subscription. A server without subscriptions is not an error."""
        listening = importlib.import_module("mcp.client.subscriptions")
        with contextlib.suppress(
            listening.ListenNotSupportedError,
            listening.SubscriptionLost,
            importlib.import_module("mcp").MCPError,
            TimeoutError,
        ):
            async with client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self._is_stale = True

    async def _hear(self, message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self._is_stale = True

    def _make_transport(self) -> tuple[AbstractAsyncContextManager[Any], Callable[[], str | None], Callable[[], None]]:
        """Return the client, a function that describes how the program ended, and one to call when it answers."""
        library = importlib.import_module("mcp.client")
        if self._spec.url is not None:
            return self._open_address(library, self._spec.url), lambda: None, lambda: None
        place = self._place
        module = importlib.import_module("wakeful.agents.tools.mcp_program")
        program = module.ServerProgram(
            place.words[self.name], place.root, place.environments[self.name], place.narrowing
        )
        client = library.Client(program.open(), message_handler=self._hear, cache=None)

        def be_polite() -> None:
            program.is_polite = True

        return client, program.say_end, be_polite

    @contextlib.asynccontextmanager
    async def _open_address(self, library: Any, url: str) -> AsyncIterator[Any]:
        http = importlib.import_module("mcp.client.streamable_http")
        key = self._place.read_key(self._spec.key) if self._spec.key is not None else None
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        async with (
            http.create_mcp_http_client(headers=headers) as connection,
            library.Client(
                http.streamable_http_client(url, http_client=connection), message_handler=self._hear, cache=None
            ) as opened,
        ):
            yield opened


def _read_schema(schema: Any) -> Mapping[str, Any]:
    """Return the server's schema. If it is too large or not for an object, return a schema for any object."""
    if (
        not isinstance(schema, dict)
        or schema.get("type") != "object"
        or len(msgspec.json.encode(schema)) > _LARGEST_SCHEMA_BYTES
    ):
        return _ANY_OBJECT
    return {"properties": {}, **schema}


def _read_content(result: Any) -> str:
    """Return a result as text: texts as they are, and a description of every other part.

    If there is only structured content, it is returned as JSON.
    """
    parts = [_read_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [msgspec.json.encode(result.structured_content).decode()]
    if sum(part.type == "image" for part in result.content) > MOST_IMAGES:
        parts.append(f"[only the first {MOST_IMAGES} images are shown]")
    return "\n".join(parts) or "done, with an empty result"


def _read_images(result: Any) -> tuple[bytes, ...]:
    """Return the first images of a result that a model can be shown."""
    contents = (_decode_image(part) for part in result.content if part.type == "image")
    return tuple(content for content in contents if content is not None and find_obstacle(content) is None)[
        :MOST_IMAGES
    ]


def _decode_image(part: Any) -> bytes | None:
    try:
        return base64.b64decode(part.data, validate=True)
    except ValueError:
        return None


def _say_image(part: Any) -> str:
    content = _decode_image(part)
    obstacle = find_obstacle(content) if content is not None else "its data is not base64"
    shown = (describe_image(content) if content is not None else None) or "an image"
    return f"[{shown}]" if obstacle is None else f"[{shown}. It cannot be shown: {obstacle}]"


def _read_part(part: Any) -> str:
    match part.type:
        case "image":
            return _say_image(part)
        case "text":
            return str(part.text)
        case "resource" if hasattr(part.resource, "text"):
            return f"{part.resource.uri}:\n{part.resource.text}"
        case "resource_link":
            return f"[a link to {part.uri}]"
        case kind:
            data = getattr(part, "data", "")
            return f"[{kind} of {len(data) * 3 // 4} bytes, which cannot be shown here]"


def _say_nothing() -> None:
    """Return None, because no server was started."""


def _is_refusal(error: Exception) -> bool:
    """Did the server answer with an error? Then it is up."""
    return type(error).__name__ == "MCPError" and "closed" not in str(error).lower()


def _say_error(error: BaseException) -> str:
    """Describe an error in one line. For an exception group, describe its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    words = " ".join(str(error).split())[:500]
    return words if isinstance(error, OperatorError) else f"{words or 'it ended'} ({type(error).__name__})"
