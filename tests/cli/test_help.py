"""The help of every verb: it explains the verb, ends with examples that parse, and fits a terminal of 80 columns."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
import pytest

from wakeful.cli.command import Command, wakeful
from wakeful.verbs.table import COMMANDS

WIDTH = 80
# Parts of a line that a shell handles before the verb sees it.
_SHELL = re.compile(r'\s>.*|^eval "\$\(|\)"')


def load(name: str) -> Command:
    found = wakeful.get_command(click.Context(wakeful), name)
    assert isinstance(found, Command)
    return found


def read_help(command: click.Command, name: str) -> str:
    """Return the help as for a terminal of 80 columns, whatever the width of the test's own."""
    parent = click.Context(wakeful, info_name="wakeful") if command is not wakeful else None
    return command.get_help(click.Context(command, parent, name, terminal_width=WIDTH, **command.context_settings))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_is_explained_with_an_example_that_can_be_typed(name: str) -> None:
    """Each example uses this verb and parses to the end. It is not executed."""
    command = load(name)
    assert command.help and command.help.split("\n")[0].endswith((".", ":", ",")) and command.examples
    for example in command.examples:
        # In a pipe, only the part with `wakeful` has to parse.
        ours = next(part for part in example.split(" | ") if "wakeful " in part)
        prefix, verb, *words = shlex.split(_SHELL.sub("", ours), comments=True)
        assert (prefix, verb) == ("wakeful", name), example
        context = command.make_context(name, words, parent=click.Context(wakeful))
        assert not context.args


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_verb_fits_and_ends_with_its_examples(name: str) -> None:
    """The shared options come after the verb's own, and no line is wider than the terminal."""
    lines = read_help(load(name), name).splitlines()
    assert max(map(len, lines)) <= WIDTH, [line for line in lines if len(line) > WIDTH]
    assert [line.strip() for line in lines[-len(load(name).examples) :]] == list(load(name).examples)
    options = [line.split()[0] for line in lines if re.match(r"  -", line)]
    assert options[-3:] == ["--json", "--socket", "-h,"]


def test_the_help_lists_every_verb_once_and_in_its_section() -> None:
    """The sections are Look, Act, Specs and Keep. Each verb has a line that fits."""
    lines = read_help(wakeful, "wakeful").splitlines()
    sections = [line for line in lines if re.fullmatch(r"[A-Z]\w+:", line)]
    assert sections == ["Options:", "Look:", "Act:", "Specs:", "Keep:"]
    listed = [line.split()[0] for line in lines[lines.index("Look:") :] if re.match(r"  \w", line)]
    assert sorted(listed) == sorted(COMMANDS) and max(map(len, lines)) <= WIDTH


def test_an_example_that_does_not_parse_is_noticed() -> None:
    """The check of the examples above does fail for a bad example."""
    command: Any = load("show")
    with pytest.raises(click.UsageError):
        command.make_context("show", shlex.split("payroll --att 2h"), parent=click.Context(wakeful))
