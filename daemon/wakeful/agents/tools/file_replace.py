"""Reads a whole bound file, and replaces its content atomically: writes a new file next to it and renames that.

A reader sees either the old or the new content. A crash leaves at worst a `.tmp` file, which no binding matches. If the
run's isolation opens only the file and not its folder, the file is written in place, which is not atomic. Blocking:
called in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from types import EllipsisType

from wakeful.agents.tools.bound_files import Access, Bounds, Refused, open_bound
from wakeful.system.openat2 import EXCHANGE, NO_REPLACE, open_without_links, rename_at

LARGEST_FILE_BYTES = 32 * 1024 * 1024
_DIGEST_BYTES = 20
# The content from which a new content was made. None if there was no file, `...` to replace any content.
Base = bytes | None | EllipsisType
# The errors if the folder may not be written, or the file is a mount of its own.
_ONLY_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


def digest_content(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def read_content(bounds: Bounds, path: str, access: Access = "read") -> bytes:
    """Read a bound file.

    If it does not exist, raises FileNotFoundError for a write, and Refused with suggestions for a read. Raises Refused
    if the file is too large.
    """
    name = bounds.name(path)
    try:
        fd = open_bound(bounds, path, access, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        if access == "write":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
        near = [one for one in bounds.suggest(name) if one != name]
        raise Refused(
            f"{name} is bound, but does not exist"
            + (f"; did you mean {' or '.join(near)}?" if near else "; list shows the bound files")
        ) from None
    with open(fd, "rb") as file:
        # Read one byte more than allowed to notice a larger file. Its size from `stat` may have changed.
        content = file.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise Refused(f"{name} is larger than {LARGEST_FILE_BYTES} bytes, the most that can be used here")
    return content


def replace_content(bounds: Bounds, path: str, content: bytes, base: Base = ...) -> None:
    """Replace a file's content.

    If `base` is given and another process changes the file meanwhile, that change is kept and Refused is raised.
    """
    real = bounds.resolve(path, "write")
    folder, name = os.path.split(real)
    folder_fd = _open_folder(folder)
    try:
        _replace(folder_fd, name, content, base)
    except OSError as error:
        if error.errno not in _ONLY_IN_PLACE:
            raise
        _write_in_place(bounds, path, content, error)
    finally:
        os.close(folder_fd)


def _open_folder(folder: str) -> int:
    """Open a folder without following links. Missing folders are made."""
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
    try:
        return open_without_links(folder, flags)
    except FileNotFoundError:
        above, name = os.path.split(folder)
    above_fd = _open_folder(above)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o777, dir_fd=above_fd)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above_fd)
    finally:
        os.close(above_fd)


def _replace(folder_fd: int, name: str, content: bytes, base: Base) -> None:
    mode = _find_mode(folder_fd, name)
    beside = f".{name[:60]}.{secrets.token_hex(6)}.tmp"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder_fd)
    try:
        try:
            _write_all(fd, content)
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        if _swap_in(folder_fd, beside, name, base):
            os.unlink(beside, dir_fd=folder_fd)
    except BaseException:
        os.unlink(beside, dir_fd=folder_fd)
        raise


def _swap_in(folder_fd: int, beside: str, name: str, base: Base) -> bool:
    """Replace exactly the content `base` by the new file. True if the old file is now at `beside`.

    Raises Refused if another process has made, changed or removed the file.
    """
    flag = NO_REPLACE if base is None else EXCHANGE
    problem = errno.ENOSYS if base is ... else rename_at(folder_fd, beside, folder_fd, name, flag)
    if problem in (errno.EINVAL, errno.ENOSYS):
        # Any content may be replaced, or the file system supports no exchange.
        os.rename(beside, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        return False
    if problem in (errno.EEXIST, errno.ENOENT):
        raise Refused(
            f"{name} was {'created' if base is None else 'removed'} by somebody else just now; nothing was "
            "written: look again, then decide"
        )
    if problem:
        raise OSError(problem, os.strerror(problem), name)
    if base is None:
        return False
    if _read_beside(folder_fd, beside) == base:
        return True
    rename_at(folder_fd, beside, folder_fd, name, EXCHANGE)
    raise Refused(f"{name} was changed by somebody else just now; nothing was written: read it again, then decide")


def _read_beside(folder_fd: int, name: str) -> bytes | None:
    """Read the content of the file that was swapped out. None if it is not a regular file."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read(LARGEST_FILE_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None


def _find_mode(folder_fd: int, name: str) -> int | None:
    """Return the mode of the file to be replaced. None if the file does not exist. Then the umask decides."""
    try:
        found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found):
        raise Refused(f"{name} is no longer a regular file; nothing was written")
    return found & 0o777


def _write_in_place(bounds: Bounds, path: str, content: bytes, cause: OSError) -> None:
    try:
        fd = open_bound(bounds, path, "write", os.O_WRONLY)
    except FileNotFoundError:
        raise PermissionError(
            cause.errno, f"the run's isolation does not allow new files here ({cause.strerror})", bounds.name(path)
        ) from None
    try:
        os.ftruncate(fd, 0)
        _write_all(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
