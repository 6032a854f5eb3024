"""Records which run writes where and when, so that one run's declared writes are not reported as another's undeclared
changes.

`LiveRun` registers a run from its start to its end, and `Landing` while it puts outputs in place; `find_undeclared`
asks. A change belongs to another run only if that run declares the path and was active at the change's time stamp. A
change to the files of an inactive session is therefore still reported. If two runs write at the same time, the change
is attributed to the run that declares the path.
"""

from __future__ import annotations

import os
import time
from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.patterns import Pattern, parse_under

# CLOCK_REALTIME_COARSE, the clock of file systems' time stamps: up to a tick behind the precise clock. Since Linux 6.13
# some stamps are precise, so a writer's period begins by this clock and ends by the precise one.
COARSE_CLOCK = 5
# The most ended writers that are remembered. A forgotten one can cause an extra report, never a missing one.
_REMEMBERED = 1000


class Change(Struct, frozen=True):
    """A path, and the time of its change. None if it was removed, because a removal leaves no time stamp."""

    path: str
    at: int | None


class Writer(Struct, frozen=True):
    """The places that a run declares to write, and its period. `until` is None while the run is active."""

    root: str
    writes: tuple[str, ...]
    allowed: tuple[str, ...]
    since: int
    until: int | None = None

    def leave(self, changes: list[Change]) -> list[Change]:
        """Return the changes that this writer did not make."""
        declared = list_declared(self.root, self.writes, self.allowed)
        return [
            change
            for change in changes
            if not (self._could(change.at) and any(pattern.matches(change.path) for pattern in declared))
        ]

    def _could(self, at: int | None) -> bool:
        return at is None or (self.since <= at and (self.until is None or at <= self.until))


class Writers:
    """All writers of one daemon. Called on the loop; the result of `besides` may be passed to a thread."""

    def __init__(self) -> None:
        self._writing: dict[str, Writer] = {}
        self._ended: deque[Writer] = deque(maxlen=_REMEMBERED)

    def begin(
        self, run_id: str, root: str, writes: tuple[str, ...], allowed: tuple[str, ...], ago_seconds: float = 0.0
    ) -> None:
        """Register a run that writes. `ago_seconds`: time since its start, if an earlier daemon started it."""
        since = time.clock_gettime_ns(COARSE_CLOCK) - int(ago_seconds * 1e9)
        self._writing[run_id] = Writer(root, writes, allowed, since)

    def end(self, run_id: str) -> None:
        """End a run's period. Safe to repeat, and safe for a run that was never registered."""
        if (writer := self._writing.pop(run_id, None)) is not None:
            self._ended.append(replace(writer, until=time.time_ns()))

    def besides(self, run_id: str) -> tuple[Writer, ...]:
        """Return the other writers that were active during this run."""
        since = self._writing[run_id].since
        living = (writer for other, writer in self._writing.items() if other != run_id)
        return (*living, *(writer for writer in self._ended if writer.until is not None and writer.until >= since))


def list_declared(root: str, writes: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[Pattern, ...]:
    """List the patterns that a run may write, as the spec spells them and with the links of their folders resolved.

    Resolved ones are needed because the survey of a folder reports real paths.
    """
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
