"""The workspaces of forks: made for a fork, brought back by a merge, and removed only on request.

The wiring constructs one `Workspaces` from the blobs and git, and the API calls it. A workspace is a checkout that
borrows the objects of the user's repository, or a folder of copies without a repository. It contains the files that the
parent's bindings match, in their present state. Only a workspace whose fork could not be declared is removed
automatically.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.core.record.knowledge import Workspace
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import CallerError
from wakeful.run_files.restore import show_name
from wakeful.sources.contract import Git, RepositoryNow
from wakeful.system.blobs import Blobs
from wakeful.system.private_files import make_private
from wakeful.workspaces.contents import find_meant, keep_base
from wakeful.workspaces.copy import copy_present
from wakeful.workspaces.merge import Change, Plan, Sides, plan_merge, read_merge, write_merge
from wakeful.workspaces.moved_spec import move_marks, move_spec

WORKSPACES = "workspaces"
MERGES = "merges"
_UNFINISHED = ".unfinished"


class Made(Struct, frozen=True, kw_only=True):
    """A workspace that is ready for its fork.

    `past` is the parent's state with its versions under the fork's bindings. `spec` is the parent's spec, moved to the
    workspace. `detached` names the bindings that were left behind.
    """

    workspace: Workspace
    past: Session
    spec: SessionSpec
    detached: tuple[str, ...]


class Workspaces:
    def __init__(self, blobs: Blobs, state: str, git: Git) -> None:
        self._blobs = blobs
        self._state = os.path.abspath(state)
        self._git = git

    # -- making ---------------------------------------------------------------------------------

    async def make(self, past: Session, name: str, wanted: str | None) -> Made:
        """Make a workspace for a fork of `past` called `name`.

        It is made in `wanted`, which must be empty or absent. With None it is made below the state folder.
        """
        if past.spec is None:
            raise CallerError(f"{past.name} has no spec, so its own files are not known; fork it without a workspace")
        if not os.path.isdir(past.spec.root):
            raise CallerError(
                f"the root of {past.name}, {past.spec.root}, does not exist, so a workspace cannot be made"
            )
        repository = await self._git.find(past.spec.root)
        folder = await asyncio.to_thread(self._open_folder, past.spec, name, wanted, repository)
        try:
            return await self._fill(past, folder, repository)
        except OSError as error:
            await asyncio.to_thread(_empty, folder)
            raise CallerError(
                f"the workspace {folder} could not be made: {error.filename or ''} {error.strerror}"
            ) from error
        except BaseException:
            await asyncio.to_thread(_empty, folder)
            raise

    async def _fill(self, past: Session, folder: str, repository: RepositoryNow | None) -> Made:
        assert past.spec is not None
        prefix = repository.prefix if repository is not None else ""
        root = os.path.join(folder, prefix) if prefix else folder
        if repository is not None:
            branches = [
                one.branch
                for one in past.spec.bindings
                if isinstance(one, CommitsBinding) and one.repo is None and one.branch
            ]
            await self._git.check_out(repository, folder, branches)
        moved = move_spec(past.spec, root)
        await asyncio.to_thread(copy_present, past.spec, root, self._state)
        base = await asyncio.to_thread(keep_base, self._blobs, root, find_meant(moved.spec, root))
        await asyncio.to_thread(self._blobs.flush)
        return Made(
            workspace=Workspace(folder=folder, base=base),
            past=move_marks(past, moved.identities),
            spec=moved.spec,
            detached=moved.detached,
        )

    def _open_folder(self, spec: SessionSpec, name: str, wanted: str | None, repository: RepositoryNow | None) -> str:
        if wanted is None:
            return self._open_next(name)
        if not wanted.startswith("/"):
            raise CallerError(f"{wanted!r} is not an absolute path; the daemon does not know the caller's folder")
        # Use the real path, because a link must not lead a workspace into the folders that it must be separate from.
        folder = os.path.realpath(wanted)
        depth = len(repository.prefix.split("/")) if repository is not None and repository.prefix else 0
        top = os.path.normpath(os.path.join(os.path.realpath(spec.root), *[".."] * depth))
        for other in (top, os.path.realpath(self._state)):
            if contains(other, folder) or contains(folder, other):
                raise CallerError(
                    f"one of {wanted} and {other} contains the other; a workspace needs a separate folder: "
                    "name another folder, or none"
                )
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            is_empty = not os.listdir(folder)
        except OSError as error:
            raise CallerError(f"{wanted} cannot be a workspace: {error.strerror}") from error
        if not is_empty:
            raise CallerError(f"{wanted} is not empty; a workspace needs a folder that is empty or does not exist yet")
        return folder

    def _open_next(self, name: str) -> str:
        places = os.path.join(self._state, WORKSPACES)
        make_private(places)
        for number in itertools.count(1):
            folder = os.path.join(places, f"{name.replace('/', '-')}-{number}")
            try:
                os.mkdir(folder, mode=0o700)
            except FileExistsError:
                continue
            return folder
        raise AssertionError("counting does not end")

    async def discard(self, workspace: Workspace) -> None:
        """Remove a workspace whose fork was not declared."""
        await asyncio.to_thread(_empty, workspace.folder)

    # -- merging --------------------------------------------------------------------------------

    async def plan(self, session: Session, fork: Session, base: str, *, is_dry: bool) -> Plan:
        """Plan a merge of the fork's workspace into the files of `session`."""
        if session.spec is None or fork.spec is None or fork.lineage.workspace is None:
            return Plan(changes=(), record=None)
        theirs = fork.spec.root
        if not os.path.isdir(theirs):
            # The workspace was removed, or is on another host. The fork's facts and conversation can still be merged.
            return Plan(
                changes=(Change(name=theirs, ending="left", reason="the workspace does not exist any more"),),
                record=None,
            )
        sides = Sides(
            ours=session.spec.root,
            theirs=theirs,
            name=session.name,
            fork=fork.name,
            marks=os.path.join(self._state, MERGES, f"{fork.name.replace('/', '-')}-{session.seq + 1}"),
            is_meant=find_meant(fork.spec, theirs),
        )
        return await plan_merge(self._blobs, self._git, sides, base, is_dry=is_dry)

    async def find_base(self, record: str) -> str:
        """Return the base that the last merge left for the next one."""
        return (await asyncio.to_thread(read_merge, self._blobs, record)).base

    async def begin(self, record: str) -> None:
        """Mark a merge as unfinished before it is recorded.

        After a crash, the mark shows that its files must still be written.
        """
        await asyncio.to_thread(self._mark, record)

    async def give_up(self, record: str) -> None:
        await asyncio.to_thread(self._marker(record).unlink, missing_ok=True)

    def is_unfinished(self, record: str) -> bool:
        return self._marker(record).exists()

    async def finish(self, record: str) -> list[dict[str, Any]]:
        """Write the files of a recorded merge. Returns the paths that could not be written as recorded."""
        return await asyncio.to_thread(self._finish, record)

    def _finish(self, record: str) -> list[dict[str, Any]]:
        failed = write_merge(self._blobs, read_merge(self._blobs, record))
        # A file that others changed meanwhile stays theirs. A write that failed (a full disk) can be repeated, so the
        # marker stays.
        if not any(one["ending"] == "failed" for one in failed):
            self._marker(record).unlink(missing_ok=True)
        return failed

    async def list_paths(self, record: str) -> list[str]:
        """List every path that a recorded merge writes, as it is shown."""
        files = (await asyncio.to_thread(read_merge, self._blobs, record)).bindings[0]
        sides = (side for side in (files.before, files.after) if side is not None)
        return sorted({show_name(entry.name) for side in sides for entry in side.entries})

    def list_unfinished(self) -> list[str]:
        """List the records of merges whose files may not all be written. Blocking."""
        try:
            names = os.listdir(os.path.join(self._state, MERGES))
        except FileNotFoundError:
            return []
        return sorted(name.removesuffix(_UNFINISHED) for name in names if name.endswith(_UNFINISHED))

    def _marker(self, record: str) -> Path:
        return Path(self._state, MERGES, record + _UNFINISHED)

    def _mark(self, record: str) -> None:
        marker = self._marker(record)
        make_private(marker.parent)
        marker.touch(mode=0o600)
        descriptor = os.open(marker.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def measure(folder: str) -> int | None:
    """Measure the bytes that a workspace takes. None if it does not exist. Blocking."""
    if not os.path.isdir(folder):
        return None
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _empty(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
