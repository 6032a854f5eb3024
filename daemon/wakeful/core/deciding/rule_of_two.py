"""The rule of two: a run has at most two of private reads (secrets among them), untrusted input and a way out.

A spec that asks for all three itself is refused when it is read. This module judges what comes through other sessions:
files that they write and this session may read, and messages. A session that would have all three this way asks a
person before it runs. Called by the verdict on a start and by `send`. Nothing here reads the text itself.
`UntrustedTextFlow` knows which sessions untrusted text reaches. Its result is cached until specs change, or a mailbox
gets or loses untrusted text. If no session reads untrusted text, nothing is computed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from wakeful.core.deciding.graph import Graph
from wakeful.core.looking.granted_places import find_private, list_granted_reads, list_granted_writes
from wakeful.core.looking.patterns import parse_under
from wakeful.core.record.state import Session, State
from wakeful.core.spec.session import SessionSpec


def find_way_out(spec: SessionSpec) -> str | None:
    """Say how a run could carry data out of its project. None if it cannot."""
    if not spec.confinement.is_enforced:
        return f"isolation: {spec.confinement.level}"
    if spec.confinement.network:
        return "network"
    if spec.fetch:
        return "fetch"
    outside = [path for path in (*spec.written_patterns, *spec.confinement.allow_write) if _leads_out(path, spec.root)]
    return f"writes {outside[0]}" if outside else None


def _leads_out(path: str, root: str) -> bool:
    """Is this path outside of root? A path that contains `..` or starts with `~` counts as outside."""
    return (
        ".." in path
        or path.startswith("~")
        or (path.startswith("/") and not f"{path}/".startswith(f"{root.rstrip('/')}/"))
    )


def find_untrusted_binding(spec: SessionSpec) -> str | None:
    """Return the name of a binding with untrusted text, or `fetch`, because strangers write web pages. None if the spec
    has neither."""
    return next((binding.name for binding in spec.bindings if binding.is_untrusted), "fetch" if spec.fetch else None)


def find_untrusted_source(untrusted_text: UntrustedTextFlow, session: Session) -> str | None:
    """Return the session through which untrusted text reaches this one, or itself if its own bindings are untrusted.

    None if no untrusted text reaches it. The mark of a message stays until a person has reviewed the session, because
    its text may be in files, facts and the hand-off by now.
    """
    if session.spec is not None and find_untrusted_binding(session.spec) is not None:
        return session.name
    if session.mailbox.untrusted_by is not None:
        return session.mailbox.untrusted_by
    return untrusted_text.find().sources.get(session.name)


def find_rule_of_two_breach(untrusted_text: UntrustedTextFlow, session: Session) -> str | None:
    """Say why a person must be asked before this session runs. None if it has at most two of the three."""
    spec = session.spec
    way_out = find_way_out(spec) if spec is not None else None
    # The usual case: there is no way out.
    if spec is None or way_out is None:
        return None
    for member in _list_with_feeders(untrusted_text, session):
        source = find_untrusted_source(untrusted_text, member)
        # A session without untrusted text is skipped: no stranger could tell it what to do with its private data.
        private = find_private(member.spec) if source is not None and member.spec is not None else None
        if private is not None:
            told = ", ".join(
                private.items if member is session else (f"{one} of {member.name}" for one in private.items)
            )
            reached = (
                "it reads untrusted text" if source == session.name else f"untrusted text reaches it through {source}"
            )
            return f"{reached}; {private.kind}: {told}; way out: {way_out}"
    return None


def _list_with_feeders(untrusted_text: UntrustedTextFlow, session: Session) -> list[Session]:
    """List the session, then all sessions from which untrusted text reaches it, by files or by messages.

    The private data of each of these sessions can come with that text.
    """
    feeders = untrusted_text.find().feeders
    found: dict[str, Session] = {}
    ahead = [session.name]
    while ahead:
        name = ahead.pop(0)
        if name in found or name not in untrusted_text.state.ids:
            continue
        # Use the value that the caller passed, which may have another spec than the one in the state.
        found[name] = member = session if name == session.name else untrusted_text.state.by_name(name)
        ahead += sorted(feeders.get(name, ()))
        if member.mailbox.untrusted_by is not None:
            ahead.append(member.mailbox.untrusted_by)
    return list(found.values())


@dataclass(slots=True)
class Flow:
    """`sources`: each session that untrusted text reaches -> the session that first read it.
    `feeders`: each session that it reaches -> the sessions that passed it on."""

    sources: dict[str, str] = field(default_factory=dict)
    feeders: dict[str, set[str]] = field(default_factory=dict)


class UntrustedTextFlow:
    """The flow of untrusted text between all sessions, through files that one writes and another may read."""

    def __init__(self, graph: Graph, state: State) -> None:
        self._graph, self.state = graph, state
        self._known: tuple[tuple[int, frozenset[str]], Flow] | None = None

    def find(self) -> Flow:
        graph, state = self._graph, self.state
        # The usual case: no session reads untrusted text.
        if not state.untrusted_mailboxes and not graph.untrusted_readers:
            return _NOTHING
        key = graph.generation, frozenset(state.untrusted_mailboxes)
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


def _trace(graph: Graph, untrusted_mailboxes: list[str]) -> Flow:
    flow, specs = Flow(), {spec.name: spec for spec in graph.list_specs()}
    readers = _Readers(specs.values())
    ahead = deque[tuple[str, str]]()
    for name in sorted({*graph.untrusted_readers, *untrusted_mailboxes}):
        ahead.append((name, name))
        # Strangers write these files, so all sessions that may read them are reached, whichever spec declares them.
        for binding in specs[name].files if name in specs else ():
            if binding.is_untrusted:
                _pass_on(flow, ahead, name, name, readers.find(parse_under(binding.pattern, specs[name].root).base))
    done: set[str] = set()
    while ahead:
        name, source = ahead.popleft()
        if name in done:
            continue
        done.add(name)
        _pass_on(flow, ahead, name, source, graph.readers.get(name, ()))
        # The reason of a failure reaches the session that is woken by it.
        _pass_on(flow, ahead, name, source, graph.failure_readers.get(name, ()))
        for place in list_granted_writes(specs[name]) if name in specs else ():
            _pass_on(flow, ahead, name, source, readers.find(place.path))
    return flow


def _pass_on(flow: Flow, ahead: deque[tuple[str, str]], name: str, source: str, readers: Iterable[str]) -> None:
    for reader in readers:
        if reader != name:
            flow.sources.setdefault(reader, source)
            flow.feeders.setdefault(reader, set()).add(name)
            ahead.append((reader, source))


_NOTHING = Flow()
