"""Spawns a program under a policy: a short-lived thread restricts itself, spawns, and ends.

Landlock, the system call filter, a mount namespace and "no new privileges" belong to a thread, and its children inherit
them. The run is therefore confined before its first instruction, without a wrapper process and without code between
fork and exec. The daemon itself is not restricted. A thread may apply the policy while the record of the run's start is
being written (`take_on`). It then waits until the record is on disk, spawns the program and ends. If mounts are needed
and no thread may make them, a small program replaces the thread (`_ByLauncher`). The caller is the loop, and waits a
bounded time. A thread that gets no memory ends without a report, and the loop once waited for ever.
"""

from __future__ import annotations

import errno
import itertools
import os
from _thread import start_new_thread
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, get_native_id
from typing import Any, cast

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.runners.isolation.landlock import Ruleset
from wakeful.runners.isolation.namespace import shield
from wakeful.runners.isolation.opened_places import Hidden, LinkLoop, allow_around, open_beneath
from wakeful.runners.isolation.privileges import drop_capabilities, forbid_new_privileges, install_filter
from wakeful.runners.isolation.seccomp import Sockets, build_filter, is_known_machine
from wakeful.runners.isolation.shield import can_mount, describe_shielding, name_launcher
from wakeful.runners.process.program import Spawn, Spawned


class Grant(Struct, frozen=True):
    """Rights on a path and everything below it.

    If `beneath` is set, the path is relative to that folder, and no symbolic link in it may lead out of the folder.
    """

    path: str
    rights: int
    beneath: str | None = None


class OpenGrant(Struct, frozen=True):
    """Rights on a path whose descriptor stays open: the system's own places, which are the same for every run."""

    fd: int
    rights: int


class Policy(Struct, frozen=True, kw_only=True):
    """All that a program may touch. Built by `reach`; everything that is not granted is denied."""

    system: tuple[OpenGrant, ...] = ()
    # A second ruleset that keeps secrets of /etc closed, although `system` and `grants` open the folder around them.
    guard: Ruleset | None = None
    grants: tuple[Grant, ...] = ()
    # True: the machine's whole network. False: none. Otherwise the TCP ports that the run may connect to.
    network: bool | tuple[int, ...] = False
    # The TCP ports that the run may listen on.
    listens: tuple[int, ...] = ()
    # True only with a list of ports: UDP is open, because a listed host is a name that must be looked up.
    looks_up_names: bool = False
    # Places that are read-only although a grant covers them, and the writable places inside them.
    shielded: tuple[str, ...] = ()
    kept_writable: tuple[str, ...] = ()
    # Read-only places on a machine that cannot mount: the entries around them are granted one by one.
    spared: tuple[str, ...] = ()
    # Places that cannot be read although a grant covers them.
    hidden: Hidden = Hidden()

    @property
    def sockets(self) -> Sockets:
        return find_sockets(self.network, self.listens, looks_up_names=self.looks_up_names)

    @property
    def needs_launcher(self) -> bool:
        """Does this policy need mounts that no thread of this process may make?"""
        return bool(self.shielded) and not can_mount()

    @property
    def emptied(self) -> tuple[str, ...]:
        """The hidden places inside a grant, if this policy uses mounts: an empty folder is mounted on each.

        The other hidden places need no mount, because no grant covers them.
        """
        if not self.shielded:
            return ()
        granted = [os.path.join(grant.beneath or "/", grant.path) for grant in self.grants]
        return tuple(place for place in self.hidden.places if any(contains(one, place) for one in granted))


def find_sockets(network: bool | tuple[int, ...], listens: tuple[int, ...], *, looks_up_names: bool) -> Sockets:
    """Choose the sockets for a program that may connect to the ports `network` and listen on the ports `listens`."""
    if isinstance(network, bool):
        return Sockets(has_network=network)
    return Sockets(
        has_network=bool(network), is_by_port=bool(network), has_udp=looks_up_names, may_listen=bool(listens)
    )


