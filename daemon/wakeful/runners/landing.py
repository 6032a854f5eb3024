"""Puts staged outputs in place, by rename, each one whole (rule 27). Done twice it is done once: the next daemon finishes what one began.

The reactor calls `land` once `outputs_staged` is durable; what became of it is reported on the loop. What is there already is passed over, what is as
the run found it is replaced, and what somebody changed meanwhile stays: then the run's own is kept aside, in the state folder. An area on another file
system is copied to a name beside the target first (`*.tmp`, which nobody watches) and renamed from there. Blocks in threads of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from wakeful.core.observation import KeptOutput, LandingEnded, StagedOutput
from wakeful.core.state import OpenRun, Session
from wakeful.errors import OperatorError
from wakeful.runners.isolation.beneath import make_beneath, open_beneath
from wakeful.runners.staging import copy_entry, digest_entry

_POOL_SIZE = 2
_CHANGED = "others changed it while the run was under way; theirs stands"


class Landing:
    """Constructed on the loop. `areas` holds the write areas of runs by their ids, `aside` what could not be put in place."""

    def __init__(self, areas: str, aside: str, report: Callable[[LandingEnded], None]) -> None:
        self._areas = areas
        self._aside = aside
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(_POOL_SIZE, thread_name_prefix="landing")

    def land(self, session: Session, run: OpenRun) -> None:
        assert run.staged is not None
        area, aside = f"{self._areas}/{run.run_id}", f"{self._aside}/{run.run_id}"
        landing = self._loop.run_in_executor(self._pool, put_in_place, run.staged.outputs, run.spec.root, area, aside)
        landing.add_done_callback(lambda done: self._report(LandingEnded(session=session.id, run_id=run.run_id, kept=done.result())))

    def discard(self, run_id: str) -> None:
        """The run is over: nothing of its area is wanted any more."""
        area = f"{self._areas}/{run_id}"
        if os.path.isdir(area):
            self._pool.submit(shutil.rmtree, area, ignore_errors=True)

    def sweep(self, wanted: Iterable[str]) -> None:
        """Blocks. Remove what runs of a daemon that died left, but for those that still have to land."""
        kept = set(wanted)
        for name in os.listdir(self._areas) if os.path.isdir(self._areas) else ():
            if name not in kept:
                shutil.rmtree(f"{self._areas}/{name}", ignore_errors=True)

    async def close(self) -> None:
        await asyncio.to_thread(partial(self._pool.shutdown, wait=True))


def put_in_place(outputs: tuple[StagedOutput, ...], root: str, area: str, aside: str) -> tuple[KeptOutput, ...]:
    """Blocks. Returns what was not put in place."""
    kept, folders = [], set[str]()
    for output in outputs:
        try:
            words = _put(output, root, area)
        except (OSError, OperatorError) as error:
            # No place for it any more, or no right to write there: nothing is lost, and somebody is told.
            words = f"it could not be put in place: {error}"
        if words is None:
            folders.add(os.path.dirname(output.path))
        else:
            kept.append(KeptOutput(path=output.path, words=words, kept=_keep_aside(output, area, aside)))
    for folder in folders:
        _flush_folder(root, folder)
    return tuple(kept)


def _put(output: StagedOutput, root: str, area: str) -> str | None:
    """Why it was not put in place, in words; None when it is there."""
    folder, name = os.path.split(output.path)
    folder_fd = _open_folder(root, folder, is_made=output.new is not None)
    if folder_fd is None:
        return None
    try:
        present = digest_entry(name, folder_fd)
        if present == output.new and (present is not None or not _exists(name, folder_fd)):
            return None
        # A folder or a device in its place has no digest, and is nobody's base.
        if present != output.base or (present is None and _exists(name, folder_fd)):
            return _CHANGED
        if output.new is None:
            os.unlink(name, dir_fd=folder_fd)
        else:
            _rename(f"{area}/{output.place}", name, folder_fd)
        return None
    finally:
        os.close(folder_fd)


def _rename(staged: str, name: str, folder_fd: int) -> None:
    if os.lstat(staged).st_dev == os.fstat(folder_fd).st_dev:
        os.rename(staged, name, dst_dir_fd=folder_fd)
        return
    passing = f".{name}.wakeful.tmp"
    target = f"/proc/self/fd/{folder_fd}/{passing}"
    if _exists(passing, folder_fd):
        # Left by a landing that was cut short.
        os.unlink(passing, dir_fd=folder_fd)
    copy_entry(staged, None, target)
    if not os.path.islink(target):
        fd = os.open(passing, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    os.rename(passing, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    os.unlink(staged)


def _keep_aside(output: StagedOutput, area: str, aside: str) -> str | None:
    """Where the run's own is now; None where it was a removal, or is gone."""
    place = f"{aside}/{output.path.lstrip('/').replace('../', '')}"
    staged = f"{area}/{output.place}"
    if output.new is not None and os.path.lexists(staged):
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        os.rename(staged, place)
    return place if os.path.lexists(place) else None


def _open_folder(root: str, folder: str, *, is_made: bool) -> int | None:
    """The folder an output lies in, reached without leaving root; None where it is gone, and is not needed."""
    try:
        if folder.startswith("/"):
            if is_made:
                os.makedirs(folder, exist_ok=True)
            return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        real = os.path.realpath(root)
        if is_made:
            make_beneath(real, folder)
        return open_beneath(real, folder or ".")
    except (FileNotFoundError, NotADirectoryError):
        if is_made:
            raise
        return None


def _flush_folder(root: str, folder: str) -> None:
    fd = os.open(os.path.join(root, folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exists(name: str, folder_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
