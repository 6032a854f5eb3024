"""Reads the daemon's own folder of specs and every attached project, and decides for each spec whether it is in force.

`Declarations` reads through it. A followed folder is in force as it is edited, unless others can write it. A project is
pinned: a spec is in force only while a person trusts its present text, the agents and defaults that it depends on, and
the programs that it names. This module decides nothing about sessions: a spec that is not in force is passed on with
the reason, and the core lets it sleep.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from wakeful.core.record.observations import Declaration
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.bindings import SessionBinding
from wakeful.core.spec.session import SessionSpec, Settings
from wakeful.settings import SETTINGS_FILE, ProjectReader, ProjectReading, name_notifiers
from wakeful.specs.file_ownership import find_others
from wakeful.specs.folder_reading import AGENTS, INSTANCE, SUFFIX, FileReading, FolderReading
from wakeful.specs.problem import Problem
from wakeful.specs.prompt_file import StatKey
from wakeful.text.display import ReportProgress, ignore_progress
from wakeful.trust.ledger import ABSENT, Ledger, Project, digest_content
from wakeful.trust.path_trust import NoRuns, PathTrust, RunsBySpan, read_mark
from wakeful.trust.program_digests import Programs, list_programs
from wakeful.trust.settings_trust import SettingsTrust

# The suffix after the path of a wakeful.yaml. Only the defaults of a project's settings concern its specs.
DEFAULTS_MARK = "#defaults"
ATTACHED = "attached with wakeful add"
# The separator between the path of a spec and an undeclared place that its programs reach.
REACH_MARK = "#reach:"
# Lists the undeclared places that the programs of a spec reach now.
FindReach = Callable[[SessionSpec, AgentSpec | None], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PinnedSpec:
    """A pinned spec: the files it depends on, by path and digest, and the reason if it is not in force."""

    name: str
    folder: str
    # None for the daemon's own settings, and for an agent that no session names.
    spec: SessionSpec | None
    spec_file: str
    files: dict[str, str]
    needs_trust: str | None
    agent: AgentSpec | None = None

    @property
    def digest(self) -> str:
        return digest_files(self.files)

    def label(self, path: str) -> str:
        """Return a path as it is shown to a person: relative to the project's folder if it is below that folder."""
        if REACH_MARK in path:
            return f"what its programs reach: {self.label(path.partition(REACH_MARK)[2])}"
        return os.path.relpath(path, self.folder) if path.startswith(f"{self.folder}/") else path


@dataclass(frozen=True, slots=True)
class PinnedFolder:
    """A folder of specs. `pinned` is the reason why it is not followed, in words, or None if it is followed."""

    folder: str
    project: str | None
    pinned: str | None
    # Why others can write to the folder, in words.
    others: str | None = None


def digest_files(files: Mapping[str, str]) -> str:
    return digest_content(msgspec.json.encode(sorted(files.items())))


@dataclass(frozen=True, slots=True)
class DaemonLookups:
    """The questions that a reader of specs asks its daemon. Without a daemon, as in `check`, the defaults answer them.

    `runs` finds the run that may have changed a path. `find_known` returns the digest of the text that was in force for
    a session on this host. `find_reach` lists the places that the programs of a spec reach. All of them are called in
    the reader's thread.
    """

    runs: RunsBySpan = field(default_factory=NoRuns)
    find_known: Callable[[str], str | None] = lambda name: None
    find_reach: FindReach = lambda spec, agent: ()


