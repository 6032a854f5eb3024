"""The kill matrix: an agent's process is killed at every record, in every wire format, and reaches the same answer.

Each effect happens once, or the model is told that it is unknown: never twice, and never silently not at all. The model
is stateless and answers by what it is shown, so a conversation restored wrongly would end differently.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.provider import Asked, Call, Fail, Provider, Reply, Route, Routes, Say, Usage
from e2e.box import Box
from wait_conditions import eventually
from wakeful.cli.client import Client
from wakeful.core.agents.turns import INTERRUPTED
from wakeful.runners.process.process_mark import OWN, read_mark

MODELS = {
    "anthropic": "anthropic:claude-test",
    "responses": "openai:gpt-test",
    "openai": "openai-chat:gpt-test",
    "google": "google:gemini-test",
}
KEYS = {f"WAKEFUL_SECRET_{name}_API_KEY": "sk-test-0123456789" for name in ("ANTHROPIC", "OPENAI", "GOOGLE")}
STEPS = (
    "prompt_assembled",
    "turn_requested",
    "turn_answered",
    "tool_called",
    "tool_returned",
    "fact_set",
    "message_sent",
)
# Reads alone, a read before an effect, and reads after one. No read waits for its record. A call that waits for its own
# record waits for theirs too.
SCRIPT = [
    Call("send", {"session": "inbox", "text": "first"}),
    (Call("read", {"path": "page.md"}), Call("list", {})),
    (
        Call("search", {"text": "line"}),
        Call("remember", {"key": "a", "value": "1"}),
        Call("send", {"session": "inbox", "text": "second"}),
        Call("read", {"path": "page.md"}),
    ),
    Say("The end."),
]
COMPACTION_STEPS = (*STEPS, "turn_failed", "conversation_compressed", "note_added")
LOOKS = ("read", "list", "search")
# The same effects, the second by a sub-agent.
DELEGATING = Routes(
    (
        Route(
            (Call("read", {"path": "page.md"}), Call("send", {"session": "inbox", "text": "second"}), Say("sent")),
            shows="Do the piece of work below",
        ),
        Route(
            (
                Call("send", {"session": "inbox", "text": "first"}),
                Call("delegate", {"agent": "helper", "text": "Send the second."}),
                Say("The end."),
            )
        ),
    )
)


def declare(box: Box, provider: Provider, format: str, agent: str = "") -> None:
    (box.specs / "agents").mkdir()
    for name, prompt in (("docs", "Write."), ("helper", "You help.")):
        text = f"prompt: {prompt}\nmodel: {MODELS[format]}\nbase_url: {provider.base_url(format)}\n"
        (box.specs / "agents" / f"{name}.yaml").write_text(text + (agent if name == "docs" else ""))
    box.spec("inbox", "objective: Take messages in.\n")
    box.write("page.md", "line 1\nline 2\n")
    box.spec(
        "docs",
        "agent: docs\nobjective: Send two.\nbindings: {page: {file: page.md, wake: false}}\nrun: {prompt: Send both.}\n",
    )


def find_agent(box: Box) -> int | None:
    assert box.daemon is not None
    marked = (
        child.pid for child in psutil.Process(box.daemon.pid).children() if read_mark(child.pid) not in (None, OWN)
    )
    return next(marked, None)


def kill_agent(box: Box) -> None:
    if (pid := find_agent(box)) is not None:
        os.kill(pid, signal.SIGKILL)


def kill_at(box: Box, lines: Iterator[str], step: int, kinds: tuple[str, ...] = STEPS) -> list[dict[str, Any]]:
    """Kill the agent when its `step`-th record of this activation is on disk.

    Return the records until the session rests.
    """
    records, steps, is_killed = [], 0, False
    for line in lines:
        record = json.loads(line)
        records.append(record)
        steps += record["kind"] in kinds
        if steps == step and not is_killed:
            is_killed = True
            kill_agent(box)
        if record["kind"] == "session_suspended" or (record["kind"] == "session_slept"):
            return records
    raise AssertionError("the daemon stopped")


def judge(records: list[dict[str, Any]], sent: list[str]) -> None:
    """Check that the run ends the same, and that no effect happened twice.

    An effect may be missing only if its call began and was told to the model as unknown. `sent` are the effects.
    """
    answers = [record["payload"]["answer"]["text"] for record in records if record["kind"] == "turn_answered"]
    outcomes = [record["payload"]["outcome"] for record in records if record["kind"] == "run_finished"]
    assert answers[-1] == "The end." and outcomes[-1] == "succeeded"
    for text in ("first", "second"):
        assert sent.count(text) <= 1, f"{text} was sent {sent.count(text)} times"
    called = {
        record["payload"]["call"]["id"]: record["payload"]["call"]["name"]
        for record in records
        if record["kind"] == "tool_called"
    }
    returned = {record["payload"]["call"]: record["payload"] for record in records if record["kind"] == "tool_returned"}
    # At most one call began and did not return: the one that the kill interrupted. The model is told that it is
    # unknown. All other calls had their effect.
    unknown = [name for call, name in called.items() if call not in returned]
    assert len(unknown) <= 1
    assert len(sent) + len([name for name in unknown if name not in LOOKS]) >= 2
    # Every result on record has its call and its name, and the reads returned the content.
    assert returned.keys() <= called.keys()
    assert all(not one["is_error"] and one["name"] == called[call] for call, one in returned.items())
    assert all("line 1" in one["text"] for one in returned.values() if one["name"] in ("read", "search"))


def kill_everywhere(box: Box, begin: Callable[[], object], least: int) -> None:
    """Kill the agent at each record that it makes after `begin`, once for each record."""
    client = Client(str(box.socket))
    step, most = 0, 1
    while step <= most:
        before = len(box.log("inbox", "--kind", "message_added"))
        lines = client.stream_lines("/follow", name="docs")
        begin()
        records = kill_at(box, lines, step)
        sent = [record["payload"]["text"] for record in box.log("inbox", "--kind", "message_added")[before:]]
        judge(records, sent)
        if step == 0:
            # In step 0 nothing was killed. It gives the number of records at which to kill.
            most = sum(record["kind"] in STEPS for record in records)
            assert most >= least and len(sent) == 2
        step += 1


def judge_told(provider: Provider) -> None:
    shown = [
        piece.content
        for asked in provider.requests
        for message in asked.messages
        for piece in message.pieces
        if hasattr(piece, "content")
    ]
    assert any(INTERRUPTED in content for content in shown), "no kill fell between a call and its return"
    # A client that is killed while it sends leaves half a request.
    provider.surprises[:] = [words for words in provider.surprises if "truncated" not in words]


# -- while a conversation is made shorter -------------------------------------------------------

PAID = Usage(100, 10)
PAGES = 6
# The summariser refuses longer requests. So it has to read in pieces and merge the summaries.
MOST_REPORTED = 6_500


def answer_by_what_is_shown(asked: Asked) -> Any:
    """A model that sends, reads page after page, and sends again.

    It continues from a summary as from the conversation.
    """
    told = "\n".join([*(message.text for message in asked.messages), *(str(call.args) for call in asked.calls)])
    is_sent = {
        text: re.search(rf"""['"]text['"]: ?['"]{text}|DONE-{text}""", told) is not None for text in ("first", "second")
    }
    pages = max((int(number) for number in re.findall(r"""(?:['"]offset['"]: ?|READ-)(\d+)""", told)), default=0)
    if "summarise" in asked.tool_names:
        if len(asked.messages[0].text) > MOST_REPORTED:
            return Fail(400, message="prompt is too long: 9000 tokens > 1000 maximum", times=None)
        seen = [f"DONE-{text}" for text, was_sent in is_sent.items() if was_sent] + [f"READ-{pages}"]
        return Reply(
            (
                Call(
                    "summarise",
                    {"summary": " ".join(seen), "facts": [{"key": "seen", "value": f"request {asked.number}"}]},
                ),
            ),
            usage=PAID,
        )
    if not is_sent["first"]:
        return Reply((Call("send", {"session": "inbox", "text": "first"}),), usage=PAID)
    if pages < PAGES:
        return Reply((Call("read", {"path": "page.md", "offset": 1 + pages}),), usage=PAID)
    return Reply(
        (Say("The end."),) if is_sent["second"] else (Call("send", {"session": "inbox", "text": "second"}),), usage=PAID
    )


