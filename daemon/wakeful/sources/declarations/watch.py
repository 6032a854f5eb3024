"""Keeps the declarations read: hints on their folders, a short quiet after an editor's steps, and a slow poll beneath.

Wiring constructs it; the daemon calls `read` at start and on SIGHUP and runs `keep` beside everything else. What a
reading found and how it differs is for `Declarations`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from wakeful.sources.declarations.declarations import LEAST_POLL_SECONDS, Declarations
from wakeful.sources.hints.contract import NOT_A_FOLDER, NOT_THERE, Dirt, Dirty, Gone, MakeHints

SETTLE_SECONDS = 0.05
# A folder that comes and goes while it is armed is left to the next hint, or poll, after this many turns.
_ARMING_TURNS = 4


class DeclarationsWatch:
    """`specs` is the folder of specs, `settings_name` the file of settings beside it; `save` keeps what was parsed."""

    def __init__(
        self,
        declarations: Declarations,
        loop: asyncio.AbstractEventLoop,
        make_hints: MakeHints,
        specs: str,
        settings_name: str,
        save: Callable[[], None],
    ) -> None:
        self._declarations = declarations
        self._loop = loop
        self._specs = os.path.abspath(specs)
        self._names = {settings_name, os.path.basename(self._specs)}
        self._save = save
        self._reading: asyncio.TimerHandle | None = None
        self._hints = make_hints(loop, self._hear)
        self._folders: set[str] = set()
        # Where a folder is missing: the nearest one above it that is there -> the names by which it may come back.
        self._awaited: dict[str, set[str]] = {}
        self._read_at = 0.0
        # Known before anything was read, so that most starts read once.
        self._arm({self._specs, os.path.dirname(self._specs)})

    def read(self) -> None:
        """Arm, then read: what is saved in between gives a hint."""
        self._reading = None
        for _ in range(_ARMING_TURNS):
            self._declarations.read()
            if not self._arm({self._specs, *self._declarations.folders()}):
                break
        self._read_at = self._loop.time()

    def report_again(self, name: str) -> None:
        self._declarations.report_again(name)

    async def keep(self) -> None:
        """Hints tell sooner; the poll is for folders that cannot be watched."""
        while True:
            await asyncio.to_thread(self._save)
            # Compared again and again: a reading since then may have found that the next must come soon.
            while self._loop.time() < self._read_at + self._poll_seconds:  # noqa: ASYNC110 - see above
                await asyncio.sleep(min(LEAST_POLL_SECONDS, self._poll_seconds))
            self.read()

    @property
    def _poll_seconds(self) -> float:
        return LEAST_POLL_SECONDS if self._awaited else self._declarations.poll_seconds

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._hints.close()

    def _arm(self, folders: set[str]) -> bool:
        """Watch these, and where one is missing the place at which it may come back;
        whether any of them was not watched before."""
        refused = self._hints.arm(folders)
        missing = [folder for folder, reason in refused.items() if reason in (NOT_THERE, NOT_A_FOLDER)]
        awaited: dict[str, set[str]] = {}
        for folder in missing:
            above, name = _find_above(folder)
            awaited.setdefault(above, set()).add(name)
        self._hints.arm(awaited.keys() - folders)
        watched = (folders - set(missing)) | awaited.keys()
        is_unheard = not watched <= self._folders
        self._hints.disarm(self._folders - watched)
        self._folders, self._awaited = watched, awaited
        return is_unheard

    def _hear(self, batch: tuple[Dirt, ...]) -> None:
        """An editor saves in several steps: read when it has been quiet for a moment, at most once per moment."""
        for dirt in batch:
            if isinstance(dirt, Gone):
                # Its watch is dead, whatever stands at its path by now: the reading arms it again.
                self._folders.discard(dirt.folder)
        if self._reading is None and any(self._is_about_specs(dirt) for dirt in batch):
            self._reading = self._loop.call_later(SETTLE_SECONDS, self.read)

    def _is_about_specs(self, dirt: Dirt) -> bool:
        """Beside sessions.d/ runs may write as often as they like: a reading costs a stat for each of 10,000 files."""
        if not isinstance(dirt, Dirty) or dirt.names is None:
            return True
        if not self._awaited.get(dirt.folder, set()).isdisjoint(dirt.names):
            return True
        if f"{dirt.folder}/".startswith(f"{self._specs}/") or not self._names.isdisjoint(dirt.names):
            return True
        return any(self._declarations.is_news(dirt.folder, name) for name in dirt.names)


def _find_above(folder: str) -> tuple[str, str]:
    """The nearest folder above a missing one that is there,
    and the name below it by which the missing one would come."""
    while not os.path.isdir(above := os.path.dirname(folder)) and above != folder:
        folder = above
    return above, os.path.basename(folder)
