"""Spawns a program under a policy: a short-lived thread restricts itself, spawns, and ends.

Landlock, the system call filter, a mount namespace and "no new privileges" belong to a thread and are inherited by what it starts, so
the run is confined before its first instruction, with no wrapper process and no code between fork and exec (0.1 ms, measured);
the daemon itself is untouched. `runners/process.py` calls it; a second way of launching (bubblewrap) has the same face.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Thread
from typing import Protocol, TypeVar

from msgspec import Struct

from wakeful.runners.isolation.beneath import open_beneath
from wakeful.runners.isolation.filter import build_filter, install_filter, is_known_machine
from wakeful.runners.isolation.landlock import Ruleset
from wakeful.runners.isolation.privileges import drop_capabilities, forbid_new_privileges
from wakeful.runners.isolation.shield import shield

Spawned = TypeVar("Spawned", covariant=True)


class Grant(Struct, frozen=True):
    """Rights on a path and all below it. `beneath`: the folder out of which no link on the way may lead."""

    path: str
    rights: int
    beneath: str | None = None


class OpenGrant(Struct, frozen=True):
    """Rights on a path that somebody keeps open: the system's own places, the same for every run."""

    fd: int
    rights: int


class Policy(Struct, frozen=True, kw_only=True):
    """All that a program may touch. Built by `reach`; everything that is not granted is denied."""

    system: tuple[OpenGrant, ...] = ()
    # Narrows what `system` and `grants` open: the secrets among the system's own files.
    guard: Ruleset | None = None
    grants: tuple[Grant, ...] = ()
    # True: as the machine has it. Otherwise the TCP ports that may be connected to.
    network: bool | tuple[int, ...] = False
    # Read-only although a grant covers them, and what lies inside them and is writable all the same.
    shielded: tuple[str, ...] = ()
    kept_writable: tuple[str, ...] = ()


class Spawn(Protocol[Spawned]):
    """Starts the program; `prefix` are words to come before its own, `fds` descriptors that are handed on."""

    def __call__(self, prefix: Sequence[str] = (), fds: Sequence[int] = ()) -> Spawned: ...


class Launch(Protocol):
    """One way of launching: calls `spawn`, which starts the program, where whatever it starts is confined."""

    def __call__(self, spawn: Spawn[Spawned]) -> Spawned: ...


def launch_bare(spawn: Spawn[Spawned]) -> Spawned:
    """`isolation: none`."""
    return spawn()


class ConfinedLaunch:
    """A `Launch` under a policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocks until the program is spawned. What the restriction or the spawn raises is raised here."""
        results: list[Spawned] = []
        problems: list[BaseException] = []

        def spawn_restricted() -> None:
            try:
                restrict_self(self._policy)
                results.append(spawn())
            except BaseException as problem:
                problems.append(problem)

        spawning = Thread(target=spawn_restricted, name="spawn")
        spawning.start()
        spawning.join()
        if problems:
            raise problems[0]
        return results[0]


def restrict_self(policy: Policy) -> None:
    """Confine the calling thread for good. A path that is not there (any more) is not granted."""
    network = policy.network
    if policy.shielded:
        shield(policy.shielded, policy.kept_writable)
    with Ruleset(has_tcp=network is True) as ruleset:
        for kept in policy.system:
            ruleset.allow_known(kept.fd, kept.rights)
        for grant in policy.grants:
            _allow(ruleset, grant)
        if not isinstance(network, bool):
            ruleset.allow_connect(network)
        forbid_new_privileges()
        if policy.guard is not None:
            policy.guard.restrict_self()
        ruleset.restrict_self()
    drop_capabilities()
    if is_known_machine():
        install_filter(build_filter(has_network=bool(network)))


def _allow(ruleset: Ruleset, grant: Grant) -> None:
    try:
        fd = open_beneath(grant.beneath, grant.path)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        ruleset.allow(fd, grant.rights)
    finally:
        os.close(fd)
