"""The service behind `trust` and `add`: shows what waits for trust, records trust, and attaches or detaches projects.

The API calls it for people; runs never do. A person trusts exactly what was shown. Every answer that shows something
has a digest, and trusting names that digest, so a file that changes in between is not trusted.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wakeful.core.looking.granted_places import list_granted_reads
from wakeful.core.looking.patterns import contains
from wakeful.core.record.state import Session
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import CommandRun, PromptRun, ScriptRun, SessionSpec, find_template
from wakeful.errors import CallerError
from wakeful.settings import SPECS_FOLDER
from wakeful.specs.value_parsers import find_name_problem
from wakeful.specs.yaml_text import read_mapping
from wakeful.trust.ledger import ABSENT, Ledger, Project, digest_content
from wakeful.trust.path_trust import WAY_MARK, read_mark
from wakeful.trust.spec_reader import (
    DEFAULTS_MARK,
    REACH_MARK,
    PinnedSpec,
    SpecFolderReader,
    digest_files,
    show_defaults,
    show_reach,
)

# A longer file is mentioned, but its content is not shown.
LONGEST_SHOWN_BYTES = 256 * 1024
# The label of a spec that came in a bundle and so has no file.
BUNDLED = "the spec in its bundle"


@dataclass(frozen=True, slots=True)
class FilesToTrust:
    """The files about to be trusted.

    It has the contents by path, the sessions that they declare, and the names of the files for the record.
    """

    files: dict[str, bytes | None]
    sessions: dict[str, str]
    labels: tuple[str, ...]


class LoadedSession(NamedTuple):
    """A session from a bundle that no person has checked, with the agent of this host that its spec names."""

    session: Session
    agent: AgentSpec | None


class TrustReview:
    """Works on the daemon's ledger and its reader's last result.

    `view` and `find_loaded` are called on the loop. Everything else reads or writes files: blocking, and called in a
    thread.
    """

    def __init__(
        self,
        ledger: Ledger,
        spec_reader: SpecFolderReader,
        list_loaded: Callable[[], Iterable[LoadedSession]] = lambda: (),
    ) -> None:
        self._ledger = ledger
        self._spec_reader = spec_reader
        self._list_loaded = list_loaded
        # Held from reading the attached projects until they are changed, because two threads may call this.
        self._changing_projects = threading.Lock()

    # -- looking ------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        folders = [
            {"folder": one.folder, "project": one.project, "pinned": one.pinned, "others": one.others}
            for one in self._spec_reader.folders
        ]
        waiting = [one for _, one in sorted(self._spec_reader.standings.items()) if one.needs_trust is not None]
        loaded = [{"name": one.name, "file": None, "reason": one.trust_words} for one, _ in self._list_loaded()]
        return {
            "folders": folders,
            "trusted": len(self._spec_reader.standings) - len(waiting),
            "waiting": [{"name": one.name, "file": one.spec_file, "reason": one.needs_trust} for one in waiting]
            + loaded,
        }

    def find_loaded(self, name: str) -> LoadedSession | None:
        """Find a session from a bundle. None if there is a spec in a file, which takes precedence."""
        if name in self._spec_reader.standings:
            return None
        return next((one for one in self._list_loaded() if one.session.name == name), None)

    def show(self, name: str, loaded: LoadedSession | None = None) -> dict[str, Any]:
        """Show the files that `trust` would trust, how each differs from the trusted text, and what the spec asks for.

        `loaded` is the result of `find_loaded` for this name.
        """
        if loaded is not None:
            return self._show_loaded(*loaded)
        standing = self._find(name)
        contents = {path: read_trusted(path) for path in standing.files}
        return {
            "name": name,
            "digest": digest_files(_digest_contents(contents)),
            "reason": standing.needs_trust,
            "spec": None if standing.spec is None else describe(standing.spec, standing.agent),
            "agent": describe_agent(standing.agent),
            "reach": _list_reach(standing),
            "files": [self._compare(standing, path, content) for path, content in contents.items()],
        }

    def _show_loaded(self, session: Session, agent: AgentSpec | None) -> dict[str, Any]:
        spec = session.spec
        assert spec is not None
        return {
            "name": session.name,
            "digest": digest_spec(spec),
            "reason": session.trust_words,
            "spec": describe(spec, agent),
            "reach": self.list_reach(spec, agent),
            "agent": describe_agent(agent),
            "files": [{"file": BUNDLED, "state": "new", "diff": _diff(BUNDLED, None, show_spec(spec))}],
        }

    def list_reach(self, spec: SessionSpec, agent: AgentSpec | None) -> list[str]:
        """List the undeclared places that the programs of a spec would reach here."""
        return sorted(self._spec_reader.find_reach(spec, agent))

    def _find(self, name: str) -> PinnedSpec:
        found = self._spec_reader.standings.get(name)
        if found is None:
            found = next(
                (one for _, one in sorted(self._spec_reader.standings.items()) if find_template(one.name) == name), None
            )
        if found is None:
            raise CallerError(
                f"{name} is in a folder that is followed, or there is no such session; "
                "`wakeful trust` lists what is pinned"
            )
        return found

    def _compare(self, standing: PinnedSpec, path: str, content: bytes | None) -> dict[str, Any]:
        trusted = self._ledger.pages.trusted.get(path)
        before = self._ledger.find_text(path)
        now = _digest_contents({path: content})[path]
        state = "same" if trusted == now else "new" if trusted in (None, ABSENT) else "changed"
        is_plain = state == "same" or REACH_MARK in path
        return {
            "file": standing.label(path),
            "state": state,
            "diff": [] if is_plain else _diff(standing.label(path), before, content),
        }

    # -- trusting -----------------------------------------------------------------------------

    def prepare(self, name: str, digest: str, loaded: LoadedSession | None = None) -> FilesToTrust:
        """Read the files that are about to be trusted. Raises CallerError if they are not what was shown.

        `loaded` is the result of `find_loaded` for this name.
        """
        if loaded is not None:
            spec = loaded.session.spec
            if spec is None or digest_spec(spec) != digest:
                raise CallerError(f"{name} changed since it was shown; look at it again with: wakeful trust {name}")
            return FilesToTrust({}, {name: digest}, (BUNDLED,))
        standing = self._find(name)
        contents = {path: read_trusted(path) for path in standing.files}
        if digest_files(_digest_contents(contents)) != digest:
            raise CallerError(f"{name} changed since it was shown; look at it again with: wakeful trust {name}")
        # The daemon's own settings have no log in which the trust could be recorded.
        same = [
            one.name
            for one in self._spec_reader.standings.values()
            if one.spec is not None and one.spec_file == standing.spec_file
        ]
        return FilesToTrust(contents, dict.fromkeys(same, digest), tuple(map(standing.label, contents)))

    def commit(self, trusting: FilesToTrust) -> None:
        if trusting.files:
            self._ledger.trust(trusting.files)

    # -- projects -----------------------------------------------------------------------------

    def preview(self, folder: str, name: str | None) -> dict[str, Any]:
        """Show a project as it would be attached: every spec, what it asks for, and the digest of them all.

        Changes nothing.
        """
        project = self._build(folder, name)
        standings, refused = self._read_apart(project)
        files = {path: digest for one in standings for path, digest in one.files.items()}
        return {
            "project": project.name,
            "folder": project.folder,
            "digest": digest_files(files),
            "sessions": [
                {
                    "name": one.name,
                    "file": one.label(one.spec_file),
                    "files": _list_labels(one),
                    "reach": _list_reach(one),
                    **describe(one.spec, one.agent),
                }
                for one in standings
                if one.spec is not None
            ],
            "agents": [
                {"name": one.name, "files": sorted(map(one.label, one.files)), "agent": describe_agent(one.agent)}
                for one in standings
                if one.spec is None and one.agent is not None
            ],
            "refused": refused,
        }

    def attach(self, folder: str, name: str | None, digest: str) -> Project:
        """Attach a project. Nothing of it is trusted yet; the caller calls `prepare_project` after it was read."""
        with self._changing_projects:
            project = self._build(folder, name)
            standings, _ = self._read_apart(project)
            if digest_files({path: one for standing in standings for path, one in standing.files.items()}) != digest:
                raise CallerError(
                    f"{project.folder} changed since it was shown; look at it again with: wakeful add {project.folder}"
                )
            self._ledger.attach(project)
            return project

    def prepare_project(self, project: Project, digest: str) -> FilesToTrust:
        standings = [one for one in self._spec_reader.standings.values() if one.name.startswith(f"{project.name}/")]
        contents = {path: read_trusted(path) for one in standings for path in one.files}
        if digest_files(_digest_contents(contents)) != digest:
            raise CallerError(
                f"{project.folder} changed since it was shown; it is attached, and its changed sessions sleep: "
                "wakeful trust lists them"
            )
        labels = tuple(dict.fromkeys(one.label(path) for one in standings for path in one.files))
        return FilesToTrust(contents, {one.name: one.digest for one in standings if one.spec is not None}, labels)

    def detach(self, name: str) -> Project:
        with self._changing_projects:
            project = self._ledger.pages.projects.get(name)
            if project is None:
                known = ", ".join(sorted(self._ledger.pages.projects)) or "none"
                raise CallerError(f"no project is called {name!r}; attached: {known}")
            self._ledger.detach(name)
            return project

    def follow(self, folder: str, *, is_followed: bool) -> Project:
        """Follow an attached project as it is edited, or pin it again."""
        real = os.path.realpath(folder)
        with self._changing_projects:
            attached = self._ledger.pages.projects.values()
            found = next((one for one in attached if real in (one.folder, os.path.realpath(one.specs))), None)
            if found is None:
                raise CallerError(f"{folder} is not an attached project; attach it with: wakeful add {folder}")
            project = Project(name=found.name, folder=found.folder, is_followed=is_followed)
            self._ledger.attach(project)
            return project

    def _build(self, folder: str, name: str | None) -> Project:
        real = os.path.realpath(folder)
        real = os.path.dirname(real) if os.path.basename(real) == SPECS_FOLDER else real
        if not os.path.isdir(os.path.join(real, SPECS_FOLDER)):
            raise CallerError(f"{folder} has no {SPECS_FOLDER}/; name the folder of a project that has one")
        chosen = name or os.path.basename(real)
        problem = find_name_problem(chosen)
        if problem is None and "/" in chosen:
            problem = "the name of a project has no slash"
        if problem is not None:
            raise CallerError(f"{problem}; choose another name with --as")
        for one in self._ledger.pages.projects.values():
            if one.folder == real or one.name == chosen:
                raise CallerError(
                    f"{one.folder} is attached as {one.name} already; wakeful add --remove {one.name} detaches it"
                )
        if any(os.path.realpath(one.folder) == os.path.join(real, SPECS_FOLDER) for one in self._spec_reader.folders):
            raise CallerError(f"the daemon follows {folder} already (--specs)")
        return Project(name=chosen, folder=real)

    def _read_apart(self, project: Project) -> tuple[list[PinnedSpec], dict[str, str]]:
        return self._spec_reader.read_apart(project)


def read_trusted(path: str) -> bytes | None:
    """Read the present content for a path of the ledger. None if there is no such file."""
    try:
        if REACH_MARK in path:
            return show_reach(path.partition(REACH_MARK)[2])
        if path.endswith(DEFAULTS_MARK):
            file = Path(path.removesuffix(DEFAULTS_MARK))
            return show_defaults(read_mapping(file.read_bytes(), file.name).get("defaults"))
        return read_mark(path) if path.endswith(WAY_MARK) else Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CallerError(f"{path} cannot be read: {error.strerror}; fix that first") from error


def _list_labels(standing: PinnedSpec) -> list[str]:
    return sorted(standing.label(path) for path in standing.files if REACH_MARK not in path)


def _list_reach(standing: PinnedSpec) -> list[str]:
    """List the undeclared places that the programs of a pinned spec reach."""
    return sorted(standing.label(path.partition(REACH_MARK)[2]) for path in standing.files if REACH_MARK in path)


def _digest_contents(contents: Mapping[str, bytes | None]) -> dict[str, str]:
    return {path: ABSENT if content is None else digest_content(content) for path, content in contents.items()}


def _diff(label: str, before: bytes | None, content: bytes | None) -> list[str]:
    """Make the lines of a unified diff, without newlines. Nothing is escaped: the printer does that."""
    if any(len(one) > LONGEST_SHOWN_BYTES or b"\0" in one for one in (before or b"", content or b"")):
        return [f"({label}: {len(content or b''):,} bytes, which are not shown: look at the file itself)"]
    old, new = ((one or b"").decode(errors="backslashreplace").split("\n") for one in (before, content))
    return list(
        difflib.unified_diff(
            old if before else [], new if content else [], f"{label} (trusted)", f"{label} (now)", lineterm=""
        )
    )


def digest_spec(spec: SessionSpec) -> str:
    return digest_content(msgspec.json.encode(spec))


def show_spec(spec: SessionSpec) -> bytes:
    """Show a spec that has no file as text: every key that is not at its default."""
    return msgspec.json.format(msgspec.json.encode(_list_told(spec)), indent=2)


def _list_told(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_list_told(one) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    kind = value.__struct_config__.tag
    told = {"kind": kind} if kind else {}
    for field in msgspec.structs.fields(value):
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if (inner := getattr(value, field.name)) != usual:
            told[field.name] = _list_told(inner)
    return told


def describe_agent(agent: AgentSpec | None) -> dict[str, Any] | None:
    """Describe the models that get an agent's words, and the programs that it starts."""
    if agent is None:
        return None
    models = (*agent.models, *((agent.window.compress_by,) if agent.window.compress_by is not None else ()))
    return {
        "models": list(
            dict.fromkeys(f"{one.name} at {one.base_url}" if one.base_url is not None else one.name for one in models)
        ),
        # Variables are shown before the command, as in a shell, because a variable may change what the program does.
        "acp": [*(f"{name}={value}" for name, value in agent.outside.env.items()), *agent.acp],
        "servers": {
            one.name: [*(f"{name}={value}" for name, value in one.env.items()), *one.argv] or [one.url]
            for one in agent.mcp
        },
        "tools": dict(agent.tools),
        "subagents": list(agent.subagents),
        "keys": list(agent.secrets),
        **({"skills": [one.name for one in agent.skills]} if agent.skills else {}),
    }


