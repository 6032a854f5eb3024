"""The declarations as a source: sessions.d/, its agents and wakeful.yaml.

The wiring passes it a reader (trust.SpecFolderReader). `DeclarationsWatch` calls `look()` in a thread, on a hint, on
SIGHUP and every `poll_seconds`, and then `take()` on the loop with the reading. A reading without differences costs one
stat per file and reports nothing. Differences are reported as one batch (rule 26). It decides nothing about sessions.
If a file can no longer be read, its last good spec is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from wakeful.core.record.observations import AgentsRead, Declaration, SettingsRead, SpecsRead
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.session import Settings, is_refused

LEAST_POLL_SECONDS = 2.0
# The most that polling may cost, as a share of one core. Polling is only a safety net for lost hints.
POLL_SHARE = 0.001
# The most that one reading counts for the poll interval. The first reading parses everything; the second, a moment
# later, shows what a poll costs.
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
        """Why an agent's file cannot be read, by the agent's name. The last good content stays in force."""
        ...

    @property
    def agent_doubts(self) -> Mapping[str, str]:
        """Why an agent's file is not in force, neither its present content nor its last, by the agent's name."""
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

    A name leaves `refused` when it is declared again or removed. So a repaired file is declared even if its spec is the
    one already known. A repaired agent or wakeful.yaml declares no session, so its name is reported in `removed`.
    """

    def __init__(
        self,
        reader: Reader,
        report: DeclarationsReport,
        before_report: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_report` is called on the loop at each `take`, also if the reading does not differ from the last."""
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
        """Seconds until the next poll: few for few files, many for 10,000 files (which take 0.1 s to stat)."""
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
