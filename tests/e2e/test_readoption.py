"""Runs that outlive their daemon: killed with -9 under a supervisor that keeps descriptors, the next one goes on with what it finds.

The supervisor is a process of its own (supervisor.py) that does what systemd does; systemd itself is in tests/systemd.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from e2e.box import Box
from waiting import eventually
from wakeful.runners.pidfd import can_tell_ends

SUPERVISOR = Path(__file__).with_name("supervisor.py")

pytestmark = pytest.mark.skipif(not can_tell_ends(), reason="RUNS END WITH THEIR DAEMON HERE, outliving it not tested: Linux 6.15 is needed")

# Says where it is, and goes on when it is told to.
SPEC = """
    objective: Work on, whatever becomes of the daemon.
    bindings:
      i: {file: in.txt, settle: 10ms}
      o: {file: out.txt, access: write}
    run:
      script: |
        echo $$ > pid.new && mv pid.new pid
        echo before
        while [ ! -e go ]; do sleep 0.02; done
        echo after
        wakeful remember answer 42 > said 2>&1
        cp in.txt out.txt
        exit $(cat code 2> /dev/null || echo 0)
"""


@pytest.fixture
def kept(box: Box) -> Box:
    """A box whose daemon is started, and started again, by somebody who keeps its descriptors."""
    box.wrap = (sys.executable, str(SUPERVISOR), str(box.folder))
    box.write("in.txt", "1\n")
    return box


def kill_daemon(box: Box) -> None:
    """kill -9, and wait for the next one to be ready."""
    box.said = box.output.stat().st_size
    os.kill(int(box.read("main")), signal.SIGKILL)
    box.wait_ready()


def begin(box: Box, spec: str = SPEC) -> int:
    """Until the run is under way and kept; its process."""
    box.spec("work", spec)
    box.start()
    eventually(lambda: box.read("pid") and "run-" in box.read("stored"), 20)
    return int(box.read("pid"))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_run_outlives_a_killed_daemon_and_ends_under_the_next_as_if_nothing_had_happened(kept: Box) -> None:
    """The same process and run, one output, its token good until its end, its exit code; and the log says who went on with it."""
    pid = begin(kept)
    kill_daemon(kept)
    assert is_alive(pid) and kept.row("work")["state"] == "running"
    kept.write("go", "")
    row = kept.wait_at_rest("work", runs=1)
    assert (row["runs"], row["last_run"]["outcome"]) == (1, "succeeded")
    assert kept.ask("output", "work") == "before\nafter\n"
    assert kept.read("out.txt") == "1\n" and kept.ask("recall", "work", "answer").strip().endswith("42"), kept.read("said")
    kinds = kept.kinds("work")
    assert [kind for kind in kinds if kind.startswith("run_")] == ["run_started", "run_readopted", "run_finished"]
    assert "run 1 goes on" in kept.words("log", "work")
    assert eventually(lambda: kept.read("stored") == "", 5) is True
