"""MCP servers as people declare them, in black-box tests.

Some are a script of the project or packages of npm. Others do not start, and the session shows the reason.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agents.provider import Call, Provider, Say
from agents.test_agent_runs import KEY, results
from e2e.box import Box
from ordinary_user import OrdinaryBox, ordinary_box, ordinary_user  # noqa: F401

library = pytest.importorskip("mcp", reason="tools of other programs come with the extra agents")

NODE_SERVER = Path(__file__).with_name("node_server.js")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="NOT TESTED: no node here")

SCRIPT = """\
from helper import shout
from mcp.server import MCPServer

server = MCPServer("script", log_level="CRITICAL")


@server.tool(name="shout")
def say(text: str) -> str:
    return shout(text)


server.run("stdio")
"""


def install(packages: Path, name: str, program: str) -> None:
    """Create a package with a program and a dependency beside it, in the layout of npm."""
    package, words = packages / name, packages / "small-words"
    package.mkdir(parents=True)
    words.mkdir()
    (words / "package.json").write_text('{"name": "small-words", "version": "1.0.0", "main": "index.js"}')
    (words / "index.js").write_text("exports.shout = (text) => text.toUpperCase();\n")
    (package / "package.json").write_text(json.dumps({"name": name, "version": "1.2.3", "bin": {program: "index.js"}}))
    shutil.copy(NODE_SERVER, package / "index.js")
    (package / "index.js").chmod(0o755)
    (packages / ".bin").mkdir()
    (packages / ".bin" / program).symlink_to(f"../{name}/index.js")


def declare(box: Box, provider: Provider, agent: str, sessions: dict[str, str]) -> None:
    (box.specs / "agents").mkdir(exist_ok=True)
    (box.specs / "agents" / "docs.yaml").write_text(
        f"prompt: Shout.\nmodel: anthropic:claude-test\nbase_url: {provider.url}\n{agent}"
    )
    box.write("code.py", "def pay(): ...\n")
    for name, keys in sessions.items():
        box.spec(
            name,
            f"agent: docs\nobjective: Shout.\nbindings: {{code: {{file: code.py, settle: 0ms}}}}\nrun: {{prompt: Shout it.}}\n{keys}",
        )


def start_all(box: Box, home: Path, provider: Provider) -> None:
    """Start three servers in sessions that allow nothing, at both isolation levels.

    They are a script that imports a module beside it, a package of the project, and a package from npx's cache.
    """
    (box.folder / "tools").mkdir()
    (box.folder / "tools/srv.py").write_text(SCRIPT)
    (box.folder / "tools/helper.py").write_text("def shout(text):\n    return text.upper()\n")
    install(box.folder / "node_modules", "local-server", "local-server")
    install(home / ".npm/_npx/0123abcd/node_modules", "@people/cached", "people-cached")
    words = {
        "script": ["python", "tools/srv.py"],
        "local": ["npx", "local-server"],
        "cached": ["npx", "-y", "@people/cached@1.2.3"],
    }
    # A generous limit, because the machine may be busy.
    servers = {name: {"command": command, "start_timeout": "60s"} for name, command in words.items()}
    provider.play(
        [
            (
                Call("mcp__script__shout", {"text": "a"}),
                Call("mcp__local__shout", {"text": "b"}),
                Call("mcp__cached__shout", {"text": "c"}),
            ),
            Say("done"),
        ]
    )
    declare(box, provider, f"mcp: {json.dumps(servers)}\n", {"plain": "", "strict": "isolation: strict\n"})
    box.start(env={**KEY, "HOME": str(home)})
    for name in ("plain", "strict"):
        row = box.wait_at_rest(name, runs=1)
        assert row["last_run"]["outcome"] == "succeeded", box.ask("output", name)
    answered = [[one.content for one in results(asked)] for asked in provider.requests if results(asked)]
    assert answered == [["A", "B", "C"]] * 2, (answered, box.ask("output", "plain"), box.ask("output", "strict"))


@needs_node
@pytest.mark.long
def test_servers_start_with_what_they_need_to_be_read(box: Box, provider: Provider) -> None:
    """The daemon runs as root, and `allow` has no entry."""
    box.reach = lambda: ""  # type: ignore[method-assign]
    (box.folder / "wakeful.yaml").write_text("")
    start_all(box, box.folder / "home", provider)


@needs_node
@pytest.mark.long
def test_servers_of_an_ordinary_user_start_with_what_they_need_to_be_read(
    ordinary_box: OrdinaryBox,  # noqa: F811 - the fixture is imported
    provider: Provider,
) -> None:
    """The same as an ordinary user, because root has other defences."""
    start_all(ordinary_box, ordinary_box.user.home, provider)


TELLING = """\
import os
from mcp.server import MCPServer

