"""Copies scratch files into a bundle and out of one. Of all names in a bundle, only theirs become paths.

A save takes only regular files and reports those it skipped. A load refuses the bundle if a file name could leave the
folder, collide with another one, or mean something else on another system. The folder is filled under a temporary name
and renamed when it is complete.
"""

from __future__ import annotations

import os
import shutil
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from wakeful.bundles.format import CHUNK_BYTES, BundleNotWritten, BundleRefused, FileLine
from wakeful.system.blobs import SecretFinder
from wakeful.system.private_files import make_private

# The prefixes of temporary folders next to those of the sessions: for files that are being loaded, and for the files
# that they replace.
STAGED, OLDER = ".loading-", ".older-"
_PARTIAL = ".{}.partial"
_DEPTH = 64
_NAME_BYTES = 255
_PATH_BYTES = 4_000


class ScratchNames:
    """The file names of a bundle so far. Each new name is checked by itself and against the others."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, path: str) -> None:
        """Add a name. Raises BundleRefused if the name is unsuitable or collides with another."""
        wrong = judge_name(path)
        if wrong is not None:
            raise BundleRefused(f"a file is called {path!r}: {wrong}; nothing was written")
        # Names that differ only in case or Unicode form would overwrite each other on some systems.
        folded = unicodedata.normalize("NFC", path).casefold()
        parts = folded.split("/")
        folders = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if folded in self._files or folded in self._folders or folders & self._files:
            raise BundleRefused(f"a file is called {path!r}, which collides with another in it; nothing was written")
        self._files.add(folded)
        self._folders |= folders


def judge_name(path: str) -> str | None:
    """Return the reason why a name may not become a path, or None if it may."""
    parts = path.split("/")
    try:
        encoded = [part.encode() for part in parts]
    except UnicodeEncodeError:
        return "that is not Unicode"
    if any(part in ("", ".", "..") for part in parts):
        return "a name must be relative and stay in its folder"
    if len(parts) > _DEPTH or len(path.encode()) > _PATH_BYTES or any(len(part) > _NAME_BYTES for part in encoded):
        return "that is too long for file systems"
    if any(ord(sign) < 32 or sign in "\\:\x7f" for sign in path):
        return "it has characters that not every file system allows"
    return None


def find_files(folder: Path, screen: SecretFinder | None = None) -> tuple[list[FileLine], list[str]]:
    """Find the regular files below a folder, sorted by name, and list the files that were skipped.

    Links, devices, unsuitable names, and files that hold a secret are skipped.
    """
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


def _holds_secret(path: str, screen: SecretFinder) -> bool:
    """Does the file hold a secret? Each piece is searched together with the one before, as a secret may span both."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        before = b""
        while piece := file.read(CHUNK_BYTES):
            if screen.find(before + piece) is not None:
                return True
            before = piece
    return False


def read_file(folder: Path, line: FileLine) -> Iterator[bytes]:
    """Read a file in chunks, exactly as many bytes as were declared. Raises BundleNotWritten if it became shorter."""
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
    """A folder that is filled from a bundle under a temporary name. `finish` renames it, `discard` removes it."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() or folder.is_symlink():
            raise BundleRefused(f"{folder} exists; scratch files need a folder that does not exist yet")
        self._folder = folder
        self._names = ScratchNames()
        self._partial = folder.with_name(_PARTIAL.format(folder.name))
        shutil.rmtree(self._partial, ignore_errors=True)
        make_private(self._partial)

    def write(self, line: FileLine, pieces: Iterable[bytes]) -> None:
        """Write one file.

        Its name is checked again, because the bundle may have changed since it was verified. The folder is new and has
        no links.
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
    """Remove the temporary folders of loads that were killed. Called at start, before any load."""
    for pattern in (f"{STAGED}*", f"{OLDER}*", _PARTIAL.format(f"{STAGED}*")):
        for path in folder.glob(pattern):
            shutil.rmtree(path)


def _walk(folder: Path) -> Iterator[tuple[str, str]]:
    for where, folders, files in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(where, name))]
        for name in (*files, *linked):
            path = os.path.join(where, name)
            yield path, os.path.relpath(path, folder)
