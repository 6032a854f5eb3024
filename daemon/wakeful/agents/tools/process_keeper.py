"""A program of its own around one command: whatever the command starts ends with it,
also what left its group and its parents.

`shell` starts it with an interpreter that loads the standard library and this alone. The command takes on its domain
(shell_confinement.py) before its first instruction; the keeper stays outside, out of its reach. Orphans below it become
its children (a subreaper), so when the command has ended, or SIGTERM says that it must, all that is left below is
killed and reaped. Ends as the command did: 128 and more is a signal.
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
# A process that a signal cannot end within this time hangs in the kernel.
PATIENCE_SECONDS = 5.0
NOT_CONFINED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
_ENDED = 128 + signal.SIGTERM
# For where there is no domain to take on.
UNCONFINED = "-"

_libc = ctypes.CDLL(None)


def main(words: list[str]) -> int:
    """The descriptor of a ruleset, a filter in hex, then the command."""
    ruleset, program, *argv = words
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # If the process that started us dies, nobody reads the result, so the command is ended.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: end_all())
    # An interrupt of the run reaches the command as well, and the command decides.
    signal.signal(signal.SIGINT, lambda *_: None)
    child = os.fork()
    if child == 0:
        become(ruleset, bytes.fromhex(program), argv)
    status = wait_for(child)
    end_all()
    return status


def become(ruleset: str, program: bytes, argv: list[str]) -> NoReturn:
    """In the child. Where it cannot be confined, it is not started."""
    # Python ignores SIGPIPE and SIGXFSZ. They are reset as well, so that a command starts as from a shell.
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
    """The command's own end; orphans that end meanwhile are reaped."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            # SIGTERM came, and all were ended and reaped by it.
            return _ENDED
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_all() -> None:
    """Until nothing below us is alive."""
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
            # The name in brackets may hold anything.
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    below: list[int] = []
    pending = {top}
    while pending:
        pending = {pid for pid, parent in parents.items() if parent in pending}
        below += pending
    return below
