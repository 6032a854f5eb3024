"""A run of an agent without the second its libraries take to be read: a server that has read them forks it.

The daemon asks (`WarmServer`), over a pair of sockets that no one else holds; the server (`serve`) is one process with
one thread, and its forks confine themselves by the policy they were handed before they do anything else, as any run is
confined. It forks twice, so that the run becomes the daemon's child, who is a subreaper: watched, signalled and reaped
like every other. Where a server is not ready, or gone, a run starts cold. The server lives while runs of agents are
under way, and some seconds longer: at rest there is none. The daemon's end is on the loop, and never waits: a word of
the server is an event.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

import msgspec
from msgspec import Struct

from wakeful.errors import OperatorError
from wakeful.runners.isolation.confined_spawn import Grant, Policy, restrict_self
from wakeful.runners.isolation.opened_places import Hidden
from wakeful.runners.isolation.system_places import CLOSED, open_system
from wakeful.runners.process.children import Children
from wakeful.runners.process.mark import set_mark

READY = b"ready"
# A fork of a process with everything in memory takes 10 ms. A server that needs seconds is in trouble: it is given up,
# and the run starts cold.
PATIENCE_SECONDS = 5.0
# A server that is not ready by then is not waited for.
LONGEST_WARMING_SECONDS = 30.0
# How long a server stays after the last run of an agent. A session at rest costs no process.
IDLE_SECONDS = 45.0
_LARGEST_REQUEST_BYTES = 1 << 20
_EXIT_UNCONFINED = 126


class ForkPolicy(Struct, frozen=True, kw_only=True):
    """The part of a `Policy` that belongs to one run; the run opens the system's places itself."""

    grants: tuple[Grant, ...] = ()
    network: bool | tuple[int, ...] = False
    listens: tuple[int, ...] = ()
    looks_up_names: bool = False
    shielded: tuple[str, ...] = ()
    kept_writable: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    hidden: Hidden = Hidden()
    # The entries of /etc that were closed to others when first seen.
    closed: dict[str, int] = {}


class ForkRequest(Struct, frozen=True, kw_only=True):
    environment: dict[str, str]
    cwd: str
    mark: int
    # None: nothing is denied, which the operator has allowed.
    policy: ForkPolicy | None = None


class _Forked(Struct, frozen=True):
    pid: int = 0
    problem: str | None = None


# Told the number of the new process, or None where there is none.
TakeForked = Callable[[int | None], None]