class SpecFolderReader:
    """Reads all folders of specs. Called in a thread, for one reading at a time.

    The loop uses the results of the last reading, even while the next reading is under way.
    """

    def __init__(
        self,
        specs: Path,
        ledger: Ledger,
        environ: Mapping[str, str] = os.environ,
        kept: Path | None = None,
        around: DaemonLookups = DaemonLookups(),
        report_progress: ReportProgress = ignore_progress,
    ) -> None:
        """`kept` is the file of the cached readings, which the next daemon uses.

        `report_progress` gets the progress of a reading of the daemon's own folder.
        """
        self._specs = os.path.abspath(specs)
        # Projects' folders are small, so their progress is not reported.
        self._main = ProjectReader(
            specs, environ, kept=kept, accept=self._accept_settings, report_progress=report_progress
        )
        self._environ = environ
        self._ledger = ledger
        self._around = around
        self._programs = Programs()
        self._projects: dict[str, tuple[Project, ProjectReader]] = {}
        self._renamed: dict[str, tuple[SessionSpec, SessionSpec]] = {}
        # The result of the last finished reading: a run that starts during the next one is judged by it.
        self.standings: dict[str, PinnedSpec] = {}
        self.folders: list[PinnedFolder] = []
        # The result of the present reading, so far.
        self._new_standings: dict[str, PinnedSpec] = {}
        self._new_folders: list[PinnedFolder] = []
        self._pools: frozenset[str] = frozenset()
        self._notifiers: frozenset[str] = frozenset()
        # Files of followed folders as they were read last, by folder and path below it.
        self._seen: dict[str, dict[str, FileReading]] = {}
        self._path_trust = PathTrust(ledger, around.runs)
        # By folder of specs: its real path at the first reading, which isolation shields from runs.
        self._shielded: dict[str, str] = {}
        self._own_settings = SettingsTrust(ledger, Path(self._specs).parent / SETTINGS_FILE, self._doubt_settings)

    def read(self) -> ProjectReading:
        """Read every folder. Blocking."""
        self._new_standings, self._new_folders = {}, []
        self._path_trust.begin()
        main = self._main.read()
        self._pools = frozenset(main.settings.pools)
        self._notifiers = name_notifiers(main.settings)
        self._doubt_reached(self._main, None)
        pinned = self._pin_main(main.settings)
        declared = self._judge(self._main, main, None, pinned)
        main = self._judge_agents(self._main, main, "", pinned)
        parts = [self._read_project(project, main.settings) for project in self._ledger.pages.projects.values()]
        refused = dict(main.refused)
        for part in parts:
            # If a session has a file in the daemon's own folder, a project's session of that name is ignored.
            declared |= {name: one for name, one in part.declared.items() if name not in declared}
            refused |= part.refused
        self._path_trust.finish()
        self.standings, self.folders = self._new_standings, self._new_folders
        outside_files = {
            os.path.split(path)
            for standing in self.standings.values()
            for path in (*self._list_outposts(standing), *_list_reached(standing))
        }
        return dataclasses.replace(
            main,
            declared=declared,
            refused=refused,
            agents=_merge(one.agents for one in (main, *parts)),
            agent_problems=_merge(one.agent_problems for one in (main, *parts)),
            agent_doubts=_merge(one.agent_doubts for one in (main, *parts)),
            folders=tuple(
                dict.fromkeys(
                    (
                        *main.folders,
                        *(one for part in parts for one in part.folders),
                        *(folder for folder, _ in outside_files),
                    )
                )
            ),
            warnings=(*main.warnings, *(warning for part in parts for warning in part.warnings)),
            globs=(*main.globs, *(glob for part in parts for glob in part.globs)),
            outside_files=frozenset(outside_files).union(*(one.outside_files for one in (main, *parts))),
            attached=(
                *(project.specs for project in self._ledger.pages.projects.values()),
                *(folder for part in (main, *parts) for folder in part.attached),
            ),
        )

    def keep(self) -> None:
        """Save the readings for the next daemon.

        Blocking. Any thread may call it. The readings of projects are not saved, because projects have few files.
        """
        self._main.keep()

    def find_changed_program(self, name: str) -> str | None:
        """Explain why a run of this session must not start now. None if it may start.

        A program is checked when its run starts, not only when specs are read.
        """
        standing = self.standings.get(name)
        if standing is None:
            return None
        for path in self._list_outposts(standing):
            if self._programs.digest(path) != self._ledger.pages.trusted.get(path):
                return f"{standing.label(path)} changed since it was trusted; wakeful trust {name} shows the difference"
        if standing.spec is None or standing.spec_file not in standing.files:
            return None
        for path in self._list_reach(standing.spec_file, standing.spec, standing.agent):
            if path not in self._ledger.pages.trusted:
                return f"{standing.label(path)} is new since it was trusted; wakeful trust {name} shows it"
        return None

    def read_apart(self, project: Project) -> tuple[list[PinnedSpec], dict[str, str]]:
        """Read a project as if it were attached and pinned.

        Returns its specs and agents, and the specs that have problems. Changes nothing.
        """
        around = DaemonLookups(find_reach=self._around.find_reach)
        apart = SpecFolderReader(Path(self._specs), self._ledger, self._environ, around=around)
        apart._notifiers = self._notifiers
        reading = apart._read_project(project, Settings(pools=dict.fromkeys(self._pools, 1)))
        return [one for _, one in sorted(apart._new_standings.items())], reading.refused

    def find_reach(self, spec: SessionSpec, agent: AgentSpec | None) -> tuple[str, ...]:
        """List the undeclared places that the programs of a spec reach here."""
        return self._around.find_reach(spec, agent)

    # -- folders ------------------------------------------------------------------------------

    def _pin_main(self, settings: Settings) -> str | None:
        others = self._find_others(self._main.folder, self._specs)
        pinned = "wakeful.yaml says trust: pinned" if settings.trust == "pinned" else others
        self._new_folders.append(PinnedFolder(self._specs, None, pinned, others))
        return pinned

    def _read_project(self, project: Project, settings: Settings) -> ProjectReading:
        known, reader = self._projects.get(project.name, (None, None))
        if reader is None or known is None or known.folder != project.folder:
            reader = ProjectReader(Path(project.specs), self._environ, pools=frozenset())
        self._projects[project.name] = project, reader
        reader.pools = frozenset(settings.pools)
        reader.notifiers = self._notifiers
        reading = reader.read()
        others = self._find_others(reader.folder, project.specs)
        pinned: str | None = ATTACHED
        if project.is_followed:
            self._doubt_reached(reader, project.name)
            pinned = "wakeful.yaml says trust: pinned" if settings.trust == "pinned" else others
        self._new_folders.append(PinnedFolder(project.specs, project.name, pinned, others))
        prefix = f"{project.name}/"
        declared = self._judge(reader, reading, prefix, pinned)
        return dataclasses.replace(
            self._judge_agents(reader, reading, prefix, pinned),
            declared=declared,
            refused={f"{prefix}{name}": words for name, words in reading.refused.items()},
            warnings=tuple(Problem(f"{prefix}{one.file}", one.line, one.column, one.text) for one in reading.warnings),
        )

    def _find_others(self, folder: FolderReading | None, specs: str) -> str | None:
        """Explain why others can write to a folder of specs, and so add a spec. None if they cannot.

        Folders that templates look into hold data, and are not checked.
        """
        own = [one for one in folder.folders if f"{one}/".startswith(f"{specs}/")] if folder is not None else []
        return next((words for one in own or [specs] if (words := find_others(one)) is not None), None)

    # -- specs --------------------------------------------------------------------------------

    def _judge(
        self, reader: ProjectReader, reading: ProjectReading, prefix: str | None, pinned: str | None
    ) -> dict[str, Declaration]:
        folder = reader.folder
        assert folder is not None
        is_plain = prefix is None and pinned is None and not self._ledger.pages.doubted
        # The usual case, made fast: there may be 10,000 files every few seconds.
        if is_plain and not any(one.others is not None for one in folder.files.values()):
            return dict(reading.declared)
        places = _place_sessions(folder)
        judged = {}
        for name, declaration in reading.declared.items():
            file = places[name]
            agent = folder.files.get(_name_agent_file(declaration.spec.agent))
            why = pinned or folder.files[file].others or (agent.others if agent is not None else None)
            one = declaration if prefix is None else replace(declaration, spec=self._rename(declaration.spec, prefix))
            if why is not None or self._ledger.pages.doubted:
                one = self._judge_one(reader, folder, file, one, why, agent)
            judged[one.spec.name] = one
        return judged

    def _judge_agents(
        self, reader: ProjectReader, reading: ProjectReading, prefix: str, pinned: str | None
    ) -> ProjectReading:
        """Return the agents that are in force, under the names they have here.

        Any agent may be asked in any session.
        """
        folder = reader.folder
        assert folder is not None
        base, is_doubtful = folder.basis[1].base, pinned is not None or bool(self._ledger.pages.doubted)
        named = {
            one.agent.name: one.name
            for one in self._new_standings.values()
            if one.agent is not None and one.folder == base
        }
        agents, doubts = {}, {}
        for name, agent in reading.agents.items():
            is_judged = is_doubtful or folder.files[_name_agent_file(name)].others is not None
            words = self._doubt_agent(folder, prefix, agent, pinned, named.get(name)) if is_judged else None
            if words is None:
                agents[f"{prefix}{name}"] = _rename_agent(agent, prefix)
            else:
                doubts[f"{prefix}{name}"] = words
        problems = {f"{prefix}{name}": words for name, words in reading.agent_problems.items()}
        return dataclasses.replace(reading, agents=agents, agent_doubts=doubts, agent_problems=problems)

    def _doubt_agent(
        self, folder: FolderReading, prefix: str, agent: AgentSpec, pinned: str | None, session: str | None
    ) -> str | None:
        """Explain why an agent is not in force. None if it is in force.

        An agent that no session names is trusted by its own name.
        """
        file, around = folder.files[_name_agent_file(agent.name)], folder.basis[1]
        path = os.path.join(around.specs or "", _name_agent_file(agent.name))
        files = self._list_agent_files(path, file)
        why = pinned or file.others
        if why is None:
            files = {
                one: digest for one, digest in files.items() if one in self._ledger.pages.doubted
            } | self._list_ways(path, *(one.path for one in file.agent_files))
        changed = [one for one, digest in files.items() if self._ledger.pages.trusted.get(one) != digest]
        standing = PinnedSpec(session or f"{prefix}{AGENTS}/{agent.name}", around.base, None, path, files, None, agent)
        doubt = next((self._ledger.pages.doubted[one] for one in files if one in self._ledger.pages.doubted), "")
        words = self._say(standing, changed, why or doubt) if changed else None
        if session is None and files:
            self._new_standings[standing.name] = dataclasses.replace(standing, needs_trust=words)
        return words

    def _doubt_reached(self, reader: ProjectReader, project: str | None) -> None:
        """Stop trusting the files of a followed folder that changed while a run could write them."""
        folder = reader.folder
        assert folder is not None
        specs = folder.basis[1].specs or ""
        shielded = self._find_shielded(specs)
        own = (one for one in folder.folders if f"{one}/".startswith(f"{specs}/"))
        settings = (str(Path(specs).parent / SETTINGS_FILE), str(reader.settings_file))
        self._path_trust.judge((specs, *own, *folder.links, *folder.agent_files, *settings), shielded)
        if project is not None:
            self._doubt_defaults(reader)
        seen = self._seen.setdefault(specs, {})
        for relative, reading in folder.files.items():
            before = seen.get(relative)
            if before is reading or INSTANCE in relative or not reading.digest:
                continue
            seen[relative], path = reading, os.path.join(specs, relative)
            known = (
                before.digest
                if before is not None
                else self._around.find_known(reading.name if project is None else f"{project}/{reading.name}")
            )
            self._doubt_file(path, known, reading.digest, reading.key, shielded)
            old = {one.path: one.digest for one in before.agent_files} if before is not None else {}
            for file in reading.agent_files:
                if file.key is not None:
                    self._doubt_file(file.path, old.get(file.path), file.digest, file.key, shielded)

    def _doubt_file(self, path: str, known: str | None, digest: str, stat_key: StatKey, shielded: str) -> None:
        pages = self._ledger.pages
        if path in pages.doubted:
            if pages.trusted.get(path) == digest:
                self._ledger.clear(path)
            return
        # For an agent, the log does not have the earlier digest.
        known = known if known is not None else pages.trusted.get(path)
        if known != digest and (words := self._path_trust.find_doubt(path, stat_key, shielded)) is not None:
            self._ledger.doubt(path, words, known)

    def _doubt_defaults(self, reader: ProjectReader) -> None:
        """Check the defaults of a followed project. They are in force as they are edited, as its specs are."""
        key, digest, pages = _name_defaults(reader), _digest_defaults(reader), self._ledger.pages
        known = pages.trusted.get(key)
        if known == digest:
            if key in pages.doubted:
                self._ledger.clear(key)
        elif key not in pages.doubted:
            words = None if known is None else self._path_trust.find_doubt(str(reader.settings_file), None, None)
            if words is None:
                self._ledger.trust({key: show_defaults(reader.defaults.value)})
            else:
                self._ledger.doubt(key, words, known)

    def _doubt_settings(self, path: str, known: str | None) -> bool:
        """Doubt the settings if a run may have changed them.

        `known` is the digest of the text in force before. None if there was no file, which isolation could not shield.
        """
        self._path_trust.judge([path], self._find_shielded(self._specs))
        words = self._path_trust.find_doubt(path, None, None if known is None else os.path.realpath(path))
        if words is not None:
            self._ledger.doubt(path, words, known)
        return words is not None

    def _find_shielded(self, specs: str) -> str:
        return self._shielded.setdefault(specs, os.path.realpath(specs))

    def _list_ways(self, *paths: str) -> dict[str, str]:
        """List the doubted folders and links on these paths, with their present marks."""
        keys = dict.fromkeys(key for path in paths for key in self._path_trust.list_doubted(path))
        return {key: digest_way(key) for key in keys}

    def _accept_settings(self, path: Path) -> bytes | None:
        """Return the text of the daemon's own settings that is in force instead of the present text.

        None if the present text is in force.
        """
        found = self._own_settings.find_doubted(path)
        if found is None:
            return None
        file, digest, text = found
        told = f"needs trust: {self._ledger.pages.doubted[file]} (wakeful trust {SETTINGS_FILE} shows it)"
        files = {file: digest, **self._list_ways(file)}
        self._new_standings[SETTINGS_FILE] = PinnedSpec(SETTINGS_FILE, os.path.dirname(file), None, file, files, told)
        return text

    def _judge_one(
        self,
        reader: ProjectReader,
        folder: FolderReading,
        file: str,
        declaration: Declaration,
        why: str | None,
        agent: FileReading | None,
    ) -> Declaration:
        name, specs = declaration.spec.name, folder.basis[1].specs or ""
        path = os.path.join(specs, file)
        files = self._list_files(reader, folder, path, file, declaration.spec, agent)
        if why is None:
            ways = self._list_ways(
                path,
                *(
                    ()
                    if agent is None
                    else (os.path.join(specs, f"{agent.name}{SUFFIX}"), *(one.path for one in agent.agent_files))
                ),
            )
            files = {one: digest for one, digest in files.items() if one in self._ledger.pages.doubted} | ways
        if not files:
            return declaration
        doubt = next((self._ledger.pages.doubted[one] for one in files if one in self._ledger.pages.doubted), None)
        standing = PinnedSpec(
            name,
            os.path.dirname(specs),
            declaration.spec,
            path,
            files,
            None,
            agent.agent if agent is not None else None,
        )
        changed = [one for one, digest in files.items() if self._ledger.pages.trusted.get(one) != digest]
        words = self._say(standing, changed, why or doubt or "") if changed else None
        self._new_standings[name] = dataclasses.replace(standing, needs_trust=words)
        return declaration if words is None else replace(declaration, needs_trust=words)

    def _say(self, standing: PinnedSpec, changed: list[str], why: str) -> str:
        trusted = self._ledger.pages.trusted
        is_spec = standing.spec_file in changed
        if is_spec and trusted.get(standing.spec_file, ABSENT) == ABSENT:
            words, look = "a new spec", "shows it"
        elif changed and all(REACH_MARK in one for one in changed):
            reached = ", ".join(standing.label(one.partition(REACH_MARK)[2]) for one in changed)
            words, look = f"its programs reach more: {reached}", "shows it"
        else:
            words = "its spec changed" if is_spec else f"{standing.label(changed[0])} changed"
            look = "shows the difference"
        # The person who attached a project knows that it is pinned.
        more = "" if why == ATTACHED else f"; {why}"
        return f"needs trust: {words}{more} (wakeful trust {standing.name} {look})"

    def _list_files(
        self,
        reader: ProjectReader,
        folder: FolderReading,
        path: str,
        file: str,
        spec: SessionSpec,
        agent: FileReading | None,
    ) -> dict[str, str]:
        """List everything that a person trusts together with a spec."""
        files = {path: folder.files[file].digest}
        if agent is not None:
            files |= self._list_agent_files(os.path.join(folder.basis[1].specs or "", f"{agent.name}{SUFFIX}"), agent)
        # Trusted defaults that are gone count as a change, too, because they may have been stricter.
        if reader.defaults.value or self._ledger.pages.trusted.get(_name_defaults(reader), ABSENT) != ABSENT:
            files[_name_defaults(reader)] = _digest_defaults(reader)
        owner = agent.agent if agent is not None else None
        files |= self._list_reach(path, spec, owner)
        return files | {program: self._programs.digest(program) for program in list_programs(spec, owner)}

    def _list_reach(self, path: str, spec: SessionSpec, agent: AgentSpec | None) -> dict[str, str]:
        """Return the ledger's entry for each place that the programs of a spec reach.

        A place that is no longer reached needs no new trust. The sessions of a template share the entries.
        """
        return {
            f"{path}{REACH_MARK}{place}": digest_content(show_reach(place)) for place in self.find_reach(spec, agent)
        }

    def _list_agent_files(self, path: str, agent: FileReading) -> dict[str, str]:
        files = {path: agent.digest}
        return files | {one.path: one.digest or ABSENT for one in agent.agent_files}

    def _list_outposts(self, standing: PinnedSpec) -> list[str]:
        return (
            []
            if standing.spec is None
            else [path for path in list_programs(standing.spec, standing.agent) if path in standing.files]
        )

    def _rename(self, spec: SessionSpec, prefix: str) -> SessionSpec:
        """Rename a spec.

        The same spec gives the identical object, because callers compare readings by identity first.
        """
        known = self._renamed.get(f"{prefix}{spec.name}")
        if known is not None and known[0] is spec:
            return known[1]
        bindings = tuple(
            replace(one, session=f"{prefix}{one.session}") if isinstance(one, SessionBinding) else one
            for one in spec.bindings
        )
        agent = f"{prefix}{spec.agent}" if spec.agent is not None else None
        renamed = replace(spec, name=f"{prefix}{spec.name}", bindings=bindings, agent=agent)
        self._renamed[renamed.name] = spec, renamed
        return renamed


