"""The verbs in the dashboard's script agree with the table of verbs: arguments, options, dangers and undo verbs."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from wakeful.verbs.table import VERBS

SCRIPT = files("wakeful.api.dashboard").joinpath("assets/lib/commands.js").read_text()


def read_object(name: str) -> str:
    found = re.search(rf"^(?:export )?const {name} = (\{{.*?^\}});", SCRIPT, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def split_actions() -> dict[str, str]:
    """Return the script text of each verb in ACTIONS. An entry begins with its name, two spaces from the margin."""
    parts = re.split(r"^  (\w+): (?=\{)", read_object("ACTIONS"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


ACTIONS = split_actions()
OPTIONS = dict(re.findall(r"(\w+): '(--[\w-]+)'", read_object("OPTIONS")))
POSITIONS = {
    verb: re.findall(r"'(\w+)'", names) for verb, names in re.findall(r"(\w+): \[([^\]]*)\]", read_object("POSITIONS"))
}


def test_the_script_is_seen() -> None:
    assert {"activate", "sleep", "remember", "terminate"} <= ACTIONS.keys()
    assert {"answer", "remember"} <= POSITIONS.keys() and {"seconds", "mark"} <= OPTIONS.keys()


@pytest.mark.parametrize("name", ACTIONS)
def test_an_offered_verb_is_as_the_table_has_it(name: str) -> None:
    verb, text = VERBS[name], ACTIONS[name]
    assert ("danger: true" in text) == verb.is_dangerous
    # An interrupted or cancelled run is undone by `activate`, and a rename by another rename.
    undo = re.search(r"undo: \{verb: '(\w+)'", text)
    if undo is not None:
        assert verb.undo is not None and verb.undo.split()[0] == undo[1]
    arguments = {one.name: one for one in verb.arguments}
    for field, rest in re.findall(r"\{name: '(\w+)'([^}]*)\}", text):
        option = re.search(r"option: '([^']+)'", rest)
        typed = arguments[field].option.split()
        assert (option[1] in typed) if option is not None else not typed, field


@pytest.mark.parametrize("name", ACTIONS)
def test_a_command_of_the_page_can_be_typed(name: str) -> None:
    """Positional arguments are shown in the order of the table. Every other argument has its option."""
    arguments = VERBS[name].arguments
    positional = [one.name for one in arguments if not one.option]
    shown = POSITIONS.get(name, ["name"])
    assert shown == positional[: len(shown)]
    for one in arguments:
        # The page sends no lists.
        if one.option and one.name in OPTIONS and not one.is_repeated:
            assert OPTIONS[one.name] in one.option.split(), one.name
