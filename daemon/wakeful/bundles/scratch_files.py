"""Scratch files on their way into a bundle and out of one: the only names in a bundle that become paths.

Going in, only regular files are taken, and what was passed over is told. Coming out, a name that could leave the
folder, collide with another or mean something else on another system refuses the bundle; the folder is built aside and
gets its name when it is whole.
"""

from __future__ import annotations

import os
import shutil
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from wakeful.bundles.format import CHUNK_BYTES, BundleNotWritten, BundleRefused, FileLine
from wakeful.system.blobs import Screen
from wakeful.system.private_folders import make_private

# Folders beside those of the sessions, while a bundle is loaded: files that come, and files that they replace.
STAGED, OLDER = ".loading-", ".older-"
_PARTIAL = ".{}.partial"
_DEPTH = 64
_NAME_BYTES = 255
_PATH_BYTES = 4_000


class ScratchNames:
    """The names of a bundle's files so far; each is judged alone and beside the others."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, path: str) -> None:
        """Take a name in or raise BundleRefused."""
        wrong = judge_name(path)
        if wrong is not None:
            raise BundleRefused(f"a file is called {path!r}: {wrong}; nothing was written")
        # Two names that are one on a system without case, or in another Unicode form, would overwrite each other there.
        folded = unicodedata.normalize("NFC", path).casefold()
        parts = folded.split("/")
        folders = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if folded in self._files or folded in self._folders or folders & self._files:
            raise BundleRefused(f"a file is called {path!r}, which collides with another in it; nothing was written")
        self._files.add(folded)
        self._folders |= folders


def judge_name(path: str) -> str | None:
    """Why a name may not become a path, in words; None when it may."""
    parts = path.split("/")
    try:
        encoded = [part.encode() for part in parts]
    except UnicodeEncodeError:
        return "that is not Unicode"
    if any(part in ("", ".", "..") for part in parts):
        return "a name must be relative and stay in its folder"
    if len(parts) > _DEPTH or len(path.encode()) > _PATH_BYTES or any(len(part) > _NAME_BYTES for part in encoded):
        return "that is longer than file systems take"
    if any(ord(sign) < 32 or sign in "\\:\x7f" for sign in path):
        return "it has signs that are no part of names everywhere"
    return None


def find_files(folder: Path, screen: Screen | None = None) -> tuple[list[FileLine], list[str]]:
    """The regular files below a folder in the order of names, and what was passed over: links, devices,
    names no bundle takes, secrets."""
    found: list[FileLine] = []
    passed: list[str] = []
    names = ScratchNames()
    for path, relative in sorted(_walk(folder), key=lambda entry: entry[1]):
        state = os.lstat(path)
        try:
            if not stat.S_ISREG(state.st_mode):
                raise BundleRefused("no regular file")
            names.add(relative)
        except BundleRefused:
            passed.append(relative.encode(errors="backslashreplace").decode())
            continue
        if screen and _holds_secret(path, screen):
            passed.append(f"{relative} (holds a secret)")
            continue
        found.append(FileLine(path=relative, size=state.st_size, is_executable=bool(state.st_mode & 0o100)))
    return found, passed


def _holds_secret(path: str, screen: Screen) -> bool:
    """In pieces, of which each is looked at with the end of the one before: no secret is longer than that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        before = b""
        while piece := file.read(CHUNK_BYTES):
            if screen.find(before + piece) is not None:
                return True
            before = piece
    return False


def read_file(folder: Path, line: FileLine) -> Iterator[bytes]:
    """The content of a file in chunks, exactly as many bytes as were declared;
    one that changed meanwhile ends the save."""
    left = line.size
    descriptor = os.open(folder / line.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        while left > 0:
            piece = file.read(min(left, CHUNK_BYTES))
            if not piece:
                raise BundleNotWritten(
                    f"{folder / line.path} became shorter while it was read; save again when nothing writes there"
                )
            left -= len(piece)
            yield piece


class ScratchFolder:
    """A folder being filled from a bundle; it gets its name by `finish`, and is gone without a trace otherwise."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() or folder.is_symlink():
            raise BundleRefused(f"{folder} exists; scratch files are brought into a folder of their own")
        self._folder = folder
        self._names = ScratchNames()
        self._partial = folder.with_name(_PARTIAL.format(folder.name))
        shutil.rmtree(self._partial, ignore_errors=True)
        make_private(self._partial)

    def write(self, line: FileLine, pieces: Iterable[bytes]) -> None:
        """One file.

        Its name is judged here again: what was verified may have been changed since. Nothing in our folder is a link.
        """
        self._names.add(line.path)
        path = self._partial / line.path
        make_private(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o700 if line.is_executable else 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)

    def finish(self) -> None:
        os.rename(self._partial, self._folder)

    def discard(self) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Before anybody loads: a load that died left folders that its repetition makes anew."""
    for pattern in (f"{STAGED}*", f"{OLDER}*", _PARTIAL.format(f"{STAGED}*")):
        for path in folder.glob(pattern):
            shutil.rmtree(path)


def _walk(folder: Path) -> Iterator[tuple[str, str]]:
    for where, folders, files in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(where, name))]
        for name in (*files, *linked):
            path = os.path.join(where, name)
            yield path, os.path.relpath(path, folder)
