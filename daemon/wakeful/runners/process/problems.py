"""Messages about a run that did not start, timed out or did not pass its check: the problem, and a remedy."""

from __future__ import annotations

import errno
import os
import resource
import shlex
from collections.abc import Mapping, Sequence

from wakeful.core.spec.budget import UNITS

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def describe_start(error: OSError | ValueError, argv: Sequence[str], cwd: str, environment: Mapping[str, str]) -> str:
    """Describe why `argv` could not be started in `cwd`."""
    program = repr(argv[0])
    # subprocess raises ValueError for a NUL byte, and for a '=' in a variable's name.
    if not isinstance(error, OSError):
        return f"cannot start {program}: {error}; look at 'command' and 'env' of the run"
    if error.filename == cwd and not os.path.isdir(cwd):
        return f"cannot start {program}: the folder {cwd!r} {_absence(cwd)}; make it, or change 'cwd' of the run"
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return f"cannot start {program}: {_not_found(argv[0], cwd, environment)}"
        case errno.EACCES | errno.EPERM:
            return (
                f"cannot start {program}: it may not be executed; make it executable (chmod +x), "
                f"or name its interpreter first, as in [python3, {argv[0]}]"
            )
        case errno.ENOEXEC:
            return (
                f"cannot start {program}: it is not a program for this machine and does not begin with '#!'; "
                f"add that line, or name its interpreter first, as in [sh, {argv[0]}]"
            )
        case errno.E2BIG:
            return f"cannot start {program}: its arguments and environment are too large; hand them over in a file"
        case errno.EAGAIN | errno.ENOMEM:
            return (
                f"cannot start {program}: the system refused a new process ({error.strerror}); "
                "end some processes, or raise the limit of processes (TasksMax=, ulimit -u) or of memory"
            )
        case errno.EMFILE | errno.ENFILE:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return (
                f"cannot start {program}: the daemon has run out of file descriptors (limit {soft}); "
                "raise it (LimitNOFILE=, ulimit -n)"
            )
        case errno.ENOSPC | errno.EDQUOT:
            return (
                f"cannot start {program}: not enough disk space for the run's folder ({error.strerror}); "
                "free some space"
            )
    where = f" at {error.filename!r}" if error.filename else ""
    return f"cannot start {program}: {error.strerror or error}{where}"


def describe_defect(error: Exception) -> str:
    return f"a defect of wakeful: {type(error).__name__}: {error}; the daemon's output has the details"


def describe_timeout(timeout_seconds: float) -> str:
    return f"timed out after {spell_seconds(timeout_seconds)}"


def describe_overspent(name: str, limit: float) -> str:
    return f"stopped: it used more than the {limit:g} {UNITS[name]} left in its budget"


def describe_check(argv: Sequence[str], exit_code: int | None, signal_number: int | None) -> str:
    how = f"was ended by signal {signal_number}" if signal_number is not None else f"exited with {exit_code}"
    return f"the check {shlex.join(argv)!r} {how}; the run counts as failed"


def describe_survivors(pids: Sequence[int]) -> str:
    numbers = ", ".join(map(str, pids))
    return f"the kernel does not end process {numbers} (stuck in a system call, perhaps on a dead mount); it was killed"


def describe_replaced(paths: Sequence[str]) -> str:
    return (
        f"{', '.join(paths)} was saved while it ran: an editor replaces the file, and a run that began earlier "
        "cannot open the new one; the next run reads it"
    )


def refuse_unconfined() -> str:
    return (
        "this kernel has no Landlock, so the run cannot be confined and was not started; "
        "use Linux 5.13 or newer with landlock in lsm=,"
        " or say isolation: none in its spec and allow_unisolated: true in wakeful.yaml"
    )


def refuse_unjudged() -> str:
    return "this kernel has no Landlock, so it cannot be found out which accesses isolation would deny"


def spell_seconds(seconds: float) -> str:
    """Format a duration as in a spec: 500ms, 90s, 5m, 2h, 7d."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size:g}{unit}"
    return f"{seconds:g}s"


def _not_found(program: str, cwd: str, environment: Mapping[str, str]) -> str:
    if "/" not in program:
        return f"no such program in PATH ({environment.get('PATH', '')}); install it, or name it by its path"
    path = os.path.join(cwd, program)
    # If the interpreter in a script's first line is missing, the kernel reports "no such file" for the script.
    if os.path.exists(path):
        return f"the interpreter named in the first line of {path!r} does not exist; correct that line"
    return f"{path!r} does not exist; correct the path, which is relative to 'cwd'"


def _absence(cwd: str) -> str:
    return "is not a folder" if os.path.exists(cwd) else "does not exist"
