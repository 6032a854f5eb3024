"""A small program that shields places from a run, confines itself, and becomes the run's program.

A daemon without root starts it if a folder that a run may write contains a protected place. The launcher has a single
thread, so the kernel allows it a user namespace, and mounts in it. The daemon passes rulesets as descriptors
(shield.py, confined_spawn.py). The launcher imports little of the standard library, because its start is the extra
cost of such a run.
"""

from __future__ import annotations

import ctypes
import os

from wakeful.runners.isolation.namespace import shield
from wakeful.runners.isolation.privileges import drop_capabilities, forbid_new_privileges, install_filter, restrict_by

# The first letter of each entry in the launcher's instructions. A path, a descriptor's number, or a filter in hex
# follows.
SHIELDED, WRITABLE, EMPTIED, RULESET, FILTER = "s", "w", "e", "r", "f"
# Signal numbers, the same on every machine we know. Importing `signal` would take a third of the launcher's start.
_SIGPIPE, _SIGXFSZ, _SIG_DFL = 13, 25, None
_NOT_CONFINED, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127

_libc = ctypes.CDLL(None)


def main(words: list[str]) -> None:
    """Confine this process, then execute the program. Never returns.

    `words` is the number of the descriptor with the instructions, then the program and its arguments.
    """
    told, *argv = words
    # The interpreter adds variables to its environment. The program gets the environment that was passed originally.
    with open("/proc/self/environ", "rb") as file:
        environment = dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)
    try:
        with open(int(told), "rb") as file:
            _confine([os.fsdecode(word) for word in file.read().split(b"\0")])
    except BaseException as error:
        _end(_NOT_CONFINED, f"wakeful: the program was not started, because it cannot be confined: {error}")
    # Python ignores both signals. A program expects their defaults, as a shell would start it.
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
    """Execute a program, found by PATH as a shell does.

    Not `os.execvpe`, because that imports a module, and a confined process may not read its own library any more.
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
    # Enter the working folder again by its name: a mount may cover it now, and the old folder below is not shielded.
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
