"""The permissions of `wakeful mcp`: a run reaches its own session only, and a token reaches what it permits."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

from e2e.box import WAKEFUL, Box
from mcp_server.clients import declare, open_client, say

pytestmark = pytest.mark.asyncio

# A run whose command is an MCP client. It writes the answers to a file.
CLIENT = f"""
    import asyncio, json, os
    from mcp import Client, StdioServerParameters

    async def main():
        server = StdioServerParameters(command={WAKEFUL!r}, args=["mcp"], env=dict(os.environ))
        found = {{}}
        async with Client(server) as client:
            found["tools"] = {{tool.name: tool.input_schema for tool in (await client.list_tools()).tools}}
            found["templates"] = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
            found["resources"] = [str(one.uri) for one in (await client.list_resources()).resources]
            found["answers"] = []
            for name, arguments in json.loads(CALLS):
                result = await client.call_tool(name, arguments)
                text = "".join(part.text for part in result.content)
                found["answers"].append([result.is_error, result.structured_content, text])
            [content] = (await client.read_resource("wakeful://session/pay/facts")).contents
            found["facts"] = json.loads(content.text)
            try:
                await client.read_resource("wakeful://session/other/facts")
            except Exception as error:
                found["refusal"] = str(error)
        json.dump(found, open("found.json", "w"))

    asyncio.run(main())
"""


async def test_inside_a_run_there_is_its_own_session_and_nothing_else(box: Box) -> None:
    calls = [
        ["wakeful_remember", {"key": "currency", "value": "EUR", "rationale": "the contracts"}],
        ["wakeful_recall", {"key": "currency"}],
        ["wakeful_send", {"name": "other", "text": "the rates changed", "wake": False}],
        ["wakeful_note", {"text": "done: March"}],
        ["wakeful_history", {"last": 5}],
        ["wakeful_todo", {"items": ["April"]}],
        ["wakeful_list", {}],
        ["wakeful_run", {"name": "other"}],
        ["wakeful_remember", {"name": "other", "key": "currency", "value": "CHF"}],
    ]
    box.write("client.py", f"CALLS = {json.dumps(calls)!r}\n{textwrap.dedent(CLIENT)}")
    declare(box, command=f"{sys.executable} client.py")
    declare(box, "other")
    box.start()
    box.ask("activate", "pay")
    row = box.wait_at_rest("pay", runs=1, seconds=120)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "pay")
    found = json.loads(box.read("found.json"))
    assert sorted(found["tools"]) == [
        f"wakeful_{verb}" for verb in ("facts", "history", "log", "note", "recall", "remember", "send", "todo")
    ]
    # A call on its own session needs no name. A message goes to another session.
    named = [name for name, schema in found["tools"].items() if "name" in schema["properties"]]
    assert named == ["wakeful_send"]
    assert found["resources"] == ["wakeful://session/pay/log", "wakeful://session/pay/facts"]
    *done, listed, ran, other = found["answers"]
    assert [is_error for is_error, _, _ in done] == [False] * 6, done
    assert done[1][1]["items"][0]["author"] == "run:pay#1"
    for is_error, _, words in (listed, ran):
        assert is_error and "not for runs" in words
    assert other[0] and "no argument 'name'" in other[2]
    assert found["facts"][0]["value"] == "EUR" and "its own session" in found["refusal"]
    [message] = [record for record in box.log("other") if record["kind"] == "message_added"]
    assert message["payload"]["text"] == "the rates changed" and message["author"] == "run:pay#1"
    assert "note_added" in box.kinds("pay") and not box.json("facts", "other")


async def test_a_token_opens_what_it_opens_and_a_wrong_one_nothing(box: Box) -> None:
    declare(box)
    declare(box, "other")
    box.start()
    token = box.ask("token", "new", "--scope", "read", "--session", "pay").split()[0]
    place = Path(box.folder / "pay.token")
    place.write_text(token)
    async with open_client(box, env={"WAKEFUL_TOKEN_FILE": str(place)}) as client:
        assert not (await client.call_tool("wakeful_show", {"name": "pay"})).is_error
        for name, arguments in (
            ("wakeful_show", {"name": "other"}),
            ("wakeful_list", {}),
            ("wakeful_remember", {"name": "pay", "key": "currency", "value": "EUR"}),
        ):
            refused = await client.call_tool(name, arguments)
            assert refused.is_error and "token" in say(refused), name
    place.write_text(f"{token[:-3]}abc")
    async with open_client(box, env={"WAKEFUL_TOKEN_FILE": str(place)}) as client:
        refused = await client.call_tool("wakeful_show", {"name": "pay"})
        assert refused.is_error and "is not valid" in say(refused)


@pytest.mark.long
async def test_without_a_daemon_a_tool_says_how_to_start_one(box: Box) -> None:
    async with open_client(box) as client:
        refused = await client.call_tool("wakeful_list", {})
        assert refused.is_error and "wakeful daemon" in say(refused)
