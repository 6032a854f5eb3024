"""`isolation: strict`: a run in a view of the machine of its own, made by bubblewrap before its first instruction.

The view holds what `reach` grants and nothing else: no home, no /tmp, no sockets of others, no processes of others, and
no network unless it is declared. A process under Landlock may not mount, so here the mounts take the place of
Landlock's rules for files; what mounts cannot do (ports, abstract sockets where the network is open) Landlock still
does, and the system call filter is the same as everywhere. `Preparation` makes a view in a thread, `LiveRun` launches
in it; `find_obstacle` says why that cannot be done on this machine, and `StrictnessWatch` reports it.
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
from wakeful.runners.isolation.gaps import find_kernel_gaps, find_landlock_gaps
from wakeful.runners.isolation.landlock import READ_FILE, SCOPE_ABI, TCP_ABI, WRITE, WRITE_FILE, Ruleset, probe_abi
from wakeful.runners.isolation.opened_places import GoesInCircles, open_beneath
from wakeful.runners.isolation.privileges import KEPT_CAPABILITIES, forbid_new_privileges
from wakeful.runners.isolation.reach import Area, Reach, find_network_gaps
from wakeful.runners.isolation.seccomp import build_filter, is_known_machine
from wakeful.runners.isolation.system_places import PROGRAMS, SETTINGS, is_of_system, list_resolver, list_secrets
from wakeful.runners.process.program import Spawn, Spawned

_PATIENCE_SECONDS = 10.0
# How often it is tried again where it cannot be had.
LOOK_SECONDS = 10.0
_BEING_TRIED = "isolation: strict needs bubblewrap, which is being tried"
_PRIVATE = ("--unshare-pid", "--unshare-ipc")
# Of memory, each: what a program puts into /tmp instead of TMPDIR, and semaphores and the like.
_TEMPORARY_BYTES = 256 << 20
_SHARED_BYTES = 64 << 20
# Its own in a view, and empty but for what the run is granted there: its folder,
# where the system has no better place in memory.
_SHARED = "/dev/shm"
# Language runtimes count the cores here. The other parts of /sys that `standard` shows (control groups) are not worth
# their mounts: without them, runtimes use /proc.
_CORES = "/sys/devices/system"


def find_obstacle() -> str | None:
    """Why no run can be isolated strictly here, in words with what mends it; None where it can.

    Blocks: one empty run.
    """
    program = shutil.which("bwrap")
    if program is None:
        return "isolation: strict needs bubblewrap, which is not installed (sudo apt install bubblewrap)"
    # It is the first process of its namespace itself: bubblewrap waits for it, and leaves none to us.
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
        f"{said} (wakeful doctor says what mends it)"
    )


def find_unenforced(network: bool | tuple[str, ...]) -> tuple[str, ...]:
    """List the parts of a strict run's isolation that this machine cannot enforce."""
    words: list[str] = []
    if network and probe_abi() < SCOPE_ABI:
        words.append("abstract sockets, where the network is open (Linux 6.12 can)")
    words += find_network_gaps(network)
    if os.geteuid() != 0:
        words.append("links that are swapped in while its view is made")
    # Its view has no files, processes and ports of others to begin with: of the kernel's gaps these are left.
    words += (gap.words for gap in find_kernel_gaps() if gap not in find_landlock_gaps(probe_abi()))
    return tuple(words)


class Source(Struct, frozen=True):
    """Where the content of a place comes from: a path, or a descriptor of ours."""

    place: str | int

    def spell(self, held: str) -> str:
        return f"{held}/{self.place}" if isinstance(self.place, int) else self.place


