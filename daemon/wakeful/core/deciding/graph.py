"""The recompute graph: which session writes files that others read. A change of one spec updates only its own edges.

- There is an edge if a write pattern meets a read pattern, or a `session` binding names the other session (rule 30).
- A binding `on: failed` makes no edge, because its session waits for nothing. It may lead back to the session that
  failed; the loop guard limits that (rule 34).
- Cycles and second writers are refused with the full path. Specs are admitted in order of their names, the last good
  specs first (rule 26). Keys are names of sessions, because specs use names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from wakeful.core.looking.patterns import PathTrie, Pattern, intersects, parse_under
from wakeful.core.spec.bindings import SessionBinding
from wakeful.core.spec.session import SessionSpec


@dataclass(slots=True, frozen=True)
class _Placed:
    spec: SessionSpec
    # The read patterns, each with a flag: is stale input allowed?
    reads: tuple[tuple[Pattern, bool], ...]
    writes: tuple[Pattern, ...]
    # The sessions whose failure wakes this one. They do not hold it while they are stuck (rule 31).
    failure_upstreams: frozenset[str]


class Graph:
    def __init__(self) -> None:
        self._placed: dict[str, _Placed] = {}
        self._reads: PathTrie[tuple[Pattern, str]] = PathTrie()
        self._writes: PathTrie[tuple[Pattern, str]] = PathTrie()
        # Sessions removed while running. Their edges stay until the run has ended, but conflict with no spec (rule 26).
        self._leaving: set[str] = set()
        # reader -> {upstream: is stale input allowed}, and upstream -> readers.
        self.upstreams: dict[str, dict[str, bool]] = {}
        self.readers: dict[str, set[str]] = {}
        # session -> sessions that wake when it fails, and do not wait for it.
        self.failure_readers: dict[str, set[str]] = {}
        # `untrusted_readers`: sessions with untrusted text from a binding or `fetch`. `generation` counts all changes
        # of the graph.
        self.untrusted_readers: set[str] = set()
        self.generation = 0
        # (reader, text of a read pattern) -> the sessions that write into it.
        self._feeders: dict[tuple[str, str], set[str]] = {}

    def admit(self, declared: Iterable[SessionSpec], removed: Iterable[str]) -> dict[str, str]:
        """Take in a batch of specs. Return the refusals: name -> reason. A refused session keeps its last good spec."""
        for name in removed:
            self.remove(name)
        batch = sorted((spec for spec in declared if not self._is_placed(spec)), key=lambda spec: spec.name)
        before = {spec.name: self._placed[spec.name].spec for spec in batch if spec.name in self._placed}
        for spec in batch:
            self.place(spec)
        names = [spec.name for spec in batch]
        if not any(map(self._find_second_writer, names)) and not self._has_cycle(names):
            return {}
        return self._admit_in_order(batch, before)

    def _is_placed(self, spec: SessionSpec) -> bool:
        placed = self._placed.get(spec.name)
        return placed is not None and placed.spec == spec and spec.name not in self._leaving

    def _admit_in_order(self, batch: list[SessionSpec], before: dict[str, SessionSpec]) -> dict[str, str]:
        for spec in batch:
            self.remove(spec.name)
        for spec in before.values():
            self.place(spec)
        refused = {}
        for spec in batch:
            self.place(spec)
            conflict = self.find_conflict(spec.name)
            if conflict is None:
                continue
            refused[spec.name] = conflict
            self.remove(spec.name)
            if spec.name in before:
                self.place(before[spec.name])
        return refused

    def place(self, spec: SessionSpec) -> None:
        self.remove(spec.name)
        placed = _place(spec)
        self._placed[spec.name] = placed
        self.generation += 1
        if spec.fetch or any([binding.is_untrusted for binding in spec.bindings]):
            self.untrusted_readers.add(spec.name)
        for pattern, stale_allowed in placed.reads:
            for _, writer in self._writes.meeting(pattern):
                self._feed(writer, spec.name, pattern, stale_allowed)
            self._reads.insert(pattern, (pattern, spec.name))
        for pattern in placed.writes:
            for read, reader in self._reads.meeting(pattern):
                self._feed(spec.name, reader, read, self._is_stale_allowed(reader, read))
            self._writes.insert(pattern, (pattern, spec.name))
        for binding in spec.bindings:
            if not isinstance(binding, SessionBinding):
                continue
            if binding.on == "failed":
                self.failure_readers.setdefault(binding.session, set()).add(spec.name)
            else:
                self._link(binding.session, spec.name, binding.stale_allowed)

    def leave(self, name: str) -> None:
        """Mark a removed session that still runs. It goes on holding its readers, and conflicts with no other spec."""
        if name in self._placed:
            self._leaving.add(name)

    def remove(self, name: str) -> None:
        placed = self._placed.pop(name, None)
        if placed is None:
            return
        self._leaving.discard(name)
        self.untrusted_readers.discard(name)
        self.generation += 1
        for pattern, _ in placed.reads:
            self._reads.remove(pattern, (pattern, name))
            self._feeders.pop((name, pattern.text), None)
        for pattern in placed.writes:
            self._writes.remove(pattern, (pattern, name))
            for read, reader in self._reads.meeting(pattern):
                self._feeders.get((reader, read.text), set()).discard(name)
        for upstream in self.upstreams.pop(name, {}):
            self.readers[upstream].discard(name)
        for upstream in placed.failure_upstreams:
            self.failure_readers.get(upstream, _NOBODY).discard(name)
        for reader in list(self.readers.get(name, ())):
            if not self._names_session(reader, name):
                self.readers[name].discard(reader)
                self.upstreams[reader].pop(name, None)

    def find_conflict(self, name: str) -> str | None:
        conflict = self._find_second_writer(name)
        if conflict is not None:
            return conflict
        cycle = self._find_cycle(name)
        if cycle is None:
            return None
        links = "; ".join(
            f"{reader} reads {self._via(writer, reader)} of {writer}" for writer, reader in itertools.pairwise(cycle)
        )
        return f"a cycle: {' -> '.join(cycle)} ({links}); break it by reading another path or splitting a session"

    def _find_second_writer(self, name: str) -> str | None:
        for pattern in self._placed[name].writes:
            for other_pattern, other in self._writes.meeting(pattern):
                if other != name and other not in self._leaving:
                    return (
                        f"{name} and {other} both write {_shared(pattern, other_pattern)}; one path has one writer: "
                        f"let one of them write elsewhere and the other read it"
                    )
        return None

    def all_upstreams(self, name: str) -> set[str]:
        return _reach(name, lambda one: self.upstreams.get(one, ()))

    def all_readers(self, name: str) -> set[str]:
        return _reach(name, lambda one: self.readers.get(one, ()))

    def find_failure_upstreams(self, name: str) -> frozenset[str]:
        """Return the sessions whose failures wake this one."""
        placed = self._placed.get(name)
        return placed.failure_upstreams if placed is not None else frozenset()

    def list_specs(self) -> Iterator[SessionSpec]:
        return (placed.spec for placed in self._placed.values())

    def feeders(self, name: str, pattern: str) -> set[str]:
        """Return the other sessions that write into this read pattern of `name`."""
        return self._feeders.get((name, pattern), _NOBODY)

    def fed_by(self, spec: SessionSpec) -> list[tuple[str, str]]:
        """List the readers of this spec's outputs, each with the text of its read pattern."""
        return [
            (reader, read.text)
            for written in _place(spec).writes
            for read, reader in self._reads.meeting(written)
            if reader != spec.name
        ]

    def _feed(self, writer: str, reader: str, read: Pattern, stale_allowed: bool) -> None:
        if writer != reader:
            self._link(writer, reader, stale_allowed)
            self._feeders.setdefault((reader, read.text), set()).add(writer)

    def _link(self, writer: str, reader: str, stale_allowed: bool) -> None:
        if writer == reader:
            return
        edges = self.upstreams.setdefault(reader, {})
        # With two bindings on one upstream, the edge allows stale input only if both do. A session that is woken by the
        # upstream's failure always allows it; otherwise it would wait for the end of that failure.
        edges[writer] = writer in self._placed[reader].failure_upstreams or (stale_allowed and edges.get(writer, True))
        self.readers.setdefault(writer, set()).add(reader)

    def _is_stale_allowed(self, reader: str, read: Pattern) -> bool:
        return all(stale for pattern, stale in self._placed[reader].reads if pattern == read)

    def _names_session(self, reader: str, name: str) -> bool:
        placed = self._placed.get(reader)
        return placed is not None and any(
            isinstance(b, SessionBinding) and b.session == name and b.on != "failed" for b in placed.spec.bindings
        )

    def _has_cycle(self, names: list[str]) -> bool:
        """Is any of these sessions part of a cycle? One walk along the readers serves the whole batch."""
        done: set[str] = set()
        for start in names:
            if start in done:
                continue
            path: dict[str, None] = {start: None}
            stack = [iter(self.readers.get(start, ()))]
            while stack:
                reader = next(stack[-1], None)
                if reader is None:
                    stack.pop()
                    done.add(path.popitem()[0])
                elif reader in path:
                    return True
                elif reader not in done:
                    path[reader] = None
                    stack.append(iter(self.readers.get(reader, ())))
        return False

    def _find_cycle(self, start: str) -> list[str] | None:
        """Find a path from `start` along its readers back to itself."""
        came: dict[str, str] = {}
        stack = [start]
        while stack:
            here = stack.pop()
            for reader in sorted(self.readers.get(here, ())):
                if reader == start:
                    return _walk_back(came, here, start)
                if reader not in came:
                    came[reader] = here
                    stack.append(reader)
        return None

    def _via(self, writer: str, reader: str) -> str:
        writes = self._placed[writer].writes if writer in self._placed else ()
        for pattern, _ in self._placed[reader].reads:
            for written in writes:
                if intersects(pattern, written):
                    return written.text
        return "the runs"


_NOBODY: set[str] = set()


def _place(spec: SessionSpec) -> _Placed:
    files = spec.files
    reads = [(binding.pattern, binding.stale_allowed) for binding in files if binding.access != "write"]
    if spec.program is not None:
        reads.append((spec.program, False))
    return _Placed(
        spec,
        tuple([(parse_under(text, spec.root), stale_allowed) for text, stale_allowed in reads]),
        tuple([parse_under(binding.pattern, spec.root) for binding in files if binding.access != "read"]),
        frozenset(
            [one.session for one in spec.bindings if isinstance(one, SessionBinding) and one.counts_failures],
        ),
    )


def _walk_back(came: dict[str, str], last: str, start: str) -> list[str]:
    way = [start]
    while last != start:
        way.append(last)
        last = came[last]
    return [start, *reversed(way)]


def _reach(start: str, neighbours: Callable[[str], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    stack = [start]
    while stack:
        for other in neighbours(stack.pop()):
            if other not in found:
                found.add(other)
                stack.append(other)
    return found


def _shared(one: Pattern, other: Pattern) -> str:
    return one.text if one.text == other.text else f"{one.text} and {other.text}, which meet"
