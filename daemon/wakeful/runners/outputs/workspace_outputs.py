"""Finds the outputs that a run made, changed or removed in its workspace, and its other changes there (rule 27).

`Preparation` makes one for a run whose spec says `workspace`: `take_stock` before anything of the run exists, `collect`
(by `saving`) when its last process is gone; both block, and run in a thread. The workspace was laid out by
`workspaces/run_workspaces.py`; what is collected is recorded and put in place as the outputs of a strict run are. No
link is followed in it, and nothing of git is run there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from wakeful.core.looking.patterns import Excludes, contains, parse_under
from wakeful.core.record.observations import StagedOutput
from wakeful.core.spec.session import DEFAULT_EXCLUDES
from wakeful.errors import OperatorError
from wakeful.runners.contract import WorkspaceOrder
from wakeful.runners.isolation.opened_places import LeadsOutside, open_beneath
from wakeful.runners.outputs.staging import digest_entry, shorten_told, stamp_of

# Written by every run of python and by every question to git: nobody wants to hear of it.
_PASSED_OVER = frozenset({"__pycache__", ".git"})
# Files that a run leaves there are looked at name by name, in memory.
MOST_FILES = 500_000
_LONGEST_HEAD_BYTES = 4096


class _Given(Struct, frozen=True):
    """A file as the run found it: its stat, and of an output what stood at its real place."""

    stamp: tuple[int, ...]
    base: str | None = None


class WorkspaceArea:
    """One run's.

    `staging` is the area in the state folder that `place.folder` lies in, `root` what stands for the real one.
    """

    def __init__(self, staging: str, root: str, place: WorkspaceOrder) -> None:
        self._staging = staging
        self._root = root
        self._place = place
        self._real_folder = os.path.realpath(place.folder)
        self._outputs = [
            (parse_under(text, root), Excludes.build(root, DEFAULT_EXCLUDES, exclude))
            for text, exclude in place.outputs
        ]
        # By path below the root of the workspace; what lies beside that root begins with `..`.
        self._given: dict[str, _Given] = {}

    def take_stock(self) -> None:
        """Outputs get the rights and owners of the real ones, so that landing changes contents alone."""
        for below, path, _ in self._walk():
            base = self._match_real(below, path) if self._is_output(below) else None
            with contextlib.suppress(FileNotFoundError):
                self._given[below] = _Given(stamp_of(os.lstat(path)), base)

    def find_real(self, path: str) -> str | None:
        """Where that is which a path in the workspace stands for; None for a path elsewhere."""
        below = self._find_below(path)
        return None if below is None else os.path.normpath(os.path.join(self._place.real_root, below))

    def was_given(self, path: str) -> bool:
        """Did the run find it there? What it removed since was not kept from it."""
        below = self._find_below(path)
        return below is not None and (below in self._given or any(name.startswith(f"{below}/") for name in self._given))

    def _find_below(self, path: str) -> str | None:
        """Below root, as `_given` has it. The kernel names it with links resolved, a program perhaps not."""
        folder = next((folder for folder in (self._place.folder, self._real_folder) if contains(folder, path)), None)
        return (
            None
            if folder is None
            else os.path.relpath(path, os.path.join(folder, os.path.relpath(self._root, self._place.folder)))
        )

    def collect(self) -> tuple[tuple[StagedOutput, ...], tuple[str, ...]]:
        """The outputs that the run changed, flushed to disk, and its other changes, which stay behind."""
        outputs, undeclared, found = [], [], set[str]()
        for below, path, is_landable in self._walk():
            found.add(below)
            given = self._given.get(below)
            if given is not None and stamp_of(os.lstat(path)) == given.stamp:
                continue
            if not is_landable or not self._is_output(below):
                undeclared.append(below)
            elif (output := self._compare(below, path, given)) is not None:
                outputs.append(output)
        for below, given in self._given.items():
            if below in found:
                continue
            if given.base is not None:
                outputs.append(StagedOutput(path=below, base=given.base, new=None, place=self._name_place(below)))
            else:
                undeclared.append(below)
        return tuple(outputs), (*self._tell_commits(), *shorten_told(undeclared))

    def _walk(self) -> Iterator[tuple[str, str, bool]]:
        """Every file: its path below root, where it lies, and whether it is one that can land."""
        ahead, count = [self._place.folder], 0
        while ahead:
            for entry in os.scandir(ahead.pop()):
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _PASSED_OVER:
                        ahead.append(entry.path)
                    continue
                count += 1
                if count > MOST_FILES:
                    raise OperatorError(
                        f"its workspace has more than {MOST_FILES} files, too many to be looked through; "
                        "narrow its bindings, or its root"
                    )
                yield (
                    os.path.relpath(entry.path, self._root),
                    entry.path,
                    entry.is_symlink() or entry.is_file(follow_symlinks=False),
                )

    def _is_output(self, below: str) -> bool:
        path = f"{self._root}/{below}"
        return not below.startswith("../") and any(
            pattern.matches(path) and excludes.covers(path, len(pattern.base) + 1) is None
            for pattern, excludes in self._outputs
        )

    def _match_real(self, below: str, path: str) -> str | None:
        """The digest of what stands at an output's real place, as the run finds it; its rights and owner come along."""
        folder, name = os.path.split(below)
        try:
            folder_fd = open_beneath(self._place.real_root, folder or ".")
        except (FileNotFoundError, NotADirectoryError, LeadsOutside):
            folder_fd = None
        if folder_fd is None:
            os.unlink(path)
            return None
        try:
            real = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            if not stat.S_ISREG(real.st_mode) or not stat.S_ISREG(os.lstat(path).st_mode):
                # Of a link that leads outside the workspace has what it leads to: what will be replaced is the link.
                return digest_entry(name, folder_fd)
            if os.geteuid() == 0:
                os.chown(path, real.st_uid, real.st_gid, follow_symlinks=False)
            os.chmod(path, stat.S_IMODE(real.st_mode))
            os.utime(path, ns=(real.st_atime_ns, real.st_mtime_ns))
        except FileNotFoundError:
            # Removed a moment ago: what the run does not find it does not make anew by leaving it alone.
            os.unlink(path)
            return None
        finally:
            os.close(folder_fd)
        # The digest of the run's copy, not of the file at the real place. If somebody changed that file since it was
        # copied, the change is a conflict with the run.
        return digest_entry(path, None)

    def _compare(self, below: str, path: str, given: _Given | None) -> StagedOutput | None:
        new, base = digest_entry(path, None, is_flushed=True), given.base if given is not None else None
        # Written anew, and the same.
        if new is None or new == base:
            return None
        return StagedOutput(path=below, base=base, new=new, place=self._name_place(below))

    def _name_place(self, below: str) -> str:
        return os.path.relpath(os.path.join(self._root, below), self._staging)

    def _tell_commits(self) -> tuple[str, ...]:
        commit = self._place.commit
        now = _read_head(f"{self._place.folder}/.git") if commit is not None else None
        return (f"commits up to {now[:12]}, which went with its worktree",) if now not in (None, commit) else ()


def _read_head(git_dir: str) -> str | None:
    """The commit a repository is at, by its files alone: a run wrote them, so git is not asked;
    None where they do not say."""
    words = _read_line(f"{git_dir}/HEAD")
    if words.startswith("ref: refs/heads/") and ".." not in words:
        words = _read_line(f"{git_dir}/{words.removeprefix('ref: ')}")
    return words if len(words) in (40, 64) and all(letter in "0123456789abcdef" for letter in words) else None


def _read_line(path: str) -> str:
    """A run may have left anything there, also a link out of the workspace, or a pipe that nobody writes to."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, _LONGEST_HEAD_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(fd)
