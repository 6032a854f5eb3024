"""Joins tools, resources and runs into one server of the `mcp` package.

`transports.py` serves it to one client, or over HTTP to many. The caller is identified for each request (`find_reach`),
so one server serves callers with different rights. The daemon judges every request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError

from wakeful import __version__
from wakeful.client.async_client import Reply
from wakeful.errors import CallerError, WakefulError
from wakeful.mcp_server.contract import Reach
from wakeful.mcp_server.resources import (
    Address,
    Watch,
    complete,
    find_templates,
    list_sessions,
    read_address,
    read_resource,
)
from wakeful.mcp_server.runs import (
    EXTENSION,
    RUN_SCHEMA,
    Awaited,
    Handle,
    HandleParams,
    UpdateParams,
    add_output,
    read_handle,
    read_so_far,
    say_waiting,
    view_state,
    wait_for_end,
)
from wakeful.mcp_server.tools import RUN, VerbTool, list_tools, refuse_unknown

ASK = "wakeful_ask"
# The most sessions on one page of the list of resources.
PAGE = 200
LONGEST_OUTPUT_BYTES = 50_000
MOST_COMPLETIONS = 100
MISSING_CAPABILITY = -32003
_MODERN = "2026-07-28"

INSTRUCTIONS = """wakeful keeps sessions at rest until something they depend on changes: files, commits, clocks, \
messages. wakeful_list shows them, wakeful_show one of them, wakeful_why explains why one ran or did not. wakeful_run \
runs a session and waits for its end; wakeful_send puts a message in its mailbox; wakeful_ask asks its agent. \
wakeful_remember keeps a fact that later runs read."""
OWN_INSTRUCTIONS = """You work inside a run of the wakeful session {own}. wakeful_remember keeps a fact for later \
runs, wakeful_recall reads facts, wakeful_note leaves the hand-off for the next run, wakeful_send puts a message in \
the mailbox of another session, wakeful_history reads this session's log."""

FindReach = Callable[[Any], Reach]
# The handle of a deferred run, instead of a result. A dict, because its null values must be sent.
Begun = dict[str, Any]


