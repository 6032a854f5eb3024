"""Opens paths so that no symbolic link leads out of a folder: openat2 with RESOLVE_BENEATH, the kernel's own word.

A run may write in its root, and so replace a folder of its next run's outputs by a link to `~/.ssh`: what is granted by name would
then be granted there. Nothing is checked first and opened afterwards: what was opened is what was checked.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from wakeful.errors import OperatorError

# The same number on every architecture.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_PLACE = os.O_PATH | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class LeadsOutside(OperatorError):
    """A link on the way leads out of the folder."""


def open_beneath(folder: str | None, path: str) -> int:
    """An O_PATH descriptor of `path`, resolved without leaving `folder`; without a folder, as it is named."""
    if folder is None:
        return os.open(path, _PLACE)
    base = os.open(folder, _PLACE)
    try:
        return _resolve(base, path)
    except OSError as error:
        # EXDEV: it leads outside. ELOOP: it goes in circles. EAGAIN: it was being renamed under our hands, more than once.
        if error.errno not in (errno.EXDEV, errno.ELOOP, errno.EAGAIN):
            raise
        words = f"{os.path.join(folder, path)} leads out of {folder} by a symbolic link; name where it leads in the binding, or under allow"
        raise LeadsOutside(words) from error
    finally:
        os.close(base)


def make_beneath(folder: str, path: str) -> None:
    """Make a folder and those above it, as far as they are missing, without leaving `folder`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for count in range(1, len(parts) + 1):
        above = open_beneath(folder, "/".join(parts[: count - 1]) or ".")
        try:
            os.mkdir(parts[count - 1], dir_fd=above)
        except FileExistsError:
            continue
        finally:
            os.close(above)


def _resolve(base: int, path: str) -> int:
    how = struct.pack("=3Q", _PLACE, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    for _ in range(3):
        fd = _libc.syscall(_OPENAT2, base, os.fsencode(path), how, ctypes.c_size_t(len(how)))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number != errno.EAGAIN:
            break
    raise OSError(number, os.strerror(number), path)
