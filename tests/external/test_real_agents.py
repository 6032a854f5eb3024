"""Real coding agents, end to end under the default isolation, with a real daemon and a scripted model on loopback.

The tests are optional, because the programs take a gigabyte from npm: `make test-acp`. Everything that needs no real
program is tested with a scripted program in tests/agents.
"""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest

from agents.provider import Asked, Call, Hold, Provider, Say, Turn
from e2e.box import Box
from external.agent_programs import Program
from reserved_port import held_port
from wait_conditions import eventually

pytestmark = pytest.mark.acp

KEY = "sk-scripted-1234567890"
# The programs are large, and their first start reads all of them from disk.
SECONDS = 180.0


def declare(box: Box, provider: Provider, program: Program, *, tools: str = "{shell: allow}", budget: str = "") -> None:
    """Declare a session that keeps out/page.md in line with code.py. Its work is the external agent."""
    with held_port() as held:
        port = held.getsockname()[1]
    ports = [f"127.0.0.1:{provider.url.rpartition(':')[2]}", *([f":{port}"] if program.has_port else [])]
    settings = {"command": program.words(str(program.place), port), **program.settings(provider)}
    box.write("code.py", "def pay(): ...\n")
    (box.specs / "agents").mkdir()
    (box.specs / "agents" / "coder.yaml").write_text(f"acp: {json.dumps(settings)}\ntools: {tools}\n")
    (box.specs.parent / "wakeful.yaml").write_text("")
    box.spec(
        "docs",
        "agent: coder\nobjective: Keep page.md true to code.py.\n"
        f"network: {json.dumps(ports)}\n"
        "bindings: {code: {file: code.py, settle: 0ms}, page: {file: out/page.md, access: write}}\n"
        "conversation: continue\nrun: {prompt: Bring page.md in line.}\n" + (f"budget: {budget}\n" if budget else ""),
    )
    box.start(env={f"WAKEFUL_SECRET_{settings['key']}": KEY})


def play(box: Box, provider: Provider, program: Program, path: str = "out/page.md") -> None:
    """Script a model that writes a page for each version of the code, then says so.

    A request without tools asks for a title, and gets one.
    """

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("A page")
        is_second = "pay_more" in asked.text
        wanted = 2 if is_second and program.is_resumed else 1
        if len(asked.results) < wanted:
            return program.write(str(box.folder / path), "page 2" if is_second else "page 1")
        return Say("The page is true again." if is_second else "The page is true.")

    provider.play(answer)


def work(box: Box, runs: int) -> dict[str, Any]:
    row = box.wait_at_rest("docs", runs=runs, seconds=SECONDS)
    assert row["last_run"]["outcome"] == "succeeded", (row["reason"], box.ask("output", "docs"))
    return row


def payloads(box: Box, kind: str) -> list[dict[str, Any]]:
    return [record["payload"] for record in box.log("docs") if record["kind"] == kind]


def test_it_works_within_the_bindings_and_goes_on_where_it_stopped(
    box: Box, provider: Provider, program: Program
) -> None:
    """The calls, the answer and the usage are on record.

    The second run knows the first, from the program's own session or from our transcript.
    """
    play(box, provider, program)
    declare(box, provider, program)
    work(box, 1)
    assert box.read("out/page.md") == "page 1"
    [called], [returned], [answered] = (
        payloads(box, kind) for kind in ("tool_called", "tool_returned", "turn_answered")
    )
    assert (called["call"]["name"], returned["name"], returned["is_error"]) == (program.tool, program.tool, False)
    assert "page.md" in called["call"]["arguments"] and called["call"]["id"] == returned["call"]
    assert answered["answer"]["text"].endswith("The page is true.")
    worked = [asked for asked in provider.requests if asked.tools]
    # All its requests are counted, by the program or by our estimate.
    assert (
        answered["usage"]["input"] > len(json.dumps(worked[-1].raw)) / 8
        and answered["usage"]["is_estimated"] is not program.has_count
    )
    assert (answered["usd"] is not None) is program.has_cost
    assert all(asked.key == KEY for asked in provider.requests)
    box.save("code.py", "def pay_more(): ...\n")
    work(box, 2)
    assert box.read("out/page.md") == "page 2"
    last = provider.requests[-1]
    assert last.text.count("Bring page.md in line.") >= 2 and "The page is true." in last.text
    sessions = {found["value"] for found in payloads(box, "memory_set") if found["key"] == "acp_session"}
    assert len(sessions) == (1 if program.is_resumed else 2)


def test_what_the_policy_denies_is_not_done(box: Box, provider: Provider, program: Program) -> None:
    play(box, provider, program)
    declare(box, provider, program, tools=f"{{{program.tool}: deny}}")
    box.wait_at_rest("docs", runs=1, seconds=SECONDS)
    assert box.read("out/page.md") == ""
    [called], [returned] = payloads(box, "tool_called"), payloads(box, "tool_returned")
    assert called["call"]["name"] == program.tool and returned["is_error"], box.ask("output", "docs")


