"""Other processes, and the machine's room: looked into, signalled, limited, outlived, filled up."""

from __future__ import annotations

import os
import subprocess

import pytest
from waiting import eventually

from security.conftest import Attack


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_the_environment_of_others_cannot_be_read(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """The daemon's own, and any other's, are the secrets of whoever started them."""
    attack.carry_out(do="read", path=f"/proc/{bystander.pid}/environ")
    attack.assert_stopped()


def test_the_environment_of_the_daemon_cannot_be_read(attack: Attack) -> None:
    """Whose number a run knows without asking: it is its parent."""
    attack.start(env={"SECRET_OF_THE_DAEMON": "canary"})
    assert attack.daemon is not None
    attack.carry_out(do="read", path=f"/proc/{attack.daemon.pid}/environ")
    assert "canary" in attack.told("open")
    attack.assert_stopped()


def test_others_cannot_be_traced(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """Nor their memory be read that way."""
    attack.carry_out(do="trace", pid=bystander.pid)
    attack.assert_stopped("not permitted")


def test_others_cannot_be_killed(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """Undefended the bystander dies; so the defended run is told first, and alone."""
    attack.declare("shut", "standard", do="kill", pid=bystander.pid)
    attack.start()
    attack.settle("shut", runs=1)
    assert bystander.poll() is None
    attack.declare("open", "none", do="kill", pid=bystander.pid)
    attack.settle("open", runs=1)
    assert bystander.wait(10) == -9
    attack.assert_stopped("not permitted")


def test_others_cannot_be_limited(attack: Attack, bystander: subprocess.Popen[bytes]) -> None:
    """A limit set on the daemon would end it as surely as a signal."""
    attack.carry_out(do="limit", pid=bystander.pid)
    assert attack.outcome("open") == "succeeded"
    assert attack.outcome("shut") == "failed"


@pytest.mark.parametrize("level", ["none", "standard"])
def test_who_forks_away_ends_with_its_run(attack: Attack, level: str) -> None:
    """A new session and two forks do not outlive the run, isolated or not."""
    # Made for whoever is confined; who is not has to find it.
    (attack.project / "out").mkdir()
    attack.declare("away", level, do="fork_away", pid_file="out/away.txt")
    attack.start()
    attack.settle("away", runs=1)
    assert attack.outcome("away") == "succeeded"
    eventually(lambda: not is_alive(int((attack.project / "out/away.txt").read_text())), 10)


def test_a_file_does_not_outgrow_its_limit(attack: Attack) -> None:
    """run.limits.file_size: the disk is not filled."""
    attack.carry_out(do="fill_disk", path="out/{name}.txt", size=8_000_000, limits="file_size: 1MB")
    assert attack.outcome("open") == "succeeded"
    assert attack.outcome("shut") == "failed"
    assert "File too large" in attack.told("shut")
    assert os.path.getsize(attack.project / "out/shut.txt") <= 1_000_000


def test_memory_does_not_outgrow_its_limit(attack: Attack) -> None:
    """run.limits.memory: asked for more, the program is told that there is none."""
    attack.carry_out(do="hoard_memory", size=800_000_000, limits="memory: 200MB")
    assert attack.outcome("open") == "succeeded"
    assert attack.outcome("shut") == "failed"
    assert "MemoryError" in attack.told("shut") or "of memory" in attack.row("shut")["reason"]


def test_a_flood_of_output_is_counted_and_not_kept(attack: Attack) -> None:
    """As much as it likes: a bounded head and tail stay, and the daemon answers meanwhile."""
    size = 400_000_000
    attack.declare("flood", "standard", do="flood", size=size)
    attack.start()
    attack.settle("flood", runs=1, seconds=60)
    output = attack.finished("flood")["output"]
    assert output["total_bytes"] >= size
    assert output["kept_bytes"] <= 2 * 1024 * 1024
    assert attack.daemon is not None
    with open(f"/proc/{attack.daemon.pid}/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    assert peak < 300_000
