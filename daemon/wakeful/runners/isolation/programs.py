"""Which places outside the system a run's programs live in: what its words name on PATH, its interpreters, their installations.

`reach` asks with the words of a command, a script, a check and the project's own program. A name that PATH finds in the system needs
nothing. What it finds elsewhere (a venv, pyenv, ~/.local/bin) is granted with the libraries that belong to it, and nothing beside it.
"""

from __future__ import annotations

import functools
import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator

from wakeful.runners.isolation.looking import Looked
from wakeful.runners.isolation.system import is_of_system

_WORD = re.compile(r"[A-Za-z0-9_./+~@-]+")
# A path as it may stand in a line of a shell; of a long script so many are looked at.
_NAME = re.compile(r"[\w./+~@,%-]+")
_MOST_NAMES = 200
# What a program of the project says is looked at for names of programs, as far as this.
_LONGEST_TEXT_BYTES = 64 * 1024
_DEEPEST_INTERPRETER = 4
# Folders named so hold small scripts that choose a version and read all of the folder around them: pyenv, rbenv, nodenv, asdf.
_SHIMS = "shims"
_PACKAGES = "node_modules"
# What the tools of one folder keep in another, by the name of the folder that holds `bin`.
_COMPANIONS = {".cargo": (".rustup/toolchains", ".rustup/settings.toml")}


def find_program_places(texts: Iterable[str], script: str | None, search_path: str, cwd: str, looked: Looked) -> tuple[str, ...]:
    """Paths to be readable. `texts` are words or lines, `script` a file whose text is looked through too."""
    folders = _list_folders(search_path)
    key = tuple(looked.read(path) for path in (*folders, *((script,) if script is not None else ())))
    return _find_places("\n".join(texts), script, folders, cwd, key)


def find_named_files(texts: Iterable[str], root: str, cwd: str, looked: Looked) -> Iterator[str]:
    """Files inside root that the author named in the command, script or check itself: `python3 build.py` needs build.py."""
    words = dict.fromkeys(word for text in texts for word in _NAME.findall(text) if "." in word or "/" in word)
    for word in itertools.islice(words, _MOST_NAMES):
        path = os.path.normpath(os.path.join(cwd, word))
        if path.startswith(f"{root}/") and looked.is_file(path):
            yield path


@functools.lru_cache(maxsize=64)
def _list_folders(search_path: str) -> tuple[str, ...]:
    """Those outside the system."""
    return tuple(folder for folder in search_path.split(":") if folder.startswith("/") and not is_of_system(os.path.realpath(folder)))


@functools.lru_cache(maxsize=4096)
def _find_places(text: str, script: str | None, folders: tuple[str, ...], cwd: str, _key: tuple[object, ...]) -> tuple[str, ...]:
    words = set(_WORD.findall(text + _read_text(script)))
    named = {os.path.normpath(os.path.join(cwd, os.path.expanduser(word))) for word in words if "/" in word}
    places: dict[str, None] = {}
    for path in (*_find_named(words, folders), *(path for path in named if os.access(path, os.X_OK) and os.path.isfile(path))):
        places.update(dict.fromkeys(_places_of(path, folders, _DEEPEST_INTERPRETER)))
    return tuple(place for place in places if not is_of_system(place))


def _find_named(words: set[str], folders: tuple[str, ...]) -> Iterator[str]:
    for folder in folders:
        try:
            yield from (f"{folder}/{name}" for name in os.listdir(folder) if name in words)
        except OSError:
            # A PATH names what is not there more often than not.
            continue


def _places_of(program: str, folders: tuple[str, ...], depth: int) -> Iterator[str]:
    """The program, its installation, and the same of the interpreter in its first line."""
    real = os.path.realpath(program)
    yield real
    # The link by which it is found, too: a private view shows nothing but what is named.
    yield program
    for path in dict.fromkeys((program, real)):
        yield from _installation_of(path)
    if depth:
        for interpreter in _interpreters_of(real, folders):
            yield from _places_of(interpreter, folders, depth - 1)


def _interpreters_of(program: str, folders: tuple[str, ...]) -> Iterator[str]:
    line, _, _ = _read_start(program, 256).partition(b"\n")
    if not line.startswith(b"#!"):
        return
    words = os.fsdecode(line[2:].strip()).split()
    if words and words[0].startswith("/"):
        yield words[0]
    # `env python3`: whatever PATH finds first.
    if words and os.path.basename(words[0]) == "env":
        yield from _find_named(set(words[1:]), folders)


def _installation_of(program: str) -> Iterator[str]:
    folder, prefix = os.path.dirname(program), os.path.dirname(os.path.dirname(program))
    if os.path.basename(folder) == _SHIMS:
        yield prefix
    # A package of npm reads those beside it, which lie in the outermost folder of that name.
    above, found, _ = f"{folder}/".partition(f"/{_PACKAGES}/")
    if found:
        yield f"{above}/{_PACKAGES}"
    if os.path.basename(folder) not in ("bin", "sbin", "Scripts"):
        return
    if os.path.exists(f"{prefix}/pyvenv.cfg"):
        yield from _venv_of(prefix)
    elif os.path.exists(f"{prefix}/conda-meta"):
        yield prefix
    elif os.path.basename(program).startswith(("python", "pypy")):
        yield f"{prefix}/lib"
    yield from (place for pattern in ("python3*", _PACKAGES, "ruby", "perl5") for place in glob.glob(f"{glob.escape(prefix)}/lib/{pattern}"))
    for companion in _COMPANIONS.get(os.path.basename(prefix), ()):
        yield f"{os.path.dirname(prefix)}/{companion}"


def _venv_of(prefix: str) -> Iterator[str]:
    """The environment, the python it was made from, and the folders that editable installs point to."""
    yield prefix
    with open(f"{prefix}/pyvenv.cfg", encoding="utf-8", errors="replace") as file:
        settings = dict(line.partition("=")[::2] for line in file)
    home = next((value.strip() for name, value in settings.items() if name.strip() == "home"), "")
    if home.startswith("/"):
        yield from _installation_of(f"{home}/python3")
        yield os.path.realpath(f"{home}/python3")
    for path in glob.glob(f"{glob.escape(prefix)}/lib/python3*/site-packages/*.pth"):
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from (line.strip() for line in file if line.startswith("/") and os.path.isdir(line.strip()))


def _read_text(path: str | None) -> str:
    content = b"" if path is None else _read_start(path, _LONGEST_TEXT_BYTES)
    return "" if b"\0" in content else "\n" + content.decode("utf-8", "replace")


def _read_start(path: str, size: int) -> bytes:
    """The first bytes of a file; nothing of one that cannot be read: it will not start, and say so itself."""
    try:
        # A FIFO in its place must not hold up the daemon.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size)
    except OSError:
        return b""
    finally:
        os.close(fd)