def _list_patterns(spec: SessionSpec) -> list[str]:
    return [one.pattern for one in spec.bindings if isinstance(one, FileBinding) and one.access != "write"]


def _list_other_reads(spec: SessionSpec) -> list[str]:
    """List every read that is granted without a file binding.

    These are allow.read, repositories, and files that commands, checks and probes name.
    """
    files = {one.name for one in spec.files}
    others = (
        one
        for one in list_granted_reads(spec, os.path.isfile)
        if one.binding not in files and one.by != "allow.write" and one.path != "/"
    )
    return [os.path.relpath(one.path, spec.root) if contains(spec.root, one.path) else one.path for one in others]


def describe(spec: SessionSpec, agent: AgentSpec | None = None) -> dict[str, Any]:
    """Describe what a spec asks for, for a person who decides whether to trust it."""
    match spec.run:
        case CommandRun(argv=argv):
            runs: list[str] = list(argv)
        case ScriptRun(text=text):
            runs = ["sh", "-eu", "-c", text]
        case PromptRun(prompt=prompt):
            runs = ["agent", spec.agent or "", prompt]
        case None:
            runs = []
    limits = spec.confinement
    return {
        "runs": runs,
        "check": list(spec.run.check or ()) if spec.run is not None else [],
        "probes": [list(one.command) for one in spec.bindings if one.command],
        "webhooks": [
            f"{one.name} ({one.sender}, {'signed' if one.secrets else 'not signed'})" for one in spec.webhooks
        ],
        "root": spec.root,
        "reads": list(dict.fromkeys((*_list_patterns(spec), *_list_other_reads(spec)))),
        "writes": [*spec.written_patterns, *limits.allow_write],
        "network": limits.network if isinstance(limits.network, bool) else list(limits.network),
        "fetch": list(spec.fetch),
        "secrets": list(spec.secrets),
        "isolation": limits.level,
        "agent": describe_agent(agent),
    }
