"""Probes whether this machine can shield a place inside a folder that a run may write, and how.

A daemon with root mounts in the thread that spawns the run. A daemon without root may not mount. It starts a small
program that mounts in a user namespace of its own (launcher.py), if the kernel allows users such namespaces. `reach`
asks this module before it opens a folder, and `confined_spawn` when it launches.
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
    """Can this machine shield a place from a run, by the daemon's own mounts or by the launcher?"""
    return can_mount() or can_launch()


@functools.cache
def can_mount() -> bool:
    """May a thread of this process make namespaces and mounts? Tried once, in a thread that then ends."""
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
    """May this user make user namespaces? Tried once; blocking for the start of an interpreter.

    False for root, which mounts by itself (`can_mount`) or not at all.
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
    """Return the arguments that come before the program's own.

    `fd` comes from `describe_shielding`, and the launcher must inherit it.
    """
    return (sys.executable, "-I", "-S", "-c", _START, _SOURCE, str(fd))


def describe_shielding(
    *,
    shielded: Iterable[str] = (),
    writable: Iterable[str] = (),
    emptied: Iterable[str] = (),
    rulesets: Sequence[int] = (),
    program: bytes = b"",
) -> int:
    """Write the launcher's instructions to a file in memory, and return its descriptor. The caller closes it.

    `program` is a system call filter.
    """
    words = [*(launcher.SHIELDED + path for path in shielded), *(launcher.WRITABLE + path for path in writable)]
    words += [*(launcher.EMPTIED + path for path in emptied), *(f"{launcher.RULESET}{fd}" for fd in rulesets)]
    words += [launcher.FILTER + program.hex()] if program else []
    fd = os.memfd_create("wakeful-shielding")
    os.write(fd, os.fsencode("\0".join(words)))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
