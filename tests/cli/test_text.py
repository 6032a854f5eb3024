"""Text for a terminal: folded text is complete and fits its column, and every colour is one that exists."""

import ast
from collections.abc import Iterator
from typing import Any, cast, get_args

import pytest

from source_trees import parse_package
from wakeful.cli import text
from wakeful.cli.client import Options
from wakeful.cli.text import COLOURS, Colour, find_colour, fold, format_folded_table, measure, paint
from wakeful.cli.verbs.lifecycle import answer_verb

PATH = "examples/hr/social-insurance/chengdu/rates/*.csv"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one",
        "one two three",
        PATH,
        f"> {PATH}",
        f"{PATH} (quiet)",
        "x" * 100,
        "文" * 50,
        f"> /{'x' * 80}/y",
        " two  spaces ",
    ],
)
@pytest.mark.parametrize("width", [5, 12, 31, 48, 200])
def test_folding_loses_nothing_and_fits(text: str, width: int) -> None:
    """Every line fits the column, and all lines together are the text."""
    lines = fold(text, width)
    assert all(measure(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_path_is_parted_behind_a_slash_and_its_mark_stays_with_it() -> None:
    """A path is broken after a slash, and its mark stays beside it."""
    assert fold(f"> {PATH}", 31) == ["> examples/hr/social-insurance/", "chengdu/rates/*.csv"]
    assert fold("examples/hr/previous.csv (quiet)", 28) == ["examples/hr/previous.csv", "(quiet)"]


def test_a_folded_table_goes_on_below_its_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other columns keep their width, and a note stands below its row."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = list(format_folded_table(("NAME", "WHAT"), [("rates", PATH), ("tax", "tax.yaml")], ["", "seen 1, good 2"]))
    assert lines == [
        "NAME   WHAT",
        "rates  examples/hr/social-insurance/",
        "       chengdu/rates/*.csv",
        "tax    tax.yaml",
        "       seen 1, good 2",
    ]


class OneQuestion:
    """Stands in for the options and the client: a daemon with one session that asks whether a changed file may be
    used."""

    is_json = False

    def client(self) -> "OneQuestion":
        return self

    def get(self, path: str) -> dict[str, Any]:
        diff = {"path": "rates.txt", "note": None, "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same\n"}
        paths = [{"path": "rates.txt", "change": "modified"}]
        change = {"words": "rates: rates.txt", "problem": None, "paths": paths, "diffs": [diff]}
        return {"session": "payroll", "asks": "run", "words": "may it run?", "changes": [change], "call": None}


def test_the_diff_of_a_question_is_coloured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`wakeful answer` prints removed lines in red, added lines in green, positions dim, and other lines plain."""
    monkeypatch.setattr(text, "is_coloured", lambda: True)
    answer_verb(cast(Options, OneQuestion()), "payroll", None, None, None)
    lines = capsys.readouterr().out.splitlines()
    assert {"\x1b[31m-old\x1b[0m", "\x1b[32m+new\x1b[0m", "\x1b[2m@@ -1 +1 @@\x1b[0m", " same"} <= set(lines)


def list_colours(node: ast.expr) -> Iterator[str]:
    """Yield the names that an argument can have. mypy checks the types of variables and calls."""
    match node:
        case ast.Constant(value=str(name)):
            yield name
        case ast.IfExp(body=body, orelse=other):
            yield from (*list_colours(body), *list_colours(other))
        case ast.BoolOp(values=values):
            yield from (name for value in values for name in list_colours(value))


def test_every_colour_that_is_painted_exists() -> None:
    """Every name that is passed to `paint` has a code. Any other name is an error, and not plain text."""
    assert set(get_args(Colour)) == COLOURS.keys()
    painted = {
        name
        for tree in parse_package().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "paint"
        for name in list_colours(node.args[1])
    }
    assert {"dim", "bold", "good", "bad", "warn"} <= painted <= COLOURS.keys()
    with pytest.raises(KeyError):
        paint("text", cast(Colour, "green"))


@pytest.mark.parametrize(
    ("word", "colour"), [("failed", "failed"), ("archived", ""), ("no such state", ""), (None, "")]
)
def test_a_word_of_the_daemon_without_a_colour_is_plain(word: str | None, colour: Colour) -> None:
    """States and outcomes may be of a newer daemon, so an unknown one has no colour."""
    assert find_colour(word) == colour


@pytest.mark.parametrize(
    ("words", "is_shown_for_people"),
    [
        ("looked at 2026-01-31T06:00:00Z: nothing there", True),
        ("until 2026-01-31T06:00:00Z, then again", True),
        ("backup/2026-01-31T06:00:00Z.tar", False),
        ("name@2026-01-31T06:00:00Z:part", False),
    ],
)
def test_a_time_that_is_a_word_of_its_own_is_shown_like_all_others(words: str, is_shown_for_people: bool) -> None:
    """A colon after the time ends it, unless a name goes on there."""
    assert ("T06:00:00Z" not in text.show_local_times(words)) is is_shown_for_people