@pytest.mark.parametrize("path", ["out/other.md", "elsewhere.md"])
def test_what_is_not_bound_is_not_written(box: Box, provider: Provider, program: Program, path: str) -> None:
    """It is written neither beside an output nor elsewhere.

    An agent that names the file in its question is refused. The kernel stops a shell command.
    """
    if program.tool == "shell" and path.startswith("out/"):
        pytest.skip(
            "a command of a shell names no files when it asks: the folder of an output is open to it, and what it leaves there is reported"
        )
    play(box, provider, program, path)
    declare(box, provider, program)
    box.wait_at_rest("docs", runs=1, seconds=SECONDS)
    assert not (box.folder / path).exists(), box.ask("output", "docs")
    # It did try to write.
    [called] = payloads(box, "tool_called")
    assert path in called["call"]["arguments"]


def test_an_interrupted_run_ends_with_everything_it_started(box: Box, provider: Provider, program: Program) -> None:
    provider.play(lambda asked: Hold("never", Say("too late")) if asked.tools else Say("A page"))
    declare(box, provider, program)
    eventually(lambda: any(asked.tools for asked in provider.requests), SECONDS, what="the program asks its model")
    run = payloads(box, "run_started")[0]["run_id"]
    assert find_tree(run)
    box.ask("interrupt", "docs")
    eventually(lambda: not find_tree(run), what="nothing of the run is alive")
    row = box.wait_for("docs", state="suspended")
    assert row["last_run"]["outcome"] == "interrupted"


def test_a_question_waits_for_a_person_and_is_not_asked_again(box: Box, provider: Provider, program: Program) -> None:
    """The agent wants to write, the session asks, and the run ends. After the answer the agent writes."""
    play(box, provider, program)
    declare(box, provider, program, tools=f"{{{program.tool}: ask}}")
    row = box.wait_for("docs", SECONDS, state="sleeping")
    assert "may it do this: " in row["reason"] and box.read("out/page.md") == "", (row, box.ask("output", "docs"))
    before = sum(bool(asked.tools) for asked in provider.requests)

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("A page")
        is_first = sum(bool(one.tools) for one in provider.requests) <= before + 1
        return program.write(str(box.folder / "out/page.md"), "page 1") if is_first else Say("The page is true.")

    provider.play(answer)
    box.ask("answer", "docs", "yes")
    work(box, 2)
    assert box.read("out/page.md") == "page 1"


def test_it_is_stopped_when_its_budget_is_spent(box: Box, provider: Provider, program: Program) -> None:
    """Its model never finishes. The program is told to stop, no process of it is left, and the reason is on record."""
    provider.play(
        lambda asked: (
            program.write(str(box.folder / "out/page.md"), f"page {len(provider.requests)}")
            if asked.tools
            else Say("A page")
        )
    )
    declare(box, provider, program, budget="{day: {tokens: 100000}}")
    row = box.wait_for("docs", SECONDS, state="sleeping")
    assert "was stopped: budget of the day: " in row["reason"] and "of 100000 tokens spent" in row["reason"], (
        row,
        box.ask("output", "docs"),
    )
    requests = len(provider.requests)
    assert 3 < requests < 60 and box.json("costs")["total"]["tokens"] >= 50_000, box.json("costs")
    assert find_tree(payloads(box, "run_started")[0]["run_id"]) == []


def test_it_remembers_a_fact_and_sends_a_message_by_the_server_of_its_session(
    box: Box, provider: Provider, program: Program
) -> None:
    """The program starts our relay inside its own confinement. The fact and the message are recorded as the run's."""
    if program.own_tool is None:
        pytest.skip(f"{program.name} shows its model no tools of servers under a name known here")
    remember, send = map(program.own_tool, ("wakeful_remember", "wakeful_send"))

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("A page")
        match len(asked.results):
            case 0:
                return Call(remember, {"key": "currency", "value": "EUR", "rationale": "the contracts"})
            case 1:
                return Call(send, {"name": "other", "text": "the rates changed", "wake": False})
            case _:
                return Say("Remembered and sent.")

    provider.play(answer)
    box.spec("other", "objective: Wait.\nrun: {command: ['true']}\n")
    declare(box, provider, program)
    work(box, 1)
    # Some models must look a tool up first. Then the offer does not have its name, but the call works.
    remembered, sent = provider.requests[-1].results
    assert "remembered currency" in remembered.content and "mailbox of other" in sent.content, (remembered, sent)
    [fact] = box.json("facts", "docs")
    assert (fact["key"], fact["value"], fact["author"]) == ("currency", "EUR", "run:docs#1"), box.ask("output", "docs")
    [message] = [record for record in box.log("other") if record["kind"] == "message_added"]
    assert (message["payload"]["text"], message["author"]) == ("the rates changed", "run:docs#1")
    assert [called["call"]["name"] for called in payloads(box, "tool_called")] == ["remember", "send"]


def find_tree(run_id: str) -> list[int]:
    """Return the processes of a run. They inherit the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("WAKEFUL_RUN") == run_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
