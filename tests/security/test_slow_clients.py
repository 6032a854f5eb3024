"""Slow, large, deeply nested and half-closed requests to a real daemon are ended or answered.

Other clients are served meanwhile.
"""

from __future__ import annotations

import json
import resource
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from e2e.box import Box
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.cli.client import Client

CALLS = 300
# The limit of reliability.md. On a busy machine, ten times the duration of the same calls without an attack.
SLOWEST_SECONDS = 0.2
MOST_IDLE = 10_000


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def measure_p99(client: Client) -> float:
    """Return the duration that all but the slowest hundredth of the calls stay within."""
    took = []
    for _ in range(CALLS):
        begun = time.monotonic()
        client.get("/sessions")
        took.append(time.monotonic() - begun)
    return sorted(took)[CALLS * 99 // 100]


@pytest.mark.faults
def test_others_are_served_while_clients_are_slow_large_deep_or_half_closed(box: Box) -> None:
    """Silent and dripping clients are ended after the time for a head.

    A body of 100 MB is refused at its head, and deep JSON with a message. The daemon's memory stays bounded.
    """
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    client = Client(str(box.socket))
    usual = measure_p99(client)
    attack = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("slow_clients.py")), str(box.socket)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with attack:
        assert attack.stdout is not None and attack.stdin is not None
        assert attack.stdout.readline() == b"under way\n"
        eventually(lambda: client.get("/doctor")["connections"]["open"] > 150, what="the attack is under way")
        attacked = measure_p99(client)
        # Heads have ten seconds and bodies sixty. After the heads have ended, only the fifty dripping bodies remain.
        eventually(lambda: client.get("/doctor")["connections"]["open"] < 60, what="silent clients are gone")
        attack.stdin.close()
        answers = json.loads(attack.stdout.read())
    assert attacked < max(SLOWEST_SECONDS, 10 * usual)
    # A client that sends a byte while the daemon closes the connection does not get the message.
    assert answers["silent"] == {"closed": 100} and answers["dripping"]["408"] > 10
    assert (
        set(answers["large"]) <= {"413", "closed"}
        and answers["deep"] == {"400": 20}
        and answers["half_closed"] == {"200": 50}
    )
    assert daemon.memory_info().rss < 300_000_000
    assert "Traceback" not in box.output.read_text()


@pytest.mark.faults
def test_ten_thousand_idle_connections_are_told_and_gone_after_a_while(box: Box) -> None:
    """Those that get no place are told so. The others are closed after the time for a head; people are served again.

    Meanwhile the daemon waits without using the processor. Its memory and output stay bounded.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    before = daemon.memory_info().rss
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as held:
            crowd = []
            for _ in range(min(MOST_IDLE, hard - 500)):
                connection = held.enter_context(socket.socket(socket.AF_UNIX))
                # The kernel's queue is short. A client waits until the daemon accepts it, up to this limit.
                connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE_SECONDS), 0)
                )
                connection.connect(str(box.socket))
                crowd.append(connection)
            begun, used = time.monotonic(), measure_cpu(daemon)
            eventually(
                lambda: box.run("list").returncode == 0, what="a person is served though nobody of the crowd left"
            )
            eventually(lambda: None not in map(read_answer, crowd), what="the daemon is done with each of the crowd")
            waited, used = time.monotonic() - begun, measure_cpu(daemon) - used
            answers = Counter(map(read_answer, crowd))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert set(answers) == {b"", b"HTTP/1.1 503"} and answers[b""] < 1000
    # A daemon that spins uses all the time. A busy machine makes it slower, but not busier.
    assert used < waited / 4
    assert daemon.memory_info().rss - before < 100_000_000
    assert len(box.output.read_text().splitlines()) < 20 and "Traceback" not in box.output.read_text()


def measure_cpu(process: psutil.Process) -> float:
    """Return the CPU time that a process has used, in seconds."""
    times = process.cpu_times()
    return times.user + times.system


def read_answer(connection: socket.socket) -> bytes | None:
    """Return the start of the answer: nothing if the connection was closed without one, None if it is still open."""
    try:
        return connection.recv(12, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