def judge_budget(records: list[dict[str, Any]], sent_requests: int) -> None:
    """Check that every request that left is on record, and that its usage is booked.

    If the usage is unknown, the largest possible usage is booked.
    """
    requested, booked = {}, 0
    for record in records:
        payload, key = record["payload"], (record["run"], record["payload"].get("turn"))
        match record["kind"]:
            case "turn_requested":
                requested[key] = payload["input_tokens"] + payload["max_output_tokens"]
            case "turn_answered":
                del requested[key]
                booked += payload["usage"]["input"] + payload["usage"]["output"]
            case "turn_failed":
                assert payload["fault"] == "too_long", payload
                del requested[key]
    assert sum(
        record["payload"]["usage"]["tokens"] for record in records if record["kind"] == "run_finished"
    ) == booked + sum(requested.values())
    assert sent_requests <= sum(record["kind"] == "turn_requested" for record in records)


@pytest.mark.long
def test_an_agent_killed_anywhere_in_a_compaction_does_each_thing_once_and_pays_for_each_request(
    box: Box, provider: Provider
) -> None:
    """The kills hit the requests for parts, the merging request, the facts, and the record of the summary."""
    provider.play(answer_by_what_is_shown)
    declare(box, provider, "anthropic", "context: {tokens: 16000, compress_at: 4300}\nsettings: {max_output: 800}\n")
    box.write("page.md", "a line of the page, one of very many\n" * 400)
    box.start(env=KEYS)
    client = Client(str(box.socket))
    # All later runs begin with a fact and a hand-off, and so with the same number of records.
    box.ask("activate", "docs", "--fresh", "--wait")
    step, most, killed_in = 0, 1, set()
    while step <= most:
        before, asked_before = len(box.log("inbox", "--kind", "message_added")), len(provider.requests)
        lines = client.stream_lines("/follow", name="docs")
        box.ask("activate", "docs", "--fresh")
        records = kill_at(box, lines, step, COMPACTION_STEPS)
        sent = [record["payload"]["text"] for record in box.log("inbox", "--kind", "message_added")[before:]]
        answers = [record["payload"]["answer"]["text"] for record in records if record["kind"] == "turn_answered"]
        assert (
            answers[-1] == "The end."
            and [record["payload"]["outcome"] for record in records if record["kind"] == "run_finished"][-1]
            == "succeeded"
        )
        assert all(sent.count(text) <= 1 for text in ("first", "second")), (step, sent)
        called = [
            record["payload"]["call"]["id"]
            for record in records
            if record["kind"] == "tool_called" and record["payload"]["call"]["name"] == "send"
        ]
        returned = [record["payload"]["call"] for record in records if record["kind"] == "tool_returned"]
        assert len(sent) + len(set(called) - set(returned)) >= 2, (step, sent)
        judge_budget(records, len(provider.requests) - asked_before)
        if step == 0:
            most = sum(record["kind"] in COMPACTION_STEPS for record in records)
            parts = sum("Summarise this part alone" in asked.text for asked in provider.requests)
            assert parts >= 2 and any("summaries of consecutive parts" in asked.text for asked in provider.requests)
            assert sum(record["kind"] == "conversation_compressed" for record in records) >= 1 and len(sent) == 2
        else:
            killed_in.add(find_step(records, step))
        step += 1
    assert {"turn_requested summary", "turn_answered summary", "fact_set", "conversation_compressed"} <= killed_in, (
        killed_in
    )
    provider.surprises[:] = [words for words in provider.surprises if "truncated" not in words]


