"""Finds the places that the programs of a spec reach beyond its declarations, without starting a run.

`check` calls this directly, and `trust` through the daemon, because a person trusts the derived places as well. The
module reads the file system and starts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from wakeful.core.deciding.acting_agent import select_servers
from wakeful.core.looking.patterns import parse_under
from wakeful.core.spec.agent import AgentSpec, McpServer
from wakeful.core.spec.session import CommandRun, PromptRun, ScriptRun, SessionSpec
from wakeful.runners.isolation.path_answers import PathAnswers
from wakeful.runners.isolation.program_places import Derived, ProgramWords, derive_places, find_named_files
from wakeful.runners.isolation.reach import is_wide
from wakeful.runners.isolation.reach import name_derived as name_derived
from wakeful.runners.isolation.server_programs import find_missing_package, resolve_server
from wakeful.runners.isolation.written_places import WrittenPlaces, list_written_by
from wakeful.runners.process.environment import select_inherited

# The folders of installed packages, in which a change must not wake a session.
_INSTALLED = (".venv", "venv", "node_modules", ".git")


class ProgramReach:
    """Derives places. Any thread. `closed` are the daemon's own places: nothing is derived in or around them."""

    def __init__(self, environ: Mapping[str, str], written: WrittenPlaces, closed: tuple[str, ...] = ()) -> None:
        self._search_path = find_search_path(environ)
        self._written = written
        self._closed = tuple(os.path.realpath(place) for place in closed)

    def find(self, spec: SessionSpec, agent: AgentSpec | None = None) -> Derived:
        """Find the places of a session's run and its probes together. Empty if nothing is enforced."""
        if not spec.confinement.is_enforced:
            return Derived()
        found = [derive_places(words, self._written, is_wide)[0] for words in self._list_words(spec, agent)]
        return Derived(
            tuple(dict.fromkeys(place for one in found for place in one.places)),
            (),
            tuple(dict.fromkeys(words for one in found for words in one.refused)),
        )

    def list_places(self, spec: SessionSpec, agent: AgentSpec | None = None) -> tuple[str, ...]:
        """List the places as absolute paths, without those inside another place."""
        return name_derived(self.find(spec, agent), None)

    def _list_words(self, spec: SessionSpec, agent: AgentSpec | None) -> Iterator[ProgramWords]:
        run = spec.run
        search_path = run.env.get("PATH", self._search_path) if run is not None else self._search_path
        cwd = os.path.join(spec.root, run.cwd or "") if run is not None else spec.root
        texts = list_texts(spec, agent)
        named = tuple(find_named_files(texts, spec.root, cwd, PathAnswers()))
        program = os.path.join(spec.root, spec.program) if spec.program is not None else None
        declared = (*_list_declared(spec), *named, *((program,) if program is not None else ()))
        yield ProgramWords(
            texts=texts,
            program=program,
            root=spec.root,
            cwd=cwd,
            search_path=search_path,
            declared=declared,
            closed=self._closed,
        )
        started = [binding.command for binding in spec.bindings if binding.command]
        started += [
            resolve_server(server.argv, spec.root, os.path.expanduser("~"))
            for server in list_server_programs(spec, agent)
        ]
        for argv in started:
            yield ProgramWords(
                texts=argv,
                program=None,
                root=spec.root,
                cwd=spec.root,
                search_path=self._search_path,
                declared=declared,
                closed=self._closed,
            )


def find_search_path(environ: Mapping[str, str]) -> str:
    """Find the PATH of runs whose specs do not set it."""
    return select_inherited(environ)["PATH"]


def list_texts(spec: SessionSpec, agent: AgentSpec | None = None) -> tuple[str, ...]:
    """List the words of a session's command, script and check, or of its agent's program."""
    check = (spec.run.check or ()) if spec.run is not None else ()
    match spec.run:
        case CommandRun(argv=argv):
            return (*argv, *check)
        case ScriptRun(text=text):
            return (text, *check)
        case PromptRun():
            return (*(agent.acp if agent is not None else ()), *check)
        case None:
            return ()


def list_server_programs(spec: SessionSpec, agent: AgentSpec | None) -> tuple[McpServer, ...]:
    """List the MCP servers that the session's agent starts in its runs."""
    if agent is None or not isinstance(spec.run, PromptRun):
        return ()
    return tuple(server for server in select_servers(spec, agent).mcp if server.argv)


def say_missing_package(argv: tuple[str, ...], root: str) -> str | None:
    """Describe the package that npx would have to fetch, because most runs cannot. None if it is installed."""
    package = find_missing_package(argv, root, os.path.expanduser("~"))
    if package is None:
        return None
    return (
        f"{package} is neither in {root}/node_modules nor in npx's cache, and a run without a network cannot fetch "
        f"it; install it there: npm install {package}"
    )


def list_unbound_files(spec: SessionSpec) -> list[str]:
    """List the files inside root, relative to it, that a command, script or check names and no binding matches.

    A run reads them, but a change does not wake the session.
    """
    cwd = os.path.join(spec.root, (spec.run.cwd if spec.run is not None else None) or "")
    bound = [parse_under(binding.pattern, spec.root) for binding in spec.files]
    allowed = [
        os.path.normpath(os.path.join(spec.root, place))
        for place in (*spec.confinement.allow_read, *spec.confinement.allow_write)
    ]
    program = os.path.join(spec.root, spec.program) if spec.program is not None else None
    found = find_named_files(list_texts(spec), spec.root, cwd, PathAnswers())
    return [
        os.path.relpath(path, spec.root)
        for path in found
        if path != program
        and not any(pattern.matches(path) for pattern in bound)
        and not any(path == place or path.startswith(f"{place}/") for place in allowed)
        and not any(part in _INSTALLED for part in os.path.relpath(path, spec.root).split("/"))
    ]


def declare_written(specs: Mapping[str, SessionSpec]) -> WrittenPlaces:
    """Collect the places that runs of these specs may write."""
    written = WrittenPlaces()
    for name, spec in specs.items():
        written.declare(name, name, list_written_by(spec))
    return written


def _list_declared(spec: SessionSpec) -> Iterator[str]:
    for binding in spec.files:
        pattern = parse_under(binding.pattern, spec.root)
        yield (
            os.path.dirname(pattern.base)
            if pattern.is_literal and binding.access != "read" and not os.path.isdir(pattern.base)
            else pattern.base
        )
    for place in (*spec.confinement.allow_read, *spec.confinement.allow_write):
        yield os.path.join(spec.root, place)
