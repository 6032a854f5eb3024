"""Whether this machine can shield a place from a run inside a folder that the run may write, and by which way.

Root's daemon mounts in the thread that spawns the run. A thread of an ordinary user's daemon may not, so there a small
program does it in a user namespace of its own (launcher.py), where the kernel lets users have those. `reach` asks
before it opens a folder, `confined_spawn` when it launches.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from threading import Thread

from wakeful.runners.isolation import launcher
from wakeful.runners.isolation.namespace import leave_mounts

_SOURCE = os.path.abspath(launcher.__file__).rsplit("/wakeful/", 1)[0]
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); from wakeful.runners.isolation.launcher import main; "
    "main(sys.argv[1:])"
)
_PATIENCE_SECONDS = 10.0


def can_shield() -> bool:
    """Can a place be shielded from a run here, by a mount of ours or by the launcher?"""
    return can_mount() or can_launch()


@functools.cache
def can_mount() -> bool:
    """Whether a thread of this process may make namespaces and mounts; tried once,
    in a thread that ends with its namespace."""
    worked: list[bool] = []

    def attempt() -> None:
        try:
            leave_mounts()
        except OSError:
            return
        worked.append(True)

    trial = Thread(target=attempt, name="try a mount namespace")
    trial.start()
    trial.join()
    return bool(worked)


@functools.cache
def can_launch() -> bool:
    """Whether this user may have namespaces; tried once, which blocks for the start of an interpreter.

    Root has its own way, or none.
    """
    if os.geteuid() == 0:
        return False
    fd = describe_shielding(shielded=("/usr",))
    try:
        done = subprocess.run(
            [*name_launcher(fd), "/bin/true"], pass_fds=(fd,), cwd="/", timeout=_PATIENCE_SECONDS, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        os.close(fd)
    return done.returncode == 0


def name_launcher(fd: int) -> tuple[str, ...]:
    """The words before a program's own. `fd` is what `describe_shielding` returned, and must be handed on."""
    return (sys.executable, "-I", "-S", "-c", _START, _SOURCE, str(fd))


def describe_shielding(
    *,
    shielded: Iterable[str] = (),
    writable: Iterable[str] = (),
    emptied: Iterable[str] = (),
    rulesets: Sequence[int] = (),
    program: bytes = b"",
) -> int:
    """A file in memory with what the launcher does before it becomes the program; the caller closes it.

    `program` is a system call filter.
    """
    words = [*(launcher.SHIELDED + path for path in shielded), *(launcher.WRITABLE + path for path in writable)]
    words += [*(launcher.EMPTIED + path for path in emptied), *(f"{launcher.RULESET}{fd}" for fd in rulesets)]
    words += [launcher.FILTER + program.hex()] if program else []
    fd = os.memfd_create("wakeful-shielding")
    os.write(fd, os.fsencode("\0".join(words)))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
