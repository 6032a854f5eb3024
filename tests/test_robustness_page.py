"""docs/robustness.md lists the 69 faults once each, with the defence and with tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PAGE = (REPOSITORY / "docs" / "robustness.md").read_text()
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
FAULTS = 69
ROWS = {int(number): (holds.strip(), TEST.findall(tests)) for number, _, holds, tests in ROW.findall(PAGE)}


@functools.cache
def list_tests(path: Path) -> frozenset[str]:
    """Return the functions and classes that pytest collects. A state machine of hypothesis is an assigned name."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in names if name.startswith(("test_", "Test")))


def test_each_fault_stands_there_once() -> None:
    assert [int(number) for number, *_ in ROW.findall(PAGE)] == list(range(1, FAULTS + 1))


@pytest.mark.parametrize("number", range(1, FAULTS + 1))
def test_each_fault_is_held_by_tests_that_exist(number: int) -> None:
    """A fault without tests must name what it comes with, because the attacked part is not built yet."""
    holds, tests = ROWS[number]
    assert tests or re.match(r"Comes with PostgreSQL", holds)
    for path, name in tests:
        file = REPOSITORY / "tests" / path
        assert file.exists() and name in list_tests(file), f"{path}::{name}"
