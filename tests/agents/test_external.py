"""External coding agents over the Agent Client Protocol, end to end: a real daemon, a real program on the other end of the pipe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from e2e.box import Box

PROGRAM = Path(__file__).parent / "acp_program.py"


def declare(box: Box, *, can: str = "", name: str = "small", tools: str = "{edit: allow}", conversation: str = "continue") -> Path:
    """A session whose agent is the program, and the folder in which that keeps what it was told."""
    folder = box.folder / "program"
    (folder / "sessions").mkdir(parents=True)
    (folder / "acp_program.py").write_text(PROGRAM.read_text())
    box.write("secret.txt", "not for it\n")
    for key, text in {"can": can, "name": name, "forbidden": str(box.folder / "secret.txt")}.items():
        (folder / key).write_text(text)
    box.write("code.py", "def pay(): ...\n")
    (box.specs / "agents").mkdir()
    (box.specs / "agents" / "coder.yaml").write_text(f"acp: [{sys.executable}, program/acp_program.py, program]\ntools: {tools}\n")
    (box.specs.parent / "wakeful.yaml").write_text("")
    box.spec(
        "docs",
        "agent: coder\nobjective: Keep page.md true to code.py.\n"
        "bindings: {code: {file: code.py, settle: 0ms}, page: {file: out/page.md, access: write}}\n"
        "allow: {read: [program/acp_program.py], write: [program]}\n"
        f"conversation: {conversation}\nrun: {{prompt: Bring page.md in line.}}\n",
    )
    return folder


def told(folder: Path) -> list[list[str]]:
    """What each of its sessions went through."""
    return [path.read_text().splitlines() for path in sorted((folder / "sessions").iterdir(), key=lambda path: path.stat().st_mtime)]


def test_an_external_agent_works_within_the_bindings_and_everything_is_on_record(box: Box) -> None:
    folder = declare(box)
    box.start()
    row = box.wait_at_rest("docs", runs=1)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    assert box.read("out/page.md") == "page of def pay(): ...\n"
    steps = [kind for kind in box.kinds("docs") if kind.startswith(("prompt_", "turn_", "tool_", "note_"))]
    assert steps == ["prompt_assembled", "turn_requested", "tool_called", "tool_returned", "turn_answered", "note_added"]
    answered = next(record for record in box.log("docs") if record["kind"] == "turn_answered")["payload"]
    assert (answered["answer"]["text"], answered["usage"]["input"]) == ("The page is true.", 20)
    tried = told(folder)[0][-1]
    assert "PermissionError" in tried and "not for it" not in tried and "RequestError" in tried
    assert "Bring page.md in line." in told(folder)[0][1]


@pytest.mark.parametrize(
    ("can", "name", "second"),
    [
        ("resume load", "small", "resumed"),
        pytest.param("load", "small", "loaded", marks=pytest.mark.long),
        pytest.param("load", "gemini-cli", "new", marks=pytest.mark.long),
        pytest.param("", "small", "new", marks=pytest.mark.long),
    ],
)
def test_a_conversation_goes_on_as_the_program_can(box: Box, can: str, name: str, second: str) -> None:
    """Resume before load, load only where that destroys nothing, else our own transcript; what a load replays is not said again."""
    folder = declare(box, can=can, name=name)
    box.start()
    box.wait_at_rest("docs", runs=1)
    box.save("code.py", "def pay_more(): ...\n")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded", box.ask("output", "docs")
    lines = told(folder)[-1]
    assert second in lines
    again = next(line for line in reversed(lines) if line.startswith("prompt: "))
    assert ("The page is true." in again) is (second == "new")
    assert all("said long ago" not in str(record["payload"]) for record in box.log("docs"))


@pytest.mark.long
def test_what_needs_a_person_ends_the_run_with_the_question_and_is_not_asked_twice(box: Box) -> None:
    folder = declare(box, tools="{edit: ask}", can="resume")
    box.start()
    row = box.wait_for("docs", state="sleeping")
    assert row["reason"].startswith("asks: may it do this: edit page.md?") and box.read("out/page.md") == ""
    assert "cancelled" in told(folder)[0]
    box.ask("answer", "docs", "yes")
    row = box.wait_at_rest("docs", runs=2)
    assert row["last_run"]["outcome"] == "succeeded" and box.read("out/page.md")


def test_a_program_that_is_not_there_or_says_nothing_fails_in_words(box: Box) -> None:
    declare(box)
    (box.specs / "agents" / "coder.yaml").write_text("acp: [no-such-program]\n")
    box.start()
    row = box.wait_for("docs", state="sleeping")
    assert "acp:no-such-program" in row["reason"]
