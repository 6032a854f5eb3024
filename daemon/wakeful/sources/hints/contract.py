"""The contract of a watcher of folders: it gives hints, never the truth.

The file source arms exactly the folders that its pruned walks found, and is told, in batches, where something may have
changed. An implementation may report too much, late or twice. It may not hide that it missed something: then it reports
`Lost`. It never looks at contents, never walks, and does not know what a path means to a target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct


class Dirty(Struct, frozen=True):
    """Something may have changed in this folder: these names, or (None) any.

    `folders` are those of the names that are or were folders themselves; None where the implementation cannot tell.
    `unwritten` are those of which no write was reported: their attributes changed, or somebody closed them.
    None: it cannot tell.
    """

    folder: str
    names: tuple[str, ...] | None
    folders: tuple[str, ...] | None = None
    unwritten: tuple[str, ...] | None = None


class Gone(Struct, frozen=True):
    """The folder was removed, moved away or unmounted: its watch is dead, whatever stands at its path now."""

    folder: str


class Lost(Struct, frozen=True):
    """Hints were dropped: everything may have changed. `why` says it in words for the operator."""

    why: str


# Reasons of `arm` that mean there is nothing to watch, as opposed to something that cannot be watched.
NOT_THERE = "not there"
NOT_A_FOLDER = "not a folder"

Dirt = Dirty | Gone | Lost
# One call per batch of events, always on the loop, so that one batch becomes one observation (rule 10).
Report = Callable[[tuple[Dirt, ...]], None]


class Hints(Protocol):
    """Watches single folders, not trees. `arm` and `disarm` may be called from any thread; reports come on the loop."""

    @property
    def degraded(self) -> str | None:
        """`polling: ...` where hints arrive late by nature, else None; shown by `show` for every binding."""
        ...

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        """Watch exactly these folders from now on. Returns those that could not be, each with the reason in words.

        Arming twice is harmless. A change that happens after `arm` returned is reported, or `Lost` is.
        """
        ...

    def disarm(self, folders: Iterable[str]) -> None:
        """Watch these no longer; unknown ones are ignored."""
        ...

    def hear(self) -> None:
        """Report the queued events at once, also those of files that are still being written.

        Does nothing where there is no queue.
        """
        ...

    def close(self) -> None:
        """Stop for good. Nothing is reported afterwards."""
        ...


# Makes a watcher. The watcher needs somebody to report to before it exists.
MakeHints = Callable[[asyncio.AbstractEventLoop, Report], Hints]
