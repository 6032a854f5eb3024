"""Resolves the command of an MCP server: the program that npx would start, and the folder of a script of the project.

Three callers must get the same answer: the plan of a run (before the run), `check` and `trust` (without a run), and the
agent's process (inside the run). Reads the file system and starts nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wakeful.core.looking.patterns import contains

_NPX = "npx"
# Options of npx that do not change which program it starts. With any other option, npx itself is started.
_NPX_OPTIONS = (
    "-y",
    "--yes",
    "-n",
    "--no",
    "--no-install",
    "-q",
    "--quiet",
    "--silent",
    "--offline",
    "--prefer-offline",
    "--",
)
_PACKAGE = re.compile(r"((?:@[A-Za-z0-9_.~-]+/)?[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)(?:@([A-Za-z0-9_.+-]+))?")
_LATEST = "latest"
_PACKAGES = "node_modules"
_LARGEST_MANIFEST_BYTES = 1 << 20
_SCRIPT_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".sh", ".bash")


def resolve_server(argv: tuple[str, ...], root: str, home: str) -> tuple[str, ...]:
    """Return the command to start. `npx NAME` becomes the program itself if root or npx's cache has it.

    npx looks in the same places, but it also writes into the person's home, asks the registry, and takes a second.
    """
    found = _read_npx(argv)
    if found is None:
        return argv
    package, version, rest = found
    for folder in (f"{root}/{_PACKAGES}", *list_npx_cache(home)):
        if (program := _find_installed(folder, package, version)) is not None:
            return (program, *rest)
    return argv


def find_missing_package(argv: tuple[str, ...], root: str, home: str) -> str | None:
    """Return the package that npx would have to fetch. None if it is installed, or if the command is not npx."""
    found = _read_npx(argv)
    return found[0] if found is not None and resolve_server(argv, root, home) == argv else None


def list_npx_cache(home: str) -> list[str]:
    """List the folders in which npx keeps the packages that it fetched, the newest first."""
    try:
        entries = sorted(os.scandir(name_npx_cache(home)), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []
    return [f"{entry.path}/{_PACKAGES}" for entry in entries]


def name_npx_cache(home: str) -> str:
    return f"{home}/.npm/_npx"


def is_npx(argv: tuple[str, ...]) -> bool:
    return os.path.basename(argv[0]) == _NPX


def find_script_folder(argv: tuple[str, ...], root: str) -> str | None:
    """Return the folder of a script of the project, because it holds the modules that the script loads.

    None if the script lies in root itself: then only the file is read.
    """
    for index, word in enumerate(argv):
        path = os.path.normpath(os.path.join(root, word))
        is_script = word.endswith(_SCRIPT_SUFFIXES) or (index == 0 and "/" in word)
        if not is_script or not contains(root, path) or not os.path.isfile(path):
            continue
        folder = os.path.dirname(path)
        return folder if folder != os.path.normpath(root) else None
    return None


def _read_npx(argv: tuple[str, ...]) -> tuple[str, str | None, tuple[str, ...]] | None:
    """Parse a command of npx: the package, its version, and the arguments of its program.

    None if the command is not npx, or names no package.
    """
    if not is_npx(argv):
        return None
    at = next((index for index, word in enumerate(argv) if index and word not in _NPX_OPTIONS), len(argv))
    named = _PACKAGE.fullmatch(argv[at]) if at < len(argv) else None
    if named is None:
        return None
    return named[1], named[2] if named[2] != _LATEST else None, argv[at + 1 :]


def _find_installed(folder: str, package: str, version: str | None) -> str | None:
    linked = f"{folder}/.bin/{package}"
    if version is None and "/" not in package and os.path.isfile(linked):
        return linked
    manifest = _read_manifest(f"{folder}/{package}/package.json")
    if version is not None and manifest.get("version") != version:
        return None
    return next((path for path in _list_programs(folder, package, manifest.get("bin")) if os.path.isfile(path)), None)


def _list_programs(folder: str, package: str, declared: Any) -> Iterator[str]:
    """List the possible paths of a package's program.

    As npm does, choose the program with the package's name, or else the package's only program.
    """
    name = package.rpartition("/")[2]
    programs = declared if isinstance(declared, dict) else {name: declared} if isinstance(declared, str) else {}
    chosen = name if name in programs else next(iter(programs)) if len(programs) == 1 else None
    if chosen is None or not isinstance(programs[chosen], str):
        return
    if "/" not in chosen:
        yield f"{folder}/.bin/{chosen}"
    path = os.path.normpath(f"{folder}/{package}/{programs[chosen]}")
    if contains(f"{folder}/{package}", path):
        yield path


def _read_manifest(path: str) -> Mapping[str, Any]:
    try:
        with Path(path).open("rb") as file:
            found = json.loads(file.read(_LARGEST_MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        # The package is missing, or npm could not read its manifest either.
        return {}
    return found if isinstance(found, dict) else {}
