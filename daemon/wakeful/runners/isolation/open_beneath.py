"""Opens places for a policy, and makes folders, so that no symbolic link leads out of a folder.

A run may write in its root, and so replace a folder of its next run's outputs by a link to `~/.ssh`: what is granted by
name would then be granted there. Nothing is checked first and opened afterwards: what was opened is what was checked.
"""

from __future__ import annotations

import errno
import os

from wakeful.errors import OperatorError
from wakeful.system.openat2 import open_at

_PLACE = os.O_PATH | os.O_CLOEXEC


class LeadsOutside(OperatorError):
    """A link on the way leads out of the folder."""


class GoesInCircles(LeadsOutside):
    """A link on the way leads to itself, so that it leads to nothing at all."""


def open_beneath(folder: str | None, path: str) -> int:
    """An O_PATH descriptor of `path`, resolved without leaving `folder`; without a folder, as it is named."""
    if folder is None:
        return os.open(path, _PLACE)
    base = os.open(folder, _PLACE)
    try:
        return open_at(base, path, _PLACE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GoesInCircles(
                f"{os.path.join(folder, path)} is a symbolic link that leads to itself; make it a file, "
                "or lead it elsewhere"
            ) from error
        # EXDEV: it leads outside. EAGAIN: it was being renamed under our hands, more than once.
        if error.errno not in (errno.EXDEV, errno.EAGAIN):
            raise
        words = (
            f"{os.path.join(folder, path)} leads out of {folder} by a symbolic link; "
            "name where it leads in the binding, or under allow"
        )
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
