"""One folder as it is listed: what lies in it, and when its names last changed.

Called by walks, and by the process that reads for them; it matches no pattern and follows no link.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Listing(NamedTuple):
    # When the listing began: a name that comes later moves it.
    mtime: int
    files: list[str]
    # Each with its inode, by which a folder is known under any name.
    folders: list[tuple[str, int]]


def list_folder(folder: str, most: int) -> Listing | None:
    """Its names; None where there are more than `most`. Raises OSError."""
    listing = Listing(os.stat(folder).st_mtime_ns, [], [])
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            count += 1
            if count > most:
                return None
            if entry.is_dir(follow_symlinks=False):
                listing.folders.append((entry.name, entry.inode()))
            else:
                listing.files.append(entry.name)
    return listing
