"""The kill matrix: an agent's process killed at every record it makes, in every wire format, resumes to the same answer.

What a tool did is done once, or told to the model as unknown: never twice, never silently not at all. The model is stateless and answers by what it is
shown, so a conversation that came back wrong would come to another end.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from agents.provider import Call, Provider, Say
from e2e.box import Box

from wakeful.cli.client import Client
from wakeful.core.turn import INTERRUPTED
from wakeful.runners.mark import OWN, read_mark

MODELS = {"anthropic": "anthropic:claude-test", "responses": "openai:gpt-test", "openai": "openai-chat:gpt-test", "google": "google:gemini-test"}
KEYS = {f"WAKEFUL_SECRET_{name}_API_KEY": "sk-test-0123456789" for name in ("ANTHROPIC", "OPENAI", "GOOGLE")}
STEPS = ("prompt_assembled", "turn_requested", "turn_answered", "tool_called", "tool_returned", "fact_set", "message_sent")
# Looks alone, a look ahead of an effect, and one after it: none of them waits for its record, and what waits for a record waits for theirs, too.
SCRIPT = [
    Call("send", {"session": "inbox", "text": "first"}),
    (Call("read", {"path": "page.md"}), Call("list", {})),
    (Call("search", {"text": "line"}), Call("remember", {"key": "a", "value": "1"}), Call("send", {"session": "inbox", "text": "second"}), Call("read", {"path": "page.md"})),
    Say("The end."),
]
LOOKS = ("read", "list", "search")


def declare(box: Box, provider: Provider, format: str) -> None:
    (box.specs / "agents").mkdir()
    (box.specs / "agents" / "docs.yaml").write_text(f"prompt: Write.\nmodel: {MODELS[format]}\nbase_url: {provider.base_url(format)}\n")
    box.spec("inbox", "objective: Take messages in.\n")
    box.write("page.md", "line 1\nline 2\n")
    box.spec("docs", "agent: docs\nobjective: Send two.\nbindings: {page: {file: page.md, wake: false}}\nrun: {prompt: Send both.}\n")


def find_agent(box: Box) -> int | None:
    assert box.daemon is not None
    marked = (child.pid for child in psutil.Process(box.daemon.pid).children() if read_mark(child.pid) not in (None, OWN))
    return next(marked, None)


def kill_at(box: Box, lines: Iterator[str], step: int) -> list[dict[str, Any]]:
    """Kill the agent when its `step`-th record of this activation is on disk; the records until its session is at rest."""
    records, steps, is_killed = [], 0, False
    for line in lines:
        record = json.loads(line)
        records.append(record)
        steps += record["kind"] in STEPS
        if steps == step and not is_killed:
            is_killed = True
            if (pid := find_agent(box)) is not None:
                os.kill(pid, signal.SIGKILL)
        if record["kind"] == "session_suspended" or (record["kind"] == "session_slept"):
            return records
    raise AssertionError("the daemon stopped")


def judge(records: list[dict[str, Any]], sent: list[str]) -> None:
    """The same end, and of every effect one, or the model's knowledge that it may have happened."""
    answers = [record["payload"]["answer"]["text"] for record in records if record["kind"] == "turn_answered"]
    outcomes = [record["payload"]["outcome"] for record in records if record["kind"] == "run_finished"]
    assert answers[-1] == "The end." and outcomes[-1] == "succeeded"
    for text in ("first", "second"):
        assert sent.count(text) <= 1, f"{text} was sent {sent.count(text)} times"
    called = {record["payload"]["call"]["id"]: record["payload"]["call"]["name"] for record in records if record["kind"] == "tool_called"}
    returned = {record["payload"]["call"]: record["payload"] for record in records if record["kind"] == "tool_returned"}
    # Begun and not returned: at most the one it was killed in, which is told as unknown; all others had their effect.
    unknown = [name for call, name in called.items() if call not in returned]
    assert len(unknown) <= 1
    assert len(sent) + len([name for name in unknown if name not in LOOKS]) >= 2
    # No result is on record without its call, none came of another one, and what was looked at was seen.
    assert returned.keys() <= called.keys()
    assert all(not one["is_error"] and one["name"] == called[call] for call, one in returned.items())
    assert all("line 1" in one["text"] for one in returned.values() if one["name"] in ("read", "search"))


@pytest.mark.long
@pytest.mark.parametrize("format", MODELS)
def test_an_agent_killed_at_any_record_comes_to_the_same_end(box: Box, provider: Provider, format: str) -> None:
    provider.play(SCRIPT)
    declare(box, provider, format)
    box.start(env=KEYS)
    client = Client(str(box.socket))
    step, most = 0, 1
    while step <= most:
        before = len(box.log("inbox", "--kind", "message_added"))
        lines = client.stream_lines("/follow", name="docs")
        box.ask("activate", "docs", "--fresh")
        records = kill_at(box, lines, step)
        sent = [record["payload"]["text"] for record in box.log("inbox", "--kind", "message_added")[before:]]
        judge(records, sent)
        if step == 0:
            # Nobody was killed: this is how many records there are to be killed at.
            most = sum(record["kind"] in STEPS for record in records)
            assert most >= 20 and len(sent) == 2
        step += 1
    shown = [piece.content for asked in provider.requests for message in asked.messages for piece in message.pieces if hasattr(piece, "content")]
    assert any(INTERRUPTED in content for content in shown), "no kill fell between a call and its return"
    # Who is killed while it speaks sends half a request.
    provider.surprises[:] = [words for words in provider.surprises if "truncated" not in words]
