"""Puts staged outputs in place, each one atomically by rename (rule 27).

Landing is idempotent: the next daemon finishes a landing that an earlier one began. The reactor calls `land` once
`outputs_staged` is durable, and `Landing` reports the result on the loop. An output that is in place already is
skipped. A file that is still as the run found it is replaced. If another process changed the file meanwhile, that
version stays, and the run's version is kept in the state folder. An output from another file system is first copied to
a name next to the target (`*.tmp`, which is not watched), and renamed from there. Blocking work has its own threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct

from wakeful.core.looking.patterns import Excludes, Pattern, contains, parse_under
from wakeful.core.record.observations import KeptOutput, LandingEnded, StagedOutput
from wakeful.core.record.state import OpenRun, Session
from wakeful.core.spec.session import DEFAULT_EXCLUDES, SessionSpec
from wakeful.errors import OperatorError
from wakeful.runners.isolation.opened_places import make_beneath, open_beneath
from wakeful.runners.outputs.staging import copy_entry, digest_entry
from wakeful.runners.outputs.undeclared_changes import Writers
from wakeful.system.blocking_pool import Pool
from wakeful.system.git_folders import GIT
from wakeful.system.openat2 import AT_FDCWD, EXCHANGE, NO_REPLACE, rename_at
from wakeful.system.private_files import make_private

_POOL_SIZE = 2
# Seconds until a landing that failed with an unexpected exception is tried again.
_AGAIN_SECONDS = 5.0
_CHANGED = "another process changed it during the run; that version stays"


class Bounds(Struct, frozen=True, kw_only=True):
    """The paths at which outputs may land: those that write bindings match (`meant`), except protected places
    (`guarded`, real paths)."""

    meant: tuple[tuple[Pattern, Excludes], ...]
    guarded: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: SessionSpec, guarded: tuple[str, ...]) -> Bounds:
        written = (binding for binding in spec.files if binding.access != "read")
        meant = (
            (parse_under(one.pattern, spec.root), Excludes.build(spec.root, DEFAULT_EXCLUDES, one.exclude))
            for one in written
        )
        # A fork's root may lie in the state folder, so a guarded place around the root does not count.
        own = f"{os.path.realpath(spec.root)}/"
        return cls(meant=tuple(meant), guarded=tuple(place for place in guarded if not own.startswith(f"{place}/")))

    def find(self, path: str) -> Pattern | None:
        """Find the pattern of a write binding that matches this path. None if there is none."""
        return next(
            (
                pattern
                for pattern, excludes in self.meant
                if pattern.matches(path) and excludes.covers(path, len(pattern.base) + 1) is None
            ),
            None,
        )


class Landing:
    """Lands the outputs of runs. Constructed on the loop.

    `areas` is the folder of the runs' write areas, by run id. `aside` is the folder for outputs that could not land.
    """

    def __init__(
        self,
        areas: str,
        aside: str,
        report: Callable[[LandingEnded], None],
        list_guarded: Callable[[], tuple[str, ...]],
        writers: Writers | None = None,
    ) -> None:
        self._areas = areas
        self._aside = aside
        self._report = report
        self._list_guarded = list_guarded
        self._writers = writers or Writers()
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(_POOL_SIZE, "landing")

    def land(self, session: Session, run: OpenRun) -> None:
        assert run.staged is not None
        area, aside = f"{self._areas}/{run.run_id}", f"{self._aside}/{run.run_id}"
        self._writers.begin(run.run_id, run.spec.root, run.spec.written_patterns, ())
        bounds = Bounds.of(run.spec, self._list_guarded())
        landing = self._loop.run_in_executor(
            self._pool, put_in_place, run.staged.outputs, run.spec.root, area, aside, bounds
        )
        landing.add_done_callback(partial(self._conclude, session.id, run.run_id, partial(self.land, session, run)))

    def _conclude(
        self, session: str, run_id: str, again: Callable[[], None], done: asyncio.Future[tuple[KeptOutput, ...]]
    ) -> None:
        self._writers.end(run_id)
        if (error := done.exception()) is not None:
            # A landing that was half done is repeated as well, as after a crash. Otherwise the run would never end.
            self._loop.call_exception_handler(
                {
                    "message": f"{run_id}: its outputs could not be put in place; this is tried again",
                    "exception": error,
                }
            )
            self._loop.call_later(_AGAIN_SECONDS, again)
            return
        self._report(LandingEnded(session=session, run_id=run_id, kept=done.result()))

    def discard(self, run_id: str) -> None:
        """Remove the area of a run that is over. Done in a thread."""
        area = f"{self._areas}/{run_id}"
        if os.path.isdir(area):
            self._pool.submit(remove_area, area)

    def sweep(self, wanted: Iterable[str]) -> None:
        """Remove the areas that a dead daemon left, except those that must still land. Blocking."""
        kept = set(wanted)
        for name in os.listdir(self._areas) if os.path.isdir(self._areas) else ():
            if name not in kept:
                remove_area(f"{self._areas}/{name}")

    async def close(self) -> None:
        await asyncio.to_thread(partial(self._pool.shutdown, wait=True))


def remove_area(area: str) -> None:
    """Remove an area, including folders that a run made unreadable. Links are removed, not followed. Blocking."""
    shutil.rmtree(area, ignore_errors=True)
    ahead = [area] if os.path.isdir(area) else []
    while ahead:
        folder = ahead.pop()
        # A folder of another user stays: the sweep at the daemon's start must not fail because of it.
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            ahead += [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    shutil.rmtree(area, ignore_errors=True)


def put_in_place(
    outputs: tuple[StagedOutput, ...], root: str, area: str, aside: str, bounds: Bounds
) -> tuple[KeptOutput, ...]:
    """Put outputs in place, and return those that were not. Blocking."""
    kept, folders = [], set[str]()
    for output in outputs:
        try:
            words = put_output(output, root, area, bounds)
        except (OSError, OperatorError) as error:
            # The folder is gone, or may not be written. The run's version is kept, and the record says so.
            words = f"it could not be put in place: {error}"
        if words is None:
            folders.add(os.path.dirname(output.path))
        else:
            kept.append(_keep_aside(output, words, area, aside))
    for folder in folders:
        # If the folder was removed since, with its content, there is nothing to flush.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _flush_folder(root, folder)
    return tuple(kept)


def put_output(output: StagedOutput, root: str, area: str, bounds: Bounds) -> str | None:
    """Put one output in place. Returns the reason if that was not done; None if the output is in place."""
    folder, name = os.path.split(output.path)
    # Checked here before folders are made, and again below for the folder that was opened.
    words = find_landing_obstacle(output, root, bounds, os.path.realpath(os.path.join(root, folder)))
    folder_fd = None if words is not None else _open_folder(root, folder, is_made=output.new is not None)
    if folder_fd is None:
        return words
    try:
        if (
            words := find_landing_obstacle(output, root, bounds, os.readlink(f"/proc/self/fd/{folder_fd}"))
        ) is not None:
            return words
        present = digest_entry(name, folder_fd)
        if present == output.new and (present is not None or not _exists(name, folder_fd)):
            _remove_temporary(name, folder_fd)
            return None
        # A folder or a device at the target has no digest. It counts as a change, too.
        if present != output.base or (present is None and _exists(name, folder_fd)):
            return _CHANGED
        if output.new is not None:
            return _bring(output, f"{area}/{output.place}", name, folder_fd)
        os.unlink(name, dir_fd=folder_fd)
        return None
    finally:
        os.close(folder_fd)


def find_landing_obstacle(output: StagedOutput, root: str, bounds: Bounds, real: str) -> str | None:
    """Return why an output must not be put into the real folder of its path. None if it may.

    A run may have landed a link earlier, and now name an output behind that link. Only the part of the path that the
    spec spells out may contain links.
    """
    path = os.path.normpath(os.path.join(root, output.path))
    pattern = bounds.find(path)
    if pattern is None:
        return "no write binding matches it"
    spelled = os.path.dirname(pattern.base) if pattern.is_literal else pattern.base
    if real != os.path.normpath(
        os.path.join(os.path.realpath(spelled), os.path.relpath(os.path.dirname(path), spelled))
    ):
        return f"a symbolic link in its path leads to {real}; name that place in the binding"
    target = os.path.join(real, os.path.basename(path))
    if (
        GIT in target.split("/")
        and GIT not in (spelled if pattern.base != path else path).split("/")
        and GIT not in os.path.realpath(root).split("/")
    ):
        return f"it would lie in {target}, and {GIT} is written only if a spec names it"
    guard = next((place for place in bounds.guarded if contains(place, target)), None)
    return None if guard is None else f"it lies in {guard}, which no run may change"


def _bring(output: StagedOutput, staged: str, name: str, folder_fd: int) -> str | None:
    """Rename the output to its target. From another file system, copy it next to the target first."""
    if os.lstat(staged).st_dev == os.fstat(folder_fd).st_dev:
        return _exchange(output, staged, name, folder_fd)
    beside = f"/proc/self/fd/{folder_fd}/{_temporary_name(name)}"
    _remove_temporary(name, folder_fd)
    copy_entry(staged, None, beside)
    digest_entry(beside, None, is_flushed=True)
    words = _exchange(output, beside, name, folder_fd)
    _remove_temporary(name, folder_fd)
    return words


def _exchange(output: StagedOutput, source: str, name: str, folder_fd: int) -> str | None:
    """Exchange the output with the file at the target, then check that file once more.

    If the file was edited in the last moment, a second exchange puts it back.
    """
    flag = NO_REPLACE if output.base is None else EXCHANGE
    problem = rename_at(AT_FDCWD, source, folder_fd, name, flag)
    if problem in (errno.EEXIST, errno.ENOENT):
        return _CHANGED
    if problem in (errno.EINVAL, errno.ENOSYS):
        # This file system can only replace a file, not exchange two.
        os.rename(source, name, dst_dir_fd=folder_fd)
        return None
    if problem:
        raise OSError(problem, os.strerror(problem), name)
    if output.base is None or digest_entry(source, None) == output.base:
        return None
    rename_at(AT_FDCWD, source, folder_fd, name, EXCHANGE)
    return _CHANGED


def _temporary_name(name: str) -> str:
    return f".{name}.wakeful.tmp"


def _remove_temporary(name: str, folder_fd: int) -> None:
    """Remove the temporary file that an interrupted landing left next to the target."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_temporary_name(name), dir_fd=folder_fd)


def _keep_aside(output: StagedOutput, words: str, area: str, aside: str) -> KeptOutput:
    """Move the run's version of an output to `aside`.

    In the result, `kept` is None if the run removed the file, or if its version does not exist any more.
    """
    place = "/".join((aside, *(name for name in output.path.split("/") if name not in ("", ".."))))
    staged = f"{area}/{output.place}"
    try:
        if output.new is not None and os.path.lexists(staged):
            make_private(os.path.dirname(place))
            os.rename(staged, place)
    except OSError as error:
        # For example, the disk is full. The landing ends anyway, because otherwise the session would wait for ever.
        words = f"{words}; and the run's version could not be kept: {error}"
    return KeptOutput(path=output.path, words=words, kept=place if os.path.lexists(place) else None)


def _open_folder(root: str, folder: str, *, is_made: bool) -> int | None:
    """Open the folder of an output, without leaving root. None if the folder is missing and need not be made."""
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
