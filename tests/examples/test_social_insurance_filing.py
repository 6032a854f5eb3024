"""The filing example: one page for each city, computed from the output of payroll alone."""

import pytest

from examples.example_folder import Tree

PAYROLL_PROGRAM = "examples/hr/payroll.py"
PROGRAM = "examples/hr/social_insurance_filing.py"
PAYROLL = "examples/hr/out/payroll.csv"
FILINGS = "examples/hr/out/filing"


def pages(tree: Tree) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((tree.root / FILINGS).iterdir())}


def test_each_city_gets_a_page_that_adds_up(tree: Tree) -> None:
    """Chengdu's pension computed by hand.

    The bases are 17,000 + 8,400 + 20,000 + 22,938 (cap) + 4,588 (floor), and the shares 8% and 16% of them.
    """
    tree.succeed(PAYROLL_PROGRAM)
    tree.succeed(PROGRAM)
    assert list(pages(tree)) == ["beijing.md", "chengdu.md", "shanghai.md", "shenzhen.md"]
    assert "| pension | 72,926.00 | 5,834.08 | 11,668.16 | 17,502.24 |" in pages(tree)["chengdu.md"]


def test_the_same_payroll_gives_the_same_bytes(tree: Tree) -> None:
    """A second run does not touch any page."""
    tree.succeed(PAYROLL_PROGRAM)
    tree.succeed(PROGRAM)
    before = tree.files()
    assert "wrote" not in tree.succeed(PROGRAM)
    assert tree.files() == before


def test_the_page_of_a_city_without_people_goes(tree: Tree) -> None:
    """The program removes the page of a city in which nobody is paid."""
    tree.succeed(PAYROLL_PROGRAM)
    tree.succeed(PROGRAM)
    kept = [line for line in tree.read(PAYROLL).splitlines() if ",chengdu," not in line]
    tree.write(PAYROLL, "\n".join(kept) + "\n")
    assert f"removed {FILINGS}/chengdu.md" in tree.succeed(PROGRAM)
    assert "chengdu.md" not in pages(tree)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("3375.00,5805.00", "3376.00,5805.00", "payroll.csv:2: insurance_employee is '3376.00'; expected 3375.00"),
        ("E001,An Li,beijing", "E001,An Li,../../etc", "payroll.csv:2: city is '../../etc'"),
        ("2026-03,E001", "2026-02,E001", "payroll.csv: rows of 2 months (2026-02, 2026-03)"),
    ],
)
def test_a_payroll_that_was_tampered_with_is_not_filed(tree: Tree, old: str, new: str, told: str) -> None:
    """Hand-edited sums, mixed months and city names that leave the folder are refused. The pages stay as they were."""
    tree.succeed(PAYROLL_PROGRAM)
    tree.succeed(PROGRAM)
    tree.replace(PAYROLL, old, new)
    before = tree.files()
    ended = tree.run(PROGRAM)
    assert ended.code == 1
    assert told in ended.stderr
    assert tree.files() == before


def test_a_missing_payroll_is_told(tree: Tree) -> None:
    """The program was run by hand before payroll ever ran. The error names the missing file."""
    ended = tree.run(PROGRAM)
    assert (ended.code, ended.stderr.split(";")[0]) == (1, f"{PAYROLL}: not found")
