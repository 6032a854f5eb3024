"""Folders that programs fill for their own use, found by name: a run may need to write there, and no session means them as its output.

Asked by whoever proposes lines of a spec. Pure: what is not told by a path alone is not told here.
"""

from __future__ import annotations

_FOLDERS = frozenset((
    ".ruff_cache", ".pytest_cache", ".mypy_cache", ".hypothesis", ".tox", ".nox", ".pyre", ".ipynb_checkpoints", "__pycache__", ".parcel-cache", ".turbo", ".gradle", ".m2", ".npm", ".yarn",
    ".nuget", ".ivy2", ".terraform", ".dart_tool", ".ccache",
))  # fmt: skip
# Parents whose folders are caches, one for each program.
_PARENTS = (".cache",)
_PAIRS = frozenset((("node_modules", ".cache"), (".next", "cache"), (".cargo", "registry"), (".cargo", "git"), ("pkg", "mod"), ("go", "pkg")))
# Of cargo and maven, told apart from a folder that is merely called so.
_BUILDS = frozenset((("target", "debug"), ("target", "release"), ("target", ".rustc_info.json"), ("target", "CACHEDIR.TAG"), ("target", "classes"), ("target", "maven-status")))
# pytest makes its cache under such a name and renames it.
_PYTEST_PREFIX, _PYTEST = "pytest-cache-files-", ".pytest_cache"


def find_cache(path: str) -> str | None:
    """The cache folder that `path` is or lies in; None where it is in none."""
    parts = path.split("/")
    for at, name in enumerate(parts):
        following = parts[at + 1] if at + 1 < len(parts) else None
        if name.startswith(_PYTEST_PREFIX):
            return "/".join((*parts[:at], _PYTEST))
        if name in _FOLDERS or (name, following) in _BUILDS:
            return "/".join(parts[: at + 1])
        if (name, following) in _PAIRS or (name in _PARENTS and following is not None):
            return "/".join(parts[: at + 2])
    return None
