"""Keeps the declarations read: hints on their folders, a short quiet after an editor's steps, and a slow poll beneath.

Wiring constructs it; the daemon calls `read` at start and on SIGHUP and runs `keep` beside everything else. What a
reading found and how it differs is for `Declarations`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from wakeful.sources.declarations import Declarations
from wakeful.sources.hints.contract import Dirt, Dirty, MakeHints

SETTLE_SECONDS = 0.05


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
        # Known before anything was read, so that most starts read once.
        self._folders: set[str] = set()
        self._arm({self._specs, os.path.dirname(self._specs)})

    def read(self) -> None:
        """Arm, then read: what is saved in between gives a hint."""
        self._reading = None
        self._declarations.read()
        folders = set(self._declarations.folders())
        if folders != self._folders:
            is_unheard = not folders <= self._folders
            self._arm(folders)
            if is_unheard:
                self._declarations.read()

    def report_again(self, name: str) -> None:
        self._declarations.report_again(name)

    async def keep(self) -> None:
        """Hints tell sooner; the poll is for folders that cannot be watched."""
        while True:
            await asyncio.to_thread(self._save)
            await asyncio.sleep(self._declarations.poll_seconds)
            self.read()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._hints.close()

    def _arm(self, folders: set[str]) -> None:
        self._hints.disarm(self._folders - folders)
        self._hints.arm(folders)
        self._folders = folders

    def _hear(self, batch: tuple[Dirt, ...]) -> None:
        """An editor saves in several steps: read when it has been quiet for a moment, at most once per moment."""
        if self._reading is None and any(self._is_about_specs(dirt) for dirt in batch):
            self._reading = self._loop.call_later(SETTLE_SECONDS, self.read)

    def _is_about_specs(self, dirt: Dirt) -> bool:
        """Beside sessions.d/ runs may write as often as they like: a reading costs a stat for each of 10,000 files."""
        if not isinstance(dirt, Dirty) or dirt.names is None:
            return True
        if f"{dirt.folder}/".startswith(f"{self._specs}/") or not self._names.isdisjoint(dirt.names):
            return True
        return any(self._declarations.is_news(dirt.folder, name) for name in dirt.names)
