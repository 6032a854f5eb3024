"""Spawns a program under a policy: a short-lived thread restricts itself, spawns, and ends.

Landlock, the system call filter, a mount namespace and "no new privileges" belong to a thread and are inherited by what
it starts, so the run is confined before its first instruction, with no wrapper process and no code between fork and
exec; the daemon itself is untouched. A thread may begin while the record of the run's start is on its way to disk, and
waits until it is there (`take_on`); it never outlives the start. Where mounts are needed and no thread may make them, a
small program takes the thread's place (`_ByLauncher`). The caller is the loop. It waits a bounded time: a thread that
finds no memory is gone without a word, and the loop waited for ever.
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
from wakeful.runners.isolation.opened_places import GoesInCircles, Hidden, allow_around, open_beneath
from wakeful.runners.isolation.privileges import drop_capabilities, forbid_new_privileges, install_filter
from wakeful.runners.isolation.seccomp import Sockets, build_filter, is_known_machine
from wakeful.runners.isolation.shield import can_mount, describe_shielding, name_launcher
from wakeful.runners.process.program import Spawn, Spawned


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
    # And those that may be listened on.
    listens: tuple[int, ...] = ()
    # With a list of ports: UDP is open, since a listed host is a name.
    looks_up_names: bool = False
    # Read-only although a grant covers them, and what lies inside them and is writable all the same.
    shielded: tuple[str, ...] = ()
    kept_writable: tuple[str, ...] = ()
    # The same where nothing can be mounted: what lies around them is granted one by one.
    spared: tuple[str, ...] = ()
    # Not to be read although a grant covers it.
    hidden: Hidden = Hidden()

    @property
    def sockets(self) -> Sockets:
        return find_sockets(self.network, self.listens, looks_up_names=self.looks_up_names)

    @property
    def needs_launcher(self) -> bool:
        """Does it take mounts that no thread of this process may make?"""
        return bool(self.shielded) and not can_mount()

    @property
    def emptied(self) -> tuple[str, ...]:
        """The hidden places that lie in a grant; with mounts, an empty folder on top hides each of them.

        The other hidden places need no mount, because no grant covers them.
        """
        if not self.shielded:
            return ()
        granted = [os.path.join(grant.beneath or "/", grant.path) for grant in self.grants]
        return tuple(place for place in self.hidden.places if any(contains(one, place) for one in granted))


def find_sockets(network: bool | tuple[int, ...], listens: tuple[int, ...], *, looks_up_names: bool) -> Sockets:
    """Which sockets are left to a program that may connect to these ports, and listen on those."""
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
        """Have a thread take on the policy already, for the next launch.

        Returns at once; an error is raised by that launch.
        """
        if self._taken_on is None:
            self._taken_on = _begin_confined(self.policy)

    def dismiss(self) -> None:
        """Safe to repeat."""
        if self._taken_on is not None:
            self._taken_on.dismiss()
            self._taken_on = None

    def __call__(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocks until the program is spawned. An error of the restriction or of the spawn is raised here."""
        confined, self._taken_on = self._taken_on or _begin_confined(self.policy), None
        return confined.spawn(spawn)


class Confinement(ABC):
    """One program to be spawned under a policy that has been taken on."""

    @abstractmethod
    def spawn(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocks until the process is spawned. Also raises any error from applying the policy."""

    @abstractmethod
    def dismiss(self) -> None:
        """Release everything: no process will be spawned. Safe to repeat."""


def _begin_confined(policy: Policy) -> Confinement:
    """Usually a thread that takes on the policy, and waits for what it is to spawn, or to be dismissed."""
    return _ByLauncher(policy) if policy.needs_launcher else _Confined(policy)


class _ByLauncher(Confinement):
    """By a small program that mounts and restricts itself before it becomes the program;
    what it opens is opened here, and handed over."""

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
    """A thread on its way to spawn one program: it restricts itself by a policy, and waits for the program."""

    def __init__(self, policy: Policy) -> None:
        """Raises OSError where the system gives no thread."""
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
            # The kernel's words say it all. With its traceback it would hold this frame,
            # and both would stay where nobody takes the answer.
            self._thread.answer(None, problem.with_traceback(None))
        except BaseException as problem:
            self._thread.answer(None, problem)


def _restrict_self(policy: Policy) -> None:
    """Confine the calling thread for good. A path that is not there (any more) is not granted."""
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
    """A ruleset to begin with."""
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
    except (FileNotFoundError, NotADirectoryError, GoesInCircles):
        return
    try:
        allow_around(ruleset, fd, grant.rights, hidden, spared)
    finally:
        os.close(fd)


_LOOK_SECONDS = 0.1
# So many looks are made for a thread that does not begin at all, and for one that does not come to its spawn: two
# seconds, and five.
_LOOKS_FOR_BEGIN = 20
_LOOKS_FOR_SPAWN = 50

Answer = tuple[Any, BaseException | None]


class Spawner:
    """The thread calls `begin` first, `may_spawn` before its spawn, and `answer` once; the caller calls `start`, and
    `wait`."""

    def __init__(self) -> None:
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        # Taken once: by the thread, which then spawns, or by a caller that gave up.
        self._decision = Lock()
        # The thread's number in the kernel, once it has begun.
        self._number = 0

    def start(self, live: Callable[[], None]) -> None:
        """Raises OSError where the system gives no thread."""
        try:
            # Not a Thread, whose start waits until it has begun: a switch of contexts there and back, with a program
            # under way.
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
        """The result of the spawn. Raises its error, and OSError where the thread is gone."""
        for looks in itertools.count(1):
            # Before the look at its answers: a thread that is gone has put down all it will.
            is_gone = self._is_gone()
            try:
                result, problem = self._answers.get(timeout=_LOOK_SECONDS)
            except Empty:
                # Counted in looks: the clock goes on while the daemon is stopped. A spawn under way may take long on a
                # slow disk.
                most = _LOOKS_FOR_SPAWN if self._number else _LOOKS_FOR_BEGIN
                if is_gone or (looks >= most and self.may_spawn()):
                    raise OSError(
                        errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}, the thread that was to start it is gone"
                    ) from None
            else:
                if problem is None:
                    return result
                try:
                    raise problem
                finally:
                    # The traceback of the problem holds this frame. The two would keep each other, and all that the
                    # spawn refers to.
                    del problem

    def _is_gone(self) -> bool:
        return bool(self._number) and not os.path.exists(f"/proc/self/task/{self._number}")
