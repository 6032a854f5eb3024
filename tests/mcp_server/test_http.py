"""MCP over HTTP at /mcp of a real daemon, used by the official client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated

from api.conftest import SocketConnection, Speaker
from e2e.box import WAKEFUL, Box
from mcp_server.clients import MODES, declare, open_client, say
from wait_conditions import PATIENCE_SECONDS, eventually_async

pytestmark = pytest.mark.asyncio

TCP = {"WAKEFUL_HTTP": "127.0.0.1:0"}
FACTS = "wakeful://session/pay/facts"


def start(box: Box, command: str = "echo hello") -> str:
    """Start a daemon, and return the address of its TCP port."""
    declare(box, command=command)
    declare(box, "other")
    box.start(env=TCP)
    url: str = Speaker(box.socket).ask("GET", "/version").json["http"]
    return url


def make_token(box: Box, *words: str) -> str:
    return box.ask("token", "new", *words).split()[0]


@asynccontextmanager
async def open_http(
    url: str, token: str, *, path: str = "/mcp", mode: str = "auto", **keys: Any
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as http,
        Client(streamable_http_client(f"{url.rstrip('/')}{path}", http_client=http), mode=mode, **keys) as client,
    ):
        yield client


async def test_a_body_that_is_not_json_is_refused_in_words_on_the_control_socket_too(box: Box) -> None:
    start(box)
    connection = SocketConnection(box.socket)
    connection.request("POST", "/mcp", body=b"{}", headers={"Content-Type": "text/plain"})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    assert answer.status == 415 and "Content-Type is 'text/plain'" in found["detail"]


@pytest.mark.parametrize("mode", MODES)
async def test_tools_and_resources_are_there(box: Box, mode: str) -> None:
    """The same as over standard input and output, in both revisions. The token is the author of its records."""
    url = start(box)
    token = make_token(box, "--scope", "admin")
    async with open_http(url, token, mode=mode) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"wakeful_list", "wakeful_run"} <= tools and "wakeful_forget" not in tools
        told: list[str] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.append(message or "")

        ran = await client.call_tool("wakeful_run", {"name": "pay"}, progress_callback=hear)
        assert ran.structured_content["outcome"] == "succeeded" and "hello" in say(ran)
        assert told
        kept = await client.call_tool("wakeful_remember", {"name": "pay", "key": "currency", "value": "EUR"})
        assert not kept.is_error
        [content] = (await client.read_resource(FACTS)).contents
        [fact] = json.loads(content.text)
        assert fact["value"] == "EUR" and fact["author"].startswith("token:")
        refused = await client.call_tool("wakeful_forget", {"name": "pay", "key": "currency"})
        assert refused.is_error and "not allowed here" in say(refused)
    async with open_http(url, token, path="/mcp?allow=dangerous", mode=mode) as client:
        assert not (await client.call_tool("wakeful_forget", {"name": "pay", "key": "currency"})).is_error
    assert not box.json("facts", "pay")


async def test_a_change_is_heard(box: Box) -> None:
    url = start(box)
    token = make_token(box, "--scope", "read", "--session", "pay")
    async with open_http(url, token) as client, client.listen(resource_subscriptions=[FACTS]) as changes:
        box.ask("remember", "pay", "currency", "EUR")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(changes) == ResourceUpdated(FACTS)


@pytest.mark.long
async def test_a_client_that_leaves_leaves_the_run_alone_and_nothing_behind(box: Box) -> None:
    url = start(box, "touch started; while [ ! -e go ]; do sleep 0.05; done")
    token = make_token(box, "--scope", "admin")
    async with open_http(url, token) as client:
        waiting = asyncio.create_task(client.call_tool("wakeful_run", {"name": "pay"}))
        await eventually_async(lambda: (box.folder / "started").exists())
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    box.write("go", "")
    assert box.wait_at_rest("pay", runs=1)["last_run"]["outcome"] == "succeeded"
    assert box.stop() == 0


async def test_a_token_reaches_by_mcp_what_it_reaches_by_itself(box: Box) -> None:
    url = start(box)
    token = make_token(box, "--scope", "read", "--session", "pay")
    async with open_http(url, token) as client:
        assert not (await client.call_tool("wakeful_show", {"name": "pay"})).is_error
        for name, arguments, words in (
            ("wakeful_show", {"name": "other"}, "for one session only"),
            ("wakeful_list", {}, "for one session"),
            ("wakeful_remember", {"name": "pay", "key": "k", "value": "v"}, "scope send"),
        ):
            refused = await client.call_tool(name, arguments)
            assert refused.is_error and words in say(refused), (name, say(refused))


async def test_strangers_are_refused_before_mcp_is_read(box: Box) -> None:
    """A wrong token, host, origin or content type, and a GET. Each refusal says what to do."""
    box.program = (sys.executable, "-m", "wakeful")
    url = start(box)
    token = make_token(box, "--scope", "admin")
    good = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "*/*"}
    async with httpx2.AsyncClient(timeout=PATIENCE_SECONDS) as http:
        for headers, status, words in (
            (good | {"Authorization": f"Bearer {token[:-4]}0000"}, 401, "is not valid"),
            ({name: value for name, value in good.items() if name != "Authorization"}, 401, "wakeful token new"),
            (good | {"Host": "evil.example"}, 403, "Host is"),
            (good | {"Origin": "https://evil.example"}, 403, "evil.example"),
            (good | {"Content-Type": "text/plain"}, 415, "application/json"),
        ):
            answer = await http.post(f"{url.rstrip('/')}/mcp", headers=headers, content="{}")
            assert answer.status_code == status and words in answer.text, answer.text
        answer = await http.get(f"{url.rstrip('/')}/mcp", headers=good)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
        assert "POST a request, and subscriptions/listen for changes" in answer.text
        # No request was let in so far, so the daemon has not imported the package yet.
        assert not has_imported(box)
        await http.post(f"{url.rstrip('/')}/mcp", headers=good, content="{}")
        assert has_imported(box)


def has_imported(box: Box) -> bool:
    """Return whether the daemon has loaded a library that only MCP needs."""
    assert box.daemon is not None
    return any("/cryptography/" in one.path for one in psutil.Process(box.daemon.pid).memory_maps())


async def test_without_the_package_the_answer_says_how_to_install_it(box: Box) -> None:
    hidden = box.folder / "hidden" / "mcp"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    declare(box)
    box.program = (sys.executable, "-m", "wakeful")
    box.start(env=TCP | {"PYTHONPATH": str(hidden.parent)})
    url = Speaker(box.socket).ask("GET", "/version").json["http"]
    headers = {"Authorization": f"Bearer {make_token(box, '--scope', 'read')}", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as http:
        answer = await http.post(f"{url.rstrip('/')}/mcp", content="{}")
        assert answer.status_code == 503 and "wakeful[agents]" in answer.text, answer.text
    done = subprocess.run(
        [WAKEFUL, "mcp"],
        env=box.environment() | {"PYTHONPATH": str(hidden.parent)},
        cwd=box.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 1 and "wakeful[agents]" in done.stderr


async def test_wakeful_mcp_reaches_a_daemon_over_http(box: Box) -> None:
    url = start(box)
    env = {"WAKEFUL_TOKEN": make_token(box, "--scope", "read"), "WAKEFUL_SOCKET": os.fspath(box.folder / "none")}
    async with open_client(box, "--http", url, env=env) as client:
        found = await client.call_tool("wakeful_list", {})
        assert [row["name"] for row in found.structured_content["items"]] == ["other", "pay"]
    done = box.run("mcp", "--http", url, env={"WAKEFUL_SOCKET": ""})
    assert done.returncode == 1 and "a token is needed" in done.stderr
    done = box.run("mcp", "--http", "nonsense", env=env)
    assert done.returncode == 1 and "HOST:PORT" in done.stderr
