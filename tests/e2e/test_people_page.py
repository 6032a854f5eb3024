"""The commands of docs/people.md, run as they are written, print what the page says."""

from __future__ import annotations

import re

from api.conftest import Speaker
from e2e.box import Box
from pages.fenced_blocks import Block, read_blocks
from pages.test_command_blocks import split
from wait_conditions import eventually

PAGE = "docs/people.md"
# The verbs of the page: "people", "token", "presence", "answer", "open", "send", "new".
_VARYING = re.compile(r"\b[0-9a-f]{8}\b|\b[\d.]+ (?:s|ms) ago\b|\bjust now\b")


def find_block(verb: str) -> Block:
    return next(
        block for block in read_blocks(PAGE) if any(one.startswith(f"wakeful {verb}") for one in block.commands)
    )


def run_block(box: Box, block: Block) -> None:
    for command, shown in zip(block.commands, block.answers, strict=True):
        done = box.run(*split(command)[1:])
        assert done.returncode == 0, done.stderr
        # The page does not show output that goes to a file. It shows the rest, as a terminal does.
        printed = done.stderr if ">" in command else done.stdout + done.stderr
        if shown:
            assert normalise(printed) == normalise("\n".join(shown)), command


def normalise(text: str) -> list[str]:
    return [" ".join(_VARYING.sub("*", line).split()) for line in text.strip().splitlines()]


def test_the_page_lets_people_in(box: Box) -> None:
    box.spec("payroll", "objective: Pay.\n")
    box.start()
    run_block(box, find_block("people"))


def test_the_page_tells_who_is_here(box: Box) -> None:
    box.spec("payroll", "objective: Pay.\n")
    box.start()
    speaker = Speaker(box.socket)
    for name in ("ana", "ben"):
        box.ask("people", "add", name, "--role", "contributor")
        token = box.ask("token", "new", "--person", name).strip()
        if name == "ana":
            speaker.call("note", token, name="payroll", text="x")
        else:
            speaker.get("/sessions/payroll", token)
    run_block(box, find_block("presence"))


def test_the_page_shows_an_approval(box: Box) -> None:
    box.write("rates.txt", "one\ntwo\nthree\n")
    box.spec(
        "payroll",
        "approve: before_run\nbindings: {rates: {file: rates.txt, settle: 10ms}}\nrun: {script: 'cat rates.txt'}\n",
    )
    box.start()
    wait_asking(box, "first")
    box.ask("answer", "payroll", "yes")
    box.wait_at_rest("payroll", runs=1)
    box.save("rates.txt", "one\n2\nthree\n")
    wait_asking(box, "rates")
    run_block(box, find_block("answer"))


def wait_asking(box: Box, binding: str) -> None:
    eventually(lambda: f"may it run? woken by {binding}" in (box.row("payroll")["reason"] or ""))


def test_the_page_opens_a_session(box: Box) -> None:
    box.start()
    run_block(box, find_block("open"))
    assert (box.specs / "trip.yaml").is_file()
