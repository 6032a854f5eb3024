"""The changes between two committed versions, with the old and new content of every changed file, for diffs.

`source` passes the repository and the binding's path. Objects are read by their ids, through the same processes as in
every look. `git diff` is not used, so no textconv, no external program and no filter of the repository is run. For a
file that cannot be read, the result has the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from wakeful.core.looking.path_reports import Bounds, Changed, Compared, Side
from wakeful.core.record.events import ChangedPath
from wakeful.core.record.observations import PathChange
from wakeful.sources.git.commit_changes import ABSENT
from wakeful.sources.git.git_command import Found, GitRefusal, Repository, is_object_id
from wakeful.sources.git.trees import find_changes

_FILE = 0o100000
_KINDS = {0o120000: "a link", 0o160000: "a submodule"}
_MANY = "too many paths changed to list them"
_GONE = "the version of the last success is no longer in the repository: its history was rewritten"


async def compare_versions(repository: Repository, old: str, new: str, shown: str, bounds: Bounds) -> Compared:
    """Compare two objects at a path, given by their ids. `shown` is that path as the spec writes it."""
    known = await repository.find([version for version in (old, new) if is_object_id(version)])
    before, after = (_find_version(version, known) for version in (old, new))
    if before is None and old != ABSENT:
        return Compared(problem=_GONE)
    if after is None and new != ABSENT:
        return Compared(problem="the committed version is no longer in the repository")
    return await _compare(repository, before, after, shown, bounds)


async def compare_commit(repository: Repository, commit: str, path: str, shown: str, bounds: Bounds) -> Compared:
    """Compare a path in one commit with the same path in its first parent."""
    if not is_object_id(commit):
        return Compared()
    (known,) = await repository.find([f"{commit}^{{commit}}"])
    if known is None:
        return Compared(problem="the commit is no longer in the repository")
    parent = re.search(rb"^parent ([0-9a-f]+)$", (await repository.read(commit)).partition(b"\n\n")[0], re.MULTILINE)
    names = [commit] if parent is None else [commit, parent[1].decode()]
    found = await repository.find(
        [
            *(f"{name}:{path}" if path else f"{name}^{{tree}}" for name in names),
            *(f"{name}^{{commit}}" for name in names),
        ]
    )
    if None in found[len(names) :]:
        return Compared(problem="the commit before it is not in this clone")
    return await _compare(repository, found[1] if parent is not None else None, found[0], shown, bounds)


def _find_version(version: str, known: Sequence[Found | None]) -> Found | None:
    return next((found for found in known if found is not None and found.id == version), None)


async def _compare(
    repository: Repository, before: Found | None, after: Found | None, shown: str, bounds: Bounds
) -> Compared:
    changes = await find_changes(repository, before, after, shown)
    if changes is None:
        return Compared(problem=_MANY)
    named = tuple(ChangedPath(change.path, change.change) for change in changes[: bounds.paths])
    sides = [await _read_sides(repository, change, bounds.content_bytes) for change in changes[: bounds.contents]]
    return Compared(paths=named, sides=tuple(sides))


async def _read_sides(repository: Repository, change: PathChange, most: int) -> Changed:
    before, after = change.before, change.after
    if before is not None and after is not None and before.partition(":")[2] == after.partition(":")[2]:
        return Changed(change.path, "", _say_mode(before, after))
    return Changed(change.path, await _read_side(repository, before, most), await _read_side(repository, after, most))


async def _read_side(repository: Repository, digest: str | None, most: int) -> Side:
    if digest is None:
        return None
    mode, _, object_id = digest.partition(":")
    kind = int(mode, 8) & 0o170000
    if kind != _FILE:
        return _KINDS.get(kind, "not a file")
    (found,) = await repository.find([object_id])
    if found is None or found.kind != "blob":
        return "not in this clone"
    if found.size > most:
        return f"larger than {most >> 10} KiB"
    try:
        return await repository.read(object_id)
    except GitRefusal:
        # git's message may contain names from the repository. The look reports the reason.
        return "cannot be read"


def _say_mode(before: str, after: str) -> str:
    """Describe the changed mode of a file with the same content."""
    kinds = [int(digest.partition(":")[0], 8) for digest in (before, after)]
    if any(kind & 0o170000 != _FILE for kind in kinds):
        return "another kind of file"
    return "is executable now" if kinds[1] & 0o100 else "is not executable any more"