class WarmServer:
    """The daemon's end, on the loop. Nothing is started before `hold`, and nothing here outlives `close`."""

    def __init__(self, argv: tuple[str, ...], environment: Mapping[str, str], children: Children) -> None:
        """`argv` is the program that calls `serve`; the descriptor of its end follows, and the libraries it is to read.

        `environment` holds nothing that a run may not know: its forks can read it."""
        self._argv = argv
        self._environment = dict(environment)
        self._children = children
        self._libraries: frozenset[str] = frozenset()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._is_ready = False
        self._holders: set[str] = set()
        # Callbacks of runs that wait for it to be ready, and of those that wait for a fork, in the order of requests.
        self._waiting: list[Callable[[], None]] = []
        self._forks: deque[tuple[TakeForked, asyncio.TimerHandle]] = deque()
        self._late: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    @property
    def is_warming(self) -> bool:
        """Will it be ready soon? Then a run that waits for it is no later than one that reads the libraries itself."""
        return self._late is not None

    def hold(self, run_id: str, libraries: Iterable[str]) -> None:
        """A run of an agent begins. Start the server, unless it lives with these libraries. Returns at once.

        `libraries` are named by providers; a run reads the others itself. A process that cannot be started is none: the
        run starts cold.
        """
        self._holders.add(run_id)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        wanted = self._libraries | frozenset(libraries)
        if self._process is not None and wanted == self._libraries:
            return
        self._rest()
        self._libraries = wanted
        with contextlib.suppress(OSError):
            self._start()

    def release(self, run_id: str) -> None:
        """The run is over, or never began. Safe to repeat."""
        self._holders.discard(run_id)
        if not self._holders and self._process is not None and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._rest)

    def when_settled(self, tell: Callable[[], None]) -> None:
        """Call back when it is ready, or will not be soon."""
        self._waiting.append(tell)

    def fork(self, request: ForkRequest, output: int, taken: TakeForked) -> None:
        """Ask for a process that writes to `output` and is confined before its first step.

        `taken` is called once, later.
        """
        loop = asyncio.get_running_loop()
        try:
            if self._socket is None:
                raise OSError("the warm server is gone")
            handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [output]))]
            self._socket.sendmsg([msgspec.json.encode(request)], handed)
        except OSError:
            loop.call_soon(taken, None)
            self._rest()
            return
        self._forks.append((taken, loop.call_later(PATIENCE_SECONDS, self._rest)))

    def close(self) -> None:
        """Safe to repeat. The server ends; its forks go on. Waits for its end, which is a moment away."""
        self._rest(is_closing=True)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    (*self._argv, str(theirs.fileno()), *sorted(self._libraries)),
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        self._children.spawned(self._process.pid)
        ours.setblocking(False)
        self._socket = ours
        loop.add_reader(ours.fileno(), self._hear)
        self._late = loop.call_later(LONGEST_WARMING_SECONDS, self._settle)

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            content = self._socket.recv(_LARGEST_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            # It ended, for whatever reason. The next run of an agent starts another.
            self._rest()
        elif content == READY:
            self._is_ready = True
            self._settle()
        elif self._forks:
            taken, overdue = self._forks.popleft()
            overdue.cancel()
            taken(_read_pid(content))

    def _settle(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell()

    def _rest(self, *, is_closing: bool = False) -> None:
        """End the server. Runs that wait for it start cold."""
        process, ours = self._process, self._socket
        self._process = self._socket = None
        self._is_ready = False
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if process is not None and ours is not None:
            asyncio.get_running_loop().remove_reader(ours.fileno())
            ours.close()
            self._end(process, is_closing=is_closing)
        forks, self._forks = self._forks, deque()
        for taken, overdue in forks:
            overdue.cancel()
            taken(None)
        self._settle()

    def _end(self, process: subprocess.Popen[bytes], *, is_closing: bool) -> None:
        """Kill the process, and reap it once its pidfd reports the end.

        A process with everything in memory takes some milliseconds to end, so the loop does not wait for it.
        While the server closes, or without a free descriptor, the loop waits.
        """
        loop, children = asyncio.get_running_loop(), self._children
        process.kill()
        try:
            pidfd = None if is_closing else os.pidfd_open(process.pid)
        except OSError:
            # No descriptor is free.
            pidfd = None

        def reap() -> None:
            if pidfd is not None:
                loop.remove_reader(pidfd)
                os.close(pidfd)
            process.wait()
            children.gone(process.pid)

        if pidfd is None:
            reap()
        else:
            loop.add_reader(pidfd, reap)


def _read_pid(content: bytes) -> int | None:
    try:
        answer = msgspec.json.decode(content, type=_Forked)
    except msgspec.DecodeError:
        return None
    return answer.pid if answer.problem is None else None


# -- the server's end -------------------------------------------------------------------------


def serve(fd: int, run: Callable[[], int]) -> None:
    """Fork `run` whenever the daemon asks, until it closes its end. Everything `run` needs was read before."""
    # A process that the daemon's terminal interrupts is none: whoever ends us is the daemon.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Memory is shared with every fork for as long as nobody counts references in it.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=fd) as daemon:
        daemon.send(READY)
        while True:
            content, handed, _, _ = daemon.recvmsg(_LARGEST_REQUEST_BYTES, socket.CMSG_SPACE(array.array("i").itemsize))
            if not content:
                return
            daemon.send(msgspec.json.encode(_take_request(daemon, content, handed, run)))


def _take_request(
    daemon: socket.socket, content: bytes, handed: list[tuple[int, int, bytes]], run: Callable[[], int]
) -> _Forked:
    fds = array.array("i")
    for _, _, data in handed:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    try:
        request = msgspec.json.decode(content, type=ForkRequest)
        return _Forked(_fork(daemon, request, fds[0], run))
    except (OSError, msgspec.DecodeError) as error:
        return _Forked(problem=str(error))
    finally:
        for one in fds:
            os.close(one)


def _fork(daemon: socket.socket, request: ForkRequest, output: int, run: Callable[[], int]) -> int:
    """Fork twice: a process whose parent is gone belongs to the daemon.

    The run tells its number itself, once it leads a group and hears an interrupt. A stop that the daemon sends before
    that would reach nobody.
    """
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        if os.fork() == 0:
            os.close(reader)
            daemon.close()
            _become_run(request, output, writer, run)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        os.waitpid(parent, 0)
        told = answer.read()
    if not told:
        raise OSError("the run ended before it could be told of")
    return int(told)


def _become_run(request: ForkRequest, output: int, teller: int, run: Callable[[], int]) -> NoReturn:
    """Never returns: what ends here must not go on as a second server."""
    code = _EXIT_UNCONFINED
    try:
        os.setsid()
        set_mark(request.mark)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(teller, str(os.getpid()).encode())
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.cwd)
        if request.policy is not None:
            _confine(request.policy)
        code = run()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except (OSError, OperatorError) as error:
        print(f"wakeful: {error}", file=sys.stderr, flush=True)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _confine(policy: ForkPolicy) -> None:
    CLOSED.learn(policy.closed)
    system, guard = open_system()
    restrict_self(
        Policy(
            system=system,
            guard=guard,
            grants=policy.grants,
            network=policy.network,
            listens=policy.listens,
            looks_up_names=policy.looks_up_names,
            shielded=policy.shielded,
            kept_writable=policy.kept_writable,
            spared=policy.spared,
            hidden=policy.hidden,
        )
    )
    for grant in system:
        os.close(grant.fd)
