"""Puts staged outputs in place, by rename, each one whole (rule 27).

Landing is idempotent: the next daemon finishes a landing that an earlier one began.

The reactor calls `land` once `outputs_staged` is durable; `Landing` reports the result on the loop. An output that is
in place already is skipped. A file that is still as the run found it is replaced. A file that somebody changed
meanwhile stays, and the run's version is kept aside in the state folder. An output from another file system is first
copied to a name beside the target (`*.tmp`, which nobody watches) and renamed from there. Blocks in its own threads.
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
from wakeful.runners.outputs.writers import Writers
from wakeful.system.blocking_pool import Pool
from wakeful.system.git_folders import GIT
from wakeful.system.openat2 import AT_FDCWD, EXCHANGE, NO_REPLACE, rename_at
from wakeful.system.private_folders import make_private

_POOL_SIZE = 2
# How long after a landing that failed in us it is tried again.
_AGAIN_SECONDS = 5.0
_CHANGED = "others changed it while the run was under way; theirs stands"


class Bounds(Struct, frozen=True, kw_only=True):
    """Where outputs may land: what write bindings mean, and nothing that no run may change (`guarded`,
    links resolved)."""

    meant: tuple[tuple[Pattern, Excludes], ...]
    guarded: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: SessionSpec, guarded: tuple[str, ...]) -> Bounds:
        written = (binding for binding in spec.files if binding.access != "read")
        meant = (
            (parse_under(one.pattern, spec.root), Excludes.build(spec.root, DEFAULT_EXCLUDES, one.exclude))
            for one in written
        )
        # A fork's root may lie in the state folder: it was made for it there.
        own = f"{os.path.realpath(spec.root)}/"
        return cls(meant=tuple(meant), guarded=tuple(place for place in guarded if not own.startswith(f"{place}/")))

    def find(self, path: str) -> Pattern | None:
        """The pattern of a write binding that means this path."""
        return next(
            (
                pattern
                for pattern, excludes in self.meant
                if pattern.matches(path) and excludes.covers(path, len(pattern.base) + 1) is None
            ),
            None,
        )


class Landing:
    """Constructed on the loop.

    `areas` holds the write areas of runs by their ids, `aside` what could not be put in place.
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
            # Outputs that are put in place halfway are put in place again, as after a crash:
            # nobody else would ever end this run.
            self._loop.call_exception_handler(
                {
                    "message": f"{run_id}: its outputs could not be put in place, which is tried again",
                    "exception": error,
                }
            )
            self._loop.call_later(_AGAIN_SECONDS, again)
            return
        self._report(LandingEnded(session=session, run_id=run_id, kept=done.result()))

    def discard(self, run_id: str) -> None:
        """The run is over: nothing of its area is wanted any more."""
        area = f"{self._areas}/{run_id}"
        if os.path.isdir(area):
            self._pool.submit(remove_area, area)

    def sweep(self, wanted: Iterable[str]) -> None:
        """Blocks. Remove what runs of a daemon that died left, but for those that still have to land."""
        kept = set(wanted)
        for name in os.listdir(self._areas) if os.path.isdir(self._areas) else ():
            if name not in kept:
                remove_area(f"{self._areas}/{name}")

    async def close(self) -> None:
        await asyncio.to_thread(partial(self._pool.shutdown, wait=True))


