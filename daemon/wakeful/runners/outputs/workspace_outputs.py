"""Finds the outputs that a run made, changed or removed in its workspace, and its other changes there (rule 27).

`Preparation` makes a `WorkspaceArea` for a run whose spec has `workspace`, and calls `take_stock` before the run
starts. `run_results` calls `collect` when the run's last process has ended. Both block, and run in a thread.
`workspaces/run_workspaces.py` made the workspace. Collected outputs are recorded and put in place like those of a
strict run. No link is followed in the workspace, and git is not run there.
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

# Folders that are not reported: every run of Python and every call of git writes there.
_PASSED_OVER = frozenset({"__pycache__", ".git"})
# The most files in a workspace, because all of their names are held in memory.
MOST_FILES = 500_000
_LONGEST_HEAD_BYTES = 4096


class _Given(Struct, frozen=True):
    """A file as the run found it: its stamp, and for an output the digest of the file that it will replace."""

    stamp: tuple[int, ...]
    base: str | None = None


class WorkspaceArea:
    """The workspace of one run.

    `staging` is the folder in the state folder that contains `place.folder`. `root` is the run's root in the workspace.
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
        # Path relative to the workspace's root -> the file. Paths outside that root begin with `..`.
        self._given: dict[str, _Given] = {}

    def take_stock(self) -> None:
        """Record every file before the run. Blocking.

        Outputs get the rights and owner of the files that they will replace, so that landing changes only contents.
        """
        for below, path, _ in self._walk():
            base = self._match_real(below, path) if self._is_output(below) else None
            with contextlib.suppress(FileNotFoundError):
                self._given[below] = _Given(stamp_of(os.lstat(path)), base)

    def find_real(self, path: str) -> str | None:
        """Return the path in the real root that a path in the workspace stands for. None if it lies elsewhere."""
        below = self._find_below(path)
        return None if below is None else os.path.normpath(os.path.join(self._place.real_root, below))

    def was_given(self, path: str) -> bool:
        """Did this path exist in the workspace when the run began? The run may have removed it since."""
        below = self._find_below(path)
        return below is not None and (below in self._given or any(name.startswith(f"{below}/") for name in self._given))

    def _find_below(self, path: str) -> str | None:
        """Return the path relative to the workspace's root, as `_given` has it. None if it lies elsewhere.

        The kernel reports paths with links resolved, and a program may not.
        """
        folder = next((folder for folder in (self._place.folder, self._real_folder) if contains(folder, path)), None)
        return (
            None
            if folder is None
            else os.path.relpath(path, os.path.join(folder, os.path.relpath(self._root, self._place.folder)))
        )

    def collect(self) -> tuple[tuple[StagedOutput, ...], tuple[str, ...]]:
        """Collect the outputs that the run changed, flushed to disk, and its other changes, which do not land.

        Blocking.
        """
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
        """Walk all files: each one's path relative to root, its full path, and whether it can land."""
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
                        f"its workspace has more than {MOST_FILES} files, too many to be checked; "
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
        """Give an output the rights, owner and times of the real file. Returns the digest that landing compares with.

        If there is no real file, remove the output from the workspace and return None.
        """
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
                # For a link that leads outside, the workspace has a copy of its target. Landing replaces the link, so
                # the digest is that of the link.
                return digest_entry(name, folder_fd)
            if os.geteuid() == 0:
                os.chown(path, real.st_uid, real.st_gid, follow_symlinks=False)
            os.chmod(path, stat.S_IMODE(real.st_mode))
            os.utime(path, ns=(real.st_atime_ns, real.st_mtime_ns))
        except FileNotFoundError:
            # The real file was removed a moment ago. Without this, an untouched copy could bring it back.
            os.unlink(path)
            return None
        finally:
            os.close(folder_fd)
        # The digest of the run's copy, not of the real file. If the real file was changed since it was copied, that
        # change is a conflict with the run.
        return digest_entry(path, None)

    def _compare(self, below: str, path: str, given: _Given | None) -> StagedOutput | None:
        new, base = digest_entry(path, None, is_flushed=True), given.base if given is not None else None
        # The run wrote the same content again.
        if new is None or new == base:
            return None
        return StagedOutput(path=below, base=base, new=new, place=self._name_place(below))

    def _name_place(self, below: str) -> str:
        return os.path.relpath(os.path.join(self._root, below), self._staging)

    def _tell_commits(self) -> tuple[str, ...]:
        commit = self._place.commit
        now = _read_head(f"{self._place.folder}/.git") if commit is not None else None
        return (f"commits up to {now[:12]}, which were removed with its worktree",) if now not in (None, commit) else ()


def _read_head(git_dir: str) -> str | None:
    """Read a repository's current commit from its files. None if they do not name one.

    git is not run here, because the run may have written these files.
    """
    words = _read_line(f"{git_dir}/HEAD")
    if words.startswith("ref: refs/heads/") and ".." not in words:
        words = _read_line(f"{git_dir}/{words.removeprefix('ref: ')}")
    return words if len(words) in (40, 64) and all(letter in "0123456789abcdef" for letter in words) else None


def _read_line(path: str) -> str:
    """Read a small file. Empty if it cannot be read.

    The run may have replaced the file, for example by a link out of the workspace, or by a pipe without a writer.
    """
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
