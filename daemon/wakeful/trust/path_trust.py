"""Trust in the path to a spec: finds the folders and symbolic links on it, from / on, that a run may have put there.

The reader of specs calls it. A run that may write next to sessions.d/ can prepare a folder, and a later run can rename
it to sessions.d/ or link to it. Each file in that folder is then older than the later run. So folders and links are
trusted as files are, under the name `PLACE#way`. This module reads names, inodes and times, never contents.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from wakeful.errors import OperatorError
from wakeful.trust.ledger import Ledger, digest_content

# The suffix of a folder or link in the ledger, after its path.
WAY_MARK = "#way"
# The most links of a path: as many as the kernel follows.
MOST_LINKS = 40

Look = Callable[[str], "Step | None"]


class RunsBySpan(Protocol):
    """Finds the runs that were active at a time in microseconds, and describes them (possible_writers.py)."""

    def find(self, path: str, changed_at: int, *, is_guarded: bool) -> str | None:
        """Find the run that could have changed this path at that time.

        `is_guarded`: isolation shields the path from runs.
        """
        ...

    def find_any(self, changed_at: int) -> str | None:
        """Find any run that was active at that time."""
        ...


class NoRuns:
    """Finds no runs. For a reader of specs without a daemon, such as that of `check`."""

    def find(self, path: str, changed_at: int, *, is_guarded: bool) -> str | None:
        return None

    def find_any(self, changed_at: int) -> str | None:
        return None


class Step(NamedTuple):
    """One entry of a path. `place` contains no link; `target` is the text of a link."""

    place: str
    found: os.stat_result
    target: str | None = None

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def mark(self) -> bytes | None:
        """The identity of a link or folder that a person trusts. None for a file, which is trusted by its content.

        The device is left out, because its number changes from boot to boot, and no rename crosses devices.
        """
        if self.target is not None:
            return b"link to " + os.fsencode(self.target)
        return f"folder with inode {self.found.st_ino}".encode() if self.is_folder else None

    @property
    def key(self) -> str:
        return self.place + WAY_MARK

    @property
    def stat_key(self) -> tuple[int, int, int, int]:
        """The stat key, as `specs/folder_reading` makes it for a file."""
        return self.found.st_mtime_ns, self.found.st_ctime_ns, self.found.st_size, self.found.st_ino


def follow_way(path: str, look: Look) -> list[Step]:
    """List the steps of an absolute path. The last one is the path itself, unless an entry on the way is missing."""
    steps: list[Step] = []
    place, links = "/", 0
    names = path.split("/")[::-1]
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            place = os.path.dirname(place)
            continue
        step = look(os.path.join(place, name))
        if step is None:
            break
        steps.append(step)
        if step.target is None:
            place = step.place
            continue
        links += 1
        if links > MOST_LINKS:
            break
        names += step.target.split("/")[::-1]
        place = "/" if step.target.startswith("/") else place
    return steps


def read_mark(key: str) -> bytes | None:
    """Read the present mark for a key of the ledger. None if there is neither a folder nor a link."""
    step = StepCache().look(key.removesuffix(WAY_MARK))
    return None if step is None else step.mark


class StepCache:
    """Looks at each path once, by its name. A new cache is made for each reading."""

    def __init__(self) -> None:
        self._known: dict[str, Step | None] = {}

    def look(self, place: str) -> Step | None:
        if place not in self._known:
            self._known[place] = self._find(place)
        return self._known[place]

    def _find(self, place: str) -> Step | None:
        try:
            found = os.lstat(place)
            return Step(place, found, os.readlink(place) if stat.S_ISLNK(found.st_mode) else None)
        except OSError:
            return None


class PathOpener:
    """Opens each entry relative to its open parent folder, so that a folder swapped meanwhile cannot mix two paths."""

    def __init__(self) -> None:
        self._folders: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._folders["/"] = os.open("/", os.O_PATH | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._folders.values():
            os.close(fd)

    def look(self, place: str) -> Step | None:
        folder, name = os.path.split(place)
        if folder not in self._folders:
            return None
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folders[folder])
        except OSError:
            return None
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode) and place not in self._folders:
            self._folders[place] = fd
            return Step(place, found)
        try:
            # With an empty name, readlink reads the link that is open.
            return Step(place, found, os.readlink("", dir_fd=fd) if stat.S_ISLNK(found.st_mode) else None)
        finally:
            os.close(fd)


class PathTrust:
    """Stores the folders and links on the paths to specs in the ledger.

    It doubts the folders and links that a run may have put there.
    """

    def __init__(self, ledger: Ledger, runs: RunsBySpan) -> None:
        self._ledger = ledger
        self._runs = runs
        self._step_cache = StepCache()
        self._judged: set[str] = set()
        self._fresh: dict[str, bytes | None] = {}
        self._has_read = False
        # The ledger as it was before this reading.
        self._before = ledger.pages.trusted

    def begin(self) -> None:
        """Start a reading: forget what was seen."""
        self._step_cache, self._judged = StepCache(), set()
        self._before = self._ledger.pages.trusted

    def finish(self) -> None:
        """End a reading: from now on inodes are known to be those of this boot and these mounts."""
        self._has_read = True

    def judge(self, paths: Iterable[str], guarded: str) -> None:
        """Check the folders and links on these paths.

        `guarded` is the folder that isolation shields from runs, if this machine can do that.
        """
        for path in paths:
            self._judge_steps(follow_way(path, self._step_cache.look), guarded)
        if self._fresh:
            # Write the ledger once for all of them. If the disk is full, the next reading checks them again.
            with contextlib.suppress(OperatorError):
                self._ledger.trust(self._fresh)
            self._fresh = {}

    def list_doubted(self, path: str) -> tuple[str, ...]:
        """List the keys of the folders and links on this path that are in doubt."""
        doubted = [key for key in self._ledger.pages.doubted if key.endswith(WAY_MARK)]
        if not doubted:
            return ()
        return tuple(step.key for step in follow_way(path, self._step_cache.look) if step.key in doubted)

    def find_doubt(self, path: str, stat_key: tuple[int, int, int, int] | None, guarded: str | None) -> str | None:
        """Explain why the text that was just read at this path may be a run's work. None if it cannot be.

        `stat_key` belongs to the file that was read, or is None if the file is gone. `guarded` is as in `judge`, or
        None if nothing shields this file.
        """
        with PathOpener() as hold:
            steps = follow_way(path, hold.look)
        ways, last = [step for step in steps if step.mark is not None], steps[-1] if steps else None
        for step in ways:
            if (words := self._find_doubt_of(step)) is not None:
                return words
        folder = next((step for step in reversed(ways) if step.is_folder), None)
        place = last.place if last is not None and last.mark is None else path
        is_guarded = guarded is not None and _lies_in(guarded, place)
        times = [] if folder is None else [folder.found.st_ctime_ns]
        if last is not None and last.mark is None:
            times.append(last.found.st_ctime_ns)
        if stat_key is not None:
            # The file that was read may have been moved away since, so its own change time counts as well.
            times.append(stat_key[1])
        for changed_ns in times:
            if (run := self._runs.find(place, changed_ns // 1000, is_guarded=is_guarded)) is not None:
                return f"it changed during {run}, which could write it"
        # A hard link lets a run write the file under another name, which is unknown here.
        if (
            last is not None
            and last.mark is None
            and last.found.st_nlink > 1
            and (run := self._runs.find_any(last.found.st_ctime_ns // 1000)) is not None
        ):
            return f"it changed during {run}, and has a second name (a hard link) by which it could be written"
        return None

    def _find_doubt_of(self, step: Step) -> str | None:
        mark, pages = step.mark, self._ledger.pages
        if step.key in pages.doubted:
            return pages.doubted[step.key]
        # If the mark is not the trusted one, the entry was swapped a moment ago. At the next reading `judge` finds out
        # which run did that.
        is_known = mark is not None and pages.trusted.get(step.key) == digest_content(mark)
        if is_known:
            return None
        run = self._runs.find(os.path.dirname(step.place), step.found.st_ctime_ns // 1000, is_guarded=False)
        return None if run is None else _say_step(step, run)

    def _judge_steps(self, steps: list[Step], guarded: str) -> None:
        is_shielded = True
        for step in steps:
            if step.key not in self._judged and step.mark is not None:
                self._judged.add(step.key)
                self._judge_step(step, step.mark, is_guarded=is_shielded and _lies_in(guarded, step.place))
            # Isolation shields only the folder that was there when the run started. Below a doubted entry nothing is
            # shielded.
            is_shielded = is_shielded and step.key not in self._ledger.pages.doubted

    def _judge_step(self, step: Step, mark: bytes, *, is_guarded: bool) -> None:
        pages, key = self._ledger.pages, step.key
        known = pages.trusted.get(key)
        if known == digest_content(mark):
            if key in pages.doubted:
                self._ledger.clear(key)
            return
        if key in pages.doubted:
            return
        folder = os.path.dirname(step.place)
        times = [step.found.st_ctime_ns]
        if f"{folder}{WAY_MARK}" not in self._before:
            # This is the first look at the folder. A folder's time shows when an entry changed, not when the folder
            # itself came.
            times = [] if step.is_folder else times
        elif self._has_read and (above := self._step_cache.look(folder)) is not None:
            # A rename changes the time of the folder above on every file system, and that of the moved entry on most.
            # But after a boot some file systems give folders other inodes. Then the folder above proves nothing.
            times.append(above.found.st_ctime_ns)
        runs = (self._runs.find(folder, changed_ns // 1000, is_guarded=is_guarded) for changed_ns in times)
        run = next((one for one in runs if one is not None), None)
        if run is None:
            self._fresh[key] = mark
        else:
            self._ledger.doubt(key, _say_step(step, run), known)


def _say_step(step: Step, run: str) -> str:
    what = "the link" if step.target is not None else "the folder"
    return f"{what} {step.place} was put there during {run}, which could write there"


def _lies_in(folder: str, place: str) -> bool:
    return f"{place}/".startswith(f"{folder.rstrip('/')}/")