class ConfinedLaunch:
    """A `Launch` under a policy. Its creator calls `dismiss` after the last launch."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._taken_on: Confinement | None = None

    def take_on(self) -> None:
        """Begin to apply the policy: usually in a thread, which then waits for a program to spawn, or for `dismiss`.

        Returns at once. An error of the thread is raised by the launch.
        """
        if self._taken_on is None:
            self._taken_on = _ByLauncher(self.policy) if self.policy.needs_launcher else _Confined(self.policy)

    def dismiss(self) -> None:
        """End the thread that was started in advance. Safe to repeat."""
        if self._taken_on is not None:
            self._taken_on.dismiss()
            self._taken_on = None

    def __call__(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocking until the program is spawned. Raises the errors of the restriction and of the spawn."""
        self.take_on()
        confined, self._taken_on = self._taken_on, None
        assert confined is not None
        return confined.spawn(spawn)


class Confinement(ABC):
    """Spawns one program under a policy that has been applied."""

    @abstractmethod
    def spawn(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocking until the process is spawned. Also raises any error from applying the policy."""

    @abstractmethod
    def dismiss(self) -> None:
        """Release everything: no process will be spawned. Safe to repeat."""


class _ByLauncher(Confinement):
    """Spawns a small program that mounts, restricts itself, and then becomes the run's program.

    The rulesets are made in this process, and passed to the small program as descriptors.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._ruleset: Ruleset | None = None
        self._problem: BaseException | None = None
        try:
            self._ruleset = _open_system(policy.system, has_tcp=policy.network is True)
            _allow_granted(self._ruleset, policy)
        except BaseException as problem:
            self._problem = problem

    def spawn(self, spawn: Spawn[Spawned]) -> Spawned:
        try:
            if self._problem is not None or self._ruleset is None:
                raise self._problem or RuntimeError("dismissed")
            return self._spawn(spawn, self._policy, self._ruleset)
        finally:
            self.dismiss()

    def _spawn(self, spawn: Spawn[Spawned], policy: Policy, own: Ruleset) -> Spawned:
        rulesets = [ruleset.fd for ruleset in (policy.guard, own) if ruleset is not None]
        program = build_filter(policy.sockets) if is_known_machine() else b""
        told = describe_shielding(
            shielded=policy.shielded,
            writable=policy.kept_writable,
            emptied=policy.emptied,
            rulesets=rulesets,
            program=program,
        )
        try:
            return spawn(name_launcher(told), (told, *rulesets))
        finally:
            os.close(told)

    def dismiss(self) -> None:
        ruleset, self._ruleset = self._ruleset, None
        if ruleset is not None:
            ruleset.close()


class _Confined(Confinement):
    """A thread that restricts itself by a policy, waits for a program, spawns it and ends."""

    def __init__(self, policy: Policy) -> None:
        """Start the thread. Raises OSError if the system gives no thread."""
        self._policy = policy
        self._spawns: SimpleQueue[Spawn[Any] | None] = SimpleQueue()
        self._thread = Spawner()
        self._thread.start(self._live)

    def spawn(self, spawn: Spawn[Spawned]) -> Spawned:
        self._spawns.put(spawn)
        return cast(Spawned, self._thread.wait())

    def dismiss(self) -> None:
        self._spawns.put(None)

    def _live(self) -> None:
        self._thread.begin()
        try:
            _restrict_self(self._policy)
            spawn = self._spawns.get()
            if spawn is not None and self._thread.may_spawn():
                self._thread.answer(spawn())
        except OSError as problem:
            # The kernel's message is enough. A traceback would refer to this frame, and the frame to the error:
            # if the caller never reads the answer, both would stay in memory.
            self._thread.answer(None, problem.with_traceback(None))
        except BaseException as problem:
            self._thread.answer(None, problem)


def _restrict_self(policy: Policy) -> None:
    """Confine the calling thread for good. A path that does not exist (any more) is not granted."""
    if policy.shielded:
        shield(policy.shielded, policy.kept_writable, policy.emptied)
    forbid_new_privileges()
    if policy.guard is not None:
        policy.guard.restrict_self()
    drop_capabilities()
    with _open_system(policy.system, has_tcp=policy.network is True) as ruleset:
        _allow_granted(ruleset, policy)
        ruleset.restrict_self()
    if is_known_machine():
        install_filter(build_filter(policy.sockets))


def _open_system(system: tuple[OpenGrant, ...], *, has_tcp: bool) -> Ruleset:
    """Make a ruleset that grants the system's own places."""
    ruleset = Ruleset(has_tcp=has_tcp)
    for kept in system:
        ruleset.allow_known(kept.fd, kept.rights)
    return ruleset


def _allow_granted(ruleset: Ruleset, policy: Policy) -> None:
    emptied = policy.emptied
    hidden = Hidden(tuple(place for place in policy.hidden.places if place not in emptied), policy.hidden.own)
    for grant in policy.grants:
        _allow(ruleset, grant, hidden, policy.spared)
    if not isinstance(policy.network, bool):
        ruleset.allow_connect(policy.network)
    ruleset.allow_listen(policy.listens)


def _allow(ruleset: Ruleset, grant: Grant, hidden: Hidden, spared: tuple[str, ...]) -> None:
    try:
        fd = open_beneath(grant.beneath, grant.path)
    except (FileNotFoundError, NotADirectoryError, LinkLoop):
        return
    try:
        allow_around(ruleset, fd, grant.rights, hidden, spared)
    finally:
        os.close(fd)


_LOOK_SECONDS = 0.1
# The most looks for a thread's answer: while the thread has not begun (2 seconds), and while it has begun but not
# reached its spawn (5 seconds).
_LOOKS_FOR_BEGIN = 20
_LOOKS_FOR_SPAWN = 50

Answer = tuple[Any, BaseException | None]


class Spawner:
    """A thread that spawns a program, and the caller that waits for it.

    The thread calls `begin` first, `may_spawn` before its spawn, and `answer` once. The caller calls `start` and
    `wait`.
    """

    def __init__(self) -> None:
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        # Acquired once and never released: by the thread, which then spawns, or by a caller that gave up.
        self._decision = Lock()
        # The thread's id in the kernel. 0 until the thread has begun.
        self._number = 0

    def start(self, live: Callable[[], None]) -> None:
        """Start the thread. Raises OSError if the system gives no thread."""
        try:
            # Not `threading.Thread`: its start waits until the thread has begun, which costs two context switches.
            start_new_thread(live, ())
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)}, no thread") from error

    def begin(self) -> None:
        self._number = get_native_id()

    def may_spawn(self) -> bool:
        return self._decision.acquire(blocking=False)

    def answer(self, result: Any, problem: BaseException | None = None) -> None:
        self._answers.put((result, problem))

    def wait(self) -> Any:
        """Blocking. Return the result of the spawn. Raises the spawn's error, or OSError if the thread is gone."""
        is_gone = False
        for looks in itertools.count(1):
            try:
                result, problem = self._answers.get(timeout=_LOOK_SECONDS)
            except Empty:
                # Count attempts and not seconds, because the clock also runs while the daemon is stopped (SIGSTOP). A
                # spawn that has begun has no limit, because it may take long on a slow disk.
                most = _LOOKS_FOR_SPAWN if self._number else _LOOKS_FOR_BEGIN
                if is_gone or (looks >= most and self.may_spawn()):
                    raise OSError(
                        errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}, the thread that should start the program ended"
                    ) from None
                # Checked before the queue is read again: a thread that is gone by now has either put its answer into
                # the queue or will never do so.
                is_gone = bool(self._number) and not os.path.exists(f"/proc/self/task/{self._number}")
            else:
                if problem is None:
                    return result
                try:
                    raise problem
                finally:
                    # The problem's traceback refers to this frame. Without this line, the frame and the problem would
                    # keep each other in memory, with all that the spawn refers to.
                    del problem
