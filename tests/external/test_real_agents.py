"""Real coding agents of others, end to end under the default isolation: a real daemon, the program as npm installs it, a model on loopback that plays a script.

Optional, for it takes a gigabyte from npm: `make test-acp`. What does not need a real program is tested against a scripted one, in tests/agents.
"""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest

from agents.provider import Asked, Call, Hold, Provider, Say, Turn
from e2e.box import Box
from external.programs import Program
from ports import held_port
from waiting import eventually

pytestmark = pytest.mark.acp

KEY = "sk-scripted-1234567890"
# They are large, and the first start of each reads all of it from disk.
SECONDS = 180.0


def declare(box: Box, provider: Provider, program: Program, *, tools: str = "{shell: allow}", budget: str = "") -> None:
    """A session that keeps out/page.md true to code.py, worked by the program."""
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
    """A model that writes a page for each version of the code, then says so. What has no tools asks for a title, and gets one."""

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
    """What it did and said is on record, and what it spent; its second run knows of the first, by its own session or by our telling."""
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
    # All its requests are counted: by the program, or what it leaves out by our estimate.
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
    """Neither beside an output nor elsewhere: who names the file when it asks is refused, and a command of a shell is kept from it by the kernel."""
    if program.tool == "shell" and path.startswith("out/"):
        pytest.skip(
            "a command of a shell names no files when it asks: the folder of an output is open to it, and what it leaves there is reported"
        )
    play(box, provider, program, path)
    declare(box, provider, program)
    box.wait_at_rest("docs", runs=1, seconds=SECONDS)
    assert not (box.folder / path).exists(), box.ask("output", "docs")
    # It did try.
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
    """It wants to write, the session asks, the run ends; after the answer it writes."""
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
    """Its model never comes to an end. The program is told to stop, nothing of it is left, and the reason is on record."""
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
    """The program starts our relay inside its own confinement; the fact and the message are the run's."""
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
    # Its model may have to look a tool up before it is shown: then the offer has no such name, and the call works all the same.
    remembered, sent = provider.requests[-1].results
    assert "remembered currency" in remembered.content and "mailbox of other" in sent.content, (remembered, sent)
    [fact] = box.json("facts", "docs")
    assert (fact["key"], fact["value"], fact["author"]) == ("currency", "EUR", "run:docs#1"), box.ask("output", "docs")
    [message] = [record for record in box.log("other") if record["kind"] == "message_added"]
    assert (message["payload"]["text"], message["author"]) == ("the rates changed", "run:docs#1")
    assert [called["call"]["name"] for called in payloads(box, "tool_called")] == ["remember", "send"]


def find_tree(run_id: str) -> list[int]:
    """Processes of a run, by the mark in their environment, which what they start inherits."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("WAKEFUL_RUN") == run_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
