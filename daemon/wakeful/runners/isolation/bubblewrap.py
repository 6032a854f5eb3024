"""`isolation: strict`: bubblewrap gives a run its own view of the machine, before the run's first instruction.

The view shows only the places that `reach` grants: no home, no /tmp, no sockets or processes of others, and no network
unless it is declared. A process under Landlock may not mount, so mounts replace Landlock's rules for files. Landlock
still limits what mounts cannot: ports, and abstract sockets if the network is open. The system call filter is the same
as under `standard`. `Preparation` makes a view in a thread, and `LiveRun` launches in it. `find_obstacle` returns why
this machine cannot do that, and `StrictnessWatch` reports it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event, get_native_id
from typing import Protocol, cast

from msgspec import Struct

from wakeful.core.looking.patterns import contains
from wakeful.core.record.observations import StrictnessSeen
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import OperatorError
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.confined_spawn import Grant, Spawner
from wakeful.runners.isolation.kernel_gaps import find_kernel_gaps, find_landlock_gaps
from wakeful.runners.isolation.landlock import READ_FILE, SCOPE_ABI, TCP_ABI, WRITE, WRITE_FILE, Ruleset, probe_abi
from wakeful.runners.isolation.opened_places import LinkLoop, open_beneath
from wakeful.runners.isolation.privileges import KEPT_CAPABILITIES, forbid_new_privileges
from wakeful.runners.isolation.reach import Area, Reach, find_network_gaps
from wakeful.runners.isolation.seccomp import build_filter, is_known_machine
from wakeful.runners.isolation.system_places import PROGRAMS, SETTINGS, is_of_system, list_resolver, list_secrets
from wakeful.runners.process.program import Spawn, Spawned

_PATIENCE_SECONDS = 10.0
# Seconds between two trials while bubblewrap does not work.
LOOK_SECONDS = 10.0
_BEING_TRIED = "isolation: strict needs bubblewrap, which is being tried"
_PRIVATE = ("--unshare-pid", "--unshare-ipc")
# The most memory for files in /tmp (of programs that do not use TMPDIR), and in /dev/shm (semaphores and the like).
_TEMPORARY_BYTES = 256 << 20
_SHARED_BYTES = 64 << 20
# Private in a view, and empty except for the run's own folder, if that lies here because the system has no better place
# in memory.
_SHARED = "/dev/shm"
# Language runtimes count the cores here. The other parts of /sys that `standard` shows (control groups) are not worth
# their mounts: without them, runtimes use /proc.
_CORES = "/sys/devices/system"


def find_obstacle() -> str | None:
    """Return why no run can be isolated strictly on this machine, and what to do about it. None if it can.

    Blocking: it tries an empty run.
    """
    program = shutil.which("bwrap")
    if program is None:
        return "isolation: strict needs bubblewrap, which is not installed (sudo apt install bubblewrap)"
    # With --as-pid-1 the program is the first process of its namespace. bubblewrap waits for it, and no orphan is left.
    trial = [
        program,
        *_PRIVATE,
        "--as-pid-1",
        "--unshare-net",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--",
        "/bin/true",
    ]
    try:
        done = subprocess.run(
            trial,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE_SECONDS,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"isolation: strict needs bubblewrap, which cannot be started here: {error}"
    if done.returncode == 0:
        return None
    said = " ".join(done.stdout.split()) or f"exit code {done.returncode}"
    return (
        "isolation: strict needs bubblewrap, which cannot make namespaces here: "
        f"{said} (wakeful doctor shows how to fix it)"
    )


def find_unenforced(network: bool | tuple[str, ...]) -> tuple[str, ...]:
    """List the parts of a strict run's isolation that this machine cannot enforce."""
    words: list[str] = []
    if network and probe_abi() < SCOPE_ABI:
        words.append("abstract sockets, where the network is open (Linux 6.12 can)")
    words += find_network_gaps(network)
    if os.geteuid() != 0:
        words.append("links that are swapped in while its view is made")
    # The gaps of Landlock do not count: the view contains no files, processes or ports of others.
    words += (gap.words for gap in find_kernel_gaps() if gap not in find_landlock_gaps(probe_abi()))
    return tuple(words)


class Source(Struct, frozen=True):
    """The origin of a place's content: a path, or a descriptor of the daemon."""

    place: str | int

    def spell(self, held: str) -> str:
        return f"{held}/{self.place}" if isinstance(self.place, int) else self.place


class ReadBeside(Protocol):
    """An entry in a folder of outputs that the run may only read: its path, and an open descriptor."""

    @property
    def path(self) -> str: ...
    @property
    def fd(self) -> int: ...