def _list_reached(standing: PinnedSpec) -> list[str]:
    """List the places of the project that its programs reach, so that a replaced one is noticed before a run is due."""
    places = (path.partition(REACH_MARK)[2] for path in standing.files if REACH_MARK in path)
    return [place for place in places if place.startswith(f"{standing.folder}/")]


def _name_agent_file(agent: str | None) -> str:
    """Return the key of an agent's file below sessions.d."""
    return f"{AGENTS}/{agent}{SUFFIX}"


def digest_way(key: str) -> str:
    mark = read_mark(key)
    return ABSENT if mark is None else digest_content(mark)


def _rename_agent(agent: AgentSpec, prefix: str) -> AgentSpec:
    """Rename an agent of an attached project. Its sub-agents are of the same project."""
    return (
        replace(agent, name=f"{prefix}{agent.name}", subagents=tuple(f"{prefix}{name}" for name in agent.subagents))
        if prefix
        else agent
    )


def _merge(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge mappings. The daemon's own mapping comes first and wins over those of projects."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged = {**part, **merged}
    return merged


def _place_sessions(folder: FolderReading) -> dict[str, str]:
    """Map each session to its file below sessions.d: its own, or that of its template."""
    places: dict[str, str] = {}
    for relative, reading in folder.files.items():
        if reading.spec is not None and (INSTANCE not in relative or reading.name not in places):
            places[reading.name] = relative.split(INSTANCE)[0]
    return places


def show_reach(place: str) -> bytes:
    """Show a place as text that can be compared."""
    return os.fsencode(f"{place}\n")


def _name_defaults(reader: ProjectReader) -> str:
    return f"{reader.settings_file}{DEFAULTS_MARK}"


def _digest_defaults(reader: ProjectReader) -> str:
    shown = show_defaults(reader.defaults.value)
    return ABSENT if shown is None else digest_content(shown)


def show_defaults(value: object) -> bytes | None:
    """Show defaults as text that can be compared line by line. None if there are no defaults."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2) if value else None
