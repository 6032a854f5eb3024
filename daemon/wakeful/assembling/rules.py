"""The rules of a project: the AGENTS.md files that apply to what a session has bound, from its root down, the nearest last.

They guide how an agent works and widen nothing that it may do: read as text, within bounds, quoted with their paths. One that comes in by an
untrusted binding is a stranger's word, and left out. No link is followed: what stands elsewhere was not written for this project.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable

from wakeful.assembling.quoting import quote_block
from wakeful.beneath import open_beneath
from wakeful.core.events import Cause
from wakeful.core.match import parse_under
from wakeful.core.paths import contains
from wakeful.core.spec import CommitsBinding, SessionSpec

FILE = "AGENTS.md"
# More folders than anyone keeps rules in; each costs one call of the system.
MOST_FOLDERS = 64
LARGEST_BYTES = 64 << 10


def read_rules(spec: SessionSpec, causes: Iterable[Cause], tokens: int, redact: Callable[[str], str]) -> str | None:
    """Blocks. None where the project has none."""
    strangers = [parse_under(binding.pattern, spec.root) for binding in spec.files if binding.is_untrusted]
    found, left_out = [], []
    for folder in list_folders(spec, causes):
        text = _read(spec.root, posixpath.join(folder, FILE))
        if text is None:
            continue
        path = posixpath.normpath(posixpath.join(folder, FILE))
        if any(pattern.matches(posixpath.join(spec.root, path)) for pattern in strangers):
            left_out.append(path)
        else:
            found.append((path, redact(text)))
    if not found:
        return None
    each = tokens // len(found)
    quoted = [quote_block(text, path, each, f"read {path}", tag="rules") for path, text in found]
    gone = [f"({path} comes in by an untrusted binding and is left out.)" for path in left_out]
    return "\n\n".join(("# Rules of this project", *quoted, *gone))


def list_folders(spec: SessionSpec, causes: Iterable[Cause]) -> list[str]:
    """Relative to root, which comes first: every folder on the way to what is bound, and to what changed."""
    bases = [parse_under(binding.pattern, spec.root).base for binding in spec.files]
    bases += [posixpath.join(spec.root, b.repo or "", b.path) for b in spec.bindings if isinstance(b, CommitsBinding)]
    changed = [posixpath.dirname(posixpath.join(spec.root, path.path)) for cause in causes for path in cause.paths]
    folders = {"."}
    for place in map(posixpath.normpath, (*bases, *changed)):
        if contains(spec.root, place) and place != spec.root:
            parts = posixpath.relpath(place, spec.root).split("/")
            folders |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    ordered = sorted(folders, key=lambda folder: (folder != ".", folder.count("/"), folder))
    return ordered[:MOST_FOLDERS]


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
