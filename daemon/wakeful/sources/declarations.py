"""The declarations as a source: sessions.d/, its agents and wakeful.yaml, read again when they change.

The wiring passes a reader (trust/spec_reader.py) to `Declarations`, and `Declarations` to `DeclarationsWatch`. The
watch asks for a reading on a hint, on SIGHUP and by a slow poll. After a hint it waits a short time, because an editor
saves in several steps. Files are read in a thread, because 10,000 files take seconds to parse and 0.1 s to stat. The
differences between two readings are reported on the loop as one batch (rule 26). Nothing here decides about sessions.
If a file can no longer be read, its last good spec is kept.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from wakeful.core.record.observations import AgentsRead, Declaration, SettingsRead, SpecsRead
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import Settings, is_refused
from wakeful.sources.hints.contract import NOT_A_FOLDER, NOT_THERE, Dirt, Dirty, Gone, MakeHints

LEAST_POLL_SECONDS = 2.0
# The most that polling may cost, as a share of one core. Polling is only a safety net for lost hints.
POLL_SHARE = 0.001
# The longest reading that the poll interval takes into account. The first reading parses everything and is longer. The
# second one, a moment later, shows the real cost of a poll.
LONGEST_COST_SECONDS = 0.2

DeclarationsReport = Callable[[SpecsRead | SettingsRead | AgentsRead], None]


class Reading(Protocol):
    """Everything that is declared at one reading.

    `refused` is keyed by session name, `agents/<name>` or `wakeful.yaml`.
    """

    @property
    def settings(self) -> Settings: ...
    @property
    def declared(self) -> Mapping[str, Declaration]: ...
    @property
    def refused(self) -> Mapping[str, str]: ...
    @property
    def folders(self) -> tuple[str, ...]: ...
    @property
    def agents(self) -> Mapping[str, AgentSpec]:
        """The agents that are in force according to their files."""
        ...

    @property
    def agent_problems(self) -> Mapping[str, str]:
        """By agent's name: why its file cannot be read. The last good content stays in force."""
        ...

    @property
    def agent_doubts(self) -> Mapping[str, str]:
        """By agent's name: why its file is not in force, neither its present content nor its last good one."""
        ...

    def is_news(self, folder: str, name: str) -> bool:
        """Has a file of this name appeared or vanished in a folder where a template looks for files?"""
        ...


class Reader(Protocol):
    def read(self) -> Reading:
        """Read the declarations. Blocking while changed files are parsed. Called in a thread, one reading at a time."""
        ...


