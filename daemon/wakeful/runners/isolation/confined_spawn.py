"""Spawns a program under a policy: a short-lived thread restricts itself, spawns, and ends.

Landlock, the system call filter, a mount namespace and "no new privileges" belong to a thread and are inherited by what
it starts, so the run is confined before its first instruction, with no wrapper process and no code between fork and
exec; the daemon itself is untouched. What most runs share, a thread takes on in advance and waits (`_Prepared`): half
of the cost is paid before a run is due. Where mounts are needed and no thread may make them, a small program takes the
thread's place (`_ByLauncher`). `runners/process/program.py` calls it; a second way of launching (bubblewrap)
has the same face.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, Protocol, TypeVar, cast

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.runners.isolation.hidden_places import Hidden, allow_around
from wakeful.runners.isolation.landlock import Ruleset
from wakeful.runners.isolation.mounts import Mounts
from wakeful.runners.isolation.namespace import shield
from wakeful.runners.isolation.open_beneath import GoesInCircles, open_beneath
from wakeful.runners.isolation.privileges import drop_capabilities, forbid_new_privileges, install_filter
from wakeful.runners.isolation.seccomp import Sockets, build_filter, build_last_filter, is_known_machine
from wakeful.runners.isolation.shield import can_mount, describe_shielding, name_launcher
from wakeful.runners.isolation.spawner import Spawner

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
        """What is hidden by an empty folder on top of it, where there are mounts: what lies in a grant.

        To the rest no rights lead.
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
    """A `Launch` under a policy. Whoever made it calls `dismiss` when nothing more will be launched."""

    def __init__(self, policy: Policy, ahead: Confinement | None = None) -> None:
        """`ahead` has taken on this policy, or one that opens the same, and is for the first launch."""
        self.policy = policy
        self._ahead = ahead
        self._launched: list[Confinement] = []

    def take_on(self) -> None:
        """Have a thread take on the policy already, for the next launch.

        Returns at once; what goes wrong is raised by that launch.
        """
        if self._ahead is None:
            self._ahead = begin_confined(self.policy)

    def dismiss(self) -> None:
        """Safe to repeat."""
        if self._ahead is not None:
            self._ahead.dismiss()
            self._ahead = None
        for confined in self._launched:
            confined.let_go()

    def __call__(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocks until the program is spawned. What the restriction or the spawn raises is raised here."""
        confined, self._ahead = self._ahead or begin_confined(self.policy), None
        spawned = confined.spawn(spawn)
        self._launched.append(confined)
        return spawned


def begin_confined(policy: Policy) -> Confinement:
    """Usually a thread that takes on the policy, and waits for what it is to spawn, or to be dismissed."""
    if policy.needs_launcher:
        return _ByLauncher(policy)
    # A mount namespace must come before everything else, and a network leaves more open than what was prepared.
    if policy.guard is None or policy.shielded or policy.network is not False:
        confined = Confined()
    else:
        confined = _Prepared.take(policy.guard, policy.system)
    confined.take_on(policy)
    return confined


def prepare_another(policy: Policy) -> None:
    """Have a thread wait for whoever comes next, where there is none: nobody is in a hurry now."""
    if policy.guard is not None:
        _Prepared.renew(policy.guard, policy.system)


class Confinement(ABC):
    """One program to be spawned under a policy that has been taken on."""

    # It holds every place that the policy opens, whatever becomes of the name.
    has_taken_on: bool = False
    # Those of its own, where it has any.
    mounts: Mounts | None = None

    @abstractmethod
    def spawn(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocks until the process is spawned. Also raises any error from applying the policy."""

    @abstractmethod
    def dismiss(self) -> None:
        """Release everything: no process will be spawned. Safe to repeat."""

    def let_go(self) -> None:
        """Close the mounts: the spawned process has ended. Safe to repeat."""
        if self.mounts is not None:
            self.mounts.close()


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
        self.has_taken_on = self._problem is None

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


class Confined(Confinement):
    """A thread on its way to spawn one program: it restricts itself by a policy, and waits for the program."""

    def __init__(self) -> None:
        """Raises OSError where the system gives no thread."""
        self._policies: SimpleQueue[Policy | None] = SimpleQueue()
        self._spawns: SimpleQueue[Spawn[Any] | None] = SimpleQueue()
        self._thread = Spawner()
        self._thread.start(self._live)

    def take_on(self, policy: Policy) -> None:
        self._policies.put(policy)

    def spawn(self, spawn: Spawn[Spawned]) -> Spawned:
        self._spawns.put(spawn)
        return cast(Spawned, self._thread.wait())

    def dismiss(self) -> None:
        self._policies.put(None)
        self._spawns.put(None)

    def _live(self) -> None:
        self._thread.begin()
        try:
            self._restrict()
            self.has_taken_on = True
            spawn = self._spawns.get()
            if spawn is not None and self._thread.may_spawn():
                self._thread.answer(spawn())
                return
        except OSError as problem:
            # The kernel's words say it all. With its traceback it would hold this frame,
            # and both would stay where nobody takes the answer.
            self._thread.answer(None, problem.with_traceback(None))
        except BaseException as problem:
            self._thread.answer(None, problem)
        self.let_go()

    def _restrict(self) -> None:
        policy = self._policies.get()
        if policy is None:
            return
        if policy.shielded:
            shield(policy.shielded, policy.kept_writable, policy.emptied)
            self.mounts = Mounts("thread-self")
        _restrict(policy)


class _Prepared(Confined):
    """One that has taken on what runs without a network share, before anybody asks: what is left are one run's files.

    The system's places are already among the rules it will take on with these files:
    a fifth of a millisecond less to wait for."""

    _waiting: ClassVar[_Prepared | None] = None

    def __init__(self, guard: Ruleset, system: tuple[OpenGrant, ...]) -> None:
        self.guard = guard
        self.system = system
        # A fork has our memory and none of our threads.
        self.process = os.getpid()
        self._own_guard = guard.copy()
        try:
            super().__init__()
        except OSError:
            self._own_guard.close()
            raise

    @classmethod
    def take(cls, guard: Ruleset, system: tuple[OpenGrant, ...]) -> _Prepared:
        """The one that waits, if it is still of use."""
        found, cls._waiting = cls._waiting, None
        if found is None or found.process != os.getpid():
            return cls(guard, system)
        if found.guard is guard and found.system is system:
            return found
        found.dismiss()
        return cls(guard, system)

    def spawn(self, spawn: Spawn[Spawned]) -> Spawned:
        try:
            return super().spawn(spawn)
        finally:
            # The next one is made now, when the program is on its way.
            _Prepared.renew(self.guard, self.system)

    @classmethod
    def renew(cls, guard: Ruleset, system: tuple[OpenGrant, ...]) -> None:
        # Where the system gives no thread or descriptor now, the next start asks for one of its own.
        with contextlib.suppress(OSError):
            if cls._waiting is None:
                cls._waiting = cls(guard, system)

    def _restrict(self) -> None:
        with self._own_guard:
            _restrict_alike(self._own_guard, Sockets())
        with _open_system(self.system, has_tcp=False) as ruleset:
            policy = self._policies.get()
            if policy is not None:
                _restrict_files(ruleset, policy)


def restrict_self(policy: Policy) -> None:
    """Confine the calling thread for good. A path that is not there (any more) is not granted."""
    if policy.shielded:
        shield(policy.shielded, policy.kept_writable, policy.emptied)
    _restrict(policy)


def _restrict(policy: Policy) -> None:
    """But for its mounts."""
    _restrict_alike(policy.guard, policy.sockets)
    with _open_system(policy.system, has_tcp=policy.network is True) as ruleset:
        _restrict_files(ruleset, policy)


def _restrict_alike(guard: Ruleset | None, sockets: Sockets) -> None:
    """What does not depend on the run. Paths can still be looked up afterwards, which is all that is needed."""
    forbid_new_privileges()
    if guard is not None:
        guard.restrict_self()
    drop_capabilities()
    if is_known_machine():
        install_filter(build_filter(sockets, is_last=False))


def _open_system(system: tuple[OpenGrant, ...], *, has_tcp: bool) -> Ruleset:
    """A ruleset to begin with."""
    ruleset = Ruleset(has_tcp=has_tcp)
    for kept in system:
        ruleset.allow_known(kept.fd, kept.rights)
    return ruleset


def _restrict_files(ruleset: Ruleset, policy: Policy) -> None:
    _allow_granted(ruleset, policy)
    ruleset.restrict_self()
    if is_known_machine():
        install_filter(build_last_filter())


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
