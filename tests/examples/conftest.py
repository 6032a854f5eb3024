"""A copy of the examples for each test: the repository's own files are read, never written."""

import shutil
from pathlib import Path

import pytest

from examples.tree import Tree

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "root"
    # What programs made in the checkout must not be mistaken for what they make here.
    leave_out = shutil.ignore_patterns("out", "__pycache__")
    for folder in ("sessions.d", "examples", "daemon/wakeful/core"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=leave_out)
    return Tree(root)
