"""A small program that shields places from a run, confines itself, and becomes the run's program.

An ordinary user's daemon starts it where a folder that a run may write holds what no run may change. It is one process
without threads, so the kernel lets it have a user namespace, and with that mounts. The daemon hands over rulesets by
their descriptors (shield.py, confined_spawn.py). An interpreter starts it with little of the standard library:
that start is what such a run costs more.
"""

from __future__ import annotations

import ctypes
import os

from wakeful.runners.isolation.namespace import shield
from wakeful.runners.isolation.privileges import drop_capabilities, forbid_new_privileges, install_filter, restrict_by

# The first letter of each word that the launcher is told. A path, a descriptor's number, or a filter in hex follows it.
SHIELDED, WRITABLE, EMPTIED, RULESET, FILTER = "s", "w", "e", "r", "f"
# By their numbers, which are the same on every machine we know:
# the module that names them takes a third of our time to load.
_SIGPIPE, _SIGXFSZ, _SIG_DFL = 13, 25, None
_NOT_CONFINED, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127

_libc = ctypes.CDLL(None)


def main(words: list[str]) -> None:
    """The descriptor of what it is told, then the program. Never returns."""
    told, *argv = words
    # An interpreter adds to its environment; the program gets what was handed to it.
    with open("/proc/self/environ", "rb") as file:
        environment = dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)
    try:
        with open(int(told), "rb") as file:
            _confine([os.fsdecode(word) for word in file.read().split(b"\0")])
    except BaseException as error:
        _end(_NOT_CONFINED, f"wakeful: it was not started, since it cannot be confined: {error}")
    # Python ignores both, and a program is to be started as a shell would.
    for number in (_SIGPIPE, _SIGXFSZ):
        _libc.signal(number, _SIG_DFL)
    try:
        _execute(argv, environment)
    except OSError as error:
        _end(
            _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE,
            f"wakeful: {argv[0]}: {error.strerror}",
        )


def _execute(argv: list[str], environment: dict[bytes, bytes]) -> None:
    """As a shell finds a program.

    Not `os.execvpe`, which imports a module first: confined, we may no longer read our own library.
    """
    folders = environment.get(b"PATH", b"/usr/bin:/bin").split(b":")
    name = os.fsencode(argv[0])
    problem: OSError | None = None
    for path in [name] if b"/" in name else [folder + b"/" + name for folder in folders if folder]:
        try:
            os.execve(path, argv, environment)
        except OSError as error:
            # A file that may not be executed is reported, unless another folder has a program of that name.
            if problem is None or not isinstance(error, FileNotFoundError | NotADirectoryError):
                problem = error
    raise problem or FileNotFoundError(2, "No such file or directory")


def _confine(words: list[str]) -> None:
    def list_told(kind: str) -> list[str]:
        return [word[1:] for word in words if word.startswith(kind)]

    rulesets = [int(fd) for fd in list_told(RULESET)]
    for fd in rulesets:
        os.set_inheritable(fd, False)
    folder = os.getcwd()
    shield(list_told(SHIELDED), list_told(WRITABLE), list_told(EMPTIED))
    # By its name: the folder we stand in may be covered now, and what lies around us there is not shielded.
    os.chdir(folder)
    forbid_new_privileges()
    for fd in rulesets:
        restrict_by(fd)
    drop_capabilities()
    for program in list_told(FILTER):
        install_filter(bytes.fromhex(program))


def _end(code: int, words: str) -> None:
    os.write(2, f"{words}\n".encode(errors="replace"))
    os._exit(code)
