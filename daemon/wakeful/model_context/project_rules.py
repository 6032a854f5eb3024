"""Reads the rules of a project: the AGENTS.md files that apply to the bound paths, from the root down, nearest last.

If a folder has no AGENTS.md, its CLAUDE.md is used. Rules of deeper folders are shown when the agent first reads or
writes there (`read_nested_rules`).

Rules guide how an agent works and never extend its permissions. They are read as text, up to a limit, and quoted with
their paths. A rules file from an untrusted binding is left out, because strangers may have written it. Links are not
followed, because a file elsewhere was not written for this project.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable

from wakeful.core.agents.model_text import quote_block
from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.record.events import Cause
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.core.spec.session import SessionSpec
from wakeful.system.openat2 import open_beneath

# The names of rules files. The first that exists in a folder is used.
FILES = ("AGENTS.md", "CLAUDE.md")
# The most folders searched for rules. No project keeps rules in more folders, and each folder costs a system call.
MOST_FOLDERS = 64
LARGEST_BYTES = 64 << 10


def read_rules(spec: SessionSpec, causes: Iterable[Cause], tokens: int, redact: Callable[[str], str]) -> str | None:
    """Read and quote the rules of the project. None if it has no trusted rules. Blocking."""
    found = _find(spec, list_folders(spec, causes))
    trusted = {path: redact(text) for path, text in found.items() if text is not None}
    if not trusted:
        return None
    each = tokens // len(trusted)
    quoted = [quote_block(text, path, each, f"read {path}", tag="rules") for path, text in trusted.items()]
    gone = [
        f"({path} belongs to an untrusted binding and is left out.)" for path, text in found.items() if text is None
    ]
    return "\n\n".join(("# Rules of this project", *quoted, *gone))


def read_nested_rules(
    spec: SessionSpec, causes: Iterable[Cause], folder: str, tokens: int, redact: Callable[[str], str]
) -> dict[str, str]:
    """Read and quote the rules of the folders on the path to a bound folder, except those that `read_rules` returned.

    `folder` is relative to the root. Returns the quoted rules by the paths of their files. Empty if no binding reaches
    the folder. Blocking.
    """
    place = posixpath.normpath(posixpath.join(spec.root, folder))
    patterns = [
        parse_under(pattern, spec.root)
        for pattern in (*(binding.pattern for binding in spec.files), *spec.written_patterns)
    ]
    if not contains(spec.root, place) or not any(pattern.enters(place) for pattern in patterns):
        return {}
    told = set(list_folders(spec, causes))
    found = _find(spec, [one for one in _list_way(spec.root, place) if one not in told])
    return {
        path: quote_block(redact(text), path, tokens, f"read {path}", tag="rules")
        for path, text in found.items()
        if text is not None
    }


def _find(spec: SessionSpec, folders: Iterable[str]) -> dict[str, str | None]:
    """Read the rules of these folders by their paths. None for a file of an untrusted binding."""
    strangers = [parse_under(binding.pattern, spec.root) for binding in spec.files if binding.is_untrusted]
    found: dict[str, str | None] = {}
    for folder in folders:
        paths = (posixpath.normpath(posixpath.join(folder, name)) for name in FILES)
        path, text = next(((path, text) for path in paths if (text := _read(spec.root, path)) is not None), ("", None))
        if text is not None:
            found[path] = (
                None if any(pattern.matches(posixpath.join(spec.root, path)) for pattern in strangers) else text
            )
    return found


def list_folders(spec: SessionSpec, causes: Iterable[Cause]) -> list[str]:
    """List every folder on the path to a bound or changed file. They are relative to the root, which comes first."""
    bases = [parse_under(binding.pattern, spec.root).base for binding in spec.files]
    bases += [posixpath.join(spec.root, b.repo or "", b.path) for b in spec.bindings if isinstance(b, CommitsBinding)]
    changed = [posixpath.dirname(posixpath.join(spec.root, path.path)) for cause in causes for path in cause.paths]
    folders = {"."}
    for place in map(posixpath.normpath, (*bases, *changed)):
        if contains(spec.root, place):
            folders.update(_list_way(spec.root, place))
    ordered = sorted(folders, key=lambda folder: (folder != ".", folder.count("/"), folder))
    return ordered[:MOST_FOLDERS]


def _list_way(root: str, place: str) -> list[str]:
    """List every folder below the root on the path to a folder, including that folder as the last."""
    parts = posixpath.relpath(place, root).split("/") if place != root else []
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))][:MOST_FOLDERS]


def _read(root: str, path: str) -> str | None:
    """Read a rules file. None if there is no such file or it is empty."""
    try:
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        # The file is missing, is a link, may not be read, or its folder is not a folder: there are no rules here.
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(LARGEST_BYTES + 1)
    text = content.decode(errors="replace").strip()
    return text or None
