"""Records which run writes where and when: a run's declared writes are no undeclared changes of its neighbour.

`LiveRun` notes itself from its start to its end, `Landing` while it puts outputs in place; `find_undeclared` asks. A
change belongs to another run only if that run declares the path and the file system's stamp lies in its time. A change
to the files of a neighbour that rests is therefore still reported. If two runs write at the same time, nobody can tell
which one it was; the run that declares the path gets the change.
"""

from __future__ import annotations

import os
import time
from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.patterns import Pattern, parse_under

# CLOCK_REALTIME_COARSE, by which file systems stamp: up to a tick behind the precise clock. Since Linux 6.13 some
# stamps are precise, so a time begins by this clock and ends by the other.
COARSE_CLOCK = 5
# So many ended writers are remembered. A forgotten writer causes a report too many, never a missing one.
_REMEMBERED = 1000


class Change(Struct, frozen=True):
    """A path, and when the file system says it changed; None where it was removed, which leaves no stamp."""

    path: str
    at: int | None


class Writer(Struct, frozen=True):
    """The places a run declares to write, and when it could: `until` is None while it can."""

    root: str
    writes: tuple[str, ...]
    allowed: tuple[str, ...]
    since: int
    until: int | None = None

    def leave(self, changes: list[Change]) -> list[Change]:
        """The changes that are not its own."""
        declared = list_declared(self.root, self.writes, self.allowed)
        return [
            change
            for change in changes
            if not (self._could(change.at) and any(pattern.matches(change.path) for pattern in declared))
        ]

    def _could(self, at: int | None) -> bool:
        return at is None or (self.since <= at and (self.until is None or at <= self.until))


class Writers:
    """All of one daemon. On the loop; what `besides` returns may be taken to a thread."""

    def __init__(self) -> None:
        self._writing: dict[str, Writer] = {}
        self._ended: deque[Writer] = deque(maxlen=_REMEMBERED)

    def begin(
        self, run_id: str, root: str, writes: tuple[str, ...], allowed: tuple[str, ...], ago_seconds: float = 0.0
    ) -> None:
        """`ago_seconds`: it began so long ago, under an earlier daemon."""
        since = time.clock_gettime_ns(COARSE_CLOCK) - int(ago_seconds * 1e9)
        self._writing[run_id] = Writer(root, writes, allowed, since)

    def end(self, run_id: str) -> None:
        """Safe to repeat, and for one that never began here."""
        if (writer := self._writing.pop(run_id, None)) is not None:
            self._ended.append(replace(writer, until=time.time_ns()))

    def besides(self, run_id: str) -> tuple[Writer, ...]:
        """The writers that were active while this run was."""
        since = self._writing[run_id].since
        living = (writer for other, writer in self._writing.items() if other != run_id)
        return (*living, *(writer for writer in self._ended if writer.until is not None and writer.until >= since))


def list_declared(root: str, writes: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[Pattern, ...]:
    """List the patterns that a run may write, as the spec spells them and with the links of their folders resolved.

    The survey of a folder reports real paths."""
    named = [parse_under(text, root) for text in writes] + [
        Pattern.literal(os.path.join(root, place)) for place in allowed
    ]
    return (
        *named,
        *(
            Pattern.literal(real)
            for pattern in named
            if pattern.is_literal and (real := _resolve(pattern.base)) != pattern.base
        ),
    )


def _resolve(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)