class ReadBeside(Protocol):
    """Something in a folder of outputs that is only read: where it is, and a descriptor that keeps it."""

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
    """A `Launch` into a view. Keeps what it shows open until it is closed, which is when the run has ended."""

    def __init__(
        self, order: RunOrder, environment: Mapping[str, str], reach: Reach, staging: WriteArea | None
    ) -> None:
        """Blocks: looks at every place once, and fills the write area.

        Raises OperatorError, or OSError where a place cannot be opened.
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
        """Blocks until bubblewrap is spawned."""
        network = self._policy.network
        if not network or probe_abi() < (SCOPE_ABI if network is True else TCP_ABI):
            return self._spawn(spawn, f"/proc/{os.getpid()}/fd")
        return self._spawn_restricted(spawn)

    def close(self) -> None:
        """Safe to repeat."""
        self._is_over.set()
        opened, self._opened = self._opened, []
        for fd in opened:
            os.close(fd)

    def _open(self, grant: Grant) -> int:
        fd = open_beneath(grant.beneath, grant.path)
        self._opened.append(fd)
        return fd

    def _spawn(self, spawn: Spawn[Spawned], held: str) -> Spawned:
        """`held` is where bubblewrap finds our descriptors: handed on, they would be the run's,
        and lead out of its view."""
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
        """An open network also opens abstract sockets: Landlock closes these, and ports that are not listed.

        A restricted process may not read the descriptors of an unrestricted one. The spawning thread is therefore
        restricted, too. It lives as long as the run, because bubblewrap reads that thread's descriptors.
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
    """Collects what is to be seen, and says it in bubblewrap's words."""

    def __init__(self, order: RunOrder, reach: Reach, open_grant: Callable[[Grant], int]) -> None:
        self._order = order
        self._reach = reach
        self._open = open_grant
        # By place: where its content comes from (a path, or a descriptor), and whether it may be written.
        self._shown: dict[str, tuple[str | int, bool]] = {}
        self._links: dict[str, str] = {}
        # A cache by path: the target of a link, None for any other path. Most places share their upper folders.
        self._targets: dict[str, str | None] = {}
        self._asked: list[str] = []

    @property
    def places(self) -> Iterable[str]:
        return self._shown

    def gather(self, staging: WriteArea | None) -> None:
        """Bindings and the rest of its reach first, then the folders of outputs, which take the place of what they
        hold."""
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
        """Is it part of a folder of outputs, so that what of it is only read is shown there one by one?"""
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
        # From the outside in: what lies in a place is put on top of it.
        for path, source, kind in sorted(self._list_mounts(), key=lambda mount: mount[0].count("/")):
            words += [kind, path] if source is None else [kind, Source(source), path]
        # Nobody may lean on /run being there, least of all who looks for sockets in it.
        # The socket of this daemon is one file.
        words += ["--ro-bind-try", Source(self._order.socket), self._order.socket]
        # As root, sysctls can be written without any capability.
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
        except (FileNotFoundError, NotADirectoryError, GoesInCircles):
            # As under `standard`: what is not there (any more) is not granted.
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
        """The links on the way to a place are part of what a program sees: it is told the way, not where it leads."""
        path = f"/{path.lstrip('/')}"
        for _ in range(40):
            found = self._find_link(path)
            if found is None:
                return
            link, target = found
            self._links.setdefault(link, target)
            path = os.path.normpath(os.path.join(os.path.dirname(link), target, os.path.relpath(path, link)))

    def _find_link(self, path: str) -> tuple[str, str] | None:
        """The first symbolic link on the way to a path, and where it leads."""
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
            # Every mount that bubblewrap binds costs 0.2 ms: what is shut for us anyway is not hidden as well.
            if any(contains(place, path) for place in self._asked) or not os.access(path, os.R_OK, effective_ids=True):
                continue
            # Opening a device where devices do not work fails with "permission denied", as it would for everybody else.
            yield from ("--perms", "0000", "--tmpfs", path) if is_folder else ("--ro-bind", Source(os.devnull), path)
        for real in list_resolver() if self._reach.policy.network else ():
            yield from ("--ro-bind-try", Source(real), real)

    def _list_mounts(self) -> Iterator[tuple[str, str | int | None, str]]:
        for path, (source, is_writable) in self._shown.items():
            yield path, source, "--bind" if is_writable else "--ro-bind"
        for place in self._reach.policy.shielded:
            # A repository in a folder that is written directly.
            if place not in self._shown and self._lies_in_shown(place):
                yield place, place, "--ro-bind-try"
        for place in self._reach.guarded:
            if place in self._shown or not self._lies_in_shown(place):
                continue
            if place == self._reach.specs or not os.path.isdir(place):
                yield place, place, "--ro-bind-try"
            elif not is_of_system(place):
                # The log, the blobs of others, the secrets: not even to be read.
                yield place, None, "--tmpfs"

    def _lies_in_shown(self, place: str) -> bool:
        return any(contains(folder, place) for folder in self._shown)


def _choose_source(fd: int, real: str) -> str | int:
    """The opened descriptor, if bubblewrap may read it from the daemon; otherwise the real path.

    Without root, bubblewrap runs in a user namespace of its own and may not read the daemon's descriptors.
    """
    return fd if os.geteuid() == 0 else real


def _keep_capabilities() -> Iterable[str]:
    if os.geteuid() != 0:
        return ()
    return ("--cap-drop", "ALL", *(word for name in KEPT_CAPABILITIES for word in ("--cap-add", name)))


def _read_link(path: str) -> str | None:
    """Where a link leads; None for what is none, or not there."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def _remember(name: str, content: bytes) -> int:
    """A file in memory, to be read once by bubblewrap."""
    fd = os.memfd_create(f"wakeful-{name}")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class StrictnessWatch:
    """Reports whether runs can be isolated strictly on this machine, as long as a session asks for it.

    Where none does, nothing is tried.

    A session that sleeps for want of bubblewrap wakes by itself when that is installed. On the loop; each trial is made
    in a thread.
    """

    def __init__(
        self, report: Callable[[StrictnessSeen], None], list_specs: Callable[[], Iterable[SessionSpec | None]]
    ) -> None:
        self._report = report
        self._list_specs = list_specs
        self._trial: asyncio.Task[None] | None = None
        self._words: str | None = None

    def look(self, coming: Iterable[SessionSpec]) -> None:
        """Begin the first trial, if one of these specs, or of those there are, is strict.

        Until it is over nothing strict starts.
        """
        if self._trial is None and _is_needed((*coming, *self._list_specs())):
            self._take(_BEING_TRIED)
            self._trial = asyncio.get_running_loop().create_task(self._try(), name="try bubblewrap")

    async def settle(self) -> None:
        """Return when a first trial that was begun is over."""
        if self._trial is not None:
            await asyncio.wait((self._trial,))

    async def keep(self) -> None:
        """Try again and again while it cannot be had, until cancelled."""
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