class Declarations:
    """Compares each reading with the last, and reports the differences.

    A name leaves `refused` when it is declared again or removed. So the spec of a repaired file is reported even if it
    equals the known spec. A repaired agent or wakeful.yaml declares no session, so its name is reported in `removed`.
    """

    def __init__(
        self,
        reader: Reader,
        report: DeclarationsReport,
        before_report: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_report` is called on the loop at the start of each `take`, even if the reading has nothing new."""
        self._reader = reader
        self._report = report
        self._before_report = before_report
        self._settings: Settings | None = None
        # The last good spec of each name, including names whose file cannot be read now.
        self._declared: dict[str, Declaration] | None = None
        self._refused: dict[str, str] = {}
        self._agents = AgentsRead()
        self._folders: tuple[str, ...] = ()
        self._reading: Reading | None = None
        self._cost_seconds = 0.0

    @property
    def poll_seconds(self) -> float:
        """Seconds until the next poll. They grow with the cost of a reading: 10,000 files take 0.1 s to stat."""
        return max(LEAST_POLL_SECONDS, self._cost_seconds / POLL_SHARE)

    def folders(self) -> tuple[str, ...]:
        """Return the folders in which a change may show, as of the last reading. Each is watched without its
        sub-folders.
        """
        return self._folders

    def is_news(self, folder: str, name: str) -> bool:
        """Could this name change the set of files that a template finds?"""
        return self._reading is None or self._reading.is_news(folder, name)

    def look(self) -> Reading:
        """Read the files. Blocking. Called in a thread, one reading at a time. Changes nothing that the loop reads."""
        began = time.monotonic()
        reading = self._reader.read()
        self._cost_seconds = min(time.monotonic() - began, LONGEST_COST_SECONDS)
        return reading

    def take(self, reading: Reading) -> None:
        """Report at most one SettingsRead, one AgentsRead and one SpecsRead, in this order, so that a spec finds its
        agent.

        The first reading always reports settings and specs. Called on the loop, because the core acts on the reports.
        """
        self._before_report()
        self._folders = reading.folders
        self._reading = reading
        if reading.settings != self._settings:
            self._settings = reading.settings
            self._report(SettingsRead(reading.settings))
        self._tell_agents(reading)
        batch = self._compare(reading)
        is_first = self._declared is None
        self._declared = self._kept(reading)
        self._refused = dict(reading.refused)
        if is_first or batch != SpecsRead():
            self._report(batch)

    def _tell_agents(self, reading: Reading) -> None:
        good = {name: old for name, old in self._agents.agents.items() if name in reading.agent_problems}
        agents = AgentsRead(
            agents={**good, **reading.agents}, refused={**reading.agent_problems, **reading.agent_doubts}
        )
        if agents != self._agents:
            self._agents = agents
            self._report(agents)

    def report_again(self, name: str) -> None:
        """Report the declaration of this name again without a change, because its session was closed and is
        open again.
        """
        declaration = (self._declared or {}).get(name)
        refused = {key: words for key, words in self._refused.items() if is_refused(name, {key: words})}
        # The file may have been removed while the log took no records. A file that cannot be read still exists.
        removed = () if declaration is not None or refused else (name,)
        self._report(
            SpecsRead(declared=(declaration,) if declaration is not None else (), removed=removed, refused=refused)
        )

    def _compare(self, reading: Reading) -> SpecsRead:
        before = self._declared or {}
        declared = tuple(
            declaration
            for name, declaration in reading.declared.items()
            if name in self._refused or not _is_same(before.get(name), declaration)
        )
        known = {*before, *self._refused}
        return SpecsRead(
            declared=declared,
            removed=tuple(
                sorted(name for name in known if name not in reading.declared and not is_refused(name, reading.refused))
            ),
            refused={name: words for name, words in reading.refused.items() if self._refused.get(name) != words},
        )

    def _kept(self, reading: Reading) -> dict[str, Declaration]:
        good = {name: old for name, old in (self._declared or {}).items() if is_refused(name, reading.refused)}
        return {**good, **reading.declared}


def _is_same(before: Declaration | None, now: Declaration) -> bool:
    # Compare by identity first. A file that did not change gives the same spec object, and comparing 10,000 specs takes
    # 30 ms.
    if before is None or before.text_digest != now.text_digest or before.needs_trust != now.needs_trust:
        return False
    return before.spec is now.spec or before.spec == now.spec


SETTLE_SECONDS = 0.05
# The most attempts to watch a folder that appears and vanishes meanwhile. After them, the next hint or poll watches it.
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
        # `_readings` is the task that makes one reading after another. `_asked` is the future for the callers that
        # asked since the present reading began.
        self._readings: asyncio.Task[None] | None = None
        self._asked: asyncio.Future[None] | None = None
        # True if a file was renamed since the present reading began. The result of that reading is then out of date.
        self._is_outdated = False
        # The reading under way that a hint began.
        self.hinted: asyncio.Future[None] | None = None
        # True after the first reading was taken. A hint before that asks for one more reading, and does not begin one.
        self._has_begun = False
        self._is_hinted_early = False
        self._hints = make_hints(loop, self._hear)
        self._folders: set[str] = set()
        # Nearest existing folder above a missing folder -> the names in it under which the missing one may come back.
        self._awaited: dict[str, set[str]] = {}
        self._read_at = 0.0
        # These folders are watched before the first reading, so that most starts need only one reading.
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
        """Begin a reading now, or after the reading under way. The result is done when the differences are reported."""
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
        """Read again at intervals. A hint begins a reading sooner, but some folders cannot be watched for hints."""
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
        """Schedule a reading after a short time, because an editor saves in several steps. At most one is scheduled."""
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

        Runs may write next to sessions.d/ as often as they like. Such a write must not start a reading, which costs one
        stat for each of 10,000 files.
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
