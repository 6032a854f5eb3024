"""The bytes that reach a provider, end to end: they match the log, and never contain the value of a secret."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from agents.provider import Call, Hold, Provider, Say, Turns
from agents.test_agent_runs import KEY, declare
from e2e.box import Box
from wait_conditions import eventually
from wakeful.cli.client import Client
from wakeful.secrets.store import save_secret

VALUE = "ghp-canary-5d1f0c77ab"
LINES = "line-one-8f3a61\nline-two-c07d52\nline-three-19be4f\n"
SECRETS = {**KEY, "WAKEFUL_SECRET_GH": VALUE}
SERVER = Path(__file__).with_name("mcp_server.py")

# A server whose words contain the content of a bound file.
TELLING = """\
import runpy

server = runpy.run_path({server!r})["server"]
words = open({code!r}).read()
server.tool(name="told", description="Tell " + words)(lambda: words)
server.run()
"""


def told(provider: Provider) -> str:
    return json.dumps([asked.raw for asked in provider.requests])


def test_the_value_of_a_secret_in_a_bound_file_reaches_no_provider(box: Box, provider: Provider) -> None:
    """No tool, rule file, diff or later conversation sends the value. The log has the same words as the requests."""
    looks = [
        Call("read", {"path": "code.py"}),
        Call("search", {"text": "token"}),
        Call("shell", {"line": "cat code.py; base64 code.py"}),
    ]
    provider.play(
        [
            *looks,
            Call("remember", {"key": "token", "value": VALUE}),
            Say(f"It says {VALUE}."),
            Say("seen"),
            Say("answered"),
        ]
    )
    declare(box, provider, tools="{shell: allow}", conversation="continue")
    box.write("code.py", f"token = '{VALUE}'\n")
    box.write("rate.py", "rate = 1\n")
    box.write("AGENTS.md", f"Log in with {VALUE}.\n")
    path = box.specs / "docs.yaml"
    path.write_text(path.read_text().replace("file: code.py", "file: '*.py'"))
    box.start(env=SECRETS)
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    box.write("rate.py", f"rate = 2  # {VALUE}\n")
    box.wait_at_rest("docs", runs=2)
    box.ask("ask", "docs", f"Is {VALUE} the token?")
    assert VALUE not in told(provider)
    last = provider.requests[-1]
    sent = [result.content for result in last.results]
    recorded = [record["payload"]["text"] for record in box.log("docs") if record["kind"] == "tool_returned"]
    assert sent == recorded
    assert all("[secret GH]" in text for text in sent[:3]), sent
    assert "It says [secret GH]." in last.text and "Log in with [secret GH]." in last.system
    shown = box.json("context", "docs")["tools"]
    assert [(tool["name"], tool["description"], tool["parameters"]) for tool in shown["offered"]] == [
        (tool["name"], tool["description"], tool["input_schema"]) for tool in last.raw["tools"]
    ]
    assert shown["tokens"] == sum(tool["tokens"] for tool in shown["offered"]) > 500
    assert f"tools: {len(shown['offered'])}, as run 3 offered them" in box.ask("context", "docs", "--brief")
    assert "+rate = 2  # [secret GH]" in last.text and "Is [secret GH] the token?" in last.text


@pytest.mark.long
def test_a_secret_that_a_bound_would_cut_leaves_no_part_of_itself_and_pages_are_redacted(
    box: Box, provider: Provider
) -> None:
    """Long lines, pages, and single lines of a value with several lines are redacted.

    No part of a value is in a request or in the scratch folder, and no part of the output is lost.
    """
    rows = "".join(f"row-{number:05} {'words ' * 10}\n" for number in range(1_500))
    calls = [
        Call("read", {"path": "code.py"}), Call("search", {"text": "x" * 20}), Call("read", {"path": "key.py", "offset": 2, "limit": 2}),
        Call("search", {"text": "line"}), Call("diff", {"path": "key.py", "against": "code.py"}), Call("shell", {"line": "cat rows.py"}),
    ]  # fmt: skip
    provider.play([*calls, Say("done")])
    declare(box, provider, tools="{shell: allow}")
    # The values are at the positions where a line and the first page of a result are cut.
    box.write("code.py", f"{'x' * 3_990}{VALUE}{'y' * 50}\n")
    box.write("key.py", f"first\n{LINES}last\n")
    box.write("rows.py", rows[:48_570] + VALUE + rows[48_570:])
    path = box.specs / "docs.yaml"
    path.write_text(path.read_text().replace("file: code.py", "file: '*.py'"))
    box.start(env={**SECRETS, "WAKEFUL_SECRET_PEM": LINES})
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    sent = [result.content for result in provider.requests[-1].results]
    parts = [VALUE[at : at + 6] for at in range(len(VALUE) - 5)] + LINES.split()
    assert [(part, told[:60]) for told in sent for part in parts if part in told] == []
    assert "[secret PEM]" in sent[2] and "[secret PEM]" in sent[4], sent[2:5]
    (kept,) = [path.read_text().replace("\n", "") for path in box.state.rglob("results/*.txt")]
    assert [part for part in parts if part in kept] == [] and "[secret GH]" in kept
    # The kept file has the command's whole output, so that the agent can read on.
    assert all(f"row-{number:05}" in kept.replace("[secret GH]", "") for number in range(1_500))
    assert re.search(
        r"\[cut: this result has \d+ lines, and \d+ are shown; read .*/results/\w+\.txt with offset \d+\]", sent[-1]
    )


@pytest.mark.long
def test_a_secret_that_is_set_during_a_run_is_taken_out_of_a_file_that_was_read_before(
    box: Box, provider: Provider
) -> None:
    """Each page is redacted with the secrets that the daemon knows when the page is recorded.

    It is redacted too if the value crosses the end of the page.
    """
    page = Call("read", {"path": "key.py", "offset": 2, "limit": 2})
    provider.play([page, page, Hold("set", page), Say("done")])
    declare(box, provider)
    box.write("key.py", f"first\n{LINES}last\n")
    path = box.specs / "docs.yaml"
    path.write_text(path.read_text().replace("file: code.py", "file: '*.py'"))
    box.start(env={**KEY, "XDG_CONFIG_HOME": str(box.folder / "config")})
    eventually(lambda: len(provider.requests) == 3)
    save_secret(str(box.folder / "config" / "wakeful" / "secrets"), "PEM", LINES.encode())
    assert "PEM" in json.dumps(Client(str(box.socket)).get("/secrets"))
    provider.release("set")
    box.wait_at_rest("docs", runs=1)
    first, again, last = (result.content for result in provider.requests[-1].results)
    assert first == again and LINES.split()[1] in first
    assert "[secret PEM]" in last and not any(line in last for line in LINES.split()), last


@pytest.mark.long
def test_the_value_of_a_secret_in_a_servers_words_reaches_no_provider(box: Box, provider: Provider) -> None:
    """Neither the result of a tool nor its definition contains the value."""
    library = pytest.importorskip("mcp", reason="tools of other programs come with the extra agents")
    provider.play([Call("mcp__small__shout", {"text": "the token"}), Call("mcp__small__told", {}), Say("done")])
    box.write("servers/serve.py", TELLING.format(server=str(SERVER), code=str(box.folder / "code.py")))
    places = json.dumps(
        ["servers", str(SERVER.parent), str(Path(library.__file__).parents[1]), sys.prefix, sys.base_prefix]
    )
    declare(
        box,
        provider,
        agent=f"mcp: {{small: {{start_timeout: 60s, command: {json.dumps([sys.executable, str(box.folder / 'servers' / 'serve.py')])}}}}}\n",
        allow=f"{{read: {places}}}",
    )
    box.write("code.py", f"token = '{VALUE}'\n")
    box.start(env=SECRETS)
    box.wait_at_rest("docs", runs=1)
    assert [result.content for result in provider.requests[-1].results] == ["THE TOKEN", "token = '[secret GH]'\n"], (
        box.ask("output", "docs")
    )
    assert VALUE not in told(provider)
    offered = {tool["name"]: tool["description"] for tool in box.json("context", "docs")["tools"]["offered"]}
    sent = {tool["name"]: tool["description"] for tool in provider.requests[0].raw["tools"]}
    assert offered == sent and "Tell token = '[secret GH]'" in sent["mcp__small__told"]


@pytest.mark.long
def test_a_value_that_became_a_secret_later_is_sent_no_more(box: Box, provider: Provider) -> None:
    """The log keeps the earlier words. The next request of the same conversation has them without the value."""
    provider.play(Turns((Say(f"It is {VALUE}."),), by="message"))
    declare(box, provider, conversation="continue")
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    box.ask("ask", "docs", f"Is {VALUE} the token?")
    assert VALUE in told(provider)
    box.stop()
    box.start(env=SECRETS)
    box.ask("ask", "docs", "And now?")
    last = provider.requests[-1]
    assert VALUE not in json.dumps(last.raw)
    assert "It is [secret GH]." in last.text and "Is [secret GH] the token?" in last.text