server = MCPServer("telling", log_level="CRITICAL")


@server.tool()
def tell() -> str:
    return " ".join((os.environ["MODE"], os.environ["GH_TOKEN"], str(len(os.environ["GH_TOKEN"])), os.environ["HOME"]))


server.run("stdio")
"""
BROKEN = "import sys\nprint('reads its settings', file=sys.stderr)\nsys.exit(f'no database at {sys.argv[1]}')\n"
TOKEN = "gh-canary-0123456789"
AGENT = """\
mcp:
  telling: {command: [python, tools/telling.py], env: {MODE: debug}, secrets: [GH_TOKEN], start_timeout: 60s}
  hanging: {command: [sleep, "98766"], start_timeout: 300ms}
  broken: {command: [python, tools/broken.py, notes.db], start_timeout: 60s}
  gone: {command: [no-such-server], start_timeout: 60s}
  changing: {command: [python, tools/changing.py, 2025-06-18], start_timeout: 60s}
  unfetched: {command: [npx, not-installed-here], start_timeout: 300ms}
"""


@pytest.mark.long
def test_a_server_has_its_variables_and_those_that_do_not_start_are_told_with_the_reason(
    box: Box, provider: Provider
) -> None:
    """The value of a secret reaches the server's program, but no stored file.

    A hanging server costs one run its start timeout, and the next run nothing. `why`, `show` and `check` show the
    reasons. A tool that appears during the run is offered by the next request, and recorded with it.
    """
    box.write("tools/telling.py", TELLING)
    box.write("tools/broken.py", BROKEN)
    box.write("tools/changing.py", Path(__file__).with_name("changing_mcp_server.py").read_text())
    declare(box, provider, AGENT, {"docs": ""})
    provider.play(
        [
            (Call("mcp__telling__tell", {}), Call("mcp__changing__learn", {})),
            Call("mcp__changing__learnt", {}),
            Say("done"),
        ]
    )
    told = box.words("check")
    assert (
        "MCP server gone will not start: no program 'no-such-server' in PATH" in told
        and "not-installed-here is neither in" in told
    )
    box.start(env={**KEY, "WAKEFUL_SECRET_GH_TOKEN": TOKEN})
    box.wait_at_rest("docs", runs=1)
    answered, *learnt = results(provider.requests[-1])
    assert [one.content for one in learnt] == ["learn", "learnt"]
    assert ["mcp__changing__learnt" in asked.tool_names for asked in provider.requests] == [False, True, True]
    told = [
        [tool["name"] for tool in record["payload"].get("tools", ())]
        for record in box.log("docs", "--kind", "turn_requested")
    ]
    assert ["mcp__changing__learnt" in names for names in told] == [False, True, False] and told[2] == []
    mode, token, length, home = answered.content.replace("[secret GH_TOKEN]", "[secret]").split()
    assert (mode, token, length) == ("debug", "[secret]", str(len(TOKEN))) and home.startswith(
        str(box.state / "scratch")
    )
    reasons = {
        "hanging": "MCP server hanging did not start within 0.3 s (start_timeout)",
        "broken": "ended with exit code 1: reads its settings / no database at notes.db",
        "gone": "no-such-server: No such file or directory",
    }
    for command in (("why", "docs"), ("show", "docs"), ("check",)):
        said = box.words(*command)
        assert all(words in said for words in reasons.values()), (command, said)
    box.ask("activate", "docs", "--wait")
    down = [record["payload"].get("servers_down") for record in box.log("docs", "--kind", "turn_requested")]
    hanging = [one for listed in down if listed for one in listed if one["name"] == "hanging"]
    assert (
        all(one["is_slow"] for one in hanging) and hanging[0].get("since") is None and hanging[-1]["since"] is not None
    )
    assert all(TOKEN.encode() not in path.read_bytes() for path in box.state.rglob("*") if path.is_file())
