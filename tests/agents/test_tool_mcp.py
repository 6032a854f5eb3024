"""Tools of real MCP servers, over their standard input and output and over HTTP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.agents.contract import ToolResult
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.mcp import McpTools, ServerPlace, make_safe_name, open_servers
from wakeful.agents.tools.shell_confinement import narrow, select_environment
from wakeful.core.agents.turns import DownServer
from wakeful.core.spec.agent import McpServer
from wakeful.runners.isolation.landlock import probe_abi

library = pytest.importorskip("mcp", reason="tools of other programs come with the extra agents")

PROGRAM = Path(__file__).with_name("mcp_server.py")
CHANGING = Path(__file__).with_name("changing_mcp_server.py")
# A generous limit, because the machine may be busy.
STDIO = McpServer(name="small", argv=(sys.executable, str(PROGRAM)), start_seconds=PATIENCE_SECONDS)


@asynccontextmanager
async def opened(
    *servers: McpServer, folder: Path, is_narrow: bool = False, failing: tuple[DownServer, ...] = ()
) -> AsyncIterator[McpTools]:
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run/token").write_text("the-token")
    (folder / "open").write_text("for all")
    environ = {
        "PATH": os.environ["PATH"],
        "WAKEFUL_TOKEN_FILE": str(folder / "run/token"),
        "MODEL_KEY": "a-key-in-a-variable",
    }
    bounds = Bounds.build(str(folder), ["open"])
    narrowing = (
        narrow(bounds, environ, reads=(str(Path(library.__file__).parents[1]), str(PROGRAM.parent)))
        if is_narrow
        else None
    )
    environments = {server.name: select_environment(environ) | server.env for server in servers}
    words = {server.name: server.argv for server in servers}
    place = ServerPlace(
        root=str(folder),
        narrowing=narrowing,
        words=words,
        environments=environments,
        read_key={"SMALL_KEY": "open-sesame"}.get,
    )
    async with open_servers(servers, place) as tools:
        await tools.wait(failing)
        yield tools


def problems(tools: McpTools) -> list[str]:
    return [one.words for one in tools.down]


async def use(tools: McpTools, name: str, **arguments: object) -> ToolResult:
    (tool,) = [tool for tool in tools.list_tools() if tool.offer.name == name] or pytest.fail(
        f"no {name}: {tools.down}"
    )
    return await tool.carry_out(arguments, "1")


@pytest.fixture
def address() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(PROGRAM), "http", str(port), "open-sesame"])

    def answers() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(answers, 30.0)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


async def check_tools(tools: McpTools) -> None:
    offers = {tool.offer.name: tool.offer for tool in tools.list_tools()}
    assert offers["mcp__small__add"].description == "Add two numbers."
    assert set(offers["mcp__small__add"].parameters["properties"]) == {"a", "b"}
    assert '"sum": 5' in (await use(tools, "mcp__small__add", a=2, b=3)).text.replace('"sum":5', '"sum": 5')
    assert await use(tools, "mcp__small__shout", text="quiet") == ToolResult("QUIET")
    failed = await use(tools, "mcp__small__fail")
    assert failed.is_error and "this one always fails" in failed.text
    wrong = await use(tools, "mcp__small__add", a="many")
    assert wrong.is_error and "b" in wrong.text
    # The server's tool returns the whole text. The tool box pages it.
    assert (await use(tools, "mcp__small__long")).text == "x" * 500_000
    (odd,) = [name for name in offers if "odd" in name]
    assert odd.startswith("mcp__small__odd_name_with_spaces_") and (await use(tools, odd)).text == "odd"


def list_own(word: str) -> list[int]:
    """Return the child processes with this word in their arguments. Zombies have no arguments."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if word in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


@pytest.mark.asyncio
async def test_a_program_s_tools_are_used_and_it_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools are found, offered with their schemas, and called.

    If the server ends, the result says so, the next call starts it again, and no process stays.
    """
    # A busy machine takes longer to restart a program than a call waits.
    monkeypatch.setattr("wakeful.agents.tools.mcp.AGAIN_SECONDS", PATIENCE_SECONDS)
    async with opened(STDIO, folder=tmp_path) as tools:
        assert tools.down == ()
        await check_tools(tools)
        left = await use(tools, "mcp__small__leave")
        assert left.is_error and left.text.startswith("MCP server small: ")
        assert (await use(tools, "mcp__small__shout", text="again")).text == "AGAIN"
        environment = (await use(tools, "mcp__small__environment")).text
        assert "WAKEFUL_TOKEN_FILE" not in environment and "a-key-in-a-variable" not in environment
    eventually(lambda: not list_own("mcp_server"), what="no server is left")


@pytest.mark.asyncio
async def test_an_address_is_used_with_its_key(tmp_path: Path, address: str) -> None:
    """The secret is sent as a bearer token. Without it, the server's refusal is shown, without the key."""
    async with opened(
        McpServer(name="small", start_seconds=PATIENCE_SECONDS, url=address, key="SMALL_KEY"), folder=tmp_path
    ) as tools:
        await check_tools(tools)
    async with opened(McpServer(name="small", start_seconds=PATIENCE_SECONDS, url=address), folder=tmp_path) as tools:
        (words,) = problems(tools)
        assert "cannot be started or reached" in words and "sesame" not in words


