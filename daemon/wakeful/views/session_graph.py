"""The graph of the inputs and outputs of sessions. Its nodes are sessions, files, commits, clocks and services.

An edge points in the direction of a change: from an input to its reader, from a writer to its output. With a focus,
only the nodes within a number of steps from it are shown. Without a focus, all nodes are shown, up to a bound.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from msgspec import Struct

from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import Bound
from wakeful.core.looking.patterns import parse_under
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import CommitsBinding, FileBinding, SessionBinding
from wakeful.errors import CallerError

MOST_NODES = 600
# The kinds of bindings that are left out. Every session has them, or they have no source that a person can look at.
_LEFT_OUT = ("spec", "message")


class Edge(Struct, frozen=True, order=True):
    source: str
    target: str
    binding: str
    wake: bool


class _Whole:
    """The whole graph: every node and edge."""

    def __init__(self, core: Core, ids: frozenset[str] | None) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.edges: set[Edge] = set()
        sessions = [session for session in core.state if session.is_live and (ids is None or session.id in ids)]
        for session in sessions:
            self.nodes[f"session:{session.name}"] = {"kind": "session", "label": session.name, "what": session.name}
        for session in sessions:
            for bound in core.looked.bounds.get(session.id, ()):
                self._add_bound(session, bound)
        for session in sessions:
            self._add_upstreams(core, session)

    def _add_bound(self, session: Session, bound: Bound) -> None:
        binding = bound.binding
        if bound.kind in _LEFT_OUT or bound.is_implied or binding is None:
            return
        own = f"session:{session.name}"
        if isinstance(binding, SessionBinding):
            self._join(f"session:{binding.session}", own, bound)
            return
        node, what = _name_node(session, bound)
        label = binding.description
        self.nodes.setdefault(node, {"kind": bound.kind, "label": label, "what": what})
        access = binding.access if isinstance(binding, FileBinding) else "read"
        if access in ("read", "both"):
            self._join(node, own, bound)
        if access in ("write", "both"):
            self._join(own, node, bound)

    def _join(self, source: str, target: str, bound: Bound) -> None:
        if source in self.nodes and target in self.nodes:
            self.edges.add(Edge(source, target, bound.name, bound.wake))

    def _add_upstreams(self, core: Core, session: Session) -> None:
        """Join a reader directly with a writer whose pattern only overlaps with its own, because they share no node."""
        own = f"session:{session.name}"
        read = {edge.source for edge in self.edges if edge.target == own}
        for writer in core.graph.upstreams.get(session.name, ()):
            other = f"session:{writer}"
            written = {edge.target for edge in self.edges if edge.source == other}
            if other in self.nodes and other not in read and not written & read:
                self.edges.add(Edge(other, own, "", True))


def view_neighbourhood(core: Core, focus: str | None, depth: int, ids: frozenset[str] | None = None) -> dict[str, Any]:
    """View the graph around a focus.

    `focus` is the name of a session, the `id`, `what` or `label` of a node, or a path that some pattern matches. `ids`
    are the sessions to show, None for all.
    """
    whole = _Whole(core, ids)
    starts = _find_focus(whole, focus) if focus is not None else []
    kept = _reach(whole, starts, depth) if starts else list(whole.nodes)
    is_cut = len(kept) > MOST_NODES
    shown = set(kept[:MOST_NODES])
    return {
        "focus": starts[0] if starts else None,
        "nodes": [{"id": one, **whole.nodes[one]} for one in kept[:MOST_NODES]],
        "edges": [
            {"from": edge.source, "to": edge.target, "binding": edge.binding, "wake": edge.wake}
            for edge in sorted(whole.edges)
            if edge.source in shown and edge.target in shown
        ],
        "all_nodes": len(whole.nodes),
        "is_cut": is_cut,
    }


def _name_node(session: Session, bound: Bound) -> tuple[str, str]:
    """Name the node of a binding.

    Two bindings on the same thing share a node, but each clock belongs to its session.
    """
    binding, root = bound.binding, session.spec.root if session.spec is not None else "/"
    match binding:
        case FileBinding(pattern=pattern):
            path = os.path.normpath(os.path.join(root, pattern))
            return f"file:{path}", path
        case CommitsBinding(repo=repo, branch=branch, path=path):
            place = os.path.normpath(os.path.join(root, repo or "."))
            return f"commits:{place}:{branch or 'HEAD'}:{path}", place
        case _:
            return f"{bound.kind}:{session.name}:{bound.name}", bound.description


def _find_focus(whole: _Whole, focus: str) -> list[str]:
    """Find the nodes that a name refers to: a node's own name, or every pattern that matches a path."""
    for node in (focus, f"session:{focus}"):
        if node in whole.nodes:
            return [node]
    named = [node for node, shown in whole.nodes.items() if focus in (shown["what"], shown["label"])]
    if named:
        return named
    matching = [
        node
        for node, shown in whole.nodes.items()
        if shown["kind"] == "file" and focus.startswith("/") and parse_under(shown["what"], "/").matches(focus)
    ]
    if not matching:
        raise CallerError(f"nothing in the graph is called {focus!r}; give a session's name or a file that one binds")
    return matching


def _reach(whole: _Whole, starts: list[str], depth: int) -> list[str]:
    """List the nodes within this number of steps, the nearest first."""
    beside: dict[str, list[str]] = {}
    for edge in sorted(whole.edges):
        beside.setdefault(edge.source, []).append(edge.target)
        beside.setdefault(edge.target, []).append(edge.source)
    steps, waiting = dict.fromkeys(starts, 0), deque(starts)
    while waiting:
        node = waiting.popleft()
        for other in beside.get(node, ()) if steps[node] < depth else ():
            if other not in steps:
                steps[other] = steps[node] + 1
                waiting.append(other)
    return list(steps)
