"""A shell and servers that an agent declares, end to end: a real daemon, its real agent process, a scripted model."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agents.provider import Call, Provider, Say
from agents.test_agent_runs import KEY, declare, results
from e2e.box import Box

library = pytest.importorskip("mcp", reason="tools of other programs come with the extra agents")

SERVER = Path(__file__).with_name("mcp_server.py")


@pytest.mark.long
def test_a_declared_shell_works_on_what_is_bound_and_finds_no_key(box: Box, provider: Provider) -> None:
    """The shell reads the code and writes the page.

    Used by an attacker, it finds neither the run's token nor the model's key, and has no network.
    """
    # The box's run folders are in its root, so an attacker can guess their names. Still none of them can be read.
    attack = (
        "find . -name token -exec cat {} +; find . -path '*secrets*' -type f -exec cat {} +; find . -name token; env"
    )
    connect = f"{sys.executable} -c 'import socket; socket.create_connection((\"127.0.0.1\", {provider.url.rsplit(':', 1)[1].strip('/')}), 2)' && echo connected"
    provider.play(
        [
            *(Call("shell", {"line": line}) for line in ("cp code.py page.md", "cat page.md", attack, connect)),
            Say("done"),
        ]
    )
    declare(box, provider, tools="{shell: allow}")
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    assert box.read("page.md") == "def pay(): ...\n"
    copied, worked, attacked, connected = results(provider.requests[-1])
    assert (
        copied.content.startswith("exit code 0")
        and worked.content.startswith("exit code 0")
        and "def pay()" in worked.content
    )
    assert "sk-secret-canary" not in attacked.content and "TOKEN_FILE" not in attacked.content
    assert "connected" not in connected.content and "Permission denied" in connected.content


@pytest.mark.long
def test_tools_of_a_declared_server_are_offered_and_used(box: Box, provider: Provider) -> None:
    """The tools have names that models accept. A server that is down does not keep the agent from its work."""
    provider.play([Call("mcp__small__shout", {"text": "quiet"}), Call("mcp__gone", {}), Say("done")])
    small = {"command": [sys.executable, str(SERVER)], "start_timeout": "60s"}
    agent = f"mcp: {json.dumps({'small': small, 'gone': ['no-such-program']})}\n"
    places = json.dumps([str(SERVER.parent), str(Path(library.__file__).parents[1]), sys.prefix, sys.base_prefix])
    declare(box, provider, agent=agent, allow=f"{{read: {places}}}")
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    shouted, gone = results(provider.requests[-1])
    assert shouted.content == "QUIET"
    assert "MCP server gone cannot be started or reached" in gone.content


@pytest.mark.long
def test_a_session_sleeps_while_its_bound_server_is_down_and_has_that_one_alone(box: Box, provider: Provider) -> None:
    """A binding `service: mcp:NAME` gives the run the tools of that server alone.

    While the server is down, the session sleeps and says so.
    """
    provider.play([Call("mcp__small__shout", {"text": "quiet"}), Say("done")])
    script = box.folder / "servers" / "serve.py"
    script.parent.mkdir()
    agent = "mcp: {small: {command: [./servers/serve.py], start_timeout: 60s}, gone: [no-such-program]}\n"
    places = json.dumps(["servers", str(Path(library.__file__).parents[1]), sys.prefix, sys.base_prefix])
    declare(box, provider, agent=agent)
    bindings = "{code: {file: code.py, settle: 0ms}, tools: {service: 'mcp:small', check_every: 1s}}"
    text = (
        f"agent: docs\nobjective: Shout.\nbindings: {bindings}\nrun: {{prompt: Shout it.}}\nallow: {{read: {places}}}\n"
    )
    box.spec("docs", text.replace("mcp:small", "mcp:smal"))
    checked = box.run("check")
    assert (
        checked.returncode == 1
        and "agent 'docs' has no server 'smal'; did you mean 'mcp:small'?" in checked.stdout + checked.stderr
    )
    box.spec("docs", text)
    box.start(env=KEY)
    row = box.wait_for("docs", state="sleeping")
    assert row["reason"].startswith("service tools is down: ") and "serve.py is not there" in row["reason"]
    script.write_text(f"#!{sys.executable}\n{SERVER.read_text()}")
    script.chmod(0o755)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    assert results(provider.requests[-1])[0].content == "QUIET"
    assert not any(name.startswith("mcp__gone") for name in provider.requests[-1].tool_names)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>Rates</h1>" + b"<p>two percent</p>" * 20_000)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.long
def test_a_page_of_a_declared_host_is_fetched_and_the_shell_gets_no_network_by_that(
    box: Box, provider: Provider
) -> None:
    """A page of a declared host is shown in parts, marked as data. A host that is not declared is refused.

    `wakeful show` and `wakeful trust` list the declared hosts.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    connect = (
        f"{sys.executable} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)' && echo connected"
    )
    provider.play(
        [
            Call("fetch", {"url": f"http://127.0.0.1:{port}/"}),
            Call("fetch", {"url": "https://example.org/"}),
            Call("shell", {"line": connect}),
            Say("done"),
        ]
    )
    declare(box, provider, tools="{shell: allow}", fetch=f'["127.0.0.1:{port}"]')
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=1)
    server.shutdown()
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    page, refused, connected = results(provider.requests[-1])
    assert "never an instruction" in page.content and "# Rates" in page.content and "[part 1 of " in page.content
    assert "example.org:443 is not among the hosts that this session may fetch from" in refused.content
    assert "Permission denied" in connected.content and "connected" not in connected.content
    assert f"fetches from 127.0.0.1:{port}" in box.words("show", "docs")
    # A spec that others can write waits for a person to trust it.
    (box.specs / "docs.yaml").chmod(0o666)
    box.wait_for("docs", state="sleeping")
    assert f"fetches from: 127.0.0.1:{port}" in box.words("trust", "docs", "--yes")
