"""The tools for the knowledge of a session, used inside a real run with its own token and its confinement."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from e2e.box import Box

# The program of a run: it makes the calls of a file, one after the other, with the tools of the loop.
PROGRAM = """
import asyncio, json, os, sys
from wakeful.client.async_client import DaemonClient
from wakeful.agents.tools.tool_set import make_tools
from wakeful.agents.tools.bound_files import Bounds
from wakeful.core.agents.turns import ToolCall

async def main():
    async with DaemonClient.from_environment(os.environ) as link:
        bounds = Bounds.build(os.getcwd(), ["calls.json", "in.txt"], ["out/"], os.environ["WAKEFUL_SCRATCH"])
        box = make_tools(bounds, {}, link, session=os.environ["WAKEFUL_SESSION"], run_id=os.environ["WAKEFUL_RUN"])
        results = []
        for number, (name, arguments) in enumerate(json.load(open("calls.json"))):
            result = await box.carry_out(ToolCall(id=f"call-{number}", name=name, arguments=json.dumps(arguments)))
            results.append([result.text, result.is_error])
        # The same call again, as if the daemon had left before it answered.
        if results:
            await box.carry_out(ToolCall(id="call-0", name="remember", arguments=json.dumps({"key": "rate", "value": "0.19"})))
        json.dump({"results": results, "written": [one.path for number in range(99) for one in box.take_written(f"call-{number}")]}, open("out/results.json", "w"))

asyncio.run(main())
"""


def test_tools_work_inside_a_run_for_its_own_session(box: Box) -> None:
    """remember, recall, history, send, hand_off, todo and the tools for files.

    They act and are recorded as the run, and reach only its own session.
    """
    calls = [
        ["remember", {"key": "rate", "value": "0.19", "because": "the contract"}],
        ["recall", {}],
        ["recall", {"key": "none"}],
        ["remember", {"key": "row", "value": "7", "for_now": True}],
        ["send", {"session": "peer", "text": "rates are in"}],
        ["send", {"session": "nobody", "text": "x"}],
        ["hand_off", {"done": "rates", "next": "totals"}],
        ["history", {"most": 3}],
        ["history", {"record": 1}],
        ["history", {"record": 10_000}],
        ["history", {"kind": "run_startet"}],
        ["write", {"path": "out/page.md", "content": "0.19\\n"}],
        ["read", {"path": "out/page.md"}],
        ["search", {"text": "^0", "regex": True}],
        ["read", {"path": "in.txt"}],
        ["todo", {"items": ["read", "write", "send"], "doing": [1]}],
        ["todo", {"done": [1, 9]}],
        ["todo", {"done": [1], "doing": [2]}],
    ]
    box.write("in.txt", "1\n")
    box.write("calls.json", json.dumps(calls))
    box.write("program.py", PROGRAM)
    box.spec("peer", "objective: Receive.\nrun: {command: ['true']}\n")
    places = json.dumps([sys.prefix, str(Path(__file__).parents[2] / "daemon")])
    box.spec(
        "desk",
        f"""
        objective: Use the tools.
        bindings: {{input: {{file: in.txt}}, calls: {{file: calls.json, wake: false}}, out: {{file: out/, access: write}}}}
        allow: {{read: {places}}}
        run: {{command: [{sys.executable}, program.py]}}
        """,
    )
    box.start()
    row = box.wait_at_rest("desk", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "desk")
    found = json.loads(box.read("out/results.json"))
    texts, errors = zip(*found["results"], strict=True)
    assert [number for number, is_error in enumerate(errors) if is_error] == [2, 5, 9, 10, 16], found["results"]
    assert texts[0] == "remembered rate"
    assert texts[1].startswith("rate = 0.19  (run:desk#1, record ") and texts[1].endswith(": the contract)")
    assert "there is no fact 'none'; the facts are rate" in texts[2]
    assert "nobody" in texts[5]
    assert len(texts[7].splitlines()) == 4 and "[for older records: before" in texts[7]
    assert '"kind": "session_opened"' in texts[8]
    assert "did you mean 'run_started'?" in texts[10]
    assert texts[13].splitlines()[-1].startswith("out/page.md:1: 0.19")
    assert texts[15] == "the to-do list: 0 of 3 done\n1. [~] read\n2. [ ] write\n3. [ ] send"
    assert "the list has 3 items, none numbered 9" in texts[16]
    assert found["written"] == ["out/page.md"]
    # Check the same through the command line, outside of the run.
    assert [(fact["key"], fact["value"]) for fact in box.json("facts", "desk")] == [("rate", "0.19")]
    assert box.kinds("desk").count("fact_set") == 1
    assert box.json("show", "desk")["memory"] == {"row": "7"}
    assert "done: rates\nnext: totals" in json.dumps(box.json("show", "desk")).replace("\\n", "\n")
    assert box.json("show", "desk")["todo"] == [
        {"text": "read", "status": "done"},
        {"text": "write", "status": "doing"},
        {"text": "send", "status": "open"},
    ]
    (got,) = [record for record in box.log("peer") if record["kind"] == "message_added"]
    assert (got["author"], got["payload"]["text"]) == ("run:desk#1", "rates are in")
