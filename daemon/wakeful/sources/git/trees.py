"""The contents of trees: the paths that differ between two trees, and a clean copy of one tree as files.

`source` finds changed paths here, and runs get their `export` here. Both read objects through `git_command.Repository`
and compare ids. No checkout, no index, no filter and no attribute of the repository is used. An export writes only
below its destination, creates every file and follows no link.
"""

from __future__ import annotations

import asyncio
import os

from wakeful.core.record.observations import PathChange
from wakeful.errors import OperatorError
from wakeful.sources.git.git_command import Found, Repository, TreeEntry

# The most changed paths in a list. A longer list is not useful.
CHANGES_LIMIT = 10_000
# The most trees that are read. Ten trees that contain each other ten times make ten billion paths.
TREES_LIMIT = 50_000
DEPTH_LIMIT = 200
_KINDS = {"tree": 0o040000, "blob": 0o100644, "commit": 0o160000}
_NO_FILE_NAME = (b"", b".", b"..")


class ExportRefusal(OperatorError):
    """A tree cannot be written as files without reaching outside its destination."""


class _TooMany(Exception):
    """More paths differ than a list may hold."""


async def find_changes(
    repository: Repository, before: Found | None, after: Found | None, path: str
) -> tuple[PathChange, ...] | None:
    """Find every file that differs between two objects at `path`, in order. None if there are too many."""
    comparison = _Comparison(repository)
    try:
        await comparison.compare(_entry_of(before), _entry_of(after), path)
    except _TooMany:
        return None
    return tuple(sorted(comparison.changes, key=lambda change: change.path))


async def export_tree(repository: Repository, tree: str, destination: str) -> None:
    """Write a tree as files below a folder that does not exist yet: contents, x bits and links as they were
    committed.
    """
    await _Export(repository).write_tree(tree, os.fsencode(destination), 0)


class _Comparison:
    """Walks two trees in parallel, where their ids differ."""

    def __init__(self, repository: Repository) -> None:
        self.changes: list[PathChange] = []
        self._repository = repository
        self._trees_read = 0

    async def compare(self, before: TreeEntry | None, after: TreeEntry | None, path: str) -> None:
        if before == after:
            return
        # A file that became a folder, or the reverse, counts as a removal and additions.
        pairs = ((before, None), (None, after)) if _is_tree(before) != _is_tree(after) else ((before, after),)
        for old, new in pairs:
            if _is_tree(old) or _is_tree(new):
                await self._compare_entries(old, new, path)
            elif old is not None or new is not None:
                self._add(PathChange(path, None if old is None else old.digest, None if new is None else new.digest))

    async def _compare_entries(self, before: TreeEntry | None, after: TreeEntry | None, path: str) -> None:
        old, new = await self._read(before, path), await self._read(after, path)
        for name in old.keys() | new.keys():
            # Names are bytes. Bytes that are not UTF-8 are escaped, because the log contains text.
            shown = name.decode("utf-8", "backslashreplace")
            await self.compare(old.get(name), new.get(name), f"{path}/{shown}" if path else shown)

    async def _read(self, tree: TreeEntry | None, path: str) -> dict[bytes, TreeEntry]:
        if tree is None:
            return {}
        self._trees_read += 1
        if self._trees_read > TREES_LIMIT or path.count("/") > DEPTH_LIMIT:
            raise _TooMany
        return await self._repository.read_tree(tree.id)

    def _add(self, change: PathChange) -> None:
        if len(self.changes) >= CHANGES_LIMIT:
            raise _TooMany
        self.changes.append(change)


def _entry_of(found: Found | None) -> TreeEntry | None:
    return None if found is None else TreeEntry(_KINDS.get(found.kind, 0o100644), found.id)


def _is_tree(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.is_tree


class _Export:
    """Writes one tree."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._trees_written = 0

    async def write_tree(self, tree: str, folder: bytes, depth: int) -> None:
        self._trees_written += 1
        if self._trees_written > TREES_LIMIT or depth > DEPTH_LIMIT:
            raise ExportRefusal(
                f"the tree {tree} holds more folders than can be exported ({TREES_LIMIT}, {DEPTH_LIMIT} deep)"
            )
        os.mkdir(folder)
        for name, entry in (await self._repository.read_tree(tree)).items():
            # git refuses to commit such names, but a tree can be made by hand, and a repository may come from anyone.
            if name in _NO_FILE_NAME or b"/" in name or name.lower() == b".git":
                raise ExportRefusal(f"the tree {tree} holds the name {name!r}: it is not exported")
            try:
                await self._write_entry(entry, os.path.join(folder, name), depth)
            except FileExistsError as error:
                raise ExportRefusal(
                    f"the tree {tree} holds {name!r} twice, as this file system compares names"
                ) from error
            except ValueError as error:
                raise ExportRefusal(f"the tree {tree} holds a link {name!r} that leads to no path") from error

    async def _write_entry(self, entry: TreeEntry, path: bytes, depth: int) -> None:
        match entry.mode & 0o170000:
            case 0o040000:
                await self.write_tree(entry.id, path, depth + 1)
            case 0o120000:
                os.symlink(await self._repository.read(entry.id), path)
            case 0o160000:
                # A submodule's content is in another repository. Git also creates an empty folder for it.
                os.mkdir(path)
            case _:
                await self._write_file(entry, path)

    async def _write_file(self, entry: TreeEntry, path: bytes) -> None:
        mode = 0o777 if entry.mode & 0o100 else 0o666
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "wb") as file:
            async for chunk in self._repository.stream(entry.id):
                # In a thread, because disks block.
                await asyncio.to_thread(file.write, chunk)
