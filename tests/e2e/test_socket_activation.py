"""Socket activation: systemd listens for the daemon, and commands wait in the socket while no daemon runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually
from wakeful.system.systemd import take_handed_over

# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long

SPEC = "objective: Copy.\nbindings: {i: {file: in.txt}}\nrun: {command: [sh, -c, 'env > environment; ls -l /proc/self/fd > descriptors']}\n"
# systemd does this between fork and exec: the socket becomes descriptor 3, and the variables name this process.
HAND_OVER = """
import os, sys
count, *words = sys.argv[1:]
for number in range(int(count)):
    os.dup2(int(words.pop(0)), 3 + number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=count, LISTEN_FDNAMES="wakeful.socket")
os.execv(words[0], words)
"""


@pytest.fixture
def listener(box: Box) -> Iterator[socket.socket]:
    """The socket that the service manager keeps all the time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as kept:
        kept.bind(str(box.socket))
        kept.listen()
        yield kept


def start(box: Box, listener: socket.socket, *more: str) -> None:
    """Start the daemon as a manager would; `more` are words of its command line."""
    words = [
        sys.executable,
        "-c",
        HAND_OVER,
        "1",
        str(listener.fileno()),
        WAKEFUL,
        "daemon",
        "--specs",
        str(box.specs),
        "--state",
        str(box.state),
        *more,
    ]
    box.said = box.output.stat().st_size if box.output.exists() else 0
    environment = {name: value for name, value in box.environment().items() if name != "WAKEFUL_SOCKET"}
    with box.output.open("ab") as out:
        box.daemon = subprocess.Popen(
            words, stdout=out, stderr=subprocess.STDOUT, cwd=box.folder, env=environment, pass_fds=[listener.fileno()]
        )


def ask_in_background(box: Box, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [WAKEFUL, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=box.environment(),
        cwd=box.folder,
    )


def test_a_command_waits_for_a_daemon_that_is_not_there_yet(box: Box, listener: socket.socket) -> None:
    """The command says after a moment what it waits for. The daemon that then starts answers it."""
    waiting = ask_in_background(box, "list", "--json")
    assert waiting.stderr is not None
    assert "starting; waiting up to 60 s" in waiting.stderr.readline()
    start(box, listener)
    assert waiting.communicate(timeout=60)[0] == "[]\n"
    assert waiting.returncode == 0


def test_a_socket_that_was_handed_over_outlives_the_daemon(box: Box, listener: socket.socket) -> None:
    """Stopping the daemon neither removes nor replaces the socket.

    The next daemon carries out a call given meanwhile, once.
    """
    box.write("in.txt", "1\n")
    box.spec("copy", SPEC)
    start(box, listener)
    box.wait_ready()
    box.wait_at_rest("copy", runs=1)
    before = os.stat(box.socket)
    assert box.stop() == 0
    assert (os.stat(box.socket).st_dev, os.stat(box.socket).st_ino) == (before.st_dev, before.st_ino)
    waiting = ask_in_background(box, "remember", "copy", "colour", "blue")
    start(box, listener)
    assert waiting.wait(60) == 0
    assert box.ask("recall", "copy", "colour").strip().endswith("blue")
    assert box.kinds("copy").count("fact_set") == 1


def test_a_run_inherits_nothing_of_the_socket(box: Box, listener: socket.socket) -> None:
    """A run gets neither the LISTEN_ variables nor the descriptor. WAKEFUL_SOCKET tells it where to ask."""
    box.write("in.txt", "1\n")
    box.spec("copy", SPEC)
    start(box, listener)
    box.wait_ready()
    box.wait_at_rest("copy", runs=1)
    environment = box.lines("environment")
    assert [line for line in environment if line.startswith("LISTEN_")] == []
    assert f"WAKEFUL_SOCKET={box.socket}" in environment
    assert "socket:" not in box.read("descriptors")


def test_another_place_than_the_one_handed_over_is_refused(box: Box, listener: socket.socket) -> None:
    """If --socket differs from the socket handed over, the unit is wrong. The daemon says so and does not start."""
    start(box, listener, "--socket", str(box.folder / "other.sock"))
    assert box.daemon is not None and box.daemon.wait(60) == 1
    assert "leave --socket out, or change ListenStream=" in box.output.read_text()


def test_the_removed_file_of_a_socket_handed_over_is_told_not_remade(box: Box, listener: socket.socket) -> None:
    """The daemon would listen where systemd does not look. It says which unit to restart instead."""
    start(box, listener)
    box.wait_ready()
    box.socket.unlink()
    eventually(lambda: "restart its socket unit" in box.output.read_text())
    assert not box.socket.exists()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "many"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"},
    ],
)
def test_variables_meant_for_another_process_hand_nothing_over(environ: dict[str, str]) -> None:
    """Descriptors with the pid of another process are not ours. The variables are removed all the same."""
    assert take_handed_over(environ).listener is None
    assert environ == {}


@pytest.mark.parametrize(
    ("count", "kind", "said"),
    [("2", socket.SOCK_STREAM, "leave one ListenStream="), ("1", socket.SOCK_DGRAM, "not a listening UNIX socket")],
)
def test_what_cannot_be_listened_on_is_refused(box: Box, count: str, kind: int, said: str) -> None:
    """Two sockets, or a socket of another kind, end the start. The message names the wrong line of the unit."""
    with socket.socket(socket.AF_UNIX, kind) as given:
        given.bind(str(box.socket))
        words = [
            sys.executable,
            "-c",
            HAND_OVER,
            count,
            *[str(given.fileno())] * int(count),
            WAKEFUL,
            "daemon",
            "--state",
            str(box.state),
        ]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=60,
            pass_fds=[given.fileno()],
            env=box.environment(),
            cwd=box.folder,
        )
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
