"""Reads the declarations again when they change: on hints about their folders, and by a slow poll.

After a hint it waits a short time, because an editor saves in several steps. The wiring constructs it. The daemon takes
the first reading at its start, asks for one on SIGHUP, and runs `keep` as a task. Files are read in a thread, because
10,000 files take seconds to parse and 0.1 s to stat. `Declarations` compares the readings.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from wakeful.sources.declarations.declarations import LEAST_POLL_SECONDS, Declarations, Reading
from wakeful.sources.hints.contract import NOT_A_FOLDER, NOT_THERE, Dirt, Dirty, Gone, MakeHints

SETTLE_SECONDS = 0.05
# The most attempts to watch a folder that appears and vanishes meanwhile. Then the next hint or poll handles it.
_ARMING_TURNS = 4


class DeclarationsWatch:
    """`specs` is the folder of specs, `settings_name` the settings file next to it. `save` stores what was parsed."""

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
        self._due: asyncio.TimerHandle | None = None
        # The task that makes one reading after another, and the future of the callers that asked since the present
        # reading began.
        self._readings: asyncio.Task[None] | None = None
        self._asked: asyncio.Future[None] | None = None
        # A file was renamed since the present reading began, so its result is out of date.
        self._is_outdated = False
        # The reading under way that a hint began.
        self.hinted: asyncio.Future[None] | None = None
        # True after the first reading was taken. A hint before that asks for one more reading, and does not begin one.
        self._has_begun = False
        self._is_hinted_early = False
        self._hints = make_hints(loop, self._hear)
        self._folders: set[str] = set()
        # By the nearest existing folder above a missing folder: the names by which the missing folder may come back.
        self._awaited: dict[str, set[str]] = {}
        self._read_at = 0.0
        # These folders are known before the first reading, so that most starts read only once.
        self._arm({self._specs, os.path.dirname(self._specs)})

    async def look(self) -> Reading:
        """Read the files, in a thread, for `take`."""
        return await asyncio.to_thread(self._declarations.look)

    def take(self, reading: Reading) -> bool:
        """Report the differences. Returns True if another reading must follow, because a folder was first watched after
        it was read.
        """
        self._declarations.take(reading)
        self._read_at = self._loop.time()
        is_new = self._arm({self._specs, *self._declarations.folders()})
        is_late = self._is_hinted_early
        self._has_begun, self._is_hinted_early = True, False
        return is_new or is_late

    def read(self) -> Awaitable[None]:
        """Begin a reading now, or after the one under way. The result is done when the differences are reported."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._asked is None:
            self._asked = self._loop.create_future()
        asked = self._asked
        if self._readings is None:
            self._readings = self._loop.create_task(self._read_asked(), name="read specs")
        # A caller that stops waiting must not cancel the reading for the other callers.
        return asyncio.shield(asked)

    def outdate(self) -> None:
        """Repeat the reading under way, because a session is being renamed and the reading may have found its
        old file.
        """
        self._is_outdated = self._readings is not None

    async def _read_asked(self) -> None:
        while (asked := self._asked) is not None:
            self._asked = None
            try:
                await self._read_all()
            except asyncio.CancelledError:
                asked.cancel()
                raise
            except Exception as error:
                asked.set_exception(error)
            else:
                asked.set_result(None)
        self._readings = None

    async def _read_all(self) -> None:
        """Watch the folders before they are read again, so that a save in between gives a hint."""
        for _ in range(_ARMING_TURNS):
            reading = await self._look_until_current()
            if not self.take(reading):
                return

    async def _look_until_current(self) -> Reading:
        while True:
            self._is_outdated = False
            reading = await self.look()
            if not self._is_outdated:
                return reading

    def report_again(self, name: str) -> None:
        self._declarations.report_again(name)

    async def keep(self) -> None:
        """Read repeatedly. Hints come sooner; the poll is for folders that cannot be watched."""
        while True:
            await asyncio.to_thread(self._save)
            # Checked in a loop, because a reading in between may have shortened the pause.
            while self._loop.time() < self._read_at + self._poll_seconds:  # noqa: ASYNC110 - see above
                await asyncio.sleep(min(LEAST_POLL_SECONDS, self._poll_seconds))
            await self.read()

    @property
    def _poll_seconds(self) -> float:
        return LEAST_POLL_SECONDS if self._awaited else self._declarations.poll_seconds

    def close(self) -> None:
        if self._due is not None:
            self._due.cancel()
        if self._readings is not None:
            self._readings.cancel()
        self._hints.close()

    def _arm(self, folders: set[str]) -> bool:
        """Watch these folders. For a missing folder, watch the place where it may come back.

        Returns True if one of them was not watched before.
        """
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
        """Schedule a reading after a short time, at most one at once, because an editor saves in several steps."""
        for dirt in batch:
            if isinstance(dirt, Gone):
                # The watch has ended, even if another folder is now at this path. The reading watches it again.
                self._folders.discard(dirt.folder)
        if not any(self._is_about_specs(dirt) for dirt in batch):
            return
        if not self._has_begun:
            self._is_hinted_early = True
        elif self._due is None:
            self._due = self._loop.call_later(SETTLE_SECONDS, self._read_hinted)

    def _read_hinted(self) -> None:
        self._due = None
        self.hinted = asyncio.ensure_future(self.read())
        self.hinted.add_done_callback(self._end_hinted)

    def _end_hinted(self, reading: asyncio.Future[None]) -> None:
        """Report the failure of a reading that a hint began, because no caller waits for it. The poll tries again."""
        if self.hinted is reading:
            self.hinted = None
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self._loop.call_exception_handler({"message": "specs could not be read", "exception": error})

    def _is_about_specs(self, dirt: Dirt) -> bool:
        """Can this change concern a spec?

        Runs may write next to sessions.d/ at any rate, and a reading costs one stat for each of 10,000 files.
        """
        if not isinstance(dirt, Dirty) or dirt.names is None:
            return True
        if not self._awaited.get(dirt.folder, set()).isdisjoint(dirt.names):
            return True
        if f"{dirt.folder}/".startswith(f"{self._specs}/") or not self._names.isdisjoint(dirt.names):
            return True
        return any(self._declarations.is_news(dirt.folder, name) for name in dirt.names)


def _find_above(folder: str) -> tuple[str, str]:
    """Find the nearest existing folder above a missing folder, and the name in it by which the missing folder would
    come back.
    """
    while not os.path.isdir(above := os.path.dirname(folder)) and above != folder:
        folder = above
    return above, os.path.basename(folder)
