"""The victim: a program that does whatever its input file says, and fails if it cannot.

It runs in the sessions of the attacks, like an agent that believes its input. It knows nothing of wakeful except its
environment.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def read(path: str) -> None:
    print(Path(path).expanduser().read_text())


def write(path: str, text: str) -> None:
    Path(path).expanduser().write_text(text)


def replace(path: str, text: str) -> None:
    """Write a new file and rename it over the old one, as an editor does."""
    target = Path(path)
    fresh = target.with_name(f"{target.name}.new")
    fresh.write_text(text)
    fresh.rename(target)


def remove(path: str) -> None:
    Path(path).unlink()


def link_and_read(path: str) -> None:
    link = Path(os.environ["WAKEFUL_SCRATCH"]) / "link"
    link.symlink_to(path)
    print(link.read_text())


def connect(kind: str, port: int) -> None:
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as out:
        out.settimeout(60)
        out.connect(("127.0.0.1", port))
        out.send(b"stolen")


def connect_abstract(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(f"\0{address}")


def connect_path(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(path)


def stat(path: str) -> None:
    print(os.stat(path))


def shed_mark() -> None:
    resource.setrlimit(resource.RLIMIT_RTTIME, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Control(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(os.environ["WAKEFUL_SOCKET"])


def call(token: str | None = None, target: str = "/call/terminate", body: dict[str, object] | None = None) -> None:
    connection = Control("wakeful")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection.request("POST", target, json.dumps(body or {}), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    print(answer.status, text)
    if answer.status >= 400:
        raise PermissionError(f"Permission denied: {text}")


def call_as_itself(target: str, body: dict[str, object]) -> None:
    call(Path(os.environ["WAKEFUL_TOKEN_FILE"]).read_text(), target, body)


def shed_and_call(body: dict[str, object]) -> None:
    """Call without the mark, and without the variables that name the run."""
    shed_mark()
    code = f"import obedient_program; obedient_program.call(body={body!r})"
    subprocess.run(
        [sys.executable, "-c", code],
        env={"WAKEFUL_SOCKET": os.environ["WAKEFUL_SOCKET"], "PYTHONPATH": "."},
        check=True,
    )


def hand_on_and_call(body: dict[str, object]) -> None:
    """Connect in one process, end it, and speak in another."""
    connection = Control("wakeful")
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        connection.connect()
        if os.fork():
            os._exit(0)
        os.read(reader, 1)
        connection.request("POST", "/call/terminate", json.dumps(body), {"Content-Type": "application/json"})
        os._exit(0 if connection.getresponse().status < 400 else 1)
    os.waitpid(middle, 0)
    os.write(writer, b"x")
    time.sleep(1)
    raise PermissionError("nobody took it for a person")


def fork_away(pid_file: str) -> None:
    """Become a background process in the old way: a new process session, two forks, no open descriptors."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3, 256):
                try:
                    os.close(fd)
                except OSError:
                    continue
            # The run may end as soon as the file exists, so the file must be complete from the start.
            Path(f"{pid_file}.new").write_text(str(os.getpid()))
            os.rename(f"{pid_file}.new", pid_file)
            signal.pause()
        os._exit(0)
    while not Path(pid_file).exists():
        time.sleep(0.01)


def fill_disk(path: str, size: int) -> None:
    with open(path, "wb") as file:
        for _ in range(size // 65536):
            file.write(b"x" * 65536)


def hoard_memory(size: int) -> None:
    print(len(bytearray(size)))


def flood(size: int) -> None:
    chunk = b"flood " * 10922
    while size > 0:
        size -= os.write(1, chunk)


def trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0) != 0:
        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))


if __name__ == "__main__":
    order = json.loads(Path(sys.argv[1]).read_text())
    globals()[order.pop("do")](**order)
