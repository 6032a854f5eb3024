"""The contract of a watcher of folders. A watcher gives hints, and a hint may be wrong.

The file source watches exactly the folders that its pruned walks found, and gets batches of places where something may
have changed. A watcher may report too much, late or twice. If it missed something, it must report `Lost`. It never
reads contents, never walks, and does not know what a path means to a target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct


class Dirty(Struct, frozen=True):
    """Something may have changed in this folder: these names, or any name if `names` is None.

    `folders` holds the names that are or were folders, None if that is unknown. `unwritten` holds the names without a
    reported write, whose attributes changed or which were closed. None if that is unknown.
    """

    folder: str
    names: tuple[str, ...] | None
    folders: tuple[str, ...] | None = None
    unwritten: tuple[str, ...] | None = None


class Gone(Struct, frozen=True):
    """The folder was removed, moved away or unmounted.

    Its watch has ended, even if something else is now at its path.
    """

    folder: str


class Lost(Struct, frozen=True):
    """Hints were dropped, so everything may have changed. `why` is the reason, for the operator."""

    why: str


# Reasons of `arm` that mean that there is no folder to watch. Other reasons mean that the folder cannot be watched.
NOT_THERE = "not there"
NOT_A_FOLDER = "not a folder"

Dirt = Dirty | Gone | Lost
# Called on the loop, once per batch of events, so that one batch becomes one observation (rule 10).
Report = Callable[[tuple[Dirt, ...]], None]


class Hints(Protocol):
    """Watches single folders, not trees.

    `arm` and `disarm` may be called from any thread. Reports arrive on the loop.
    """

    @property
    def degraded(self) -> str | None:
        """`polling: …` if hints always arrive late, else None. `show` displays it for every binding."""
        ...

    def arm(self, folders: Iterable[str]) -> dict[str, str]:
        """Watch exactly these folders from now on. Returns the folders that could not be watched, each with the reason.

        Watching a folder twice is harmless. After `arm` returned, every change is reported, or `Lost` is.
        """
        ...

    def disarm(self, folders: Iterable[str]) -> None:
        """Stop watching these folders. Unknown folders are ignored."""
        ...

    def hear(self) -> None:
        """Report the queued events at once, including those of files that are still being written.

        Does nothing if there is no queue.
        """
        ...

    def close(self) -> None:
        """Stop for good. Nothing is reported afterwards."""
        ...


# Makes a watcher. The watcher gets its report function when it is made.
MakeHints = Callable[[asyncio.AbstractEventLoop, Report], Hints]
