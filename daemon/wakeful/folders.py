"""Folders that nobody else may look into, made whole: a parent that vanished returns as private as it was.

`os.makedirs` and `Path.mkdir` give their mode to the last folder alone, and leave those above it to the umask. All of the state folder, and what runs are
given, is made by this instead. A module of its own because layers that know nothing of each other make such folders.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_private(path: str | Path) -> None:
    """Make a folder that only its owner can use, if it does not exist. An existing folder is left unchanged."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above in ("", path):
            raise
        make_private(above)
        make_private(path)
