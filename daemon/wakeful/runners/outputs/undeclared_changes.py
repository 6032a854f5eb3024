"""Finds changes that no binding declares, in the folders that an output opened.

Landlock opens a whole folder so that a file in it can be replaced. Every other change there is reported with the run.
`Preparation` surveys the folders before the run, and `run_results` surveys them again at its end, in a thread. Both
surveys are bounded.

A folder does not show who made a change, so `Writers` records which run writes where and when. `LiveRun` registers a
run from its start to its end, and `Landing` registers a run while it puts the run's outputs in place. A change belongs
to another run only if that run declares the path and was active at the change's time stamp. A change to the files of
an inactive session is therefore still reported, and so are changes by other processes at the same time.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.patterns import Pattern, parse_under

# CLOCK_REALTIME_COARSE, the clock of file systems' time stamps: up to a tick behind the precise clock. Since Linux 6.13
# some stamps are precise, so a writer's period begins by this clock and ends by the precise clock.
COARSE_CLOCK = 5
# The most ended writers that are remembered. A forgotten writer can cause an extra report, but never hides a change.
_WRITERS_REMEMBERED = 1000


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
        """Return the changes that this writer cannot have made."""
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
        self._ended: deque[Writer] = deque(maxlen=_WRITERS_REMEMBERED)

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

    Resolved patterns are needed because the survey of a folder reports real paths.
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


# Limits per folder: names remembered before the run, entries looked at after it, and paths reported.
_NAMES_REMEMBERED = 500
_LOOKED_AT = 1000
_TOLD = 20
_PASSED_OVER = "__pycache__"


class Surveyed(Struct, frozen=True):
    """A folder before the run: the time by the file systems' clock, and the names in it (None if too many)."""

    folder: str
    at: int
    names: frozenset[str] | None
    # The daemon's own places, which are protected by other means.
    guarded: tuple[str, ...]


def survey(folders: Iterable[str], guarded: tuple[str, ...]) -> tuple[Surveyed, ...]:
    now = time.clock_gettime_ns(COARSE_CLOCK)
    return tuple(Surveyed(folder, now, _list_names(folder), guarded) for folder in folders)


def find_undeclared(
    surveyed: tuple[Surveyed, ...],
    root: str,
    writes: tuple[str, ...],
    allowed: tuple[str, ...],
    others: tuple[Writer, ...] = (),
) -> tuple[str, ...]:
    """List undeclared changes, relative to root if they lie in it. Blocking.

    The last entries are messages if there are more changes than listed, or if there may be more.
    """
    declared = list_declared(root, writes, allowed)
    found: dict[str, None] = {}
    is_bounded = False
    for one in surveyed:
        changes, was_cut = _look(one)
        is_bounded = is_bounded or was_cut
        changes = [change for change in changes if not any(pattern.matches(change.path) for pattern in declared)]
        for other in others:
            changes = other.leave(changes) if changes else changes
        found.update((change.path, None) for change in changes)
    told = [os.path.relpath(path, root) if path.startswith(f"{root}/") else path for path in sorted(found)]
    if len(told) > _TOLD:
        told = [*told[:_TOLD], f"and {len(told) - _TOLD} more"]
    return (*told, "not everything was checked: too many files") if is_bounded else tuple(told)


def _look(one: Surveyed) -> tuple[list[Change], bool]:
    """Find the changes in a folder. The second value is True if the limits may have hidden some."""
    changed: list[Change] = []
    seen, left = set[str](), _LOOKED_AT
    ahead = [one.folder]
    while ahead:
        folder = ahead.pop(0)
        for entry in _scan(folder):
            left -= 1
            if left < 0:
                return changed, True
            if folder == one.folder:
                seen.add(entry.name)
            if entry.name == _PASSED_OVER or entry.path in one.guarded:
                continue
            try:
                found = entry.stat(follow_symlinks=False)
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            if is_folder:
                ahead.append(entry.path)
            elif found.st_ctime_ns >= one.at:
                changed.append(Change(entry.path, found.st_ctime_ns))
    gone = () if one.names is None else sorted(one.names - seen)
    return changed + [Change(f"{one.folder}/{name}", None) for name in gone], one.names is None


def _list_names(folder: str) -> frozenset[str] | None:
    names = []
    for entry in _scan(folder):
        names.append(entry.name)
        if len(names) > _NAMES_REMEMBERED:
            return None
    return frozenset(names)


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        # The folder may not be read, or is gone.
        return
