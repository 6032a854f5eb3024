"""Start real daemons at low cost: a process that has imported wakeful's modules forks them.

An interpreter needs half a second of CPU to import a daemon's modules, and the suite starts a thousand daemons. A
forked daemon runs the same `main()` with its own words, folder, environment and output, and ends with its exit code.
Its command line and its first environment in /proc are those of this module.

Some tests start a process with the console script and so check that it behaves the same: tests/cli,
tests/test_systemd_units.py, tests/e2e/test_daemon_once.py, the wheel in .ci/run, and all tests with a wrapper around the daemon.

`ForkedDaemon` has the methods of `subprocess.Popen` that tests use. Each test process starts one server when it first
needs it. The server ends when the test process closes its end of the socket.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from become_user import become
from wait_conditions import PATIENCE_SECONDS

LARGEST_REQUEST_BYTES = 200_000
User = tuple[int, str]


class ForkServer:
    """The test's side of the server process that forks daemons."""

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
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        outputs: tuple[int, int],
        user: User | None,
    ) -> int:
        """Fork a daemon and return its pid. `outputs` become its standard output and standard error."""
        request = {"words": list(words), "folder": str(folder), "environment": dict(environment), "user": user}
        return int(self._ask(request, list(outputs))["pid"])

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
    """A forked daemon, with the methods of a `subprocess.Popen`."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: IO[bytes],
        stderr: IO[bytes] | None = None,
        user: User | None = None,
    ) -> None:
        """As root, the fork first becomes `user`, given as number and home.
        Without `stderr` both outputs go to `stdout`."""
        self._server = find_server()
        self.args = list(words)
        outputs = (stdout.fileno(), (stderr or stdout).fileno())
        self.pid = self._server.fork(words, cwd, env, outputs, user)
        self.returncode: int | None = None
        # Only this object reaps the process, so the number still belongs to it.
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


def run_forked(
    words: Sequence[str], *, folder: Path, environment: Mapping[str, str], user: User | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that needs a process of its own, as `subprocess.run` does with text output. Its input is empty."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        forked = ForkedDaemon(words, cwd=folder, env=environment, stdout=out, stderr=err, user=user)
        try:
            code = forked.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            forked.kill()
            forked.wait()
            raise
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(list(words), code, *printed)


# -- the server -------------------------------------------------------------------------------


# Modules that a daemon or its libraries import only when first needed, and that every daemon of the suite needs.
READ_LATE = ("apscheduler.executors.asyncio", "click.shell_completion", "encodings.ascii", "encodings.utf_8_sig")


def serve(tests: socket.socket) -> None:
    import wakeful.service.startup  # noqa: F401, PLC0415
    from wakeful.cli import main  # noqa: PLC0415

    for name in READ_LATE:
        importlib.import_module(name)
    build_models()
    # Ctrl-C goes to the whole process group. Ignore it here: this server ends when the tests close its socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        content, handed, _, _ = tests.recvmsg(LARGEST_REQUEST_BYTES, socket.CMSG_SPACE(2 * array.array("i").itemsize))
        if not content:
            return
        request = json.loads(content)
        if "reap" in request:
            answer = {"status": os.waitpid(request["reap"], 0)[1]}
        else:
            outputs = array.array("i", handed[0][2])
            pid = os.fork()
            if pid == 0:
                become_daemon(request, outputs, main)
            for output in outputs:
                os.close(output)
            answer = {"pid": pid}
        tests.send(json.dumps(answer).encode())


def build_models() -> None:
    """Build the models of specs and settings, which otherwise wait for the first file.
    They are a third of the cost of a start."""
    from wakeful.specs.models import Keys  # noqa: PLC0415

    waiting = list(Keys.__subclasses__())
    while waiting:
        model = waiting.pop()
        model.model_rebuild()
        waiting += model.__subclasses__()


def become_daemon(request: dict[str, Any], outputs: Sequence[int], main: Any) -> NoReturn:
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        os.closerange(3, 100)
        if request["user"] is not None:
            become(*request["user"])
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        program, *words = request["words"]
        if program == sys.executable:
            # A script of the tests, which changes a rule and then starts the daemon.
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
