"""Commands in README, docs/ and examples/ are run by a test or say why not. Their verbs and options exist."""

from __future__ import annotations

import itertools
import re
import shlex

import pytest

from pages.fenced_blocks import PAGES, REPOSITORY, Block, read_blocks, read_spans
from wakeful.cli.command import wakeful
from wakeful.verbs.table import COMMANDS

_OPTION = re.compile(r"--?[a-z][a-z-]*")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_commands_is_run_or_says_why_not(page: str) -> None:
    """A block of commands has a language or prompts. Otherwise it is undecided, and the test fails."""
    for block in read_blocks(page):
        assert not block.is_undecided, (
            f"{block.place}: write ```sh, begin commands with `$ `, or add <!-- not run: REASON -->"
        )
        decided = block.noted("not run") + block.noted("run by")
        assert len(decided) <= 1, f"{block.place}: {decided}"
        if block.commands:
            assert len(block.exits) == len(block.commands), f"{block.place}: as many exit codes as commands"
        for test in re.findall(r"tests/[\w/]+\.py", " ".join(block.noted("not run"))):
            assert (REPOSITORY / test).is_file(), f"{block.place}: there is no {test}"
        for test in block.noted("run by"):
            assert (REPOSITORY / test).is_file(), f"{block.place}: there is no {test}"
            assert_mentioned(block, (REPOSITORY / test).read_text())


def assert_mentioned(block: Block, test: str) -> None:
    """Assert that the named test runs the verbs of this block."""
    verbs = [found[1] for command in block.commands if (found := re.match(r"wakeful ([a-z-]+)", command))]
    assert verbs, f"{block.place}: no verb in {block.commands}"
    spoken = {"list": "rows()"}
    missing = [
        verb
        for verb in verbs
        if not any(word in test for word in (f'"{verb}"', f'"{verb} ', spoken.get(verb, f'"{verb}"')))
    ]
    assert not missing, f"{block.place}: {missing} is not run by {block.noted('run by')[0]}"


@pytest.mark.parametrize("page", PAGES)
def test_verbs_and_options_that_a_page_names_exist(page: str) -> None:
    """Commands in sentences, and in blocks that no test can run, are checked as well."""
    commands = [command for block in read_blocks(page) for command in block.commands]
    for command in (*read_spans(page), *commands):
        words = split(command)
        if len(words) < 2 or words[0] != "wakeful" or not re.fullmatch(r"[a-z][a-z-]*", words[1]):
            continue
        assert words[1] in COMMANDS, f"{page}: there is no verb in `{command}`"
        found = wakeful.get_command(wakeful.make_context("wakeful", ["list"]), words[1])
        assert found is not None
        known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
            "-h",
            "--help",
        }
        own = [word.split("=")[0] for word in words[2:] if _OPTION.fullmatch(word.split("=")[0])]
        assert not (strange := [word for word in own if word not in known]), f"{page}: {strange} in `{command}`"


def split(command: str) -> list[str]:
    """Return the words of one command, without what follows a shell's sign.
    Brackets and dots of a synopsis are removed."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    own = itertools.takewhile(lambda word: word not in ("|", ">", "<", "&&", ";"), words)
    return [word.strip("[]…") for word in own]
