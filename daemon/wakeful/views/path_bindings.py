"""The bindings that a path belongs to, by the same patterns and excludes that looks use.

Used by `why` and `plan`. It walks over all specs, which is cheap enough for a person's question. No wake uses it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from wakeful.core.deciding.core import Core
from wakeful.core.looking.patterns import Excludes, Pattern, intersects
from wakeful.core.looking.targets import find_hidden
from wakeful.core.record.state import Session
from wakeful.core.spec.session import DEFAULT_EXCLUDES, FileBinding, SessionBinding, SessionSpec

_WILDCARD = re.compile(r"[*?\[]")


class Reached(NamedTuple):
    session: Session
    binding: FileBinding


# Small, because one question about a path must not leave the patterns of 10,000 sessions in memory.
@functools.lru_cache(maxsize=1024)
def resolve_pattern(text: str, root: str) -> Pattern:
    return Pattern.parse(text).under(root)


def means_path(text: str, root: str, path: str) -> bool:
    """Does this pattern of a spec match the path? Most cannot, which is found without parsing them."""
    return _may_mean(text, root, path) and resolve_pattern(text, root).matches(path)


def _may_mean(text: str, root: str, path: str) -> bool:
    # The parser must handle patterns that have to be normalised first (`..`, `./`, `//`).
    if ".." in text or "./" in text or "//" in text:
        return True
    whole = text if text.startswith("/") else f"{root.rstrip('/')}/{text}"
    wildcard = _WILDCARD.search(whole, len(root))
    return path.startswith(whole[: wildcard.start()].rstrip("/") if wildcard is not None else whole.rstrip("/"))


def bindings_of(core: Core) -> Iterator[tuple[Session, SessionSpec, FileBinding]]:
    for session in core.state:
        if session.spec is None or not session.declaration.is_declared or session.is_shut:
            continue
        for binding in session.spec.files:
            yield session, session.spec, binding
        if session.spec.program is not None:
            yield session, session.spec, FileBinding(name="program", pattern=session.spec.program)


def find_writers(core: Core, path: str) -> list[Reached]:
    return [
        Reached(session, binding)
        for session, spec, binding in bindings_of(core)
        if binding.access != "read" and means_path(binding.pattern, spec.root, path)
    ]


def find_woken(core: Core, path: str) -> list[Reached]:
    """Find the waking bindings whose version would change with this path."""
    return [
        Reached(session, binding)
        for session, spec, binding in bindings_of(core)
        if binding.wake and _covers(spec, binding, path)
    ]


def _covers(spec: SessionSpec, binding: FileBinding, path: str) -> bool:
    if not means_path(binding.pattern, spec.root, path):
        return False
    pattern = resolve_pattern(binding.pattern, spec.root)
    # A session's own writes are hidden from what it reads (rule 7).
    excludes = Excludes.build(spec.root, DEFAULT_EXCLUDES, binding.exclude, find_hidden(binding, spec.written_patterns))
    return excludes.covers(path, len(pattern.base) + 1) is None


def wakes_reader(writer: SessionSpec, reader: SessionSpec) -> bool:
    """Would a successful run of `writer` wake `reader`, by a file or by a `session` binding?"""
    written = [resolve_pattern(pattern, writer.root) for pattern in writer.written_patterns]
    for binding in reader.bindings:
        if not binding.wake:
            continue
        if isinstance(binding, SessionBinding) and binding.session == writer.name and binding.on != "failed":
            return True
        if isinstance(binding, FileBinding) and binding.access != "write":
            pattern = resolve_pattern(binding.pattern, reader.root)
            if any(intersects(pattern, one) for one in written):
                return True
    return False
