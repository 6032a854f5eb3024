"""The text of a record's payload: its values, without the names of fields.

A module of its own because the index of a search, the excerpt of a find and the filter of a log must agree on what a record says,
and their layers do not import each other. Of JSON inside a string, such as the arguments of a tool, the values count as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

# Maps whose keys are words of people and paths. Elsewhere a key is the name of a field, or the identity of a binding.
_NAMED_VALUES = frozenset({"env", "facts", "files", "memory", "people", "wrote"})
_DEEPEST = 8


def list_values(value: Any, depth: int = 0) -> Iterator[str]:
    """Every value as text, in order; true, false and null say nothing by themselves."""
    match value:
        case str():
            inner = _open_json(value) if depth < _DEEPEST else None
            if inner is None:
                yield value
            else:
                yield from list_values(inner, depth + 1)
        case dict():
            for name, one in value.items():
                if name in _NAMED_VALUES and isinstance(one, dict):
                    yield from one
                yield from list_values(one, depth + 1)
        case list():
            for one in value:
                yield from list_values(one, depth + 1)
        case bool() | None:
            return
        case _:
            yield str(value)


def _open_json(text: str) -> dict[str, Any] | list[Any] | None:
    """The object or list that a string holds as JSON. None for any other text."""
    if text[:1] not in "{[" or text[-1:] not in "}]":
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None
