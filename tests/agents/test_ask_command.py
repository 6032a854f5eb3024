"""`wakeful ask` as a conversation, end to end: a real daemon, its agent process, and a scripted model."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from agents.provider import Hold, Provider, Say, Turns
from agents.test_agent_runs import KEY, declare
from e2e.box import WAKEFUL, Box
from wait_conditions import PATIENCE_SECONDS, eventually


def ask(box: Box, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `wakeful ask` in a process of its own, with text on its standard input."""
    return subprocess.run(
        [WAKEFUL, "ask", *words], cwd=box.folder, env=box.environment(), input=given, stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def told(provider: Provider) -> list[str]:
    """Return the messages of the last request, each with all its text."""
    return [message.text for message in provider.requests[-1].messages]


@pytest.mark.long
def test_questions_of_one_person_are_a_conversation_beside_the_work(box: Box, provider: Provider) -> None:
    """The questions of one person form one conversation until --fresh, even if work runs in between.

    The question is what the model is asked. The standing prompt is told once, as context.
    """
    provider.play(Turns((Say("The page is true."),), by="message"))
    declare(box, provider)
    box.spec("desk", "agent: docs\nobjective: Answer what people ask.\n")
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    provider.play(Turns((Say("It is in May."),), by="message"))
    assert ask(box, "docs", "When is the audit?").stdout == "It is in May.\n"
    [first] = told(provider)
    assert "When is the audit?" in first and first.index("When is the audit?") < first.index("# What you are asked")
    assert "not to be done now" in first and first.rstrip().endswith("Bring page.md in line with the code.")
    box.write("code.py", "def pay_more(): ...\n")
    box.wait_at_rest("docs", runs=3)
    assert all("audit" not in one for one in told(provider)), "the work does not hear of it"
    # The question, with the text of a pipe below it.
    piped = ask(box, "docs", "And this one?", given="an invoice\nof 3 lines\n")
    assert piped.returncode == 0, piped.stderr
    heard = told(provider)
    assert (
        len(heard) == 3
        and "When is the audit?" in heard[0]
        and heard[1] == "It is in May."
        and "And this one?\n\nan invoice\nof 3 lines" in heard[2]
    )
    assert "Bring page.md in line" not in heard[2]
    assert "# Hand-off of the last run" in heard[2], "the work left one since the first question"
    for given in (("docs", "-"), ("docs",)):
        assert ask(box, *given, given="Only from a pipe?\n").returncode == 0
        assert "Only from a pipe?" in told(provider)[-1] and "# Hand-off" not in told(provider)[-1]
    assert ask(box, "docs", "Do you know me?", "--fresh").returncode == 0
    assert len(told(provider)) == 1 and "audit" not in told(provider)[0]
    # A session without `run` answers, and does nothing else.
    assert ask(box, "desk", "Who is there?").stdout == "It is in May.\n"
    assert ask(box, "desk", "Still?").returncode == 0 and len(told(provider)) == 3
    assert box.row("desk")["runs"] == 2 and box.kinds("docs").count("note_added") == 2
    nothing = ask(box, "docs")
    assert nothing.returncode == 2 and "nothing is asked" in nothing.stderr


def test_who_asks_is_told_what_the_answer_waits_for(box: Box, provider: Provider) -> None:
    """All slots are taken by another session's agent.

    Standard error says so, and the answer follows on standard output.
    """
    box.write("wakeful.yaml", "concurrency: {agents: 1}\n")

    def answer(asked: Any) -> Any:
        return Hold("slot", Say("done")) if "Take your time." in asked.text else Say("At last.")

    provider.play(answer)
    declare(box, provider)
    box.spec("slow", "agent: docs\nobjective: Be slow.\nrun: {prompt: Take your time.}\n")
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    box.ask("activate", "slow")
    eventually(lambda: "Take your time." in provider.requests[-1].text)
    asking = subprocess.Popen(
        [WAKEFUL, "ask", "docs", "Now?"],
        cwd=box.folder,
        env=box.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert asking.stderr is not None
    assert asking.stderr.readline() == "wakeful: docs waits for a slot for agents\n"
    provider.release("slot")
    out, err = asking.communicate(timeout=PATIENCE_SECONDS)
    assert (asking.returncode, out, err) == (0, "At last.\n", "")
    assert json.loads(ask(box, "docs", "Again?", "--json").stdout).keys() == {
        "name",
        "run",
        "agent",
        "outcome",
        "reason",
        "answer",
        "usage",
    }