def find_step(records: list[dict[str, Any]], step: int) -> str:
    record = [record for record in records if record["kind"] in COMPACTION_STEPS][step - 1]
    return f"{record['kind']} {record['payload'].get('purpose', '')}".strip()


# -- around calls of a server ----------------------------------------------------------------------

SERVER_SCRIPT = [
    Call("mcp__ledger__append", {"text": "first"}),
    (
        Call("read", {"path": "page.md"}),
        Call("mcp__ledger__append", {"text": "second"}),
        Call("read", {"path": "page.md"}),
    ),
    Say("The end."),
]


@pytest.mark.long
def test_an_agent_killed_around_a_call_of_a_server_does_not_repeat_its_effect(box: Box, provider: Provider) -> None:
    """No server outlives its run: none is left after each kill. Each effect happened once, or is told as unknown."""
    provider.play(SERVER_SCRIPT)
    declare(box, provider, "anthropic")
    ledger = box.folder / "ledger.txt"
    (box.folder / "tools").mkdir()
    (box.folder / "tools/ledger.py").write_text(Path(__file__).with_name("ledger_mcp_server.py").read_text())
    with (box.specs / "agents" / "docs.yaml").open("a") as file:
        file.write(
            f"mcp: {{ledger: {{command: [python, tools/ledger.py, {json.dumps(str(ledger))}], start_timeout: 60s}}}}\n"
        )
    box.spec(
        "docs",
        f"agent: docs\nobjective: Append two.\nbindings: {{page: {{file: page.md, wake: false}}}}\nallow: {{write: [{json.dumps(str(box.folder))}]}}\nrun: {{prompt: Append both.}}\n",
    )
    box.start(env=KEYS)
    client = Client(str(box.socket))
    step, most = 0, 1
    while step <= most:
        before = len(box.lines("ledger.txt"))
        lines = client.stream_lines("/follow", name="docs")
        box.ask("activate", "docs", "--fresh")
        records = kill_at(box, lines, step)
        judge(records, box.lines("ledger.txt")[before:])
        eventually(lambda: not find_servers(box), what="no server is left")
        if step == 0:
            most = sum(record["kind"] in STEPS for record in records)
            assert most >= 12 and len(box.lines("ledger.txt")) == before + 2
        step += 1
    shown = [
        piece.content
        for asked in provider.requests
        for message in asked.messages
        for piece in message.pieces
        if hasattr(piece, "content")
    ]
    assert any(INTERRUPTED in content for content in shown), "no kill fell between a call and its return"
    provider.surprises[:] = [words for words in provider.surprises if "truncated" not in words]


