"""Run and wait as a task: a client that declares the extension gets a handle and polls it."""

from __future__ import annotations

from typing import Any, Literal

import jsonschema
import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from e2e.box import Box
from mcp_server.clients import declare, open_client, say
from wait_conditions import eventually_async
from wakeful.mcp_server.runs import RUN_SCHEMA

pytestmark = pytest.mark.asyncio

EXTENSION = "io.modelcontextprotocol/tasks"


class Model(RequestParams):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    task_id: str


class Begun(Result):
    """The first answer, as the specification of the extension defines it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class State(Result):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    result: dict[str, Any] | None = None


async def ask(client: Any, method: str, task_id: str, result: type[Result]) -> Any:
    request = Request[Model, str](method=method, params=Model(task_id=task_id))
    return await client.session.send_request(request, result)


class Deferring(ClientExtension):
    """A client that keeps the handle, and polls until the end."""

    identifier = EXTENSION

    def __init__(self, *, is_waiting: bool = True) -> None:
        self.handles: list[str] = []
        self.states: list[State] = []
        self._is_waiting = is_waiting

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Begun, resolve=self._resolve)]

    async def _resolve(self, begun: Begun, context: ClaimContext) -> CallToolResult:
        assert begun.status == "working"
        self.handles.append(begun.task_id)
        if not self._is_waiting:
            return CallToolResult(
                content=[], structured_content={"name": "", "run": 0, "outcome": "waiting", "words": ""}
            )

        async def poll() -> State | None:
            request = Request[Model, str](method="tasks/get", params=Model(task_id=begun.task_id))
            self.states.append(await context.session.send_request(request, State))
            return self.states[-1] if self.states[-1].status != "working" else None

        ended = await eventually_async(poll)
        return CallToolResult.model_validate(ended.result)


async def test_a_run_is_polled_to_its_end(box: Box) -> None:
    """A handle also works in another process, because all its state is in the log."""
    declare(box, command="while [ ! -e go ]; do sleep 0.05; done; echo paid")
    box.start()
    extension = Deferring()
    async with open_client(box, extensions=[Deferring(is_waiting=False)]) as client:
        assert EXTENSION in client.server_capabilities.extensions
    early = Deferring(is_waiting=False)
    async with open_client(box, extensions=[early]) as client:
        await client.call_tool("wakeful_run", {"name": "pay"})
    box.wait_for("pay", state="running")
    async with open_client(box, extensions=[extension]) as client:
        [handle] = early.handles
        assert (await ask(client, "tasks/get", handle, State)).status == "working"
        box.write("go", "")
        ended = await eventually_async(lambda: poll(client, handle))
        assert ended.ttl_ms is None and ended.created_at <= ended.last_updated_at
        result = CallToolResult.model_validate(ended.result)
        jsonschema.validate(result.structured_content, RUN_SCHEMA)
        assert result.structured_content["outcome"] == "succeeded" and "paid" in say(result)
        again = await client.call_tool("wakeful_run", {"name": "pay"})
        assert again.structured_content["run"] == 2 and extension.states[-1].status == "completed"


async def poll(client: Any, handle: str) -> State | None:
    state: State = await ask(client, "tasks/get", handle, State)
    return state if state.status != "working" else None


@pytest.mark.long
async def test_to_cancel_a_task_interrupts_its_run(box: Box) -> None:
    declare(box, command="touch started; sleep 300")
    box.start()
    extension = Deferring(is_waiting=False)
    async with open_client(box, extensions=[extension]) as client:
        await client.call_tool("wakeful_run", {"name": "pay"})
        await eventually_async(lambda: (box.folder / "started").exists())
        [handle] = extension.handles
        await ask(client, "tasks/cancel", handle, Result)
        ended = await eventually_async(lambda: poll(client, handle))
        assert ended.status == "cancelled"
    assert box.row("pay")["last_run"]["outcome"] == "interrupted"


@pytest.mark.long
async def test_a_handle_that_was_never_given_and_a_client_that_does_not_know_them(box: Box) -> None:
    declare(box)
    box.start()
    async with open_client(box, extensions=[Deferring()]) as client:
        for handle in ("nonsense", "run/pay/999", "run/nobody/1"):
            with pytest.raises(MCPError, match=r"there is no deferred run|nobody"):
                await ask(client, "tasks/get", handle, State)
    async with open_client(box) as client:
        with pytest.raises(MCPError, match="declare the extension"):
            await ask(client, "tasks/get", "run/pay/1", State)
