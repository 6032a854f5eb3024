"""The sessions that would wake if these paths changed, in the order of the graph, and those that are owed or queued
now.

The answer is an upper bound: a session whose output does not change ends the wave there (early cutoff, rule 33).
"""

from __future__ import annotations

from typing import Any

from wakeful.core.deciding.core import Core
from wakeful.core.deciding.holds import find_hold_words
from wakeful.core.deciding.may_start import find_queue_words
from wakeful.core.deciding.owed import owed_names
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session
from wakeful.core.spec.session import DEFAULT_EXCLUDES
from wakeful.views.causes import view_waiting
from wakeful.views.path_bindings import find_woken, wakes_reader


def plan_paths(core: Core, paths: list[str], moment: Moment) -> dict[str, Any]:
    """Plan the waves that a change of these paths would start.

    Wave 1 reads them, wave n + 1 reads what wave n writes.
    """
    causes: dict[str, list[dict[str, str]]] = {}
    unmatched = []
    for path in paths:
        woken = find_woken(core, path)
        if not woken:
            unmatched.append(path)
        for session, binding in woken:
            causes.setdefault(session.name, []).append({"binding": binding.name, "path": path})
    because = _spread(core, list(causes))
    levels = _level(core, {*causes, *because})
    waves: dict[int, list[dict[str, Any]]] = {}
    for name in sorted(levels):
        session = core.state.by_name(name)
        entry = {
            "session": name,
            "causes": causes.get(name, []),
            "upstream": sorted(because.get(name, ())),
            # The plan assumes that every run succeeds. These sessions wake if this session fails.
            "on_failure": sorted(core.graph.failure_readers.get(name, ())),
            "held": find_hold_words(core, session, moment),
            "outputs": list(session.spec.written_patterns) if session.spec is not None else [],
        }
        waves.setdefault(levels[name], []).append(entry)
    return {
        "paths": paths,
        "waves": [waves[level] for level in sorted(waves)],
        "unmatched": unmatched,
        "default_excludes": list(DEFAULT_EXCLUDES),
    }


def plan_now(core: Core, moment: Moment) -> dict[str, Any]:
    """List the running and owed sessions, and the reason each wake waits, in the order of the graph."""
    active = {
        s.name: s for s in core.state if s.run is not None or s.wake is not None or s.id in core.looked.owed_since
    }
    levels = _level(core, set(active))
    ordered = sorted(active.values(), key=lambda session: (levels[session.name], _rank(core, session), session.name))
    return {
        "now": [
            {
                "session": session.name,
                "run": session.run.run if session.run is not None else None,
                "owed": owed_names(core.state, core.looked, session),
                "queued": find_queue_words(core, session, moment),
                "held": None if session.run is not None else find_hold_words(core, session, moment),
                "wave": levels[session.name] + 1,
                "deliveries": view_waiting(session),
            }
            for session in ordered
        ],
        "slots": {**core.view_slots()["commands"], "agents": core.view_slots()["agents"]},
        "default_excludes": list(DEFAULT_EXCLUDES),
    }


def _rank(core: Core, session: Session) -> float:
    """Rank running sessions first, then in the order of the queue for slots."""
    return float("-inf") if session.run is not None else core.ready.find_rank(session.id) or 0.0


def _spread(core: Core, names: list[str]) -> dict[str, set[str]]:
    """Find the readers that would follow, each with its upstreams among the woken sessions."""
    because: dict[str, set[str]] = {}
    waiting, done = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        writer = core.state.by_name(name).spec
        for reader in core.graph.readers.get(name, ()):
            session_id = core.state.ids.get(reader)
            spec = core.state.get(session_id).spec if session_id is not None else None
            if writer is not None and spec is not None and wakes_reader(writer, spec):
                because.setdefault(reader, set()).add(name)
                waiting.append(reader)
    return because


def _level(core: Core, names: set[str]) -> dict[str, int]:
    """Compute the longest path to each session from one without an upstream among `names`. The graph has no cycle."""
    levels: dict[str, int] = {}

    # An explicit stack, because a chain of 10,000 sessions would exceed Python's recursion limit.
    for start in names:
        stack = [start]
        while stack:
            name = stack[-1]
            above = [one for one in core.graph.upstreams.get(name, ()) if one in names]
            unknown = [one for one in above if one not in levels]
            if unknown:
                stack.extend(unknown)
                continue
            levels[name] = 1 + max((levels[one] for one in above), default=-1)
            stack.pop()
    return levels
