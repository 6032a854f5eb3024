"""Finds the `.git` folders and files of checkouts that a run may read, and those that it may not write.

`reach` asks for the places behind a `commits` binding, so that a run can ask git what changed. It also asks for every
`.git` in a folder that a run may write. git executes programs that `.git` names (hooks, settings) as the person who
uses git next, so `.git` is never part of an output.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from wakeful.core.looking.patterns import contains
from wakeful.runners.isolation.path_answers import PathAnswers
from wakeful.system.git_folders import GIT, find_top, read_git_dirs

# Limits of the search for repositories inside a writable folder: levels below it, and folders in total.
# Each folder costs two system calls at the start of a run.
_DEEPEST = 2
_MOST_FOLDERS = 64
# Folders that are not searched. People do not keep repositories in them.
_PASSED_OVER = frozenset({GIT, "node_modules", "__pycache__", ".venv"})
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)
_LONGEST_LIST_BYTES = 256 * 1024


def find_repository_places(root: str, repository: str | None, path: str) -> Iterator[str]:
    """Find the places that a `commits` binding reads: the bound part of the checkout, and the repository itself."""
    top = find_top(os.path.normpath(os.path.join(root, repository or ".")), has_bare=True)
    if top is None:
        return
    yield os.path.normpath(os.path.join(top, path))
    if os.path.lexists(f"{top}/{GIT}"):
        yield f"{top}/{GIT}"
        yield from find_storage(top)
    else:
        yield top


def find_storage(top: str) -> Iterator[str]:
    """Find the folders of the repository that a checkout's `.git` file names, if that repository names the checkout."""
    found = read_git_dirs(top)
    if found is not None and found.doubt is None and found.git_dir != f"{top}/{GIT}":
        yield from dict.fromkeys((found.git_dir, found.common_dir))


def find_entries(folder: str, answers: PathAnswers) -> list[str]:
    """Find every `.git` in a folder, in the folders below it (within the limits above), and in its submodules."""
    if GIT in folder.split("/"):
        return []
    found = []
    ahead, visited = [(folder, 0)], 0
    while ahead and visited < _MOST_FOLDERS:
        above, depth = ahead.pop(0)
        visited += 1
        if _is_there(f"{above}/{GIT}", answers):
            found.append(f"{above}/{GIT}")
        if depth < _DEEPEST:
            ahead += [
                (f"{above}/{name}", depth + 1) for name in answers.list_folders(above) if name not in _PASSED_OVER
            ]
    for path in _list_submodules(folder, answers):
        if contains(folder, path) and _is_there(f"{path}/{GIT}", answers):
            found.append(f"{path}/{GIT}")
    return list(dict.fromkeys(found))


def _is_there(path: str, answers: PathAnswers) -> bool:
    """True if the path exists, or is a broken link."""
    return answers.is_there(path) or os.path.islink(path)


def _list_submodules(top: str, answers: PathAnswers) -> Iterator[str]:
    if answers.read(f"{top}/.gitmodules") is None:
        return
    try:
        fd = os.open(f"{top}/.gitmodules", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        text = os.fsdecode(os.read(fd, _LONGEST_LIST_BYTES))
    finally:
        os.close(fd)
    for path in _SUBMODULE.findall(text)[:_MOST_FOLDERS]:
        yield os.path.normpath(os.path.join(top, path.strip('"')))
