"""Real daemons without the cost of their start: a process that has read wakeful's modules forks them.

An interpreter needs half a second of CPU to read what a daemon is made of, and the suite starts a thousand daemons. What
is forked runs the same `main()` with its own words, folder, environment and output, and ends with its exit code. That
a process started by the console script behaves the same is held by the tests that start one so (tests/cli, tests/test_systemd.py,
tests/e2e/test_once.py, and everything with a wrapper around the daemon). Its command line and its first environment in /proc are this module's.

`ForkedDaemon` has what tests use of `subprocess.Popen`. One server a test process, started when first needed; it ends with
the test process, whose end of the socket closes then.
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from become_user import become

LARGEST_REQUEST_BYTES = 200_000
User = tuple[int, str]


class ForkServer:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Descriptors of one test must not be open in the daemons of the next.
                close_fds=True,
            )
        self._socket = ours
        self.owner = os.getpid()
        atexit.register(self.close)

    def fork(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], output: int, user: User | None
    ) -> int:
        request = {"words": list(words), "folder": str(folder), "environment": dict(environment), "user": user}
        return int(self._ask(request, [output])["pid"])

    def reap(self, pid: int) -> int:
        return int(self._ask({"reap": pid}, [])["status"])

    def _ask(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._socket.sendmsg([json.dumps(request).encode()], handed)
        answer: dict[str, Any] = json.loads(self._socket.recv(LARGEST_REQUEST_BYTES))
        return answer

    def close(self) -> None:
        if self.owner == os.getpid():
            self._socket.close()
            self._process.wait()


_servers: list[ForkServer] = []


def find_server() -> ForkServer:
    if not _servers or _servers[-1].owner != os.getpid():
        _servers.append(ForkServer())
    return _servers[-1]


class ForkedDaemon:
    """A daemon that was forked, with the methods of a `subprocess.Popen`."""

    def __init__(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: IO[bytes], user: User | None = None
    ) -> None:
        """`user` is the number and home of an ordinary user, whom root's fork becomes first."""
        self._server = find_server()
        self.args = list(words)
        self.pid = self._server.fork(words, cwd, env, stdout.fileno(), user)
        self.returncode: int | None = None
        # Nobody reaps it but us, so the number is still its own.
        self._end = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return self.returncode if self.returncode is not None or not self._has_ended(0) else self._reap()

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._has_ended(timeout):
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self._reap()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, seconds: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._end, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))

    def _reap(self) -> int:
        self.returncode = os.waitstatus_to_exitcode(self._server.reap(self.pid))
        os.close(self._end)
        return self.returncode


# -- the server -------------------------------------------------------------------------------


def serve(tests: socket.socket) -> None:
    import wakeful.service.startup  # noqa: F401, PLC0415
    from wakeful.cli import main  # noqa: PLC0415

    # Who interrupts the tests does not mean us: we end with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        content, handed, _, _ = tests.recvmsg(LARGEST_REQUEST_BYTES, socket.CMSG_SPACE(array.array("i").itemsize))
        if not content:
            return
        request = json.loads(content)
        if "reap" in request:
            answer = {"status": os.waitpid(request["reap"], 0)[1]}
        else:
            output = array.array("i", handed[0][2])[0]
            pid = os.fork()
            if pid == 0:
                become_daemon(request, output, main)
            os.close(output)
            answer = {"pid": pid}
        tests.send(json.dumps(answer).encode())


def become_daemon(request: dict[str, Any], output: int, main: Any) -> NoReturn:
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 100)
        if request["user"] is not None:
            become(*request["user"])
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        program, *words = request["words"]
        if program == sys.executable:
            # A script of the tests that changes a rule and then starts the daemon.
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
            code = 0
        else:
            sys.argv = [program, *words]
            code = main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as tests:
        serve(tests)
