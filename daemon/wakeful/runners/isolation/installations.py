"""Folders whose files are needed together: a virtual environment, an interpreter with its library, modules of node.

`judging` asks for a file that a traced run was denied, so that a person is told of the whole once and not of a file a
round. Looks at the file system. Only for proposals: nothing here opens anything to a run.
"""

from __future__ import annotations

import os
import re

_VENV = "pyvenv.cfg"
_CONDA = "conda-meta"
_HOME = re.compile(r"^home\s*=\s*(.+)$", re.MULTILINE)
_MOST_BYTES = 64 * 1024
# Below a prefix: the standard library of Python.
_LIBRARY = re.compile(r"^(.+)/lib(?:64)?/python\d[\d.]*(?:/|$)")
_MODULES = re.compile(r"^(.*?/(?:site-packages|dist-packages|node_modules))(?:/|$)")
_PYTHON = re.compile(r"^(.+)/bin/python[\d.]*$")


def find_installation(path: str) -> str | None:
    """The innermost environment around a path, else the folder of modules or the prefix of the interpreter that it
    belongs to."""
    folder = path
    while (folder := os.path.dirname(folder)) not in ("/", ""):
        if os.path.lexists(f"{folder}/{_VENV}") or os.path.isdir(f"{folder}/{_CONDA}"):
            return folder
    if os.path.lexists(f"{path}/{_VENV}"):
        return path
    for pattern in (_MODULES, _LIBRARY, _PYTHON):
        if (found := pattern.match(path)) is not None and (pattern is not _PYTHON or os.path.isdir(f"{found[1]}/lib")):
            return found[1]
    return None


def find_base(environment: str) -> str | None:
    """The prefix of the Python that a virtual environment was made of; None where it is none, or does not say."""
    try:
        with open(f"{environment}/{_VENV}", encoding="utf-8", errors="replace") as file:
            found = _HOME.search(file.read(_MOST_BYTES))
    except OSError:
        return None
    return os.path.dirname(found[1].strip().rstrip("/")) if found is not None else None
