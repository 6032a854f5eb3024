"""Attacks on other processes and on the machine's resources.

They read, signal and limit other processes, outlive their run, and fill disk and memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from process_state import is_alive
from security.conftest import VICTIM, Attack
from wait_conditions import PATIENCE_SECONDS, eventually


def test_the_environment_of_others_cannot_be_read(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """The environment of a process can hold secrets of the user who started it."""
    attack.carry_out(do="read", path=f"/proc/{bystander.pid}/environ")
    attack.assert_stopped()


def test_the_environment_of_the_daemon_cannot_be_read(attack: Attack) -> None:
    """A run knows the daemon's process number, because the daemon is its parent."""
    attack.is_forked = False
    attack.start(env={"SECRET_OF_THE_DAEMON": "canary"})
    assert attack.daemon is not None
    attack.carry_out(do="read", path=f"/proc/{attack.daemon.pid}/environ")
    assert "canary" in attack.told("open")
    attack.assert_stopped()


def test_others_cannot_be_traced(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """Tracing, which would also allow reading memory, is refused."""
    attack.carry_out(do="trace", pid=bystander.pid)
    attack.assert_stopped("not permitted")


def test_others_cannot_be_killed(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """Without the defence the process is killed, so the defended run comes first."""
    attack.declare("shut", "standard", do="kill", pid=bystander.pid)
    attack.start()
    attack.settle("shut", runs=1)
    assert bystander.poll() is None
    attack.declare("open", "none", do="kill", pid=bystander.pid)
    attack.settle("open", runs=1)
    assert bystander.wait(PATIENCE_SECONDS) == -9
    attack.assert_stopped("not permitted")


def test_others_cannot_be_limited(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """A limit set on the daemon could end it as a signal does."""
    attack.carry_out(do="limit", pid=bystander.pid)
    assert attack.outcome("open") == "succeeded"
    assert attack.outcome("shut") == "failed"


def test_who_forks_away_outlives_what_no_run_holds(tmp_path: Path) -> None:
    """Without a daemon, the same program leaves a process that lives on after its parent has ended."""
    (tmp_path / "order.json").write_text(json.dumps({"do": "fork_away", "pid_file": str(tmp_path / "away.txt")}))
    subprocess.run([sys.executable, str(VICTIM), str(tmp_path / "order.json")], check=True)
    pid = int(eventually((tmp_path / "away.txt").read_text))
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("level", ["none", "standard"])
def test_who_forks_away_ends_with_its_run(attack: Attack, level: str) -> None:
    """A new process session and two forks do not outlive the run, isolated or not."""
    # The folder is made for a confined run. An unisolated one must find it.
    (attack.project / "out").mkdir()
    attack.declare("away", level, do="fork_away", pid_file="out/away.txt")
    attack.start()
    attack.settle("away", runs=1)
    assert attack.outcome("away") == "succeeded"
    eventually(lambda: not is_alive(int((attack.project / "out/away.txt").read_text())))


def test_a_file_does_not_outgrow_its_limit(attack: Attack) -> None:
    """run.limits.file_size keeps a run from filling the disk."""
    attack.carry_out(do="fill_disk", path="out/{name}.txt", size=8_000_000, limits="file_size: 1MB")
    assert attack.outcome("open") == "succeeded"
    assert attack.outcome("shut") == "failed"
    assert "File too large" in attack.told("shut")
    assert os.path.getsize(attack.project / "out/shut.txt") <= 1_000_000


def test_memory_does_not_outgrow_its_limit(attack: Attack) -> None:
    """run.limits.memory: the program gets an error if it asks for more."""
    attack.carry_out(do="hoard_memory", size=800_000_000, limits="memory: 200MB")
    assert attack.outcome("open") == "succeeded"
    assert attack.outcome("shut") == "failed"
    assert "MemoryError" in attack.told("shut") or "of memory" in attack.row("shut")["reason"]


def test_a_flood_of_output_is_counted_and_not_kept(attack: Attack) -> None:
    """The record keeps only the head and tail of a long output, and the daemon's memory stays bounded."""
    size = 400_000_000
    attack.declare("flood", "standard", do="flood", size=size)
    attack.start()
    attack.settle("flood", runs=1)
    output = attack.finished("flood")["output"]
    assert output["total_bytes"] >= size
    assert output["kept_bytes"] <= 2 * 1024 * 1024
    assert _read_peak(attack) < 300_000


@pytest.mark.long
def test_ten_gigabytes_of_output_cost_their_time_and_nothing_else(attack: Attack) -> None:
    """Disk and memory stay bounded, and the daemon answers during the whole flood."""
    size = 10_000_000_000
    attack.declare("flood", "standard", do="flood", size=size)
    spec = attack.specs / "flood.yaml"
    spec.write_text(spec.read_text().replace("timeout: 60s", "timeout: 30m"))
    attack.start()
    began, slowest = time.monotonic(), 0.0
    while attack.row("flood")["runs"] == 0 or attack.row("flood")["state"] == "running":
        asked = time.monotonic()
        attack.row("flood")
        slowest = max(slowest, time.monotonic() - asked)
        assert time.monotonic() - began < 1200, "still flooding after 20 minutes"
    print(
        f"10 GB of output in {time.monotonic() - began:.0f} s; slowest answer after {slowest:.2f} s, peak {_read_peak(attack) / 1024:.0f} MB"
    )
    output = attack.finished("flood")["output"]
    assert attack.outcome("flood") == "succeeded"
    assert output["total_bytes"] >= size and output["kept_bytes"] <= 2 * 1024 * 1024
    assert _read_peak(attack) < 300_000 and slowest < 5
    assert sum(path.stat().st_size for path in attack.state.rglob("*") if path.is_file()) < 50_000_000


@pytest.mark.long
def test_a_flood_without_end_ends_as_declared(attack: Attack) -> None:
    """The limit of CPU time ends a program that writes as fast as it can.

    Its output is counted, and what is kept is bounded.
    """
    attack.declare("flood", "standard", limits="cpu: 2s", do="flood", size=1 << 50)
    attack.start()
    attack.settle("flood", runs=1, seconds=120)
    assert attack.outcome("flood") == "failed" and "cpu" in attack.row("flood")["reason"].lower()
    output = attack.finished("flood")["output"]
    assert output["total_bytes"] > 10_000_000 and output["kept_bytes"] <= 2 * 1024 * 1024
    assert _read_peak(attack) < 300_000


def _read_peak(attack: Attack) -> int:
    """Return the daemon's peak memory in KiB."""
    assert attack.daemon is not None
    with open(f"/proc/{attack.daemon.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
