"""Finds changes that no binding declares, in the folders that an output opened.

Landlock opens a whole folder so that a file in it can be replaced. Every other change there is reported with the run.
`Preparation` surveys the folders before the run, and `saving` asks at its end, in a thread. Both surveys are bounded.
Changes by other processes at the same time are reported as well, because a folder does not show who made a change. A
change is not reported if another run declares the path and was writing at that time (`writers.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from wakeful.runners.outputs.writers import COARSE_CLOCK, Change, Writer, list_declared

# Limits per folder: names remembered before the run, entries looked at after it, and paths reported.
_REMEMBERED = 500
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

    The last entries are messages if there are more, or may be.
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
        if len(names) > _REMEMBERED:
            return None
    return frozenset(names)


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        # The folder may not be read, or is gone.
        return
