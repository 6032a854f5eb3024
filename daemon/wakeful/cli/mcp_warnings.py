"""The warnings of `check` about MCP servers that are local programs: why a server would not start, and why it did not
start in the last run.

The first kind is found by looking at the files; no program is started. The second kind comes from a daemon that reads
the same folder of specs. Without such a daemon it is omitted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from pathlib import Path

from wakeful.cli.client import Options
from wakeful.client.refusals import DaemonRefused, DaemonUnreachable
from wakeful.core.spec.session import SessionSpec
from wakeful.service.program_reach import list_server_programs, say_missing_package
from wakeful.specs.check_warnings import Mistakes
from wakeful.specs.folder_reading import AGENTS, SUFFIX, FolderReading, locate
from wakeful.specs.problem import Problem


def warn_about_servers(reading: FolderReading, mistakes: Mistakes, specs: Path, options: Options) -> list[Problem]:
    """Return each warning once, with the server's position in the agent's file."""
    found: dict[Problem, None] = {}
    started = {
        name: servers
        for name, spec in reading.sessions.items()
        if (servers := list_server_programs(spec, reading.agents.get(spec.agent or "")))
    }
    for name, servers in started.items():
        spec = reading.sessions[name]
        for server in servers:
            for words in _judge(server.argv, spec, mistakes):
                found[_place(specs, spec, server.name, f"MCP server {server.name} will not start: {words}")] = None
    for name, down in _ask_daemon(started.keys(), specs, options):
        found[_place(specs, reading.sessions[name], down["name"], f"in the last run of {name}: {down['words']}")] = None
    return list(found)


def _judge(argv: tuple[str, ...], spec: SessionSpec, mistakes: Mistakes) -> Iterator[str]:
    yield from mistakes.find_of_server(argv, spec.root)
    if (missing := say_missing_package(argv, spec.root)) is not None and spec.confinement.network is False:
        yield missing


def _place(specs: Path, spec: SessionSpec, server: str, words: str) -> Problem:
    file = f"{AGENTS}/{spec.agent}{SUFFIX}"
    return Problem(f"{specs.name}/{file}", *locate(str(specs / file), ("mcp", server)), words)


def _ask_daemon(names: Set[str], specs: Path, options: Options) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the servers that were down in the last runs. The daemon is asked only if a session has a server."""
    if not names:
        return
    try:
        client = options.client()
        if os.path.realpath(client.get("/doctor")["specs"]) != os.path.realpath(specs):
            return
        known = {row["name"] for row in client.get("/sessions")}
        for name in names & known:
            yield from ((name, down) for down in client.get("/why", x=name, path=os.path.abspath(name))["servers_down"])
    except (DaemonUnreachable, DaemonRefused):
        # No daemon answers, so the warnings from the files are all there is.
        return
