"""An unknown verb is answered with the verb the person probably means, but never with a dangerous one."""

from __future__ import annotations

import re
import string

import pytest

from cli.conftest import run_wakeful
from wakeful.cli.suggestions import DANGEROUS, MEANINGS, suggest_verb
from wakeful.verbs.table import COMMANDS


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("restart", "wakeful activate NAME"),
        ("stop", "wakeful interrupt NAME"),
        ("status", "wakeful list"),
        ("run", "wakeful activate NAME"),
        ("start", "wakeful daemon"),
        ("help", "wakeful --help"),
        ("terminte", "`wakeful --help` lists them"),
        ("lsit", "did you mean 'list'?"),
        ("actviate", "did you mean 'activate'?"),
        ("qqqqq", "`wakeful --help` lists them"),
    ],
)
def test_a_verb_that_does_not_exist_is_answered_by_its_meaning(typed: str, meant: str) -> None:
    """The answer is on stderr, and the exit code is that of a usage error."""
    done = run_wakeful(typed)
    assert (
        done.returncode == 2
        and done.stdout == ""
        and f"there is no verb '{typed}'" in done.stderr
        and meant in done.stderr
    )
    assert done.stderr.count("wakeful --help") == 1


def test_a_missing_choice_is_named_with_its_choices_in_one_line() -> None:
    done = run_wakeful("people")
    assert done.returncode == 2 and "Choose from: list, add, role, remove, changes" in done.stderr


@pytest.mark.long
def test_no_slip_of_the_finger_suggests_a_dangerous_verb() -> None:
    """The slips drop, add, swap or replace one letter, anywhere in any verb."""
    for verb in COMMANDS:
        for typed in slips(verb) - set(COMMANDS):
            found = re.search(r"did you mean '(\w+)'", suggest_verb(typed))
            assert found is None or found[1] not in DANGEROUS, (typed, found)


def slips(word: str) -> set[str]:
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    dropped = {a + b[1:] for a, b in cuts if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    replaced = {a + letter + b[1:] for a, b in cuts if b for letter in string.ascii_lowercase}
    added = {a + letter + b for a, b in cuts for letter in string.ascii_lowercase}
    return dropped | swapped | replaced | added


def test_meanings_name_verbs_that_exist_and_none_that_is_dangerous() -> None:
    """Each entry of MEANINGS is a word that is no verb."""
    for word, meaning in MEANINGS.items():
        named = set(re.findall(r"`wakeful ([a-z]+)", meaning))
        assert named <= set(COMMANDS) - DANGEROUS and word not in COMMANDS, word


def test_verbs_that_cannot_be_taken_back_by_themselves_are_on_the_list() -> None:
    """The list contains only verbs, and among them those that close, remove or replace."""
    assert (
        {"terminate", "erase", "uninstall", "restore", "rewind", "cancel", "forget", "archive"}
        <= DANGEROUS
        <= set(COMMANDS)
    )
