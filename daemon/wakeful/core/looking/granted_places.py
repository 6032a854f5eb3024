"""Lists the places that runs of a spec may read and write, each with its reason.

The rule of two and `trust` both use this list.

A place is a file, or a folder with all below it: isolation opens the folder before a pattern's first wildcard. The file
system is not read, so a word of a command counts as the file that it would name. Programs and system files are left
out, because they hold no secrets. `find_cache` recognises the cache folders of common programs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, assert_never

from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.spec.bindings import (
    CommitsBinding,
    CronBinding,
    EveryBinding,
    FileBinding,
    MessageBinding,
    ProbeBinding,
    ServiceBinding,
    SessionBinding,
    WebhookBinding,
)
from wakeful.core.spec.session import CommandRun, ScriptRun, SessionSpec

# Places below a home folder that hold credentials or private data of the person.
SECRET_PLACES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".git-credentials", ".vault-token",
    ".password-store", ".npmrc", ".pypirc",
    ".config/wakeful/secrets", ".config/gcloud", ".config/gh", ".config/git/credentials", ".config/op",
    ".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium",
    ".thunderbird", ".bash_history", ".zsh_history", ".python_history",
)  # fmt: skip
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sys",
    "/dev",
    "/opt",
    "/nix",
    "/snap",
)
_HOME = re.compile(r"/|/root|/home|/home/[^/]+")
# A path in a line of a shell, as isolation recognises it.
_NAME = re.compile(r"[\w./+~@,%-]+")
_MOST_NAMES = 200

IsThere = Callable[[str], bool]


class Granted(NamedTuple):
    """A place that may be read or written. `by` is the reason, in terms of the spec. `binding` is the binding that
    grants the place, if one does."""

    path: str
    by: str
    binding: str | None = None
    is_untrusted: bool = False


def list_granted_reads(spec: SessionSpec, is_there: IsThere = lambda path: True) -> tuple[Granted, ...]:
    """List every place that a run or a probe of this spec may read.

    `is_there` decides which words in commands name a file.
    """
    return tuple(dict.fromkeys(_list_reads(spec, is_there)))


def list_granted_writes(spec: SessionSpec) -> tuple[Granted, ...]:
    """List every place that the spec declares as writable."""
    outputs = [
        Granted(_find_place(one.pattern, spec.root), f"output {one.name}", one.name)
        for one in spec.files
        if one.access != "read"
    ]
    return (*outputs, *(Granted(_resolve(path, spec.root), "allow.write") for path in spec.confinement.allow_write))


class Private(NamedTuple):
    """Private data that runs can read. `kind` is "secrets" or "private reads"; `items` names the data."""

    kind: str
    items: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} ({', '.join(self.items)})"


def find_private(spec: SessionSpec) -> Private | None:
    """Find private data that runs of the spec can read, secrets first. None if there is none.

    Files that strangers wrote are not private. A usual place for secrets always counts; any other place counts if it
    is outside root and is not an output of the spec."""
    if spec.secrets:
        return Private("secrets", spec.secrets)
    if not spec.confinement.is_enforced:
        return Private("private reads", (f"everything, by isolation: {spec.confinement.level}",))
    own = {one.path for one in list_granted_writes(spec)}
    for one in list_granted_reads(spec):
        if not one.is_untrusted and (_is_secret(one.path) or (one.path not in own and _leads_out(one.path, spec.root))):
            return Private("private reads", (f"{one.path}, by {one.by}",))
    return None


def _list_reads(spec: SessionSpec, is_there: IsThere) -> Iterator[Granted]:
    if not spec.confinement.is_enforced:
        yield Granted("/", f"isolation: {spec.confinement.level}")
    for binding in spec.bindings:
        match binding:
            case FileBinding(name=name, pattern=pattern, access=access, is_untrusted=is_untrusted):
                words = f"output {name}" if access == "write" else f"binding {name}"
                yield Granted(_find_place(pattern, spec.root), words, name, is_untrusted)
            case CommitsBinding(name=name, path=path, repo=repo, is_untrusted=is_untrusted):
                yield Granted(
                    _resolve(posixpath.join(repo or "", path), spec.root), f"binding {name}", name, is_untrusted
                )
            case ProbeBinding(name=name, argv=argv):
                yield from (Granted(path, f"probe {name}") for path in _find_named(argv, spec.root, None, is_there))
            # None of these grants a place. The payloads of deliveries are in the run's own folder.
            case (
                CronBinding()
                | EveryBinding()
                | MessageBinding()
                | SessionBinding()
                | ServiceBinding()
                | WebhookBinding()
            ):
                pass
            case _:
                assert_never(binding)
    for words, paths in (("allow.read", spec.confinement.allow_read), ("allow.write", spec.confinement.allow_write)):
        yield from (Granted(_resolve(path, spec.root), words) for path in paths)
    run = spec.run
    if run is None:
        return
    if run.workspace == "worktree":
        yield Granted(spec.root, "workspace: worktree")
    if spec.program is not None:
        yield Granted(_resolve(spec.program, spec.root), "command")
    texts = {
        "command": run.argv if isinstance(run, CommandRun) else (),
        "script": (run.text,) if isinstance(run, ScriptRun) else (),
        "check": run.check or (),
    }
    for words, parts in texts.items():
        yield from (Granted(path, words) for path in _find_named(parts, spec.root, run.cwd, is_there))


def _find_named(texts: tuple[str, ...], root: str, cwd: str | None, is_there: IsThere) -> Iterator[str]:
    """Yield the files inside root that these texts name. Isolation opens them, but no files outside of root."""
    words = dict.fromkeys(word for text in texts for word in _NAME.findall(text) if "." in word or "/" in word)
    for word in list(words)[:_MOST_NAMES]:
        path = _resolve(posixpath.join(cwd or "", word), root)
        if path != root and contains(root, path) and is_there(path):
            yield path


def _find_place(pattern: str, root: str) -> str:
    return parse_under(pattern, root).base


def _resolve(path: str, root: str) -> str:
    """Make a path absolute, by its text alone. A path that begins with `~` stays as it is, outside of every root."""
    return path if path.startswith("~") else posixpath.normpath(posixpath.join(root, path))


def _is_secret(path: str) -> bool:
    return _HOME.fullmatch(path) is not None or any(f"/{place}/" in f"{path}/" for place in SECRET_PLACES)


def _leads_out(path: str, root: str) -> bool:
    return not contains(root, path) and not any(contains(place, path) for place in _SYSTEM)


_FOLDERS = frozenset((
    ".ruff_cache", ".pytest_cache", ".mypy_cache", ".hypothesis", ".tox", ".nox", ".pyre", ".ipynb_checkpoints",
    "__pycache__", ".parcel-cache", ".turbo", ".gradle", ".m2", ".npm", ".yarn",
    ".nuget", ".ivy2", ".terraform", ".dart_tool", ".ccache",
))  # fmt: skip
# Folders in which every folder is the cache of one program.
_PARENTS = (".cache",)
_PAIRS = frozenset(
    (
        ("node_modules", ".cache"),
        (".next", "cache"),
        (".cargo", "registry"),
        (".cargo", "git"),
        ("pkg", "mod"),
        ("go", "pkg"),
    )
)
# Build folders of cargo and maven. One of their entries must be named too, because any folder may be called `target`.
_BUILDS = frozenset(
    (
        ("target", "debug"),
        ("target", "release"),
        ("target", ".rustc_info.json"),
        ("target", "CACHEDIR.TAG"),
        ("target", "classes"),
        ("target", "maven-status"),
    )
)
# pytest creates its cache under a name with this prefix, and renames it.
_PYTEST_PREFIX, _PYTEST = "pytest-cache-files-", ".pytest_cache"


def find_cache(path: str) -> str | None:
    """Return the cache folder that is `path` itself or contains it. None if there is none."""
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
