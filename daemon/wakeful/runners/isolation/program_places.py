"""Derives the places outside the system that a run's programs need: programs, their interpreters, their installations.

`reach` passes the texts of a command, a script, a check and the project's own program. The places that a text may open
depend on its author (`Trust`). The spec, PATH, and files of a person that no run may write can name any program. A file
of the project can name programs inside root and on PATH, and the Python of a venv. A file that runs may write can name
only a Python on PATH, or a program next to itself. Every target is a regular executable file, or the installation
around one. A refused place is reported with its reason.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from threading import Lock

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.runners.isolation.path_answers import PathAnswers
from wakeful.runners.isolation.system_places import is_of_system
from wakeful.runners.isolation.written_places import WrittenPlaces

_WORD = re.compile(r"[A-Za-z0-9_./+~@-]+")
# A path in a line of a shell script, and the most paths that are taken from one run's texts.
_NAME = re.compile(r"[\w./+~@,%-]+")
_MOST_NAMES = 200
# The length of the beginning of a project's script that is searched for names of programs.
_LONGEST_TEXT_BYTES = 64 * 1024
_LONGEST_LINE_BYTES = 256
_LONGEST_SETTINGS_BYTES = 64 * 1024
_DEEPEST_INTERPRETER = 4
_MOST_LINKS = 40
# The name of a folder of small scripts that choose a version, and read all of the folder around it: pyenv, rbenv,
# nodenv, asdf.
_SHIMS = "shims"
_PACKAGES = "node_modules"
_PROGRAM_FOLDERS = ("bin", "sbin", "Scripts")
_PYTHONS = ("python", "pypy")
_LIBRARIES = ("python3*", _PACKAGES, "ruby", "perl5")
# Folders outside the prefix that its tools need, by the name of the folder that holds `bin`.
_COMPANIONS = {".cargo": (".rustup/toolchains", ".rustup/settings.toml")}
_HOMES = "/home"

# Is this folder too wide to be granted as a whole? True for a home, a shared folder, and a folder of the system.
IsWide = Callable[[str], bool]


# The cache of derivations, the most recently used last. Some 10 KB each.
_known: dict[tuple[object, ...], tuple[Derived, PathAnswers]] = {}
_MOST_KNOWN = 256
_keeping = Lock()


class Trust(IntEnum):
    """The origin of the bytes that name a place: a run, the project or a person may have written them."""

    RUN = 0
    PROJECT = 1
    PERSON = 2


class ProgramWords(Struct, frozen=True, kw_only=True):
    """The programs a run starts, as its spec names them.

    `declared`: places that the run may read anyway. `closed`: places of the daemon. No place in or around them is
    derived.
    """

    texts: tuple[str, ...]
    # A file whose text is searched as well.
    program: str | None
    root: str
    cwd: str
    search_path: str
    # The project's real root, if the run works in a workspace.
    real_root: str | None = None
    declared: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


class Place(Struct, frozen=True):
    """A real path.

    If `beneath` is set, a run could put a link into the path, and the path must not lead out of this folder.
    """

    path: str
    beneath: str | None


class Derived(Struct, frozen=True):
    """The places to grant, the paths by which the run reaches them, and messages about refused places."""

    places: tuple[Place, ...] = ()
    spelled: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def derive_places(words: ProgramWords, written: WrittenPlaces | None, is_wide: IsWide) -> tuple[Derived, PathAnswers]:
    """Derive the places, and return them with the questions to the file system that they depend on.

    A derivation is valid as long as these questions have the same answers. A valid one is taken from a cache.
    Blocking. May be called from any thread.
    """
    key = words, written, is_wide
    known = _known.get(key)
    if known is None or not known[1].still_hold():
        answers = PathAnswers(written)
        known = _Derivation(words, answers, is_wide).derive(), answers
    with _keeping:
        _known.pop(key, None)
        _known[key] = known
        if len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]
    return known


def find_named_files(texts: Iterable[str], root: str, cwd: str, answers: PathAnswers) -> Iterator[str]:
    """Find the files inside root that the command, script or check names: `python3 build.py` needs build.py."""
    words = dict.fromkeys(word for text in texts for word in _NAME.findall(text) if "." in word or "/" in word)
    for word in itertools.islice(words, _MOST_NAMES):
        path = os.path.normpath(os.path.join(cwd, word))
        if path.startswith(f"{root}/") and answers.is_file(path):
            yield path


def resolve_links(path: str) -> tuple[str, list[str]]:
    """Resolve an absolute path.

    Returns the real path and the location of each link in it. A missing path resolves to the place it would have.
    """
    real, links, ahead = "", list[str](), path.split("/")[::-1]
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            real = os.path.dirname(real)
            continue
        here = f"{real.rstrip('/')}/{name}"
        try:
            target = os.readlink(here)
        except OSError:
            real = here
            continue
        links.append(here)
        if len(links) > _MOST_LINKS:
            return path, links
        real = "" if target.startswith("/") else real
        ahead += target.split("/")[::-1]
    return real or "/", links


class _Derivation:
    """One derivation, for one run."""

    def __init__(self, words: ProgramWords, answers: PathAnswers, is_wide: IsWide) -> None:
        self._words = words
        self._answers = answers
        self._is_wide = is_wide
        self._resolved: dict[str, tuple[str, list[str]]] = {}
        self._roots = tuple(
            dict.fromkeys(self._resolve(root)[0] for root in (words.root, words.real_root) if root is not None)
        )
        self._declared = tuple(dict.fromkeys(self._resolve(place)[0] for place in words.declared))
        folders = (folder for folder in words.search_path.split(":") if folder.startswith("/"))
        self._folders = tuple(dict.fromkeys(folder for folder in folders if not is_of_system(self._resolve(folder)[0])))
        self._places: dict[str, Place] = {}
        self._spelled: dict[str, None] = {}
        self._refused: dict[str, None] = {}
        self._followed: set[tuple[str, Trust]] = set()

    def derive(self) -> Derived:
        names, paths = self._split(self._words.texts)
        for path in self._find_on_path(names):
            self._follow(path, Trust.PERSON)
        for path in paths:
            self._follow(path, Trust.PERSON)
        self._derive_from_program()
        return Derived(tuple(self._places.values()), tuple(self._spelled), tuple(self._refused))

    # -- words --------------------------------------------------------------------------------

    def _derive_from_program(self) -> None:
        """Derive the places that the project's own program names: programs on PATH, and executables inside root."""
        program = self._words.program
        if program is None:
            return
        real, _ = self._resolve(program)
        if self._find_trust(real) == Trust.RUN:
            self._refuse(
                f"{self._name(program)} {self._say_writer(real)}, so the programs that it starts are not opened; "
                "name them in the command"
            )
            return
        content = self._answers.read_start(program, _LONGEST_TEXT_BYTES)
        if b"\0" in content:
            return
        names, paths = self._split((content.decode("utf-8", "replace"),))
        for path in self._find_on_path(names):
            self._follow(path, Trust.PERSON)
        for path in paths:
            if contains(self._words.root, path) or self._is_on_path(path):
                self._follow(path, Trust.PROJECT, is_optional=True)

    def _split(self, texts: tuple[str, ...]) -> tuple[set[str], list[str]]:
        """Split texts into words that may be names of programs, and words that are paths.

        A text that is the path of an existing file is one word, even with spaces in it.
        """
        words: dict[str, None] = {}
        for text in texts:
            is_whole = "/" in text and "\n" not in text and self._answers.is_file(os.path.join(self._words.cwd, text))
            words.update(dict.fromkeys((text,) if is_whole else _WORD.findall(text)))
        paths = (self._locate(word) for word in words if "/" in word)
        return set(words), list(dict.fromkeys(itertools.islice(paths, _MOST_NAMES)))

    def _locate(self, word: str) -> str:
        word = os.path.expanduser(word) if word.startswith("~/") else word
        return os.path.normpath(os.path.join(self._words.cwd, word))

    def _find_on_path(self, names: set[str]) -> Iterator[str]:
        for folder in self._folders:
            yield from sorted(f"{folder}/{name}" for name in self._answers.list_names(folder) if name in names)

    # -- programs -----------------------------------------------------------------------------

    def _follow(
        self,
        path: str,
        trust: Trust,
        around: str | None = None,
        depth: int = _DEEPEST_INTERPRETER,
        *,
        is_optional: bool = False,
    ) -> None:
        """Grant a program, its installation and its interpreters, if the text that names it has enough trust.

        `around` is the folder of the program that names this one.
        """
        if (path, trust) in self._followed:
            return
        self._followed.add((path, trust))
        if (
            depth < _DEEPEST_INTERPRETER
            and is_of_system(path)
            and self._answers.is_there(path)
            and is_of_system(self._resolve(path)[0])
        ):
            return
        # The daemon does not execute a program that PATH names, so any regular file will do.
        # A name without a file may have one at the next start.
        is_named_by_path = trust == Trust.PERSON and os.path.dirname(path) in self._folders
        if not (self._answers.is_file(path) if is_named_by_path else self._answers.is_program(path)):
            if not is_optional and depth < _DEEPEST_INTERPRETER and self._answers.is_there(path):
                self._refuse(f"{self._name(path)} is named as an interpreter, and is not a regular executable file")
            return
        real, links = self._resolve(path)
        trust = min((trust, *(self._find_trust(link) for link in links)))
        if not self._is_allowed(real, trust, around):
            self._refuse(self._say_refusal(path, real, trust))
            return
        self._spelled[path] = None
        self._grant(real)
        located = os.path.join(self._resolve(os.path.dirname(path))[0], os.path.basename(path))
        if trust < Trust.PERSON and self._is_found(real):
            # A Python from which a venv of the project was made: grant its libraries, and follow it no further.
            self._take(f"{os.path.dirname(os.path.dirname(real))}/lib", None)
            self._install(located, depth)
            return
        for one in dict.fromkeys((located, real)):
            self._install(one, depth, is_chosen=trust == Trust.PERSON)
        if depth:
            self._follow_interpreters(real, depth)

    def _is_allowed(self, real: str, trust: Trust, around: str | None) -> bool:
        """May a text of this trust lead to this program?"""
        if is_of_system(real) or self._is_declared(real):
            return True
        if self._is_closed(real) and self._find_root(real) is None:
            return False
        if around is not None and contains(around, real):
            return True
        match trust:
            case Trust.PERSON:
                return True
            case Trust.PROJECT:
                return self._find_root(real) is not None or self._is_python(real) or self._is_on_path(real)
            case Trust.RUN:
                return self._is_python(real) and self._is_on_path(real)

    def _is_found(self, real: str) -> bool:
        """Is this a Python outside root, the system and the declared places?

        A venv of the project leads to such a Python.
        """
        return (
            not is_of_system(real)
            and not self._is_declared(real)
            and self._find_root(real) is None
            and self._is_python(real)
        )

    def _follow_interpreters(self, real: str, depth: int) -> None:
        line, _, _ = self._answers.read_start(real, _LONGEST_LINE_BYTES).partition(b"\n")
        words = os.fsdecode(line[2:].strip()).split() if line.startswith(b"#!") else []
        if not words or not words[0].startswith("/"):
            return
        trust = self._find_trust(real)
        # A console script of a venv names the python next to it.
        self._follow(os.path.normpath(words[0]), trust, os.path.dirname(real), depth - 1)
        # `env python3` starts the first match on PATH.
        if os.path.basename(words[0]) == "env" and trust > Trust.RUN:
            for path in self._find_on_path(set(words[1:])):
                self._follow(path, Trust.PERSON, None, depth - 1)

    # -- installations ------------------------------------------------------------------------

    def _install(self, program: str, depth: int, *, is_chosen: bool = False) -> None:
        """Grant the installation around a program: its packages, its virtual environment, its libraries.

        If the program lies in root, or in a place that runs write, nothing outside of that is granted.
        `is_chosen`: a person's text led to the program. Otherwise it must lie in root, or on PATH.
        """
        if is_of_system(program) or not (
            is_chosen or self._find_root(program) is not None or self._is_on_path(program)
        ):
            return
        bound = self._find_bound(program)
        folder, prefix = os.path.dirname(program), os.path.dirname(os.path.dirname(program))
        if os.path.basename(folder) == _SHIMS:
            self._take(prefix, bound)
        # A package of npm reads the packages next to it, so the outermost `node_modules` is granted.
        start = len(bound) if bound is not None else 0
        above, found, _ = f"{folder[start:]}/".partition(f"/{_PACKAGES}/")
        if found:
            self._take(f"{folder[:start]}{above}/{_PACKAGES}", bound)
        if os.path.basename(folder) not in _PROGRAM_FOLDERS:
            return
        if self._answers.is_file(f"{prefix}/pyvenv.cfg"):
            self._take_venv(prefix, bound, depth)
        elif self._answers.is_folder(f"{prefix}/conda-meta"):
            self._take(prefix, bound)
        elif os.path.basename(program).startswith(_PYTHONS):
            self._take(f"{prefix}/lib", bound)
        for name in sorted(self._answers.list_names(f"{prefix}/lib")):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in _LIBRARIES):
                self._take(f"{prefix}/lib/{name}", bound)
        for companion in _COMPANIONS.get(os.path.basename(prefix), ()):
            self._take(f"{os.path.dirname(prefix)}/{companion}", bound)

    def _take_venv(self, prefix: str, bound: str | None, depth: int) -> None:
        """Grant a virtual environment, the Python from which it was made, and the folders of editable installs."""
        self._take(prefix, bound)
        settings = f"{prefix}/pyvenv.cfg"
        self._take(settings, bound)
        lines = os.fsdecode(self._answers.read_start(settings, _LONGEST_SETTINGS_BYTES)).splitlines()
        home = next(
            (value.strip() for name, _, value in (line.partition("=") for line in lines) if name.strip() == "home"), ""
        )
        if home.startswith("/") and depth:
            for name in ("python3", "python"):
                self._follow(
                    os.path.normpath(f"{home}/{name}"), self._find_trust(self._resolve(settings)[0]), None, depth - 1
                )
        for name in self._answers.list_names(f"{prefix}/lib"):
            if name.startswith("python3"):
                self._take_editable(f"{prefix}/lib/{name}/site-packages", bound)

    def _take_editable(self, packages: str, bound: str | None) -> None:
        for name in sorted(self._answers.list_names(packages)):
            path = f"{packages}/{name}"
            if not name.endswith(".pth"):
                continue
            lines = os.fsdecode(self._answers.read_start(path, _LONGEST_SETTINGS_BYTES)).splitlines()
            folders = [line.strip() for line in lines if line.startswith("/")]
            real, _ = self._resolve(path)
            if folders and self._find_trust(real) == Trust.RUN:
                self._refuse(
                    f"{self._name(path)} {self._say_writer(real)}, so the folders that it names are not opened"
                )
                continue
            for folder in folders:
                if self._answers.is_folder(folder):
                    self._take(
                        os.path.normpath(folder),
                        bound if bound is not None else self._find_root(real),
                        self._name(path),
                    )

    def _take(self, path: str, bound: str | None, source: str | None = None) -> None:
        """Grant a part of an installation, unless links lead it out of `bound`, or to a place that is too wide.

        `source` is the file that names the part.
        """
        if any(contains(place, path) for place in self._places) and source is None:
            return
        if not self._answers.is_there(path):
            return
        real, _ = self._resolve(path)
        if is_of_system(real) or self._is_declared(real):
            return
        is_too_wide = real == bound or not contains(bound, real) if bound is not None else self._is_too_wide(real)
        if is_too_wide or (self._is_closed(real) and self._find_root(real) is None):
            if source is not None or real != path:
                self._refuse(
                    f"{source or self._name(path)} leads to {real}, which no spec declares; if it must be read, "
                    "name it under allow"
                )
            return
        self._spelled[path] = None
        self._grant(real)

    def _is_python(self, program: str) -> bool:
        """Is this the Python of an installation, with its library next to it?"""
        if (
            not os.path.basename(program).startswith(_PYTHONS)
            or os.path.basename(os.path.dirname(program)) not in _PROGRAM_FOLDERS
        ):
            return False
        library = f"{os.path.dirname(os.path.dirname(program))}/lib"
        return any(
            name.startswith(_PYTHONS) and self._answers.is_file(f"{library}/{name}/os.py")
            for name in self._answers.list_names(library)
        )

    # -- places -------------------------------------------------------------------------------

    def _grant(self, real: str) -> None:
        if (
            not is_of_system(real)
            and not self._is_declared(real)
            and not any(contains(place, real) for place in self._places)
        ):
            self._places[real] = Place(real, self._find_bound(real))

    def _find_bound(self, real: str) -> str | None:
        """Return the folder that this path must not leave, even if a run puts a link into it: root, or a place that
        runs write. None if no run can do that."""
        if (root := self._find_root(real)) is not None:
            return root
        writing = self._answers.find_writer(real)
        return writing.place if writing is not None else None

    def _find_trust(self, real: str) -> Trust:
        """Return the trust of a file's content, by its place."""
        if self._answers.find_writer(self._find_original(real)) is not None:
            return Trust.RUN
        if self._find_root(real) is not None:
            return Trust.PROJECT
        # Closed places also hold files that runs wrote: scratch folders, temporary folders, staged outputs.
        return Trust.RUN if self._is_closed(real) else Trust.PERSON

    def _find_original(self, real: str) -> str:
        """Return the original of a file in a workspace, which is a copy for this run. Otherwise the path itself."""
        copied = self._words.real_root is not None and contains(self._roots[0], real)
        return os.path.normpath(f"{self._roots[-1]}/{real[len(self._roots[0]) :]}") if copied else real

    def _find_root(self, path: str) -> str | None:
        return next((root for root in self._roots if contains(root, path)), None)

    def _is_declared(self, real: str) -> bool:
        return any(contains(place, real) for place in self._declared)

    def _is_closed(self, real: str) -> bool:
        return any(contains(place, real) for place in self._words.closed)

    def _is_too_wide(self, real: str) -> bool:
        """Is this a wide folder, a home, a folder around the project, or a folder around the daemon's places?"""
        above = (root for root in self._roots if root != real)
        return (
            self._is_wide(real)
            or os.path.dirname(real) == _HOMES
            or any(contains(real, place) for place in (*above, *self._words.closed))
        )

    def _is_on_path(self, path: str) -> bool:
        """Does this path lie in a folder of PATH, or in the installation around such a folder?"""
        return any(contains(place, path) for place in self._search_places)

    @functools.cached_property
    def _search_places(self) -> tuple[str, ...]:
        found = []
        for folder in self._folders:
            real, _ = self._resolve(folder)
            if self._find_root(real) is not None or self._answers.find_writer(real) is not None:
                continue
            prefix = os.path.dirname(real)
            is_around = os.path.basename(real) == _SHIMS or any(
                self._answers.is_there(f"{prefix}/{name}") for name in ("pyvenv.cfg", "conda-meta")
            )
            found += [real, prefix] if is_around and not self._is_too_wide(prefix) else [real]
        return tuple(dict.fromkeys(found))

    def _resolve(self, path: str) -> tuple[str, list[str]]:
        if path not in self._resolved:
            self._resolved[path] = resolve_links(path)
        return self._resolved[path]

    # -- messages -----------------------------------------------------------------------------

    def _refuse(self, words: str) -> None:
        self._refused[words] = None

    def _name(self, path: str) -> str:
        root = self._words.root
        return path[len(root) + 1 :] if path.startswith(f"{root}/") else path

    def _say_writer(self, real: str) -> str:
        writing = self._answers.find_writer(self._find_original(real))
        return f"may be written by runs of {writing.session}" if writing is not None else "may be written by runs"

    def _say_refusal(self, path: str, real: str, trust: Trust) -> str:
        if self._is_closed(real):
            return f"{self._name(path)} lies in a folder of the daemon"
        led = f"{self._name(path)} leads to {real}" if real != path else self._name(path)
        why = "by a file that runs may write" if trust == Trust.RUN else "by a file of the project"
        return f"{led}, which is named {why}, and no spec declares; if it must be read, name it under allow"


_VENV = "pyvenv.cfg"
_CONDA = "conda-meta"
_HOME = re.compile(r"^home\s*=\s*(.+)$", re.MULTILINE)
_MOST_BYTES = 64 * 1024
# The standard library of Python. The first group is its prefix.
_LIBRARY = re.compile(r"^(.+)/lib(?:64)?/python\d[\d.]*(?:/|$)")
_MODULES = re.compile(r"^(.*?/(?:site-packages|dist-packages|node_modules))(?:/|$)")
_PYTHON = re.compile(r"^(.+)/bin/python[\d.]*$")


def find_installation(path: str) -> str | None:
    """Find the installation that a path belongs to. None if there is none.

    It is the innermost virtual environment, or else the folder of modules, or else the prefix of the interpreter.
    """
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
    """Find the prefix of the Python from which a virtual environment was made. None if `pyvenv.cfg` names none."""
    try:
        with open(f"{environment}/{_VENV}", encoding="utf-8", errors="replace") as file:
            found = _HOME.search(file.read(_MOST_BYTES))
    except OSError:
        return None
    return os.path.dirname(found[1].strip().rstrip("/")) if found is not None else None
