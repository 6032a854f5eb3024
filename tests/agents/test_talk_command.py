"""`wakeful talk` in a real terminal of 80 columns. tmux draws it, types into it, and returns its screen."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.provider import Call, Hold, Provider, Say, Think
from agents.test_agent_runs import KEY, declare
from e2e.box import WAKEFUL, Box
from wait_conditions import eventually

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="NO TMUX HERE: wakeful talk is not tested on a terminal (apt install tmux)"
)

LONG = "The rates of May are in the table, and those of June follow as soon as the office has sent them, which it does on the first working day."


class Terminal:
    """One command in a terminal of 80 columns and 40 lines, on a tmux server of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], *words: str) -> None:
        self._environment = environment | {"TMUX_TMPDIR": str(folder), "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}
        self._server = f"talk-{uuid.uuid4().hex[:8]}"
        self._ending = folder / f"{self._server}.ended"
        # After an interrupt, a shell ends with its command unless it has a trap.
        line = f"trap : INT; {' '.join(words)}; echo $? > {self._ending}; sleep 600"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "40", "-c", str(folder), "sh", "-c", line)

    def type(self, text: str) -> None:
        self.wait_for_prompt()
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def read(self, *, is_coloured: bool = False) -> list[str]:
        return [
            line.rstrip() for line in self._tmux("capture-pane", "-p", *(("-e",) if is_coloured else ())).splitlines()
        ]

    def wait_for(self, *wanted: str) -> list[str]:
        """Wait until these lines are on the screen, one below the other."""

        def stands() -> list[str] | None:
            seen = self.read()
            places = range(len(seen) - len(wanted) + 1)
            return seen if any(tuple(seen[place : place + len(wanted)]) == wanted for place in places) else None

        try:
            return eventually(stands, what=f"{wanted} on the screen")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.read()])) from None

    def wait_for_prompt(self) -> str:
        """Wait until the last line is a prompt, and return it."""
        return eventually(
            lambda: last if (last := [line for line in self.read() if line][-1:]) and last[0].endswith(">") else None,
            what="a prompt",
        )[0]

    def wait_for_end(self) -> int:
        return int(eventually(lambda: self._ending.exists() and self._ending.read_text().strip()) or 1)

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._server, *words], env=self._environment, capture_output=True, text=True, check=True
        )
        return done.stdout


def play(asked: Any) -> Any:
    """Answer as the model, by the last words of the request."""
    said = asked.last_words
    if "Which rate?" in said:
        is_answered = any("which month else?" in result.content for result in asked.results)
        return Say("The page is true.") if is_answered else Call("ask_person", {"question": "Of which month?"})
    for word, answer in (
        ("When is the audit?", (Think("They want a date."), Say("In May."))),
        ("Tell me more.", Say(LONG)),
        ("Is it safe?", Say("Safe enough.")),
        ("What is red?", Say("This: \x1b[31mred\x07.")),
        ("Be slow.", Hold("slow", Say("One two three four."), after_chunks=5)),
        ("Fold it.", (Think("A long thought."), Say("Folded."))),
    ):
        if word in said:
            return answer
    return Say("The page is true.")


@pytest.fixture
def talk(box: Box, provider: Provider) -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_terminal(*words: str) -> Terminal:
        opened.append(
            Terminal(
                box.folder,
                box.environment() | {"HOME": str(box.folder), "XDG_STATE_HOME": str(box.folder / "own")},
                WAKEFUL,
                *words,
            )
        )
        return opened[-1]

    box.write(
        "wakeful.yaml",
        "prices: {anthropic:claude-test: {input: 10, output: 10}, anthropic:claude-wary: {input: 10, output: 10}}\n",
    )
    provider.play(play)
    declare(box, provider)
    (box.specs / "agents" / "security.yaml").write_text(
        f"prompt: You look for holes.\nmodel: anthropic:claude-wary\nbase_url: {provider.url}\n"
    )
    box.start(env=KEY)
    box.wait_at_rest("docs", runs=1)
    yield open_terminal
    provider.release("slow")
    for terminal in opened[-1:]:
        terminal.close()


@pytest.mark.long
def test_a_conversation_in_a_terminal(box: Box, provider: Provider, talk: Any) -> None:
    """Thoughts, answers, costs, another agent, a question of the agent and an interrupt.

    The next terminal continues the conversation and has the history.
    """
    screen: Terminal = talk("talk", "docs")
    screen.wait_for("docs: agent docs, suspended. /help lists the commands; Ctrl-D ends.", "docs >")
    screen.type("When is the audit?")
    screen.wait_for("docs > When is the audit?", "┊ They want a date.", "│ In May.")
    assert re.fullmatch(r"docs · 0\.\d{4} USD >", screen.wait_for_prompt())
    assert any("\x1b[2m" in line and "They want a date." in line for line in screen.read(is_coloured=True)), (
        "thoughts are dimmed"
    )
    screen.type("Tell me more.")
    screen.wait_for(
        "│ The rates of May are in the table, and those of June follow as soon as the",
        "│ office has sent them, which it does on the first working day.",
    )
    screen.type("/agent security Is it safe?")
    screen.wait_for("│ Safe enough.")
    assert provider.requests[-1].model == "claude-wary" and "When is the audit?" in provider.requests[-1].text
    screen.type("What is red?")
    screen.wait_for("│ This: \\x1b[31mred\\x07.")
    screen.type("/thinking")
    screen.wait_for("thoughts are folded")
    screen.type("Fold it.")
    screen.wait_for("┊ thinks …", "│ Folded.")
    screen.wait_for_prompt()
    screen.press("C-d")
    assert screen.wait_for_end() == 0
    screen.close()
    history = box.folder / "own" / "wakeful" / "talk_history"
    assert (
        history.read_text().splitlines()[:2] == ["When is the audit?", "Tell me more."]
        and stat.S_IMODE(os.stat(history).st_mode) == 0o600
    )
    # The conversation continues in the next terminal.
    screen = talk("talk", "docs", "--no-thinking")
    screen.wait_for("docs >")
    screen.press("Up")
    screen.wait_for("docs > Fold it.")
    screen.press("C-c")
    screen.wait_for("docs > Fold it.", "docs >")
    screen.type("Be slow.")
    eventually(
        lambda: any(line.startswith("│ One") for line in screen.read()), what="the first word of the slow answer"
    )
    screen.press("C-c")
    screen.wait_for("stopped")
    provider.release("slow")
    box.wait_at_rest("docs")
    assert [record["payload"]["outcome"] for record in box.log("docs") if record["kind"] == "run_finished"][
        -1
    ] == "interrupted"
    assert "When is the audit?" in provider.requests[-1].text
    screen.type("Which rate?")
    screen.wait_for("Of which month?", "your answer >")
    screen.type("Of May: which month else?")
    screen.wait_for("│ The page is true.")
    assert "which month else?" in provider.requests[-1].text
    screen.type("/nothing")
    screen.wait_for("there is no /nothing; /help lists the commands, and // begins a message with a")
    screen.type("/quit")
    assert screen.wait_for_end() == 0
    shown = box.json("show", "docs")
    assert shown["handoff"] == "The page is true.", "the hand-off of the work is as it was"


def test_without_a_terminal_it_says_what_to_use(box: Box) -> None:
    refused = box.run("talk", "docs")
    assert refused.returncode == 2 and "wakeful ask NAME -" in refused.stderr
