"""The package's source as syntax trees, for tests that check code without importing it.

The package is parsed once in each process of the suite. The garbage collector is off meanwhile and ignores the trees
later: otherwise it takes longer than the parsing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "daemon" / "wakeful"


@functools.cache
def parse_package() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module of the package, ordered by path."""
    with without_collector():
        trees = {path: parse(path) for path in sorted(PACKAGE.rglob("*.py"))}
    gc.freeze()
    return trees


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
