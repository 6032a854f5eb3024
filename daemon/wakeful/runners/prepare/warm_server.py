"""A run of an agent without the second its libraries take to be read: a server that has read them forks it.

The daemon asks (`WarmServer`), over a pair of sockets that no one else holds; the server (`serve`) is one process with
one thread, and what it forks confines itself by the policy it was handed before it does anything else, as any run is
confined. It forks twice, so that the run becomes the daemon's child, who is a subreaper: watched, signalled and reaped
like every other. Where a server is not ready, or gone, a run starts cold.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

import msgspec
from msgspec import Struct

from wakeful.errors import OperatorError
from wakeful.runners.isolation.closed_settings import CLOSED
from wakeful.runners.isolation.confined_spawn import Grant, Policy, restrict_self
from wakeful.runners.isolation.hidden_places import Hidden
from wakeful.runners.isolation.system_places import open_system
from wakeful.runners.process.mark import set_mark

READY = b"ready"
# A fork of a process with everything in memory takes 10 ms; who needs seconds is in trouble, and the run starts cold.
PATIENCE_SECONDS = 5.0
# Who is not ready by then is not waited for.
_LONGEST_WARMING_SECONDS = 30.0
_LARGEST_REQUEST_BYTES = 1 << 20
_EXIT_UNCONFINED = 126


class ForkPolicy(Struct, frozen=True, kw_only=True):
    """What of a `Policy` belongs to one run; the rest is the system's, which the run opens itself."""

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


class WarmServer:
    """The daemon's end. Nothing is started before `warm_up`, and nothing here outlives `close`."""

    def __init__(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
        """`argv` is the program that calls `serve`; the descriptor of its end follows, and what it is to read.
        `environment` holds nothing that a run may not know: what it forks can read it."""
        self._argv = argv
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._is_ready = False
        self._started = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_warming(self) -> bool:
        """Is it under way to be ready?

        Whoever waits for it waits no longer than for a start of their own, and reads nothing twice.
        """
        is_late = time.monotonic() - self._started > _LONGEST_WARMING_SECONDS
        return self._process is not None and not is_late and not self.is_ready() and self._process.poll() is None

    def warm_up(self, libraries: Iterable[str]) -> int | None:
        """Start it, unless it lives; its pid where it was started now. Returns at once: it is ready when it says so.

        `libraries` are what its runs will need, by the names of providers;
        what is not among them a run reads itself."""
        if self._process is not None and self._process.poll() is None:
            return None
        self.close()
        self._started = time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                (*self._argv, str(theirs.fileno()), *sorted(libraries)),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.settimeout(PATIENCE_SECONDS)
        self._socket = ours
        return self._process.pid

    def is_ready(self) -> bool:
        """Has it said so by now? Never waits."""
        if not self._is_ready and self._socket is not None and _is_readable(self._socket):
            self._is_ready = _receive(self._socket) == READY
        return self._is_ready

    def fork(self, request: ForkRequest, output: int) -> int:
        """A new process, by its number: it writes to `output`, and is confined before its first step.

        Raises OSError where there is none.
        """
        assert self._socket is not None
        try:
            handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [output]))]
            self._socket.sendmsg([msgspec.json.encode(request)], handed)
            answer = msgspec.json.decode(_receive(self._socket), type=_Forked)
        except (OSError, msgspec.DecodeError) as error:
            self.close()
            raise OSError(f"the warm server does not answer: {error}") from error
        if answer.problem is not None:
            raise OSError(answer.problem)
        return answer.pid

    def close(self) -> None:
        """Safe to repeat. The server ends when its socket does; what it forked goes on."""
        self._is_ready = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._process = None


def _is_readable(channel: socket.socket) -> bool:
    """Never waits. By poll: select refuses descriptors above 1023, and a daemon of many runs has those."""
    looking = select.poll()
    looking.register(channel, select.POLLIN)
    return bool(looking.poll(0))


def _receive(end: socket.socket) -> bytes:
    return end.recv(_LARGEST_REQUEST_BYTES)


# -- the server's end -------------------------------------------------------------------------


def serve(fd: int, run: Callable[[], int]) -> None:
    """Fork `run` whenever the daemon asks, until it closes its end. Everything `run` needs was read before."""
    # A process that the daemon's terminal interrupts is none: whoever ends us is the daemon.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What was read is shared with every fork for as long as nobody counts references in it.
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
    """Twice: whose parent is gone belongs to the daemon."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.close(writer)
            daemon.close()
            _become_run(request, output, run)
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        os.waitpid(parent, 0)
        return int(answer.read())


def _become_run(request: ForkRequest, output: int, run: Callable[[], int]) -> NoReturn:
    """Never returns: what ends here must not go on as a second server."""
    code = _EXIT_UNCONFINED
    try:
        os.setsid()
        set_mark(request.mark)
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
