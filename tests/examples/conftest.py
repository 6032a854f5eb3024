"""Gives each test a copy of the examples. The tests read the repository's own files and never write them."""

import shutil
from pathlib import Path

import pytest

from examples.example_folder import Tree

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "root"
    # Leave out the outputs in the checkout, so that a test does not mistake them for outputs of its own run.
    leave_out = shutil.ignore_patterns("out", "__pycache__")
    for folder in ("sessions.d", "examples", "daemon/wakeful/core"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=leave_out)
    return Tree(root)
