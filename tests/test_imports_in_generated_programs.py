"""Programs that tests, benches and scripts write as text import existing modules of ours.

If a module moved, a fault in such a program would silently no longer happen.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from source_trees import parse, without_collector

REPOSITORY = Path(__file__).parent.parent
IMPORT = re.compile(r"^\s*(?:from (wakeful[\w.]*) import ([\w, ()]+)|import (wakeful[\w.]*))", re.MULTILINE)


def list_texts() -> list[tuple[Path, str]]:
    paths = [path for folder in ("tests", "bench", "scripts") for path in (REPOSITORY / folder).rglob("*.py")]
    with without_collector():
        return [
            (path, node.value)
            for path in paths
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value
        ]


def find_missing(module: str, names: str) -> list[str]:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return [module]
    wanted = [name.split(" as ")[0].strip(" ()") for name in names.split(",")]
    return [f"{module}.{name}" for name in wanted if name and not hasattr(found, name) and not is_module(module, name)]


def is_module(module: str, name: str) -> bool:
    try:
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


def test_every_import_in_a_written_program_is_there() -> None:
    imports = [(path, match) for path, text in list_texts() for match in IMPORT.finditer(text)]
    assert len(imports) > 20
    missing = {
        str(path.relative_to(REPOSITORY)): gone
        for path, match in imports
        if (gone := find_missing(match[1] or match[3], match[2] or ""))
    }
    assert not missing


def test_a_module_that_moved_is_noticed() -> None:
    assert find_missing("wakeful.runners", "landing") == ["wakeful.runners.landing"]
    assert find_missing("wakeful.runners.outputs", "landing") == []
