"""Looks at a path and replaces its content, through folders that are opened one by one, never through a link.

`restore` and `replay` call it. A path is given as a root and a name below it. Links may lead to the root, but the name
must not contain links: a run could replace a folder by a link, and we would write elsewhere. Every call blocks.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from wakeful.run_files.file_record import Entry
from wakeful.system.blobs import SHORT_BYTES

_CHUNK_BYTES = 1 << 20
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {stat.S_IFIFO: "p", stat.S_IFSOCK: "s", stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFDIR: "d"}


class PathBlocked(Exception):
    """The path cannot be reached as it was recorded. The message says what is there instead."""


@contextmanager
def open_folder(root: str, name: str, *, is_made: bool = False) -> Iterator[tuple[int, str]]:
    """Open the folder of `name` below `root`. Return its descriptor and the last part of the name.

    Raises PathBlocked and FileNotFoundError.
    """
    if name.startswith("/"):
        root, name = "/", name.lstrip("/")
    *folders, last = name.split("/")
    if not last or any(part in ("", ".", "..") for part in (*folders, last)):
        raise PathBlocked(f"{name!r} is not a path below {root}")
    descriptor = os.open(root, _FOLDER_FLAGS)
    try:
        for part in folders:
            inner = _open_part(descriptor, part, is_made)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, last
    finally:
        os.close(descriptor)


def _open_part(folder: int, part: str, is_made: bool) -> int:
    if is_made:
        try:
            os.mkdir(part, dir_fd=folder)
        except FileExistsError:
            pass
    try:
        return os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathBlocked(f"{part!r} in its path is a link or a file") from error
        raise


def look_at(root: str, name: str) -> Entry | None:
    """Return the file that is now at the path. None if there is no file. A folder has kind d."""
    try:
        with open_folder(root, name) as (folder, last):
            return _look(folder, last, name)
    except FileNotFoundError:
        return None


def _look(folder: int, last: str, name: str) -> Entry:
    found = os.stat(last, dir_fd=folder, follow_symlinks=False)
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        words = os.readlink(last, dir_fd=folder)
        return Entry(path=name, kind="l", mode=mode, link=os.fsencode(words).decode("utf-8", "backslashreplace"))
    if not stat.S_ISREG(found.st_mode):
        return Entry(path=name, kind=_KINDS.get(stat.S_IFMT(found.st_mode), "?"), mode=mode)
    descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    digest, size = hashlib.blake2b(digest_size=SHORT_BYTES), 0
    with os.fdopen(descriptor, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return Entry(path=name, kind="x" if mode & stat.S_IXUSR else "f", digest=digest.hexdigest(), size=size, mode=mode)


def read_content(root: str, name: str) -> bytes:
    with open_folder(root, name) as (folder, last):
        descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()


def write_file(root: str, name: str, content: bytes, mode: int, *, is_flushed: bool) -> None:
    """Write a file atomically, through a temporary name. Missing folders are made."""
    with open_folder(root, name, is_made=True) as (folder, last):
        # Names with this ending are excluded from every binding, so that a half-written file wakes no session.
        temporary = f".wakeful-{secrets.token_hex(6)}.tmp"
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(descriptor, mode)
                if is_flushed:
                    os.fsync(descriptor)
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        if is_flushed:
            os.fsync(folder)


def write_link(root: str, name: str, words: str) -> None:
    with open_folder(root, name, is_made=True) as (folder, last):
        temporary = f".wakeful-{secrets.token_hex(6)}.tmp"
        os.symlink(words, temporary, dir_fd=folder)
        try:
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)


def remove_file(root: str, name: str) -> None:
    with open_folder(root, name) as (folder, last):
        os.unlink(last, dir_fd=folder)
        os.fsync(folder)
