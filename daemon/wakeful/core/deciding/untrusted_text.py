"""The flow of untrusted text: from the sessions that read it, through written files that other sessions may read, to
every session that it reaches.

Called by the rule of two (rule_of_two.py). The result is cached until specs change, or a mailbox gets or loses
untrusted text. If no session reads untrusted text, nothing is computed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from wakeful.core.deciding.graph import Graph
from wakeful.core.looking.granted_places import list_granted_reads, list_granted_writes
from wakeful.core.looking.patterns import parse_under
from wakeful.core.record.state import State
from wakeful.core.spec.session import SessionSpec


@dataclass(slots=True)
class Flow:
    """`sources`: each session that untrusted text reaches -> the session that first read it.
    `feeders`: each session that it reaches -> the sessions that passed it on."""

    sources: dict[str, str] = field(default_factory=dict)
    feeders: dict[str, set[str]] = field(default_factory=dict)


class UntrustedTextFlow:
    """The flow of untrusted text between all sessions, computed when it is asked for."""

    def __init__(self) -> None:
        self._known: tuple[tuple[int, frozenset[str]], Flow] | None = None

    def find(self, graph: Graph, state: State) -> Flow:
        # The usual case: no session reads untrusted text.
        if not state.spoken_to and not graph.labelled:
            return _NOTHING
        key = graph.generation, frozenset(state.spoken_to)
        if self._known is None or self._known[0] != key:
            self._known = key, _trace(graph, [state.get(one).name for one in key[1]])
        return self._known[1]


class _Readers:
    """Finds the sessions that may read a place, a folder above it, or a path in it."""

    def __init__(self, specs: Iterable[SessionSpec]) -> None:
        self._names: dict[str, list[str]] = {}
        for spec in specs:
            for one in list_granted_reads(spec):
                # An unconfined session may read `/`, so all untrusted text would reach it.
                # Only its declared reads count here.
                if one.path != "/":
                    self._names.setdefault(one.path, []).append(spec.name)
        self._paths = sorted(self._names)

    def find(self, place: str) -> Iterator[str]:
        above = place
        while above not in ("/", ""):
            yield from self._names.get(above, ())
            above = above.rpartition("/")[0]
        for path in self._paths[bisect_left(self._paths, f"{place}/") :]:
            if not path.startswith(f"{place}/"):
                break
            yield from self._names[path]


def _trace(graph: Graph, spoken_to: list[str]) -> Flow:
    flow, specs = Flow(), {spec.name: spec for spec in graph.list_specs()}
    readers = _Readers(specs.values())
    ahead = deque[tuple[str, str]]()
    for name in sorted({*graph.labelled, *spoken_to}):
        ahead.append((name, name))
        # Strangers write these files, so all sessions that may read them are reached, whichever spec declares them.
        for binding in specs[name].files if name in specs else ():
            if binding.is_untrusted:
                _hand_on(flow, ahead, name, name, readers.find(parse_under(binding.pattern, specs[name].root).base))
    done: set[str] = set()
    while ahead:
        name, source = ahead.popleft()
        if name in done:
            continue
        done.add(name)
        _hand_on(flow, ahead, name, source, graph.readers.get(name, ()))
        # The reason of a failure reaches the session that is woken by it.
        _hand_on(flow, ahead, name, source, graph.listeners.get(name, ()))
        for place in list_granted_writes(specs[name]) if name in specs else ():
            _hand_on(flow, ahead, name, source, readers.find(place.path))
    return flow


def _hand_on(flow: Flow, ahead: deque[tuple[str, str]], name: str, source: str, readers: Iterable[str]) -> None:
    for reader in readers:
        if reader != name:
            flow.sources.setdefault(reader, source)
            flow.feeders.setdefault(reader, set()).add(name)
            ahead.append((reader, source))


_NOTHING = Flow()
