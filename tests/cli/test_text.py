"""Text for a terminal: folded text is complete and fits its column."""

import pytest

from wakeful.cli.text import fold, format_folded_table, measure

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
