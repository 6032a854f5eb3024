"""The rules of a project: the AGENTS.md files that apply to what a session has bound, from its root down,
the nearest last.

Where a folder has no AGENTS.md, its CLAUDE.md counts. Those of deeper folders are told when the agent first reads or
writes there (`read_nested_rules`).

Rules guide how an agent works and widen nothing that it may do: they are read as text, within bounds, and quoted with
their paths. A rules file from an untrusted binding is a stranger's word, and is left out. No link is followed: a file
elsewhere was not written for this project.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable

from wakeful.core.agents.quoting import quote_block
from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.record.events import Cause
from wakeful.core.spec.session import CommitsBinding, SessionSpec
from wakeful.system.openat2 import open_beneath

# The first that a folder has counts.
FILES = ("AGENTS.md", "CLAUDE.md")
# More folders than anyone keeps rules in; each costs one call of the system.
MOST_FOLDERS = 64
LARGEST_BYTES = 64 << 10


def read_rules(spec: SessionSpec, causes: Iterable[Cause], tokens: int, redact: Callable[[str], str]) -> str | None:
    """Blocks. None where the project has none."""
    found = _find(spec, list_folders(spec, causes))
    trusted = {path: redact(text) for path, text in found.items() if text is not None}
    if not trusted:
        return None
    each = tokens // len(trusted)
    quoted = [quote_block(text, path, each, f"read {path}", tag="rules") for path, text in trusted.items()]
    gone = [
        f"({path} comes in by an untrusted binding and is left out.)" for path, text in found.items() if text is None
    ]
    return "\n\n".join(("# Rules of this project", *quoted, *gone))


def read_nested_rules(
    spec: SessionSpec, causes: Iterable[Cause], folder: str, tokens: int, redact: Callable[[str], str]
) -> dict[str, str]:
    """Blocks.

    By path, quoted: the rules on the way to a folder that is bound, without those that `read_rules` told.
    `folder` starts from root.
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
    """The rules of these folders by their paths. None: a stranger's word."""
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
    """Relative to root, which comes first: every folder on the way to what is bound, and to what changed."""
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
    """Every folder below root on the way to a place, the place itself last."""
    parts = posixpath.relpath(place, root).split("/") if place != root else []
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))][:MOST_FOLDERS]


def _read(root: str, path: str) -> str | None:
    """None where there is no such file, or no text in it."""
    try:
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        # Not there, not a folder on the way, a link, or not for us to read: then there are no rules here.
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(LARGEST_BYTES + 1)
    text = content.decode(errors="replace").strip()
    return text or None
