"""A program around one command that ends all processes of the command with it, even those that left its process group.

`shell` starts it with an interpreter that loads only the standard library and this module. The command enters its
domain (shell_confinement.py) before its first instruction. The keeper stays outside, so the command cannot reach it.
The keeper is a subreaper: orphans below it become its children. When the command has ended, or at SIGTERM, it kills and
reaps all processes below it. Its exit code is the command's, or 128 + the signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import NoReturn

from wakeful.runners.isolation.privileges import drop_capabilities, forbid_new_privileges, install_filter, restrict_by

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# Seconds until the keeper stops waiting for killed processes. A process that lives longer hangs in the kernel.
PATIENCE_SECONDS = 5.0
NOT_CONFINED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
_ENDED = 128 + signal.SIGTERM
# The word in place of a ruleset's descriptor if the command is not confined.
UNCONFINED = "-"

_libc = ctypes.CDLL(None)


def main(words: list[str]) -> int:
    """Run a command. `words` are the descriptor of a ruleset, a filter in hex, then the command."""
    ruleset, program, *argv = words
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # If the process that started the keeper dies, no process reads the result. So end the command.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: end_all())
    # An interrupt also reaches the command itself, which decides what to do.
    signal.signal(signal.SIGINT, lambda *_: None)
    child = os.fork()
    if child == 0:
        become(ruleset, bytes.fromhex(program), argv)
    status = wait_for(child)
    end_all()
    return status


def become(ruleset: str, program: bytes, argv: list[str]) -> NoReturn:
    """Replace this child process by the command. A command that cannot be confined is not started."""
    # Reset SIGPIPE and SIGXFSZ too, which Python ignores, so that the command starts as from a shell.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        if ruleset != UNCONFINED:
            confine(int(ruleset), program)
    except BaseException as error:
        say(f"the command was not started, since it cannot be confined: {error}")
        os._exit(NOT_CONFINED)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        say(f"{argv[0]}: {error.strerror}")
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def confine(ruleset_fd: int, program: bytes) -> None:
    os.set_inheritable(ruleset_fd, False)
    forbid_new_privileges()
    drop_capabilities()
    restrict_by(ruleset_fd)
    if program:
        install_filter(program)


def say(words: str) -> None:
    os.write(2, f"{words}\n".encode(errors="replace"))


def wait_for(child: int) -> int:
    """Wait for the command, and return its exit code. Orphans that end meanwhile are reaped."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            # SIGTERM came, and its handler killed and reaped all processes.
            return _ENDED
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_all() -> None:
    """Kill and reap all processes below this one, for up to PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for pid in find_below(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def find_below(top: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # Split after the last bracket, because the process name within brackets may contain any character.
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    below: list[int] = []
    pending = {top}
    while pending:
        pending = {pid for pid, parent in parents.items() if parent in pending}
        below += pending
    return below
