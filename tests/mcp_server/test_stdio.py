"""`wakeful mcp` on standard input and output, with a real daemon and the official client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference

from e2e.box import Box
from mcp_server.clients import MODES, declare, open_client, say
from wait_conditions import eventually_async
from wakeful.mcp_server.tools import PREFIX, list_tools
from wakeful.verbs.table import VERBS

pytestmark = pytest.mark.asyncio


async def test_every_verb_with_a_route_is_a_tool_or_says_why_not() -> None:
    offered = {name.removeprefix(PREFIX) for name in list_tools()}
    reached = {name for name, verb in VERBS.items() if any(route.scope != "owner" for route in verb.routes)}
    left_out = {name for name, verb in VERBS.items() if verb.not_a_tool is not None}
    assert offered == reached - left_out
    assert left_out <= {name for name, verb in VERBS.items() if verb.routes}


@pytest.mark.parametrize("mode", MODES)
async def test_tools_are_listed_and_their_results_fit_their_schemas(box: Box, mode: str) -> None:
    """In both revisions of the protocol, every tool that only reads is called, and its result is checked."""
    declare(box, command="echo hello; echo there >&2")
    box.start()
    async with open_client(box, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"wakeful_list", "wakeful_run", "wakeful_send", "wakeful_remember"} <= tools.keys()
        for tool in tools.values():
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tools["wakeful_list"].annotations.read_only_hint
        assert not tools["wakeful_send"].annotations.read_only_hint
        kept = await client.call_tool(
            "wakeful_remember", {"name": "pay", "key": "currency", "value": "EUR", "confidence": 0.5}
        )
        assert not kept.is_error and kept.structured_content["record"] > 0
        ran = await client.call_tool("wakeful_run", {"name": "pay", "note": "please"})
        assert (ran.is_error, ran.structured_content["outcome"], ran.structured_content["run"]) == (
            False,
            "succeeded",
            1,
        )
        assert "hello" in ran.structured_content["output"]
        given: dict[str, dict[str, Any]] = {
            "wakeful_why": {"x": "pay"},
            "wakeful_diff": {"a": "pay@1", "b": "pay"},
            "wakeful_search": {"text": "please"},
            "wakeful_plan": {"path": [str(box.folder / "in.txt")]},
        }
        named = {"name": "pay"}
        reading = [tool for tool in tools.values() if tool.annotations.read_only_hint]
        assert len(reading) > 12
        for tool in reading:
            arguments = given.get(tool.name, named if "name" in tool.input_schema.get("required", ()) else {})
            result = await client.call_tool(tool.name, arguments)
            if tool.name == "wakeful_context":
                # The session has no agent.
                assert result.is_error
                continue
            assert not result.is_error, (tool.name, say(result))
            assert result.structured_content is not None
            if tool.output_schema is not None:
                jsonschema.validate(result.structured_content, tool.output_schema)
        [fact] = (await client.call_tool("wakeful_recall", {"name": "pay", "key": "currency"})).structured_content[
            "items"
        ]
        assert (fact["value"], fact["confidence"]) == ("EUR", 0.5)
        [row] = (await client.call_tool("wakeful_list", {})).structured_content["items"]
        assert (row["name"], row["runs"]) == ("pay", 1)
        written = (await client.call_tool("wakeful_output", {"name": "pay"})).structured_content
        assert written["run"] == 1 and "hello" in written["text"] and written["left_out_bytes"] == 0
        found = (await client.call_tool("wakeful_output", {"name": "pay", "find": "HELLO"})).structured_content
        assert found["found_lines"] == 1 and found["text"].endswith(":hello\n")


async def test_an_error_is_told_in_the_words_of_the_daemon(box: Box) -> None:
    declare(box)
    box.start()
    async with open_client(box) as client:
        for name, arguments, words in (
            ("wakeful_show", {"name": "pya"}, "pya"),
            ("wakeful_show", {}, "needs 'name'"),
            ("wakeful_show", {"nmae": "pay"}, "did you mean 'name'?"),
            ("wakeful_log", {"name": "pay", "last": "ten"}, "expected integer"),
            ("wakeful_log", {"name": "pay", "kind": ["run_finsihed"]}, "did you mean 'run_finished'?"),
            ("wakeful_list", {"state": "asleep"}, "expected one of suspended"),
            ("wakeful_sleep", {"name": "pay", "until": "tomorrow"}, "RFC 3339"),
            ("wakeful_trust", {}, "a person decides"),
            ("wakeful_lst", {}, "did you mean 'wakeful_list'?"),
            ("wakeful_run", {"name": "nobody"}, "nobody"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error and words in say(result), (name, say(result))


async def test_what_removes_is_refused_unless_it_is_allowed(box: Box) -> None:
    declare(box)
    box.start()
    box.ask("remember", "pay", "currency", "EUR")
    async with open_client(box) as client:
        assert "wakeful_forget" not in {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("wakeful_forget", {"name": "pay", "key": "currency"})
        assert refused.is_error and "--allow-dangerous" in say(refused)
        refused = await client.call_tool("wakeful_answer", {"name": "pay", "text": "yes"})
        assert refused.is_error and "is only for people" in say(refused)
        assert box.json("facts", "pay")
    async with open_client(box, "--allow-dangerous") as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "wakeful_forget"]
        assert tool.annotations.destructive_hint
        assert not (await client.call_tool("wakeful_forget", {"name": "pay", "key": "currency"})).is_error
        assert not box.json("facts", "pay")


async def test_the_same_key_is_carried_out_once(box: Box) -> None:
    declare(box)
    box.start()
    async with open_client(box) as client:
        given = {"name": "pay", "text": "hello", "wake": False, "idempotency_key": "one"}
        first = await client.call_tool("wakeful_send", given)
        again = await client.call_tool("wakeful_send", given)
        assert again.structured_content["is_repeated"] and not first.structured_content["is_repeated"]
    assert box.kinds("pay").count("message_added") == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_failed_run_is_an_error_with_its_reason_and_output(box: Box, mode: str) -> None:
    declare(box, command="echo broken; exit 3")
    box.start()
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with open_client(box, mode=mode) as client:
        result = await client.call_tool("wakeful_run", {"name": "pay"}, progress_callback=hear)
        assert result.is_error and result.structured_content["outcome"] == "failed"
        assert "broken" in say(result) and "3" in result.structured_content["reason"]
        health = await client.call_tool("wakeful_health", {})
        assert not health.is_error and health.structured_content["healthy"] is False
        await eventually_async(lambda: any("run" in words for words in told))


@pytest.mark.long
async def test_a_cancelled_wait_leaves_the_run_alone(box: Box) -> None:
    declare(box, command="touch started; while [ ! -e go ]; do sleep 0.05; done; touch ended")
    box.start()
    async with open_client(box) as client:
        waiting = asyncio.create_task(client.call_tool("wakeful_run", {"name": "pay"}))
        await eventually_async(lambda: (box.folder / "started").exists())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        timed = await client.call_tool("wakeful_show", {"name": "pay"})
        assert timed.structured_content["state"] == "running"
        stopped = await client.call_tool("wakeful_interrupt", {"name": "pay"})
        assert not stopped.is_error
    assert box.wait_for("pay", state="suspended")["last_run"]["outcome"] == "interrupted"


@pytest.mark.long
async def test_a_wait_ends_after_its_time_and_says_so(box: Box) -> None:
    declare(box, command="sleep 300")
    box.start()
    async with open_client(box) as client:
        result = await client.call_tool("wakeful_run", {"name": "pay", "timeout_seconds": 0.5})
        assert not result.is_error and result.structured_content["outcome"] == "waiting"


@pytest.mark.long
async def test_a_session_that_is_held_is_not_waited_for(box: Box) -> None:
    declare(box, more="budget: {month: {runs: 1}}\n")
    box.start()
    async with open_client(box) as client:
        assert not (await client.call_tool("wakeful_run", {"name": "pay"})).is_error
        held = await client.call_tool("wakeful_run", {"name": "pay"})
        assert held.is_error and held.structured_content["outcome"] == "held"
        assert "budget" in held.structured_content["reason"]


@pytest.mark.long
async def test_a_wait_goes_on_after_a_restart_of_the_daemon(box: Box) -> None:
    declare(box, command="touch started; while [ ! -e go ]; do sleep 0.05; done")
    box.start()
    async with open_client(box) as client:
        waiting = asyncio.create_task(client.call_tool("wakeful_run", {"name": "pay"}))
        await eventually_async(lambda: (box.folder / "started").exists())
        await asyncio.to_thread(box.kill)
        box.start(is_ready=False)
        await asyncio.to_thread(box.wait_ready)
        box.write("go", "")
        result = await waiting
        assert result.structured_content["outcome"] == "succeeded", say(result)


@pytest.mark.parametrize("mode", MODES)
async def test_sessions_are_resources(box: Box, mode: str) -> None:
    declare(box, "hr/pay", command="echo paid")
    declare(box, "other")
    box.start()
    async with open_client(box, mode=mode) as client:
        await client.call_tool("wakeful_remember", {"name": "hr/pay", "key": "currency", "value": "EUR"})
        await client.call_tool("wakeful_run", {"name": "hr/pay"})
        uris = [str(one.uri) for one in (await client.list_resources()).resources]
        assert uris == ["wakeful://session/hr%2Fpay", "wakeful://session/other"]
        templates = {one.uri_template: one.name for one in (await client.list_resource_templates()).resource_templates}
        assert list(templates.values()) == ["session", "log", "facts", "output"]

        async def read(tail: str = "") -> str:
            [content] = (await client.read_resource(f"wakeful://session/hr%2Fpay{tail}")).contents
            return content.text

        assert json.loads(await read())["name"] == "hr/pay"
        assert json.loads(await read("/facts"))[0]["value"] == "EUR"
        assert "run_finished" in [json.loads(line)["kind"] for line in (await read("/log")).splitlines()]
        assert await read("/output/1") == "paid\n"
        for uri, words in (("wakeful://session/nobody", "nobody"), ("wakeful://sesion/pay", "expected one of")):
            with pytest.raises(MCPError, match=words):
                await client.read_resource(uri)
        ref = ResourceTemplateReference(type="ref/resource", uri="wakeful://session/{name}/output/{run}")
        found = await client.complete(ref, {"name": "name", "value": "hr"})
        assert found.completion.values == ["hr/pay"]
        found = await client.complete(ref, {"name": "run", "value": ""}, {"name": "hr/pay"})
        assert found.completion.values == ["1"]
