"""The route POST /mcp: the verbs as tools of MCP, over HTTP.

The package `mcp` is imported off the loop when the first client connects. A client is judged twice. First the gate
judges it, like every caller. Then each of its calls is judged by the route of the verb, as if the client had requested
that route.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from wakeful.api.bodies import LARGEST_BODY_BYTES, read_body
from wakeful.api.gate.browser_rules import judge_content_type
from wakeful.api.gate.callers import Caller
from wakeful.api.problems import answer_problem
from wakeful.api.requests import Handlers, caller_of
from wakeful.client.async_client import Reply, read_lines
from wakeful.client.refusals import DaemonAway, DaemonRefused, read_refusal
from wakeful.client.wire import encode_query
from wakeful.errors import OperatorError
from wakeful.mcp_server.contract import Reach

MISSING = (
    "MCP needs the package `mcp`, which is not installed: pip install 'wakeful[agents]' in the daemon's own "
    "environment; the daemon finds it without a restart"
)
# `POST /mcp?allow=dangerous` also offers the tools that close, remove, replace or rewind.
ALLOW, DANGEROUS = "allow", "dangerous"
# The most parts of an answer that wait for their reader.
_PARTS_AT_ONCE = 16

# Answers a request as this caller: `Gate.answer_as`.
AnswerAs = Callable[[Caller, Scope, Receive, Send], Awaitable[None]]


async def answer_mcp(request: Request) -> Any:
    serving: McpServing = request.app.state.mcp
    # The content type is also judged on the control socket: the library's own refusal has no problem document.
    judge_content_type(request.scope)
    # The body is read here, so that a body that is too large is refused with our own message.
    left: list[Message] = [{"type": "http.request", "body": await read_body(request), "more_body": False}]
    answer = await serving.find()

    async def answer_read(scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_again() -> Message:
            return left.pop() if left else await receive()

        await answer(scope, receive_again, send)

    return answer_read


async def refuse_stream(request: Request) -> Response:
    answer = answer_problem(
        "wrong-method", "there is no standing stream; POST a request, and subscriptions/listen for changes"
    )
    answer.headers["Allow"] = "POST"
    return answer


class McpServing:
    """The MCP server of this daemon. It is started by the first request."""

    def __init__(self, answer_as: AnswerAs) -> None:
        self._answer_as = answer_as
        self._serving: Any = None
        self._finding = asyncio.Lock()

    async def find(self) -> Any:
        """Return the ASGI application that answers MCP requests. Starts the server if necessary."""
        async with self._finding:
            if self._serving is None:
                self._serving = await self._start()
        return self._serving.answer

    async def close(self) -> None:
        if self._serving is not None:
            await self._serving.close()

    async def _start(self) -> Any:
        try:
            # The import takes seconds of CPU.
            http = await asyncio.to_thread(importlib.import_module, "wakeful.mcp_server.transports")
        except ModuleNotFoundError as missing:
            if missing.name not in ("mcp", "mcp_types"):
                raise
            raise OperatorError(MISSING) from None
        serving = http.HttpServing(self._find_reach, LARGEST_BODY_BYTES)
        await serving.start()
        return serving

    def _find_reach(self, ctx: Any) -> Reach:
        request: Request = ctx.request
        caller = caller_of(request)
        own = caller.run.name if caller.run is not None else None
        is_allowed = DANGEROUS in request.query_params.getlist(ALLOW)
        return Reach(InnerDaemon(self._answer_as, caller), own, is_allowed)


class InnerDaemon:
    """This daemon, as one caller reaches it. Requests are made inside the process, without a connection."""

    def __init__(self, answer_as: AnswerAs, caller: Caller) -> None:
        self._answer_as = answer_as
        self._caller = caller

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Reply:
        async with self._exchange(method, path, query, body, key) as exchange:
            return Reply(exchange.headers, b"".join([part async for part in exchange.read()]))

    @asynccontextmanager
    async def follow(self, names: Sequence[str]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async with self._exchange("GET", "/follow", {"name": list(names), "words": True}) as exchange:
            yield read_lines(exchange.read())

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> AsyncIterator[_Exchange]:
        """Make a request. The context is entered when the head of the answer has arrived. When the context ends, the
        rest of the answer is cancelled."""
        exchange = _Exchange(json.dumps(body).encode() if body is not None else b"")
        scope = _make_scope(method, path, query, key)
        answering = asyncio.create_task(exchange.run(self._answer_as, self._caller, scope), name=f"mcp {path}")
        try:
            await exchange.wait_for_head()
            yield exchange
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering


class _Exchange:
    """One request inside the process, and its answer."""

    def __init__(self, body: bytes) -> None:
        self._sent: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._parts: asyncio.Queue[Message | None] = asyncio.Queue(_PARTS_AT_ONCE)
        self.headers: dict[str, str] = {}

    async def run(self, answer_as: AnswerAs, caller: Caller, scope: Scope) -> None:
        try:
            await answer_as(caller, scope, self._receive, self._parts.put)
        finally:
            # Report an early end to the reader.
            with suppress(asyncio.QueueFull):
                self._parts.put_nowait(None)

    async def _receive(self) -> Message:
        if not self._sent:
            # Wait for ever: the client counts as connected until the request is cancelled.
            await asyncio.get_running_loop().create_future()
        return self._sent.pop()

    async def wait_for_head(self) -> None:
        head = await self._parts.get()
        if head is None:
            raise DaemonAway("the daemon ended before it answered")
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head["headers"]}
        if head["status"] >= 400:
            body = b"".join([part async for part in self.read()])
            raise DaemonRefused(read_refusal(body, head["status"]), head["status"])

    async def read(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._parts.get()
            if message is None:
                raise DaemonAway("the answer ended early")
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return


def _make_scope(method: str, path: str, query: Mapping[str, Any] | None, key: str | None) -> Scope:
    headers = [(b"host", b"wakeful"), (b"content-type", b"application/json")]
    if key is not None:
        headers.append((b"idempotency-key", key.encode()))
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        # Names may contain slashes, so the path stays encoded, as it would be sent.
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": encode_query(query).removeprefix("?").encode(),
        "headers": headers,
        "server": None,
        "client": None,
        "state": {},
    }


HANDLERS: Handlers = {
    "POST /mcp": answer_mcp,
    "GET /mcp": refuse_stream,
}
