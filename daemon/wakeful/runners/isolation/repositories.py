"""Where a repository keeps what git reads of it: the folder `.git`, or what a worktree's `.git` file points to.

`reach` asks for the places behind a `commits` binding, so that a run can ask git what changed. Reads two small files and no settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator


def find_repository_places(root: str, repository: str | None, path: str) -> Iterator[str]:
    """What a run of a `commits` binding reads: the bound part of the checkout, and the repository itself."""
    top = _find_top(os.path.normpath(os.path.join(root, repository or ".")))
    if top is None:
        return
    yield os.path.normpath(os.path.join(top, path))
    yield from _find_storage(top)


def _find_top(folder: str) -> str | None:
    while True:
        if os.path.lexists(f"{folder}/.git"):
            return folder
        # A bare repository is its own storage.
        if os.path.isdir(f"{folder}/objects") and os.path.isfile(f"{folder}/HEAD"):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _find_storage(top: str) -> Iterator[str]:
    own = f"{top}/.git"
    if os.path.isdir(own):
        yield own
        return
    pointer = _read_line(own).removeprefix("gitdir:").strip()
    if not pointer:
        return
    folder = os.path.normpath(os.path.join(top, pointer))
    # A run may have written the pointer: what it leads to must look like what git makes.
    if not os.path.isfile(f"{folder}/HEAD"):
        return
    yield folder
    common = os.path.normpath(os.path.join(folder, _read_line(f"{folder}/commondir") or "."))
    if os.path.isfile(f"{common}/HEAD") and os.path.isdir(f"{common}/objects"):
        yield common


def _read_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline(4096).strip()
    except OSError:
        return ""