class WriteArea(Protocol):
    """The private copies of a run's outputs, as a view needs them (outputs/staging.py)."""

    @property
    def beside(self) -> Sequence[ReadBeside]: ...
    def prepare(self, is_read: Callable[[str], bool]) -> Sequence[tuple[Area, str]]: ...
    def note_mounted(self, places: Iterable[str]) -> None: ...


class BubblewrapLaunch:
    """A `Launch` into a view. It keeps the places of the view open until `close`, at the end of the run."""

    def __init__(
        self, order: RunOrder, environment: Mapping[str, str], reach: Reach, staging: WriteArea | None
    ) -> None:
        """Blocking: it looks at every place once, and fills the write area.

        Raises OperatorError, or OSError if a place cannot be opened.
        """
        program = shutil.which("bwrap")
        if program is None:
            raise OperatorError(find_obstacle() or "bubblewrap is gone")
        self._program = program
        self._policy = reach.policy
        self._opened: list[int] = []
        self._is_over = Event()
        try:
            view = _View(order, reach, self._open)
            view.gather(staging)
            self._arguments = view.list_arguments(environment.get("PATH", ""))
            if staging is not None:
                staging.note_mounted(view.places)
        except BaseException:
            self.close()
            raise

    def __call__(self, spawn: Spawn[Spawned]) -> Spawned:
        """Blocking until bubblewrap is spawned."""
        network = self._policy.network
        if not network or probe_abi() < (SCOPE_ABI if network is True else TCP_ABI):
            return self._spawn(spawn, f"/proc/{os.getpid()}/fd")
        return self._spawn_restricted(spawn)

    def close(self) -> None:
        """Close the places of the view, and end the spawning thread. Safe to repeat."""
        self._is_over.set()
        opened, self._opened = self._opened, []
        for fd in opened:
            os.close(fd)

    def _open(self, grant: Grant) -> int:
        fd = open_beneath(grant.beneath, grant.path)
        self._opened.append(fd)
        return fd

    def _spawn(self, spawn: Spawn[Spawned], held: str) -> Spawned:
        """Spawn bubblewrap. `held` is the folder of /proc in which it finds the daemon's descriptors.

        The descriptors are not inherited, because the run would then have them, and they lead out of its view.
        """
        words = (word.spell(held) if isinstance(word, Source) else word for word in self._arguments)
        fds = [_remember("arguments", b"\0".join(map(os.fsencode, words)) + b"\0")]
        prefix = [self._program, "--args", str(fds[0])]
        if is_known_machine():
            fds.append(_remember("filter", build_filter(self._policy.sockets)))
            prefix += ["--seccomp", str(fds[1])]
        try:
            return spawn((*prefix, "--"), fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _spawn_restricted(self, spawn: Spawn[Spawned]) -> Spawned:
        """Spawn bubblewrap from a thread under Landlock, which closes abstract sockets, and ports that are not listed.

        A restricted process may not read the descriptors of an unrestricted one, so the thread restricts itself, too.
        It lives as long as the run, because bubblewrap reads the descriptors through it.
        """
        thread = Spawner()

        def spawn_and_stay() -> None:
            thread.begin()
            try:
                self._restrict_self()
                if not thread.may_spawn():
                    return
                thread.answer(self._spawn(spawn, f"/proc/{os.getpid()}/task/{get_native_id()}/fd"))
            except BaseException as problem:
                thread.answer(None, problem)
                return
            self._is_over.wait()

        thread.start(spawn_and_stay)
        return cast(Spawned, thread.wait())

    def _restrict_self(self) -> None:
        network = self._policy.network
        with Ruleset(has_tcp=network is True, has_files=False) as ruleset:
            if not isinstance(network, bool):
                ruleset.allow_connect(network)
            ruleset.allow_listen(self._policy.listens)
            forbid_new_privileges()
            ruleset.restrict_self()


class _View:
    """Collects the places that a run sees, and writes them as bubblewrap's arguments."""

    def __init__(self, order: RunOrder, reach: Reach, open_grant: Callable[[Grant], int]) -> None:
        self._order = order
        self._reach = reach
        self._open = open_grant
        # Place -> the origin of its content (a path or a descriptor), and whether the run may write it.
        self._shown: dict[str, tuple[str | int, bool]] = {}
        self._links: dict[str, str] = {}
        # A cache: path -> the link's target, None if it is not a link. Most places have the same upper folders.
        self._targets: dict[str, str | None] = {}
        self._asked: list[str] = []

    @property
    def places(self) -> Iterable[str]:
        return self._shown

    def gather(self, staging: WriteArea | None) -> None:
        """Collect the granted places, then the folders of outputs, which replace the granted places inside them."""
        for grant in self._reach.policy.grants:
            if grant.rights & (READ_FILE | WRITE_FILE):
                self._show(grant)
        granted = self._shown
        if staging is None:
            for area in self._reach.areas:
                self._show(Grant(area.folder, WRITE))
            return
        self._shown = {path: shown for path, shown in granted.items() if not self._is_output(path)}
        for area, place in staging.prepare(lambda path: any(contains(folder, path) for folder in granted)):
            self._follow(area.outputs[0][0])
            self._shown[area.folder] = (place, True)
        for one in staging.beside:
            self._shown[one.path] = (_choose_source(one.fd, one.path), False)

    def _is_output(self, path: str) -> bool:
        """Is this path part of an output folder? The read-only entries of such a folder are shown one by one."""
        for area in self._reach.areas:
            if contains(area.folder, path) and path != area.folder:
                below = os.path.relpath(path, area.folder)
                spelled = [(os.path.join(folder, below), pattern) for folder, pattern in area.outputs]
                if any(pattern.matches(one) or pattern.enters(one) for one, pattern in spelled):
                    return True
        return False

    def list_arguments(self, search_path: str) -> list[str | Source]:
        for path in (
            self._order.root,
            os.path.join(self._order.root, self._order.cwd),
            *search_path.split(":"),
            *self._reach.spelled,
        ):
            self._follow(path)
        network = self._reach.policy.network
        words: list[str | Source] = [*_PRIVATE, *(() if network else ("--unshare-net",)), *_keep_capabilities()]
        words += ["--proc", "/proc", "--dev", "/dev", "--size", str(_SHARED_BYTES), "--tmpfs", _SHARED]
        words += ["--size", str(_TEMPORARY_BYTES), "--perms", "1777", "--tmpfs", "/tmp"]
        words += self._list_system()
        words += [
            word
            for path, target in self._links.items()
            if not self._is_shown(path)
            for word in ("--symlink", target, path)
        ]
        # Outer places come first, because an inner place is mounted on top of the outer place.
        for path, source, kind in sorted(self._list_mounts(), key=lambda mount: mount[0].count("/")):
            words += [kind, path] if source is None else [kind, Source(source), path]
        # /run is not shown, because it contains sockets. Only the socket of this daemon is.
        words += ["--ro-bind-try", Source(self._order.socket), self._order.socket]
        # /proc is read-only, because root can write sysctls without any capability.
        words += [
            "--remount-ro",
            "/proc",
            "--dir",
            self.cwd,
            "--remount-ro",
            "/dev",
            "--remount-ro",
            "/",
            "--chdir",
            self.cwd,
        ]
        return words

    @property
    def cwd(self) -> str:
        return os.path.realpath(os.path.join(self._order.root, self._order.cwd))

    def _show(self, grant: Grant) -> None:
        spelled = grant.path if grant.beneath is None else os.path.join(grant.beneath, grant.path)
        try:
            fd = self._open(grant)
        except (FileNotFoundError, NotADirectoryError, LinkLoop):
            # As under `standard`, a place that does not exist (any more) is not granted.
            return
        # The view shows the file that was opened, at its real path, wherever links led.
        real = os.readlink(f"/proc/self/fd/{fd}")
        if self._reach.policy.hidden.holds(real):
            return
        self._follow(spelled)
        if real == SETTINGS or real.startswith(f"{SETTINGS}/"):
            self._asked.append(real)
        elif not is_of_system(real) or real.startswith(f"{_SHARED}/"):
            self._place(real, _choose_source(fd, real), bool(grant.rights & WRITE_FILE))

    def _place(self, real: str, source: str | int, is_writable: bool) -> None:
        known = self._shown.get(real)
        self._shown[real] = (source, is_writable or (known is not None and known[1]))

    def _follow(self, path: str) -> None:
        """Show the links in a path. Programs use the path as it is spelled, not the real path."""
        path = f"/{path.lstrip('/')}"
        for _ in range(40):
            found = self._find_link(path)
            if found is None:
                return
            link, target = found
            self._links.setdefault(link, target)
            path = os.path.normpath(os.path.join(os.path.dirname(link), target, os.path.relpath(path, link)))

    def _find_link(self, path: str) -> tuple[str, str] | None:
        """Find the first symbolic link in a path, and its target."""
        parts = path.split("/")
        for count in range(2, len(parts) + 1):
            above = "/".join(parts[:count])
            if above not in self._targets:
                self._targets[above] = _read_link(above)
            if (target := self._targets[above]) is not None:
                return above, target
        return None

    def _is_shown(self, path: str) -> bool:
        return is_of_system(path) or any(contains(place, path) for place in self._shown)

    def _list_system(self) -> Iterator[str | Source]:
        for place in (*PROGRAMS, _CORES):
            if os.path.islink(place):
                yield from ("--symlink", os.readlink(place), place)
            elif os.path.isdir(place):
                yield from ("--ro-bind", Source(place), place)
        yield from ("--ro-bind", Source(SETTINGS), SETTINGS)
        for path, is_folder in list_secrets():
            # Every bind mount costs 0.2 ms, so a file that the daemon's user cannot read anyway is not covered.
            if any(contains(place, path) for place in self._asked) or not os.access(path, os.R_OK, effective_ids=True):
                continue
            # /dev/null covers a file: the mount allows no devices, so opening it fails with "permission denied".
            yield from ("--perms", "0000", "--tmpfs", path) if is_folder else ("--ro-bind", Source(os.devnull), path)
        for real in list_resolver() if self._reach.policy.network else ():
            yield from ("--ro-bind-try", Source(real), real)

    def _list_mounts(self) -> Iterator[tuple[str, str | int | None, str]]:
        for path, (source, is_writable) in self._shown.items():
            yield path, source, "--bind" if is_writable else "--ro-bind"
        for place in self._reach.policy.shielded:
            # A repository in a folder that the run writes directly.
            if place not in self._shown and self._lies_in_shown(place):
                yield place, place, "--ro-bind-try"
        for place in self._reach.guarded:
            if place in self._shown or not self._lies_in_shown(place):
                continue
            if place == self._reach.specs or not os.path.isdir(place):
                yield place, place, "--ro-bind-try"
            elif not is_of_system(place):
                # The log, the blobs of others and the secrets must not even be read.
                yield place, None, "--tmpfs"

    def _lies_in_shown(self, place: str) -> bool:
        return any(contains(folder, place) for folder in self._shown)


def _choose_source(fd: int, real: str) -> str | int:
    """Return the descriptor if bubblewrap may read it from the daemon, otherwise the real path.

    Without root, bubblewrap runs in a user namespace of its own and may not read the daemon's descriptors.
    """
    return fd if os.geteuid() == 0 else real


def _keep_capabilities() -> Iterable[str]:
    if os.geteuid() != 0:
        return ()
    return ("--cap-drop", "ALL", *(word for name in KEPT_CAPABILITIES for word in ("--cap-add", name)))


def _read_link(path: str) -> str | None:
    """Return the target of a link. None if the path is not a link, or is missing."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def _remember(name: str, content: bytes) -> int:
    """Make a file in memory, which bubblewrap reads once. The caller closes the descriptor."""
    fd = os.memfd_create(f"wakeful-{name}")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class StrictnessWatch:
    """Reports whether this machine can isolate runs strictly, as long as a session asks for it.

    If no session is strict, nothing is tried. A session that sleeps because bubblewrap is missing wakes by itself once
    bubblewrap is installed. Called on the loop; each trial is made in a thread.
    """

    def __init__(
        self, report: Callable[[StrictnessSeen], None], list_specs: Callable[[], Iterable[SessionSpec | None]]
    ) -> None:
        self._report = report
        self._list_specs = list_specs
        self._trial: asyncio.Task[None] | None = None
        self._words: str | None = None

    def look(self, coming: Iterable[SessionSpec]) -> None:
        """Begin the first trial, if one of the coming or present specs is strict.

        No strict run starts until the trial is over.
        """
        if self._trial is None and _is_needed((*coming, *self._list_specs())):
            self._take(_BEING_TRIED)
            self._trial = asyncio.get_running_loop().create_task(self._try(), name="try bubblewrap")

    async def settle(self) -> None:
        """Wait until the first trial is over, if it has begun."""
        if self._trial is not None:
            await asyncio.wait((self._trial,))

    async def keep(self) -> None:
        """Repeat the trial while bubblewrap does not work. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._words not in (None, _BEING_TRIED) and _is_needed(self._list_specs()):
                await self._try()

    async def _try(self) -> None:
        self._take(await asyncio.to_thread(find_obstacle))

    def _take(self, words: str | None) -> None:
        if words != self._words:
            self._words = words
            self._report(StrictnessSeen(words))


def _is_needed(specs: Iterable[SessionSpec | None]) -> bool:
    return any(spec is not None and spec.confinement.level == "strict" for spec in specs)