@pytest.mark.asyncio
async def test_a_server_that_is_down_is_a_result_in_words(tmp_path: Path) -> None:
    """A missing program, one that is no server, one that prints garbage, and an address without a listener.

    The other server works.
    """
    servers = (
        McpServer(name="missing", start_seconds=PATIENCE_SECONDS, argv=("no-such-program",)),
        McpServer(name="ended", start_seconds=PATIENCE_SECONDS, argv=("true",)),
        McpServer(name="garbage", start_seconds=PATIENCE_SECONDS, argv=("sh", "-c", "echo no json; exit 1")),
        McpServer(name="nobody", start_seconds=PATIENCE_SECONDS, url="http://127.0.0.1:9/mcp"),
        STDIO,
    )
    async with opened(*servers, folder=tmp_path) as tools:
        assert [words.split()[2] for words in problems(tools)] == ["missing", "ended", "garbage", "nobody"]
        for name in ("missing", "ended", "garbage", "nobody"):
            down = await use(tools, f"mcp__{name}")
            assert down.is_error and f"MCP server {name} cannot be started or reached" in down.text
        assert (await use(tools, "mcp__small__shout", text="here")).text == "HERE"


@pytest.mark.asyncio
async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """The server is given up after its time limit, and its process is ended."""
    async with opened(McpServer(name="mute", argv=("sleep", "98765"), start_seconds=0.2), folder=tmp_path) as tools:
        assert "did not start within 0.2 s" in problems(tools)[0] and tools.down[0].is_slow
    eventually(lambda: not list_own("98765"), what="the mute one is gone")


@pytest.mark.asyncio
@pytest.mark.skipif(
    probe_abi() == 0, reason="this kernel has no Landlock: no program can be kept narrower than its run"
)
@pytest.mark.long
async def test_a_server_is_kept_from_the_run_s_token(tmp_path: Path) -> None:
    """A narrowed server reads the bound file and not the token. A server that is not narrowed reads both."""
    async with opened(STDIO, folder=tmp_path, is_narrow=True) as tools:
        assert (await use(tools, "mcp__small__read", path=str(tmp_path / "open"))).text == "for all"
        refused = await use(tools, "mcp__small__read", path=str(tmp_path / "run/token"))
        assert refused.is_error and "the-token" not in refused.text
    async with opened(STDIO, folder=tmp_path) as tools:
        assert (await use(tools, "mcp__small__read", path=str(tmp_path / "run/token"))).text == "the-token"


@pytest.mark.asyncio
@pytest.mark.long
async def test_policies_are_declared_for_a_tool_or_for_its_server(tmp_path: Path) -> None:
    """The policy of a tool counts before that of its server. Without a policy, a declared server is allowed."""
    async with opened(STDIO, folder=tmp_path) as tools:
        list(tools.list_tools())
        declared = tools.find_policies({"mcp:small": "ask", "mcp:small/add": "deny"})
        assert (declared["mcp__small__add"], declared["mcp__small__shout"]) == ("deny", "ask")
        assert set(tools.find_policies({}).values()) == {"allow"}


def test_names_are_safe_for_models_and_their_own() -> None:
    """The names are short, use plain characters, and are unique."""
    names: list[str] = []
    for server, tool in [
        ("a", "b"),
        ("a", "b.c"),
        ("a", "b/c"),
        ("a", "b_c"),
        ("s", "x" * 200),
        ("s", "x" * 201),
        ("a", "é"),
        ("a__b", "c"),
        ("a", "b__c"),
    ]:
        names.append(make_safe_name(server, tool, names))
    assert len(set(names)) == len(names) and all(
        len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() and name.isascii() for name in names
    )


def test_without_servers_the_library_is_not_imported() -> None:
    """The import takes a second, so only agents with servers do it."""
    code = "import sys, wakeful.agents.tools.mcp; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.asyncio