def remove_area(area: str) -> None:
    """Blocks.

    Also where a run shut its folders, to spite us or because its tools do so; links are removed, not followed.
    """
    shutil.rmtree(area, ignore_errors=True)
    ahead = [area] if os.path.isdir(area) else []
    while ahead:
        folder = ahead.pop()
        os.chmod(folder, 0o700)
        ahead += [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    shutil.rmtree(area, ignore_errors=True)


def put_in_place(
    outputs: tuple[StagedOutput, ...], root: str, area: str, aside: str, bounds: Bounds
) -> tuple[KeptOutput, ...]:
    """Blocks. Returns what was not put in place."""
    kept, folders = [], set[str]()
    for output in outputs:
        try:
            words = put_output(output, root, area, bounds)
        except (OSError, OperatorError) as error:
            # No place for it any more, or no right to write there: nothing is lost, and somebody is told.
            words = f"it could not be put in place: {error}"
        if words is None:
            folders.add(os.path.dirname(output.path))
        else:
            kept.append(_keep_aside(output, words, area, aside))
    for folder in folders:
        # Gone again already, with what was put in it: there is nothing to flush.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _flush_folder(root, folder)
    return tuple(kept)


def put_output(output: StagedOutput, root: str, area: str, bounds: Bounds) -> str | None:
    """Why it was not put in place, in words; None when it is there."""
    folder, name = os.path.split(output.path)
    # Before folders are made, and once more of the one that was opened.
    words = find_astray(output, root, bounds, os.path.realpath(os.path.join(root, folder)))
    folder_fd = None if words is not None else _open_folder(root, folder, is_made=output.new is not None)
    if folder_fd is None:
        return words
    try:
        if (words := find_astray(output, root, bounds, os.readlink(f"/proc/self/fd/{folder_fd}"))) is not None:
            return words
        present = digest_entry(name, folder_fd)
        if present == output.new and (present is not None or not _exists(name, folder_fd)):
            _remove_passing(name, folder_fd)
            return None
        # A folder or a device in its place has no digest, and is nobody's base.
        if present != output.base or (present is None and _exists(name, folder_fd)):
            return _CHANGED
        if output.new is not None:
            return _bring(output, f"{area}/{output.place}", name, folder_fd)
        os.unlink(name, dir_fd=folder_fd)
        return None
    finally:
        os.close(folder_fd)


def find_astray(output: StagedOutput, root: str, bounds: Bounds, real: str) -> str | None:
    """Why an output must not be put into the folder that its way leads to, in words.

    A run may have landed a link before, and name what lies behind it now:
    only what the author of the spec spelled out may lead elsewhere.
    """
    path = os.path.normpath(os.path.join(root, output.path))
    pattern = bounds.find(path)
    if pattern is None:
        return "no write binding means it"
    spelled = os.path.dirname(pattern.base) if pattern.is_literal else pattern.base
    if real != os.path.normpath(
        os.path.join(os.path.realpath(spelled), os.path.relpath(os.path.dirname(path), spelled))
    ):
        return f"a symbolic link on the way leads to {real}; name that place in the binding"
    target = os.path.join(real, os.path.basename(path))
    if (
        GIT in target.split("/")
        and GIT not in (spelled if pattern.base != path else path).split("/")
        and GIT not in os.path.realpath(root).split("/")
    ):
        return f"it would lie in {target}, and {GIT} is written only where a spec names it"
    guard = next((place for place in bounds.guarded if contains(place, target)), None)
    return None if guard is None else f"it lies in {guard}, which no run may change"


def _bring(output: StagedOutput, staged: str, name: str, folder_fd: int) -> str | None:
    """Rename it into place, from beside it where it lies on another file system."""
    if os.lstat(staged).st_dev == os.fstat(folder_fd).st_dev:
        return _exchange(output, staged, name, folder_fd)
    beside = f"/proc/self/fd/{folder_fd}/{_pass_by(name)}"
    _remove_passing(name, folder_fd)
    copy_entry(staged, None, beside)
    digest_entry(beside, None, is_flushed=True)
    words = _exchange(output, beside, name, folder_fd)
    _remove_passing(name, folder_fd)
    return words


def _exchange(output: StagedOutput, source: str, name: str, folder_fd: int) -> str | None:
    """Exchange the output with the file at the target, then check that file once more.

    If somebody edited it in the last moment, a second exchange puts it back."""
    flag = NO_REPLACE if output.base is None else EXCHANGE
    problem = rename_at(AT_FDCWD, source, folder_fd, name, flag)
    if problem in (errno.EEXIST, errno.ENOENT):
        return _CHANGED
    if problem in (errno.EINVAL, errno.ENOSYS):
        # A file system that knows no more than to replace.
        os.rename(source, name, dst_dir_fd=folder_fd)
        return None
    if problem:
        raise OSError(problem, os.strerror(problem), name)
    if output.base is None or digest_entry(source, None) == output.base:
        return None
    rename_at(AT_FDCWD, source, folder_fd, name, EXCHANGE)
    return _CHANGED


def _pass_by(name: str) -> str:
    return f".{name}.wakeful.tmp"


def _remove_passing(name: str, folder_fd: int) -> None:
    """Remove the file that a landing which was cut short left beside the target."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_pass_by(name), dir_fd=folder_fd)


def _keep_aside(output: StagedOutput, words: str, area: str, aside: str) -> KeptOutput:
    """Says where the run's own is now: nowhere, where it was a removal or is gone."""
    place = "/".join((aside, *(name for name in output.path.split("/") if name not in ("", ".."))))
    staged = f"{area}/{output.place}"
    try:
        if output.new is not None and os.path.lexists(staged):
            make_private(os.path.dirname(place))
            os.rename(staged, place)
    except OSError as error:
        # The disk is full: a landing that never ended would hold its session for ever.
        words = f"{words}; and the run's own could not be kept: {error}"
    return KeptOutput(path=output.path, words=words, kept=place if os.path.lexists(place) else None)


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