def find_servers(box: Box) -> list[int]:
    """Return the processes of the box's own server, also orphaned ones."""
    wanted = str(box.folder / "ledger.txt")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if wanted in process.cmdline():
                found.append(process.pid)
    return found


@pytest.mark.long
@pytest.mark.parametrize("format", MODELS)
def test_an_agent_killed_at_any_record_comes_to_the_same_end(box: Box, provider: Provider, format: str) -> None:
    provider.play(SCRIPT)
    declare(box, provider, format)
    box.start(env=KEYS)
    kill_everywhere(box, lambda: box.ask("activate", "docs", "--fresh"), 20)
    judge_told(provider)


@pytest.mark.long
@pytest.mark.parametrize("format", ["anthropic", "google"])
def test_a_sub_agent_killed_at_any_record_is_taken_up_where_it_stood(box: Box, provider: Provider, format: str) -> None:
    """Its caller gets the answer, whenever the process was killed.

    No effect happens twice, and none is lost silently.
    """
    provider.play(DELEGATING)
    declare(box, provider, format, "subagents: [helper]\n")
    box.start(env=KEYS)
    kill_everywhere(box, lambda: box.ask("activate", "docs", "--fresh"), 20)
    judge_told(provider)
    # The call of `delegate` is never told as interrupted, because its work continued.
    pairs = [pair for asked in provider.requests for pair in zip(asked.calls, asked.results, strict=True)]
    assert {result.content for call, result in pairs if call.name == "delegate"} == {"sent"}


@pytest.mark.long
def test_an_answer_aside_killed_at_any_record_comes_to_the_same_end(box: Box, provider: Provider) -> None:
    """Another agent answers one message. Killed at any record, it answers that message once."""
    provider.play(SCRIPT)
    declare(box, provider, "anthropic")
    box.spec(
        "docs",
        "agent: docs\nobjective: Send two.\nbindings: {page: {file: page.md, wake: false}}\nfirst: adopt\nrun: {prompt: Send both.}\n",
    )
    box.start(env=KEYS)
    client = Client(str(box.socket))
    kill_everywhere(
        box, lambda: client.call("ask", None, name="docs", text="Send both.", agent="helper", fresh=True), 20
    )
    judge_told(provider)
    started = [record["payload"] for record in box.log("docs", "--kind", "run_started")]
    assert all(one["is_aside"] and one["agent"]["name"] == "helper" for one in started)


@pytest.mark.long
def test_a_daemon_killed_while_a_sub_agent_works_has_the_work_taken_up(box: Box, provider: Provider) -> None:
    """The daemon is killed at each record of the sub-agent.

    The next daemon ends the old process and continues the run.
    """
    provider.play(DELEGATING)
    declare(box, provider, "anthropic", "subagents: [helper]\n")
    box.start(env=KEYS)
    box.wait_at_rest("docs")
    sub_steps = 1
    step = 1
    while step <= sub_steps:
        before, seen = len(box.log("inbox", "--kind", "message_added")), len(box.log("docs"))
        lines = Client(str(box.socket)).stream_lines("/follow", name="docs")
        box.ask("activate", "docs", "--fresh")
        wait_for_sub_record(lines, step)
        box.kill()
        box.start(env=KEYS)
        box.wait_at_rest("docs")
        records = box.log("docs")[seen:]
        judge(records, [record["payload"]["text"] for record in box.log("inbox", "--kind", "message_added")[before:]])
        outcomes = [record["payload"]["outcome"] for record in records if record["kind"] == "run_finished"]
        assert outcomes[0] == "lost", f"the kill at the sub-agent's record {step} came too late: {outcomes}"
        sub_steps = 6
        step += 1
    provider.surprises[:] = [words for words in provider.surprises if "truncated" not in words]


def wait_for_sub_record(lines: Iterator[str], step: int) -> None:
    for line in lines:
        step -= bool((json.loads(line)["payload"] or {}).get("sub"))
        if step == 0:
            return
    raise AssertionError("the daemon stopped")
