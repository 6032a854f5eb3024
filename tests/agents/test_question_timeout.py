"""A question that no person answers is denied after a time, end to end, also if the daemon was killed meanwhile."""

from __future__ import annotations

import pytest

from agents.provider import Call, Provider, Say
from agents.test_agent_runs import KEY, declare, results
from agents.test_external_agents import declare as declare_external
from agents.test_external_agents import told
from e2e.box import Box


@pytest.mark.long
def test_nobody_answers_an_agent_and_its_call_is_denied_after_a_kill_of_the_daemon(
    box: Box, provider: Provider
) -> None:
    """`list` and `why` show how long the question waits. Then the work continues without the call."""
    provider.play([Call("write", {"path": "page.md", "content": "pay()\n"}), Say("Then not.")])
    declare(box, provider, tools="{write: ask}", ask_timeout="8s")
    box.start(env=KEY)
    row = box.wait_for("docs", state="sleeping")
    assert "wakeful answer docs yes, or no; denied if nobody answers within 8s)" in row["reason"], row
    assert "Without an answer it is denied at " in box.words("why", "docs")
    box.kill()
    box.start(env=KEY)
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded" and box.read("page.md") == "", box.ask("output", "docs")
    assert [(one.is_error, one.content) for one in results(provider.requests[1])] == [
        (True, "a person was asked, and nobody answered in time: it was denied")
    ]
    [answered] = [record for record in box.log("docs") if record["kind"] == "question_answered"]
    assert (answered["author"], answered["payload"]["text"], answered["payload"]["is_unanswered"]) == (
        "wakeful",
        "no",
        True,
    )
    assert "denied: no answer came in time" in box.words("log", "docs")


@pytest.mark.long
def test_nobody_answers_an_external_agent_and_the_next_run_asks_again(box: Box) -> None:
    """A denial by time holds only for the run that asked. The agent's file sets the time."""
    folder = declare_external(box, tools="{edit: ask}", can="resume")
    with (box.specs / "agents" / "coder.yaml").open("a") as file:
        file.write("ask_timeout: 1s\n")
    box.start()
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded" and box.read("out/page.md") == "", box.ask("output", "docs")
    assert any("resumed" in line for line in told(folder)[0])
    box.save("code.py", "def pay_more(): ...\n")
    box.wait_at_rest("docs", runs=4)
    assert box.kinds("docs").count("question_asked") == 2