async def test_a_program_that_does_not_start_is_told_with_its_end_and_its_last_lines(tmp_path: Path) -> None:
    """The message has the exit code and the last lines, or says that the program is missing.

    Neither server counts as slow.
    """
    failing = "import sys; print('reading settings', file=sys.stderr); raise ValueError('no such database')"
    servers = (
        McpServer(name="broken", start_seconds=PATIENCE_SECONDS, argv=(sys.executable, "-c", failing)),
        McpServer(name="missing", start_seconds=PATIENCE_SECONDS, argv=("no-such-program",)),
    )
    async with opened(*servers, folder=tmp_path) as tools:
        broken, missing = problems(tools)
    assert (
        "ended with exit code 1: " in broken
        and "reading settings" in broken
        and broken.endswith("ValueError: no such database")
    )
    assert (
        missing
        == "MCP server missing cannot be started or reached: no-such-program: no-such-program: No such file or directory"
    )
    assert not any(one.is_slow for one in tools.down)


@pytest.mark.asyncio
@pytest.mark.skipif(
    probe_abi() == 0, reason="this kernel has no Landlock: no program can be kept narrower than its run"
)
async def test_a_program_that_was_denied_a_place_is_told_with_it(tmp_path: Path) -> None:
    """The message names the path, and says to add it to `allow`."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/notes.db").write_text("x")
    reading = f"open({str(tmp_path / 'elsewhere/notes.db')!r})"
    async with opened(
        McpServer(name="notes", start_seconds=PATIENCE_SECONDS, argv=(sys.executable, "-c", reading)),
        folder=tmp_path,
        is_narrow=True,
    ) as tools:
        (words,) = problems(tools)
    assert "ended with exit code 1" in words and "Permission denied" in words
    assert f"it was denied {tmp_path}/elsewhere/notes.db: add that to allow of the session" in words


@pytest.mark.long
@pytest.mark.asyncio
async def test_a_server_that_was_too_slow_is_not_waited_for_again_and_its_tools_come_when_it_is_there(
    tmp_path: Path,
) -> None:
    """The run continues at once with the old message. A refresh offers the tools when the server is up."""
    slow = DownServer(name="small", words="it was too slow", is_slow=True, since=1)
    async with opened(STDIO, folder=tmp_path, failing=(slow,)) as tools:
        assert tools.down == (slow,) and [tool.offer.name for tool in tools.list_tools()] == ["mcp__small"]
        before = tools.revision
        up = await use(tools, "mcp__small")
        assert (
            "small is up; its tools can be called now: add, shout" in up.text
            and tools.revision != before
            and tools.down == ()
        )
        assert (await use(tools, "mcp__small__shout", text="late")).text == "LATE"


@pytest.mark.asyncio
@pytest.mark.parametrize("era", ["2025-06-18", "2026-07-28"])
async def test_tools_that_change_during_a_run_are_noticed(tmp_path: Path, era: str) -> None:
    """The older protocol notifies every client, the newer one only subscribers. Both are noticed."""
    server = McpServer(name="changing", start_seconds=PATIENCE_SECONDS, argv=(sys.executable, str(CHANGING), era))
    async with opened(server, folder=tmp_path) as tools:
        assert [tool.offer.name for tool in tools.list_tools()] == ["mcp__changing__learn"], tools.down
        before = tools.revision
        await use(tools, "mcp__changing__learn")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while tools.revision == before:
                await tools.refresh()
                await asyncio.sleep(0)
        assert [tool.offer.name for tool in tools.list_tools()] == ["mcp__changing__learn", "mcp__changing__learnt"]
        assert (await use(tools, "mcp__changing__learnt")).text == "learnt"


HALVES = r"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "halves", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": "say", "description": "Says half: \ud83d.", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "half \ud83d, whole \ud83d\ude00"}]}
        case _:
            result = None
    if "id" in asked:
        told = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
"""


@pytest.mark.asyncio
async def test_half_a_character_of_a_server_keeps_nobody_waiting(tmp_path: Path) -> None:
    """In a description and in a result, the surrogate becomes an escape."""
    (tmp_path / "halves.py").write_text(HALVES)
    async with opened(
        McpServer(name="halves", argv=(sys.executable, str(tmp_path / "halves.py")), start_seconds=PATIENCE_SECONDS),
        folder=tmp_path,
    ) as tools:
        [tool] = tools.list_tools()
        assert "Says half: \\ud83d." in tool.offer.description
        said = await use(tools, "mcp__halves__say")
        assert (said.text, said.is_error) == ("half \\ud83d, whole \U0001f600", False)
