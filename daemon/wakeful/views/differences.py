"""The differences between two states of a session, or between two sessions: facts, bindings, spec, files, memory, to-do
list, hand-off.

Both sides are folded sessions, so the same comparison serves two positions of one log and two logs. Only differences
are listed. Each entry has the values `a` and `b`. A value is None if that side has no value, or has the default. Of
files, this module knows only the versions that runs left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from wakeful.core.looking.observed_state import Bound, bounds_of
from wakeful.core.record.events import RunFinished
from wakeful.core.record.state import Session
from wakeful.core.spec.session import SessionSpec
from wakeful.views.session_page import show_past, view_fact
from wakeful.views.times import show_time_or_none

# Two sessions always differ in their names.
_NOT_COMPARED = ("name",)


def compare(
    a: Session, b: Session, runs_between: Iterable[RunFinished] = (), at: tuple[int | None, int | None] = (None, None)
) -> dict[str, Any]:
    """Compare two sides.

    `runs_between` are the runs of one session that ended after `a` and up to `b`. `at` has the time of recording of
    each side.
    """
    return {
        "a": _view_side(a, at[0]),
        "b": _view_side(b, at[1]),
        "session": _compare_session(a, b),
        "facts": _compare_facts(a, b),
        "memory": compare_keys(a.knowledge.memory, b.knowledge.memory),
        "todo": compare_keys(*({item.text: item.status for item in side.knowledge.todo} for side in (a, b))),
        "handoff": None
        if a.knowledge.handoff == b.knowledge.handoff
        else {"a": a.knowledge.handoff, "b": b.knowledge.handoff},
        "spec": compare_keys(flatten_spec(a.spec), flatten_spec(b.spec)),
        "bindings": _compare_bindings(a, b),
        "files": _compare_files(a, b, list(runs_between)),
    }


def _view_side(session: Session, at: int | None) -> dict[str, Any]:
    return {"name": session.name, "id": session.id, "seq": session.seq, "at": show_time_or_none(at)}


def compare_keys(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "a": a.get(key), "b": b.get(key)}
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    ]


def _compare_session(a: Session, b: Session) -> list[dict[str, Any]]:
    sides = []
    for session in (a, b):
        shown = show_past(session)
        sides.append(
            {key: shown[key] for key in ("state", "reason", "runs", "mailbox")}
            | {"agent": session.declaration.agent, "model": session.declaration.model}
        )
        if a.id == b.id:
            sides[-1]["name"] = session.name
    return compare_keys(*sides)


def _compare_facts(a: Session, b: Session) -> list[dict[str, Any]]:
    """Compare facts by value only. A fact that was set again to the same value is no difference."""
    found = []
    for key in sorted(a.knowledge.facts.keys() | b.knowledge.facts.keys()):
        before, after = a.knowledge.facts.get(key), b.knowledge.facts.get(key)
        if before is None or after is None or before.value != after.value:
            found.append(
                {
                    "key": key,
                    "a": None if before is None else view_fact(before),
                    "b": None if after is None else view_fact(after),
                }
            )
    return found


def flatten_spec(spec: SessionSpec | None) -> dict[str, Any]:
    """List the values of a spec that differ from the defaults, by dotted key. Bindings are keyed by name."""
    if spec is None:
        return {}
    told = _tell(spec)
    told["bindings"] = {binding.name: binding for binding in spec.bindings}
    return {key: value for key, value in _flatten(told, "") if key not in _NOT_COMPARED}


def _tell(value: Struct) -> dict[str, Any]:
    """List the fields that differ from their defaults. A tagged struct also gives its tag, as `kind`."""
    fields = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(value))
    told = {
        field.name: one
        for field, one in fields
        if one != (field.default_factory() if callable(field.default_factory) else field.default)
    }
    tag = value.__struct_config__.tag
    return told if tag is None else {"kind": tag, **told}


def _flatten(values: dict[str, Any], above: str) -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Struct):
            value = {name: one for name, one in _tell(value).items() if name != "name"}
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _bounds_by_key(session: Session) -> dict[str, Bound]:
    return {bound.key: bound for bound in bounds_of(session.spec)[0]} if session.spec is not None else {}


def _compare_bindings(a: Session, b: Session) -> list[dict[str, Any]]:
    """Compare the versions that runs saw, and those of the last success. `_compare_files` handles written bindings."""
    bounds = [_bounds_by_key(a), _bounds_by_key(b)]
    found = []
    for key, bound in (bounds[0] | bounds[1]).items():
        marks = {
            mark: {"a": getattr(a.marks, mark).get(key), "b": getattr(b.marks, mark).get(key)}
            for mark in ("seen", "good")
        }
        is_new, is_gone = key not in bounds[0], key not in bounds[1]
        if bound.is_written or not (is_new or is_gone or any(mark["a"] != mark["b"] for mark in marks.values())):
            continue
        change = "added" if is_new else "removed" if is_gone else "moved"
        found.append({"name": bound.name, "kind": bound.kind, "what": bound.description, "change": change, **marks})
    return found


def _compare_files(a: Session, b: Session, runs: list[RunFinished]) -> list[dict[str, Any]]:
    """Compare the written bindings: the version that each side's last success left, and the runs that wrote in
    between.
    """
    found = []
    for key, bound in (_bounds_by_key(a) | _bounds_by_key(b)).items():
        versions = {"a": a.marks.good.get(key), "b": b.marks.good.get(key)}
        wrote = [run.run for run in runs if bound.name in run.written]
        if bound.is_written and (versions["a"] != versions["b"] or wrote):
            found.append({"binding": bound.name, "what": bound.description, **versions, "runs": wrote})
    return found
