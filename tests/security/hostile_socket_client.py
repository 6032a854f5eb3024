"""The hostile program of test_socket_callers.py and test_connection_limits.py: it runs as a session and attacks a control socket.

It exits with 0 if it passed as a person. It knows nothing of wakeful except its environment.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path


def await_file(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def ask(connection: socket.socket, target: str, body: dict[str, object]) -> dict[str, object]:
    sent = json.dumps(body).encode()
    connection.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent)}\r\n\r\n".encode() + sent)
    answer = b""
    while (end := answer.find(b"\r\n\r\n")) < 0 or len(answer) < end + 4 + find_length(answer[:end]):
        piece = connection.recv(65536)
        if not piece:
            break
        answer += piece
    print(answer.decode(), flush=True)
    if not answer.startswith(b"HTTP/1.1 200"):
        sys.exit(1)
    return json.loads(answer[end + 4 :])


def find_length(head: bytes) -> int:
    return next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))


def outlive_its_number() -> None:
    """Let a child connect and end. The connection stays open here, and another process will get the child's number."""
    connection = socket.socket(socket.AF_UNIX)
    child = os.fork()
    if child == 0:
        connection.connect(os.environ["WAKEFUL_SOCKET"])
        print("connected", flush=True)
        await_file("in/leave.txt")
        os._exit(0)
    os.waitpid(child, 0)
    await_file("in/speak.txt")
    ask(connection, "/tokens", {"scopes": ["admin"]})


def attach_elsewhere(path: str, folder: str) -> None:
    """Attach a project that we made to another daemon, and trust it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        shown = ask(connection, "/trust/attach", {"folder": folder})
        ask(connection, "/trust/attach", {"folder": folder, "digest": shown["digest"]})


def attach_in_disguises(path: str, folder: str) -> None:
    """Try four disguises, each with a project of its own.

    The disguises are: none, an empty environment, a process session of its own, and an orphan.
    """
    for number, (way, run) in enumerate(
        {"plainly": run_plainly, "bare": run_bare, "apart": run_apart, "orphan": run_as_orphan}.items()
    ):
        done = run([sys.executable, __file__, "attach_elsewhere", path, f"{folder}/made{number}"])
        print(f"{way}: {'a person' if done == 0 else 'no person'}", flush=True)


def run_plainly(argv: list[str]) -> int:
    return subprocess.run(argv, check=False).returncode


def run_bare(argv: list[str]) -> int:
    return subprocess.run(["env", "-i", *argv], check=False).returncode


def run_apart(argv: list[str]) -> int:
    return subprocess.run(argv, env={}, start_new_session=True, check=False).returncode


def run_as_orphan(argv: list[str]) -> int:
    """Run the program after two forks, in a process session of its own, so that its parent cannot be found."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, bytes([subprocess.run(argv, env={}, check=False).returncode & 0xFF]))
        os._exit(0)
    os.wait()
    return os.read(reader, 1)[0]


def crowd(number: str) -> None:
    """Open this many connections, send nothing, and keep them open."""
    taken = []
    for _ in range(int(number)):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.environ["WAKEFUL_SOCKET"])
        taken.append(connection)
    print(f"{len(taken)} connected", flush=True)
    await_file("in/leave.txt")


def storm() -> None:
    """Connect and disconnect as fast as four processes can."""
    for _ in range(2):
        os.fork()
    print("storming", flush=True)
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.environ["WAKEFUL_SOCKET"])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
