"""A process of a run that found a token cannot use it over TCP, although the kernel does not name the peer of TCP.

The attack is made twice. It succeeds at a daemon that does not look for the process at the other end, and fails at the
usual daemon.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ordinary_user import OrdinaryBox, OrdinaryUser
from wakeful.cli.client import Client
from wakeful.runners.process.connection_holder import find_end, find_holder
from wakeful.runners.process.process_mark import OWN

HERE = Path(__file__).parent
SESSION = """
isolation: standard
first: run
network: true
allow: {{read: [in, tcp_token_thief.py]}}
run:
  command: [python3, tcp_token_thief.py, {way}, "{address}"]
  retries: 0
  timeout: 120s
"""


@pytest.mark.parametrize("way", ["plain", "child", "hidden"])
@pytest.mark.parametrize("is_defended", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_run_that_found_a_token_opens_nothing_with_it(
    tmp_path: Path, ordinary_user: OrdinaryUser, way: str, is_defended: bool
) -> None:
    """This also holds for a child with a cleared environment, and for a process that hides its open files."""
    folder = tmp_path / "project"
    (folder / "in").mkdir(parents=True)
    shutil.copy(HERE / "tcp_token_thief.py", folder)
    box = OrdinaryBox(folder, ordinary_user)
    box.weaken("change_nothing" if is_defended else "ask_nobody_over_tcp")
    try:
        box.start(env={"WAKEFUL_HTTP": "127.0.0.1:0"})
        with ordinary_user.acting():
            url = Client(str(box.socket)).get("/version")["http"]
        token = box.ask("token", "new", "--scope", "admin")
        with ordinary_user.acting():
            (folder / "in" / "found.token").write_text(token)
            (box.specs / "thief.yaml").write_text(SESSION.format(way=way, address=url.partition("://")[2]))
        row = box.wait_at_rest("thief", runs=1)
        told = box.run("output", "thief").stdout
        assert row["last_run"]["outcome"] == "succeeded", told
        if is_defended:
            assert "status 403" in told and "a process of a run must use the control socket" in told
            assert ("hides which connections" in told) == (way == "hidden" and ordinary_user.uid != 0)
        else:
            assert "status 200" in told and "thief" in told
    finally:
        box.close()


# -- who has the other end ----------------------------------------------------------------------------


@contextmanager
def connected(family: socket.AddressFamily, host: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket(family) as listening, socket.socket(family) as client:
        listening.bind((host, 0))
        listening.listen()
        client.connect(listening.getsockname()[:2])
        accepted, _ = listening.accept()
        with accepted:
            yield client, accepted


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_names_the_socket_at_the_other_end(family: socket.AddressFamily, host: str) -> None:
    """The kernel gives the user and the inode of that socket.

    For a connection that does not exist, it gives nothing.
    """
    with connected(family, host) as (client, accepted):
        found = find_end(accepted.getpeername()[:2], accepted.getsockname()[:2])
        assert found is not None
        assert found == (os.getuid(), os.fstat(client.fileno()).st_ino)
        assert find_end((host, 1), accepted.getsockname()[:2]) is None


def test_a_process_with_the_mark_of_a_run_is_found_by_its_socket() -> None:
    """A process without a mark is not reported, nor is one of the run to which this daemon belongs."""
    mark = OWN + 12345
    program = (
        "import resource, socket, sys\n"
        f"resource.setrlimit(resource.RLIMIT_RTTIME, ({mark}, resource.RLIM_INFINITY))\n"
        "made = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "sys.stdin.read()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with subprocess.Popen([sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE) as run:
            accepted, _ = listening.accept()
            with accepted, socket.create_connection(("127.0.0.1", port)), listening.accept()[0] as own:
                assert find_holder(accepted.getsockname(), accepted.getpeername(), None) == (
                    f"process {run.pid} has the mark of a run"
                )
                assert find_holder(own.getsockname(), own.getpeername(), None) is None
                assert find_holder(accepted.getsockname(), accepted.getpeername(), mark) is None
            run.communicate()
