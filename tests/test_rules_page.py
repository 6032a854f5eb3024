"""docs/rules.md has the rules that comments refer to, such as "rule 17".

Each reference has its rule, and each rule has tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
RULES = {
    int(number) for number in re.findall(r"^(\d+)\. ", (REPOSITORY / "docs" / "rules.md").read_text(), re.MULTILINE)
}
REFERENCE = re.compile(r"\brules? (\d+)((?:(?:, | and | to |-)\d+)*)")


def list_references(text: str) -> set[int]:
    found = set()
    for first, more in REFERENCE.findall(text):
        found |= {int(first), *map(int, re.findall(r"\d+", more))}
    return found


def test_the_rules_are_numbered_without_a_gap() -> None:
    assert sorted(RULES) == list(range(1, len(RULES) + 1))
    assert len(RULES) >= 45


def test_no_reference_to_a_rule_dangles() -> None:
    """References in code, tests and pages are checked."""
    pages = [*REPOSITORY.glob("daemon/**/*.py"), *REPOSITORY.glob("tests/**/*.py"), *REPOSITORY.glob("docs/*.md")]
    dangling = {
        str(page.relative_to(REPOSITORY)): sorted(missing)
        for page in pages
        if (missing := list_references(page.read_text()) - RULES)
    }
    assert not dangling


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_has_a_test(rule: int) -> None:
    """A test of a rule has the rule's number in its name."""
    texts = [path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert any(f"def test_rule_{rule}_" in text for text in texts)


def test_the_page_names_the_tests_of_each_rule() -> None:
    checked = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "write_rules_page.py", "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
