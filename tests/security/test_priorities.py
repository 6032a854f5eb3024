"""A run cannot change the priority or scheduler of another process.

If it moves the daemon to other cores, that does not last.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import SETTINGS
from ordinary_user import UID, OrdinaryBox, OrdinaryUser
from wait_conditions import eventually

# Each way is tried on a process of the same user, and on the program itself (0), which is allowed.
PROGRAM = """
import ctypes, json, os, struct, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
ioprio_set, sched_setattr = (251, 314) if os.uname().machine == "x86_64" else (30, 274)
IDLE_IO = 3 << 13
ATTRIBUTES = struct.pack("=IIQiIQQQ", 48, os.SCHED_BATCH, 0, 17, 0, 0, 0, 0)

def call(*words):
    if libc.syscall(*words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

WAYS = {
    "nice": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 17),
    "scheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    "parameters": lambda pid: os.sched_setparam(pid, os.sched_param(0)),
    "attributes": lambda pid: call(sched_setattr, pid, ATTRIBUTES, 0),
    "disk": lambda pid: call(ioprio_set, 1, pid, IDLE_IO),
}
OF_MANY = {
    "nice of the group": lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 17),
    "nice of the user": lambda: os.setpriority(os.PRIO_USER, 0, 18),
    "disk of the group": lambda: call(ioprio_set, 2, os.getpgid(pid), IDLE_IO),
    "disk of the user": lambda: call(ioprio_set, 3, os.getuid(), IDLE_IO),
}

def attempt(deed, *words):
    try:
        deed(*words)
    except OSError as error:
        return error.strerror
    return "done"

ended = {name: attempt(deed, pid) for name, deed in WAYS.items()}
ended |= {name: attempt(deed) for name, deed in OF_MANY.items()}
own = {name: attempt(deed, 0) for name, deed in WAYS.items()}
print(json.dumps({"others": ended, "own": own}))
"""
# The parent of a run is its daemon.
PIN = "import os; [os.sched_setaffinity(int(name), {0}) for name in os.listdir(f'/proc/{os.getppid()}/task')]"
SPEC = """
objective: x
isolation: {level}
bindings: {{tune: {{file: tune.py}}}}
first: adopt
run: {{command: [python3, tune.py, '{pid}'], retries: 0}}
"""


@pytest.fixture
def lonely_box(tmp_path: Path) -> Iterator[OrdinaryBox]:
    """A box whose user has no other processes, because some of these attacks concern all processes of a user."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: it would slow down everything that you run; root makes a user of its own for it")
    (tmp_path / "project").mkdir()
    box = OrdinaryBox(tmp_path / "project", OrdinaryUser(tmp_path / "home", UID + 1 + os.getpid()))
    yield box
    box.close()


@contextlib.contextmanager
def start_target(user: OrdinaryUser) -> Iterator[int]:
    """Start a process of the same user outside of any run."""
    process = subprocess.Popen([*user.wrap, "sleep", "300"], start_new_session=True)
    try:
        eventually(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"))
        yield process.pid
    finally:
        process.kill()
        process.wait()


def tune(box: OrdinaryBox, name: str) -> dict[str, dict[str, str]]:
    """Activate the session and return its program's results.

    Only commands are used: a test that calls the daemon as the user would be a process of that user with root's rights.
    """
    box.ask("activate", name)
    return json.loads(eventually(lambda: box.run("output", name).stdout.strip()))


def test_a_run_changes_the_priority_of_nobody_else(lonely_box: OrdinaryBox) -> None:
    """Neither a process by number, nor a group, nor all processes of the user can be changed. Its own process can.

    An unisolated run can change all of them.
    """
    box = lonely_box
    box.write(SETTINGS, "allow_unisolated: true\n")
    box.write("tune.py", PROGRAM)
    # Each half has a daemon of its own. A confined run is in a user namespace, so that the unisolated run could not
    # change it either.
    with start_target(box.user) as target:
        box.spec("open", SPEC.format(level="none", pid=target))
        box.start()
        unheld = tune(box, "open")
        assert unheld["others"] == dict.fromkeys(unheld["others"], "done")
        assert os.getpriority(os.PRIO_PROCESS, target) == 18
        box.stop()
    with start_target(box.user) as target:
        box.spec("shut", SPEC.format(level="standard", pid=target))
        box.start()
        before = os.getpriority(os.PRIO_PROCESS, target)
        held = tune(box, "shut")
        assert held["others"] == dict.fromkeys(held["others"], "Operation not permitted")
        assert held["own"] == dict.fromkeys(held["own"], "done")
        assert (
            os.getpriority(os.PRIO_PROCESS, target) == before < 17 and os.sched_getscheduler(target) == os.SCHED_OTHER
        )


def test_a_daemon_that_was_moved_to_one_core_takes_its_cores_back(ordinary_box: OrdinaryBox) -> None:
    """A run may move the daemon, because programs place their own threads by the same call. The daemon moves back."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("NOT TESTED: this machine has one core")
    box = ordinary_box
    box.write("tune.py", PIN)
    box.spec("pin", SPEC.format(level="standard", pid=0))
    # The daemon checks its cores whenever it sends a watchdog message to systemd.
    box.start(env={"WATCHDOG_USEC": "1000000"})
    assert box.daemon is not None
    pid, before = box.daemon.pid, os.sched_getaffinity(box.daemon.pid)
    box.ask("activate", "pin")
    box.wait_at_rest("pin", runs=1)
    assert box.row("pin")["last_run"]["outcome"] == "succeeded", box.ask("output", "pin")
    eventually(lambda: "the daemon was moved to other cores" in box.output.read_text())
    threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset(before)}
