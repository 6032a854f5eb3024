"""Run each recipe of docs/recipes.md as the page has it (YAML, commands, shown output), all on one daemon.

The models are a stub provider, which recognizes a recipe by its objective. Only the address of the model is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.conftest import provider
from agents.provider import Call, Provider, Route, Routes, Say
from agents.provider.model_request import Asked
from agents.provider.script import Turn, start
from pages.fenced_blocks import Block, read_blocks
from pages.test_docs import Reader
from sources.commit_follower import GitRepo

__all__ = ["provider"]

PAGE = "docs/recipes.md"
KEY = {"WAKEFUL_SECRET_ANTHROPIC_API_KEY": "sk-test-0123456789"}
# The project that a reader has before the first command.
PROJECT = {
    "src/pay.py": "def pay(hours, rate):\n    return hours * rate\n",
    "reports/colour.md": "The button is green.\n",
    "reports/login.md": "I cannot log in, and neither can my team.\n",
    "handbook.md": "Squeaking brakes: clean the rim with alcohol. If that does not help, the pads are worn.\n",
}


def write(path: str, text: str) -> Call:
    return Call("write", {"path": path, "content": f"{text}\n"})


def play(shows: str, *turns: Turn, says: str | None = None) -> Route:
    """Return a scripted conversation, recognized by words in its requests and by words of its last message."""
    return Route(turns, by="message", shows=shows, says=says)


SCRIPT = Routes(
    (
        play(
            "docs/api.md true",
            Call("read", {"path": "src/pay.py"}),
            write("docs/api.md", "pay(hours, rate): the wage, rounded to the cent."),
            Say("The page says that wages are rounded."),
        ),
        play(
            "triage.md a list",
            Call("list", {}),
            write(
                "triage.md",
                "1. reports/login.md: nobody can log in\n2. reports/colour.md: a button has the wrong colour",
            ),
            Say("Two reports, one of them urgent."),
        ),
        play(
            "It still squeaks.",
            write("answers/17.md", "Bring the Roadster to us: the pads are worn."),
            Say("answered again"),
        ),
        play(
            "one customer's ticket",
            Call("remember", {"key": "bike", "value": "Roadster"}),
            write("answers/17.md", "Clean the rim with alcohol."),
            Say("answered"),
        ),
        play(
            "announcement.md a true",
            write("announcement.md", "The basic plan now costs 12 EUR."),
            Say("mended"),
            says="names no price",
        ),
        play("announcement.md a true", write("announcement.md", "The basic plan gets dearer."), Say("written")),
        play("Do the piece of work below", Call("read", {"path": "letter.md"}), Say("It does not say until when.")),
        play(
            "letter.md a true letter",
            write("letter.md", "We give you ten percent off."),
            Call("delegate", {"agent": "reviewer", "text": "Is letter.md right about offer.txt?"}),
            write("letter.md", "We give you ten percent off until May."),
            Say("mended"),
        ),
        play(
            "unusual in the month's pay",
            Call("read", {"path": "hr/pay.csv"}),
            write("hr/findings.md", "hr/hours.csv, row 3: bob has 400 hours in a month."),
            Say("one row to look at"),
        ),
        play("a summary of each meeting", write("summary.md", "May: meetings move to Tuesdays."), Say("done")),
    )
)


def review(asked: Asked) -> Turn:
    """The reviewer reads the text and objects while it names no price."""
    match asked.results:
        case ():
            return Call("read", {"path": "announcement.md"})
        case (found,) if "12 EUR" not in found.content:
            return Call("send", {"session": "announcement", "text": "Line 1 names no price: it is 12 EUR."})
        case _:
            return Say("compared")


def play_all() -> Callable[[Asked], Turn]:
    play_others = start(SCRIPT)
    return lambda asked: review(asked) if "announcement.md gets wrong" in asked.system else play_others(asked)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "project"
    folder.mkdir()
    repo = GitRepo(folder)
    made = Reader(folder)
    (folder / "home").mkdir()
    for path, text in PROJECT.items():
        made.write(path, text)
    repo("config", "user.name", "Ada")
    repo("config", "user.email", "ada@example.org")
    repo("add", "src")
    repo("commit", "-qm", "the code so far")
    yield made
    made.close()


def declare(reader: Reader, provider: Provider, blocks: list[Block]) -> None:
    """Write the files of the page, with the provider's address in each agent."""
    for block in blocks:
        if block.file is None:
            continue
        text = "\n".join(line for line in block.lines if not line.startswith("base_url:")) + "\n"
        if "/agents/" in block.file:
            text += f"base_url: {provider.base_url('openai' if 'openai' in text else 'anthropic')}\n"
        reader.write(block.file, text)


def type_block(reader: Reader, block: Block) -> None:
    for line in block.noted("first"):
        reader.type(line).check_returncode()
    for waits in block.noted("waits"):
        name, what = waits.split()
        if not what.isdigit():
            reader.wait_for(name, state=what)
            continue
        row = reader.wait_at_rest(name, runs=int(what))
        assert row["last_run"]["outcome"] == "succeeded", f"{block.place}: {row}\n{reader.ask('output', name)}"
    for line, answer in zip(block.commands, block.answers, strict=True):
        done = reader.type(line)
        assert done.returncode == 0, f"{block.place}: {line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        assert_shown(f"{block.place}: {line}", " ".join(answer).split(), " ".join(done.stdout.split()))


def assert_shown(place: str, page: list[str], printed: str) -> None:
    """Assert that the output has the words of the page in their order. `…` stands for any text."""
    pattern = ".*".join(map(re.escape, " ".join(page).split("…")))
    assert re.fullmatch(pattern, printed), f"{place}: the page shows\n{' '.join(page)}\nand this is printed\n{printed}"


@pytest.mark.long
def test_recipes_do_what_their_page_says(reader: Reader, provider: Provider) -> None:
    provider.play(play_all())
    blocks = read_blocks(PAGE)
    declare(reader, provider, blocks)
    reader.ask("check")
    reader.start(env=KEY)
    reader.write("src/pay.py", "def pay(hours, rate):\n    return round(hours * rate, 2)\n")
    for block in blocks:
        type_block(reader, block)
