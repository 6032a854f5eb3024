"""Finds changes that no binding declares, in the folders that an output opened.

Landlock opens a whole folder so that a file in it can be replaced. Every other change there is reported with the run,
never hidden. `Preparation` surveys the folders before the run, `saving` asks at its end, in a thread. Both surveys are
bounded. Somebody else's change at the same time is reported as well, because the folder does not tell who made it. A
change is not reported if another run declares the path and was writing at that time (`writers.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from wakeful.runners.outputs.writers import COARSE_CLOCK, Change, Writer, list_declared

# Of one folder: so many names are remembered, so many entries below it looked at, so many told.
_REMEMBERED = 500
_LOOKED_AT = 1000
_TOLD = 20
_PASSED_OVER = "__pycache__"


class Surveyed(Struct, frozen=True):
    """A folder before the run: when that was, by the clock that file systems use,
    and the names in it (None: too many)."""

    folder: str
    at: int
    names: frozenset[str] | None
    # Places of the daemon in it: watched over by other means.
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
    """Blocks. Paths relative to root where they lie in it; the last word says if there may be more."""
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
        return (*told[:_TOLD], f"and {len(told) - _TOLD} more")
    return (*told, "not all was looked at: too many files") if is_bounded else tuple(told)


def _look(one: Surveyed) -> tuple[list[Change], bool]:
    """The changes in a folder, and whether there was too much in it to know all."""
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
        # Not ours to look into, or gone.
        return
