"""Slow, large, deep and half-closed requests upon a real daemon: each is ended or answered, and others are served meanwhile."""

from __future__ import annotations

import json
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from e2e.box import Box
from waiting import PATIENCE_SECONDS, eventually
from wakeful.cli.client import Client

CALLS = 300
# Of reliability.md; on a busy machine ten times what the same calls take without an attack.
SLOWEST_SECONDS = 0.2
MOST_IDLE = 10_000


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def measure_p99(client: Client) -> float:
    """How long all but the slowest hundredth of calls take."""
    took = []
    for _ in range(CALLS):
        begun = time.monotonic()
        client.get("/sessions")
        took.append(time.monotonic() - begun)
    return sorted(took)[CALLS * 99 // 100]


@pytest.mark.faults
def test_others_are_served_while_clients_are_slow_large_deep_or_half_closed(box: Box) -> None:
    """Silence and single bytes end after the time of a head, a body of 100 MB is refused at its head, deep JSON in words; memory stays."""
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
        # Heads have ten seconds, bodies sixty: what is left then are the fifty bodies.
        eventually(lambda: client.get("/doctor")["connections"]["open"] < 60, what="silent clients are gone")
        attack.stdin.close()
        answers = json.loads(attack.stdout.read())
    assert attacked < max(SLOWEST_SECONDS, 10 * usual)
    # A byte that was on its way when the daemon closed takes the words with it.
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
    """None is waited for longer than a head may take, the daemon neither grows nor spins, and then people are served as before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    before = daemon.memory_info().rss
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as held:
            for _ in range(min(MOST_IDLE, hard - 500)):
                connection = held.enter_context(socket.socket(socket.AF_UNIX))
                # The kernel's queue is short: who connects waits until the daemon takes one, and not for ever.
                connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE_SECONDS), 0)
                )
                connection.connect(str(box.socket))
            eventually(
                lambda: box.run("list").returncode == 0, what="a person is served though nobody of the crowd left"
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert daemon.memory_info().rss - before < 100_000_000
    assert len(box.output.read_text().splitlines()) < 20 and "Traceback" not in box.output.read_text()
