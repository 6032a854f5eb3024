"""Text for a terminal: what is folded stays whole, and fits."""

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
    """Every line is within the column, and together they are the text."""
    lines = fold(text, width)
    assert all(measure(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_path_is_parted_behind_a_slash_and_its_mark_stays_with_it() -> None:
    """What is broken is broken where one reads on."""
    assert fold(f"> {PATH}", 31) == ["> examples/hr/social-insurance/", "chengdu/rates/*.csv"]
    assert fold("examples/hr/previous.csv (quiet)", 28) == ["examples/hr/previous.csv", "(quiet)"]


def test_a_folded_table_goes_on_below_its_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other columns stay readable, and a note stands under its row."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = list(format_folded_table(("NAME", "WHAT"), [("rates", PATH), ("tax", "tax.yaml")], ["", "seen 1, good 2"]))
    assert lines == [
        "NAME   WHAT",
        "rates  examples/hr/social-insurance/",
        "       chengdu/rates/*.csv",
        "tax    tax.yaml",
        "       seen 1, good 2",
    ]