class Handlers:
    """The handlers of one server. `find_reach` returns the rights of the caller, by the context of the request."""

    def __init__(self, find_reach: FindReach) -> None:
        self._find_reach = find_reach

    # -- tools ----------------------------------------------------------------------------------

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        reach = self._find_reach(ctx)
        tools = [_describe(tool) for tool in _find_offered(reach).values()]
        if reach.own is None and reach.offers("run"):
            tools.append(_describe_run())
        return types.ListToolsResult(tools=sorted(tools, key=lambda tool: tool.name), cache_scope="private")

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult | Begun:
        """Carry out a tool call. An error of the daemon or the caller becomes a result, so that the model reads it."""
        reach = self._find_reach(ctx)
        try:
            return await _Call(ctx, reach, params.name, dict(params.arguments or {})).carry_out()
        except WakefulError as error:
            return _say_error(str(error))

    # -- deferred runs --------------------------------------------------------------------------

    async def look_at_deferred(self, ctx: Any, params: HandleParams) -> dict[str, Any]:
        async with _protocol_errors():
            reach, handle = self._find_reach(ctx), _read_declared(ctx, params.task_id)
            awaited = handle.expect()
            await read_so_far(reach.daemon, awaited)
            _refuse_strange(handle, awaited)
            found = view_state(handle, awaited)
            if found["status"] == "completed":
                assert awaited.ended is not None
                found["result"] = _show_end(await add_output(reach.daemon, awaited.ended)).model_dump(
                    by_alias=True, mode="json", exclude_none=True
                )
            return {"resultType": "complete", **found}

    async def cancel_deferred(self, ctx: Any, params: HandleParams) -> dict[str, Any]:
        """Interrupt the run if it is under way, because a client that cancels wants the work to stop."""
        async with _protocol_errors():
            reach, handle = self._find_reach(ctx), _read_declared(ctx, params.task_id)
            awaited = handle.expect()
            await read_so_far(reach.daemon, awaited)
            _refuse_strange(handle, awaited)
            if awaited.ended is None and awaited.run is not None:
                await reach.daemon.ask("POST", "/call/interrupt", body={"name": handle.name}, key=uuid.uuid4().hex)
            return {"resultType": "complete"}

    async def update_deferred(self, ctx: Any, params: UpdateParams) -> dict[str, Any]:
        """Do nothing. Our runs ask no questions through this method; an agent's question is answered with
        wakeful_answer."""
        async with _protocol_errors():
            _read_declared(ctx, params.task_id)
            return {"resultType": "complete"}

    # -- resources ------------------------------------------------------------------------------

    async def list_resources(self, ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        reach = self._find_reach(ctx)
        async with _protocol_errors():
            if reach.own is not None:
                parts = (Address(reach.own, "log"), Address(reach.own, "facts"))
                own = [types.Resource(uri=str(one), name=f"{one.name} {one.part}") for one in parts]
                return types.ListResourcesResult(resources=own, cache_scope="private")
            after = params.cursor if params is not None else None
            rows = [row for row in await list_sessions(reach.daemon) if after is None or row["name"] > after]
            found = [
                types.Resource(
                    uri=str(Address(row["name"], "session")),
                    name=row["name"],
                    description=f"{row['state']}: {row['reason']}" if row["reason"] else row["state"],
                    mime_type="application/json",
                )
                for row in rows[:PAGE]
            ]
            more = rows[PAGE - 1]["name"] if len(rows) > PAGE else None
            return types.ListResourcesResult(resources=found, next_cursor=more, cache_scope="private")

    async def list_templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        found = [
            types.ResourceTemplate(uri_template=one.uri, name=one.name, description=one.words, mime_type=one.media_type)
            for one in find_templates(self._find_reach(ctx))
        ]
        return types.ListResourceTemplatesResult(resource_templates=found, cache_scope="private")

    async def read_resource(self, ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        async with _protocol_errors():
            uri = str(params.uri)
            text, media_type = await read_resource(self._find_reach(ctx).daemon, read_address(uri))
            content = types.TextResourceContents(uri=uri, mime_type=media_type, text=text)
            return types.ReadResourceResult(contents=[content], cache_scope="private")

    async def complete(self, ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        async with _protocol_errors():
            known = dict(params.context.arguments or {}) if params.context is not None else {}
            found = await complete(self._find_reach(ctx), params.argument.name, params.argument.value, known)
            shown = types.Completion(
                values=found[:MOST_COMPLETIONS], total=len(found), has_more=len(found) > MOST_COMPLETIONS
            )
            return types.CompleteResult(completion=shown)

    # -- subscriptions --------------------------------------------------------------------------

    async def listen(self, ctx: Any, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Serve `subscriptions/listen`: one stream of reports, until the client stops reading."""
        wanted = params.notifications
        addresses = _read_addresses(wanted.resource_subscriptions or ())
        bus = InMemorySubscriptionBus()
        handler = ListenHandler(bus)
        if not addresses and not wanted.resources_list_changed:
            return await handler(ctx, params)
        watch = Watch(self._find_reach(ctx).daemon, addresses, with_list=bool(wanted.resources_list_changed))

        async def report(changed: set[Address], is_list_changed: bool) -> None:
            for one in sorted(changed):
                await bus.publish(ResourceUpdated(str(one)))
            if is_list_changed:
                await bus.publish(ResourcesListChanged())

        async with _watching(watch, report):
            return await handler(ctx, params)


class StandingSubscriptions:
    """`resources/subscribe` of the MCP revisions before 2026-07-28. Reports go to the only client of this process."""

    def __init__(self, find_reach: FindReach) -> None:
        self._find_reach = find_reach
        self._ends: dict[str, contextlib.AsyncExitStack] = {}

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        if uri in self._ends:
            return types.EmptyResult()
        watch = Watch(self._find_reach(ctx).daemon, _read_addresses((uri,)))

        async def report(changed: set[Address], _: bool) -> None:
            if changed:
                await ctx.session.send_resource_updated(uri)

        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(_watching(watch, report))
            self._ends[uri] = stack.pop_all()
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        end = self._ends.pop(str(params.uri), None)
        if end is not None:
            await end.aclose()
        return types.EmptyResult()

    async def close(self) -> None:
        while self._ends:
            await self._ends.popitem()[1].aclose()


class _Call:
    """One call of a tool."""

    def __init__(self, ctx: Any, reach: Reach, name: str, given: dict[str, Any]) -> None:
        self._ctx = ctx
        self._reach = reach
        self._daemon = reach.daemon
        self._name = name
        self._given = given
        self._told = 0

    async def carry_out(self) -> types.CallToolResult | Begun:
        if self._name == RUN and self._reach.own is None and self._reach.offers("run"):
            return await self._run()
        tool = _find_tool(self._reach, self._name)
        if self._name == ASK:
            return await self._ask(tool)
        request = tool.make_request(self._given, uuid.uuid4().hex if tool.verb.is_repeatable else None)
        reply = await self._daemon.ask(*request)
        return _show_reply(tool, reply, self._given)

    async def _run(self) -> types.CallToolResult | Begun:
        activate = list_tools()["wakeful_activate"]
        seconds = _take_seconds(self._given)
        request = activate.make_request(self._given, uuid.uuid4().hex)
        answer = (await self._daemon.ask(*request)).decode()
        return await self._follow(Handle("run", answer["name"], answer["record"]), answer, seconds)

    async def _ask(self, tool: VerbTool) -> types.CallToolResult | Begun:
        seconds = _take_seconds(self._given)
        request = tool.make_request(self._given, uuid.uuid4().hex)
        answer = (await self._daemon.ask(*request)).decode()
        if self._given.get("wait") is False:
            return _show_document({"run": None, "outcome": "waiting"} | answer, answer["words"])
        return await self._follow(Handle("ask", answer["name"], answer["record"]), answer, seconds)

    async def _follow(
        self, handle: Handle, answer: dict[str, Any], seconds: float | None
    ) -> types.CallToolResult | Begun:
        if answer.get("held") is not None:
            # Do not wait: the session is held until a person acts, or until a new budget period begins.
            held = {"name": handle.name, "run": None, "outcome": "held", "reason": answer["held"]}
            return _show_end(held | {"words": f"{handle.name}: {answer['words']}"})
        awaited = handle.expect()
        if _declares_deferred(self._ctx):
            await read_so_far(self._daemon, awaited)
            return {"resultType": "task", **view_state(handle, awaited), "status": "working"}
        try:
            async with asyncio.timeout(seconds):
                ended = await wait_for_end(self._daemon, awaited, self._tell)
        except TimeoutError:
            ended = say_waiting(awaited)
        return _show_end(await add_output(self._daemon, ended))

    async def _tell(self, words: str) -> None:
        self._told += 1
        await self._ctx.session.report_progress(self._told, message=words)


def build_server(find_reach: FindReach, own: str | None = None) -> Server[Any]:
    """Build the server for clients of the current MCP revision, and of earlier ones that need no standing stream."""
    handlers = Handlers(find_reach)
    server = Server[Any](
        "wakeful",
        version=__version__,
        title="wakeful",
        description="Sessions that rest until something they depend on changes",
        instructions=OWN_INSTRUCTIONS.format(own=own) if own is not None else INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        # This handler also returns results of the tasks extension, which the type of the package does not allow.
        on_call_tool=handlers.call_tool,  # type: ignore[arg-type]
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_completion=handlers.complete,
        # A run may not follow records.
        on_subscriptions_listen=handlers.listen if own is None else None,
        # Arguments are never read from headers, so the package has nothing to compare with a schema.
        get_tool_input_schema=lambda name: None,
    )
    if own is None:
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", HandleParams, handlers.look_at_deferred)
        server.add_request_handler("tasks/cancel", HandleParams, handlers.cancel_deferred)
        server.add_request_handler("tasks/update", UpdateParams, handlers.update_deferred)
    return server


def add_standing(server: Server[Any], find_reach: FindReach) -> StandingSubscriptions:
    """Add the subscriptions of older clients, which need a connection that stays open."""
    standing = StandingSubscriptions(find_reach)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, standing.subscribe)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, standing.unsubscribe)
    return standing


def _find_offered(reach: Reach) -> dict[str, VerbTool]:
    return {
        name: tool
        for name, tool in list_tools(reach.own).items()
        if reach.offers(tool.verb.name) and (reach.allows_dangerous or not tool.needs_leave)
    }


def _find_tool(reach: Reach, name: str) -> VerbTool:
    tool = list_tools(reach.own).get(name)
    if tool is not None and not reach.offers(tool.verb.name):
        raise CallerError(f"{name} is not offered here (wakeful mcp --only)")
    if tool is None:
        raise refuse_unknown(name, _find_offered(reach), is_run=reach.own is not None)
    if tool.needs_leave and not reach.allows_dangerous:
        does = "closes, removes, replaces or goes back" if tool.verb.is_dangerous else "is only for people"
        raise CallerError(
            f"{name} {does}, and is not allowed here; ask the person to do it in a terminal "
            f"(wakeful {tool.verb.name} --help), or to allow it (wakeful mcp --allow-dangerous)"
        )
    return tool


def _describe(tool: VerbTool) -> types.Tool:
    is_ask = tool.name == ASK
    return types.Tool(
        name=tool.name,
        title=tool.verb.words,
        description=tool.describe(),
        input_schema=tool.make_input_schema(),
        output_schema=RUN_SCHEMA if is_ask else tool.make_output_schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_reading,
            destructive_hint=tool.verb.is_dangerous,
            # A call that writes is safe to repeat only with a key.
            idempotent_hint=tool.is_reading,
            open_world_hint=False,
        ),
    )


def _describe_run() -> types.Tool:
    activate = list_tools()["wakeful_activate"]
    schema = activate.make_input_schema()
    schema["properties"]["timeout_seconds"] = list_tools()[ASK].make_input_schema()["properties"]["timeout_seconds"]
    return types.Tool(
        name=RUN,
        title="run a session and wait for its end",
        description=(
            "Run a session now, and wait until the run has ended. Returns its outcome and the end of its output. "
            "Progress is reported. Ending the wait does not stop the run; wakeful_interrupt does."
        ),
        input_schema=schema,
        output_schema=RUN_SCHEMA,
        annotations=types.ToolAnnotations(
            read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
        ),
    )


def _show_reply(tool: VerbTool, reply: Reply, given: dict[str, Any]) -> types.CallToolResult:
    if tool.verb.name == "output":
        found = _read_found(reply) if "wakeful-found" in reply.headers else _read_output(reply)
        return _show_document(found, found["text"] or "(no output)")
    document = reply.decode()
    if tool.verb.name == "recall" and given.get("key") is not None:
        document = _choose_fact(document, given["key"])
    if isinstance(document, list):
        document = {"items": document}
    words = document.get("words") if tool.verb.is_call else None
    return _show_document(document, words)


def _choose_fact(facts: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    found = [fact for fact in facts if fact["key"] == key]
    if not found:
        known = ", ".join(str(fact["key"]) for fact in facts[:50])
        raise CallerError(f"there is no fact {key!r}; " + (f"there are {known}" if known else "none is kept yet"))
    return found


def _read_found(reply: Reply) -> dict[str, Any]:
    """Read the lines of an output that contain a text."""
    text = reply.body[:LONGEST_OUTPUT_BYTES].decode(errors="replace")
    return {
        "run": int(reply.headers["wakeful-run"]),
        "text": text or "(no line contains that)",
        "total_bytes": int(reply.headers["wakeful-total"]),
        "left_out_bytes": max(0, len(reply.body) - LONGEST_OUTPUT_BYTES),
        "found_lines": int(reply.headers["wakeful-found"]),
    }


def _read_output(reply: Reply) -> dict[str, Any]:
    head, total = int(reply.headers.get("wakeful-head", 0)), int(reply.headers.get("wakeful-total", 0))
    parts = [reply.body[:head], reply.body[head:]]
    if len(reply.body) > LONGEST_OUTPUT_BYTES:
        half = LONGEST_OUTPUT_BYTES // 2
        parts = [reply.body[:half], reply.body[-half:]]
    left_out = max(total, len(reply.body)) - sum(map(len, parts))
    text = [part.decode(errors="replace") for part in parts]
    hint = reply.headers.get("wakeful-hint")
    return {
        "run": int(reply.headers["wakeful-run"]),
        "text": f"\n… {left_out} bytes left out …\n".join(text) if left_out else "".join(text),
        "total_bytes": total,
        "left_out_bytes": left_out,
        "hint": json.loads(hint) if hint is not None else None,
    }


def _show_end(ended: dict[str, Any]) -> types.CallToolResult:
    """Show the end of a run. A failed run is an error, with the same fields."""
    told = ended["words"] + (f"\n\n{ended['answer']}" if ended.get("answer") else "")
    told += f"\n\n{ended['output']}" if ended.get("output") else ""
    is_error = ended["outcome"] not in ("succeeded", "waiting", "cancelled")
    return _show_document(ended, told, is_error=is_error)


def _show_document(
    document: dict[str, Any], words: str | None = None, *, is_error: bool = False
) -> types.CallToolResult:
    text = words if words is not None else json.dumps(document, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=document, is_error=is_error
    )


def _say_error(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], is_error=True)


def _take_seconds(given: dict[str, Any]) -> float | None:
    """Take the time limit of a wait out of the arguments. Raises CallerError if it is not a positive number."""
    seconds = given.pop("timeout_seconds", None)
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0):
        raise CallerError(f"timeout_seconds is {seconds!r}; expected a number of seconds above 0")
    return seconds


def _declares_deferred(ctx: Any) -> bool:
    """Does the client declare, in this request, that it understands a handle instead of a result?"""
    capabilities = ctx.session.client_capabilities
    return ctx.protocol_version >= _MODERN and capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _read_declared(ctx: Any, text: str) -> Handle:
    if not _declares_deferred(ctx):
        raise MCPError(
            MISSING_CAPABILITY,
            f"the client must declare the extension {EXTENSION}",
            {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )
    return read_handle(text)


def _refuse_strange(handle: Handle, awaited: Awaited) -> None:
    if awaited.asked_at is None:
        raise CallerError(f"there is no deferred run {str(handle)!r}: {handle.name} has no record {handle.record}")


def _read_addresses(uris: Any) -> frozenset[Address]:
    try:
        return frozenset(read_address(str(uri)) for uri in uris)
    except CallerError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None


@contextlib.asynccontextmanager
async def _protocol_errors() -> Any:
    """Convert our errors to errors of the protocol. Only tool calls can report an error as a result."""
    try:
        yield
    except CallerError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    except WakefulError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from None


@contextlib.asynccontextmanager
async def _watching(watch: Watch, report: Callable[[set[Address], bool], Awaitable[None]]) -> Any:
    """Run a watch until the context ends. The context is entered when no later change can be missed. Raises MCPError if
    the daemon refuses."""
    begun = asyncio.get_running_loop().create_future()
    watching = asyncio.create_task(watch.run(report, begun), name="mcp-watch")
    try:
        async with _protocol_errors():
            await begun
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
