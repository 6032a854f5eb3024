"""The bindings that a path belongs to, and the sessions that would wake if the path changed. Used by `why` and `plan`.

Paths are compared by the same patterns and excludes that looks use. Each question goes through all specs, which is
fast enough for a person. No wake is decided here. The sessions that would wake are listed in the order of the graph.
They are an upper bound: if the output of a session does not change, its readers do not wake (early cutoff, rule 33).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from wakeful.core.deciding.holds import find_hold_words
from wakeful.core.deciding.may_start import find_queue_words
from wakeful.core.deciding.owed import owed_names
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.patterns import Excludes, Pattern, intersects
from wakeful.core.looking.targets import find_hidden
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import FileBinding, SessionBinding
from wakeful.core.spec.session import DEFAULT_EXCLUDES, SessionSpec
from wakeful.views.causes import view_waiting

_WILDCARD = re.compile(r"[*?\[]")


class Reached(NamedTuple):
    session: Session
    binding: FileBinding


# The cache is small, because one question about a path must not leave the patterns of 10,000 sessions in memory.
@functools.lru_cache(maxsize=1024)
def resolve_pattern(text: str, root: str) -> Pattern:
    return Pattern.parse(text).under(root)


def means_path(text: str, root: str, path: str) -> bool:
    """Does this pattern of a spec match the path? Most patterns are ruled out by a comparison of texts, unparsed."""
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


def plan_paths(core: Core, paths: list[str], moment: Moment) -> dict[str, Any]:
    """Plan the waves that a change of these paths would start.

    The sessions of wave 1 read these paths. The sessions of wave n + 1 read the outputs of wave n.
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
    """List the running and the owed sessions in the order of the graph, with the reason why each wake waits."""
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
    """Find the readers that would wake after these sessions, each with its upstreams among the woken sessions."""
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
    """Compute the level of each session: the length of the longest path to it from a session that has no upstream among
    `names`. The graph has no cycle.
    """
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
