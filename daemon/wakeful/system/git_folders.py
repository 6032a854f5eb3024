"""Finds the repository of a checkout, and checks that the repository refers back to the checkout.

A `.git` file is a pointer, and a run may have written it. The pointer counts only if the repository points back. The
repository of a linked worktree has a folder in `worktrees/` that names the checkout. The settings of a submodule name
its checkout. Callers ask here before they read a repository or let a run read it. This module reads a few small files,
runs no program, and follows no included settings.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

GIT = ".git"
_LONGEST_FILE_BYTES = 64 * 1024
# The most files of one repository. A larger one is not searched.
_MOST_ENTRIES = 20_000
# The parts of a repository that hold commits and their contents.
_READ_FOLDERS, _READ_FILES = ("objects", "refs", "reftable"), ("HEAD", "config", "packed-refs", "shallow")
_SECTION = re.compile(r"\s*\[\s*([^\]\s\"]+)\s*(\"[^\"]*\")?\s*\]")
_SETTING = re.compile(r"\s*worktree\s*=\s*(.*)", re.IGNORECASE)


# From statx: the flag for the time a file was made, and the offset of that time in the answer.
_AT_FDCWD, _BIRTH, _BIRTH_PLACE = -100, 0x800, 80
# Made once, because each array type that ctypes makes is a reference cycle.
_Answer = ctypes.c_char * 256
_libc = ctypes.CDLL(None, use_errno=True)


class GitDirs(NamedTuple):
    """The folders of one checkout's repository.

    `doubt` is the reason why the repository does not confirm the checkout. None if it does.
    """

    top: str
    git_dir: str
    common_dir: str
    doubt: str | None = None


def find_top(folder: str, *, has_bare: bool = False) -> str | None:
    """Find the nearest folder upwards that contains `.git`, or, with `has_bare`, is a bare repository."""
    while True:
        if os.path.lexists(f"{folder.rstrip('/')}/{GIT}") or (has_bare and is_bare(folder)):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def is_bare(folder: str) -> bool:
    return os.path.isdir(f"{folder}/objects") and os.path.isfile(f"{folder}/HEAD")


def read_git_dirs(top: str) -> GitDirs | None:
    """Read the repository folders of a checkout or a bare repository. None if there is no repository."""
    entry = f"{top.rstrip('/')}/{GIT}"
    try:
        mode = os.lstat(entry).st_mode
    except OSError:
        return GitDirs(top, top, top) if is_bare(top) else None
    if stat.S_ISDIR(mode):
        common = _read_common(entry)
        return GitDirs(
            top, entry, common, None if common == entry else f"{entry} says that its history lies in {common}"
        )
    if stat.S_ISLNK(mode):
        real = os.path.realpath(entry)
        return GitDirs(top, real, _read_common(real), f"{entry} is a symbolic link to {real}")
    pointer = _read_line(entry)
    if not pointer.startswith("gitdir:"):
        return None
    git_dir = os.path.realpath(os.path.join(top, pointer.removeprefix("gitdir:").strip()))
    common = _read_common(git_dir)
    return GitDirs(top, git_dir, common, _doubt_pointer(entry, git_dir, common))


def read_birth(path: str) -> int:
    """Return when a file was made, in nanoseconds. 0 if the file system does not record it.

    An inode number alone does not identify a file, because it is used again after a removal.
    """
    answer = _Answer()
    if not hasattr(_libc, "statx") or _libc.statx(_AT_FDCWD, os.fsencode(path), 0, _BIRTH, answer) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", answer)
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BIRTH_PLACE)
    return seconds * 1_000_000_000 + nanoseconds if mask & _BIRTH else 0


def find_borrowed(common_dir: str) -> str | None:
    """Describe a part of a repository that lies elsewhere: objects of another repository, or a symbolic link.

    None if there is no such part. Blocking.
    """
    if _read_line(f"{common_dir}/objects/info/alternates"):
        return f"{common_dir} borrows objects from {_read_line(f'{common_dir}/objects/info/alternates')}"
    left = _MOST_ENTRIES
    ahead = [f"{common_dir}/{name}" for name in _READ_FOLDERS]
    for path in (*ahead, *(f"{common_dir}/{name}" for name in _READ_FILES)):
        if os.path.islink(path):
            return f"{path} is a symbolic link"
    while ahead:
        for entry in _list_entries(ahead.pop()):
            left -= 1
            if entry.is_symlink():
                return f"{entry.path} is a symbolic link"
            if left <= 0:
                return f"{common_dir} holds more than {_MOST_ENTRIES} files, too many to check"
            if entry.is_dir(follow_symlinks=False):
                ahead.append(entry.path)
    return None


def _doubt_pointer(entry: str, git_dir: str, common: str) -> str | None:
    top = os.path.dirname(entry)
    try:
        owners = os.lstat(entry).st_uid, os.stat(git_dir).st_uid, os.stat(common).st_uid
    except OSError:
        return f"{entry} leads to {git_dir}, which is not there"
    if len(set(owners)) > 1:
        return f"{entry} leads to {git_dir}, which belongs to another user"
    if common != git_dir:
        # Only a process that may write into the repository can make a folder in its `worktrees`.
        is_inside = os.path.dirname(git_dir) == f"{common}/worktrees"
        back = _read_line(f"{git_dir}/gitdir")
        is_back = bool(back) and os.path.realpath(os.path.join(git_dir, back)) == os.path.realpath(entry)
        return (
            None
            if is_inside and is_back
            else f"{entry} leads to {git_dir}, which is no worktree of its repository at this place"
        )
    if any(os.path.realpath(os.path.join(git_dir, path)) == os.path.realpath(top) for path in _list_worktrees(git_dir)):
        return None
    return f"{entry} leads to {git_dir}, whose settings do not name this checkout (core.worktree)"


def _read_common(git_dir: str) -> str:
    common = _read_line(f"{git_dir}/commondir")
    return os.path.realpath(os.path.join(git_dir, common)) if common else git_dir


def _list_worktrees(git_dir: str) -> Iterator[str]:
    """List the values of core.worktree. Files that the settings include are not read."""
    for name in ("config", "config.worktree"):
        section = ""
        for line in _read(f"{git_dir}/{name}").splitlines():
            if (found := _SECTION.match(line)) is not None:
                section = "" if found[2] else found[1].lower()
            elif section == "core" and (setting := _SETTING.fullmatch(line)) is not None:
                yield setting[1].strip().strip('"').replace("\\\\", "\\")


def _list_entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _read_line(path: str) -> str:
    return _read(path).partition("\n")[0].strip()


def _read(path: str) -> str:
    """Read a small file. Empty if it cannot be read. Never waits, because a run may have put a pipe there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.fsdecode(os.read(fd, _LONGEST_FILE_BYTES))
    except OSError:
        return ""
    finally:
        os.close(fd)
