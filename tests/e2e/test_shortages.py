"""One run, one shortage or one client does not take the daemon down: real limits of the kernel, put upon a real daemon.

Each test proves that its shortage was there: somebody was refused by the kernel while the daemon went on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from e2e.box import Box
from ordinary_user import OrdinaryBox, OrdinaryUser
from waiting import eventually

# A user of its own: the kernel counts the processes of a user, and other tests of the suite have theirs.
CROWDED_UID = 61_235
# Forks until the kernel refuses, and holds what it has; the refusal is printed.
FORK_UNTIL_REFUSED = """
import os, time
number = 0
while True:
    try:
        pid = os.fork()
    except OSError as error:
        print("refused after", number, error.strerror, flush=True)
        time.sleep(600)
    if pid == 0:
        time.sleep(600)
    number += 1
"""


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[OrdinaryBox]:
    """A daemon of an ordinary user who may have a few processes more than it has."""
    (tmp_path / "project").mkdir()
    box = OrdinaryBox(tmp_path / "project", OrdinaryUser(tmp_path / "home", CROWDED_UID))
    most = count_tasks(box.user.uid) + 200
    box.wrap = ("prlimit", f"--nproc={most}:{most}", *box.wrap)
    yield box
    box.close()


def count_tasks(uid: int) -> int:
    return sum(one.num_threads() for one in psutil.process_iter() if one.uids().real == uid)


def test_a_run_that_forks_until_it_is_refused_leaves_the_daemon_and_other_runs_alone(crowded: OrdinaryBox) -> None:
    """The kernel refuses the run before it refuses the daemon: people are answered, another session runs, and the run can be ended."""
    crowded.write("bomb.py", FORK_UNTIL_REFUSED)
    crowded.spec("bomb", "run: {command: [python3, bomb.py], grace: 1s}\nbindings: {code: {file: bomb.py}}\n")
    crowded.spec("other", "run: {command: [echo, done]}\nbindings: {go: {file: go.txt}}\n")
    crowded.start()
    eventually(lambda: "refused after" in crowded.run("output", "bomb").stdout)
    crowded.write("go.txt", "go")
    assert crowded.wait_at_rest("other", runs=2)["last_run"]["outcome"] == "succeeded"
    assert crowded.run("interrupt", "bomb").returncode == 0
    assert crowded.wait_at_rest("bomb", runs=1)["last_run"]["outcome"] == "interrupted"
    assert "Traceback" not in crowded.output.read_text()


def test_a_run_with_more_processes_than_a_run_may_have_is_ended_in_words(box: Box) -> None:
    """Also root's, whom the kernel refuses nothing: counted while it runs, ended as a whole. Its spec may say more, and then it may have more."""
    box.write("wakeful.yaml", "limits: {processes: 40}\n")
    box.write("crowd.py", "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        time.sleep(600)\nprint('all there', flush=True)\ntime.sleep(600)\n")
    run = "command: [python3, crowd.py]"
    box.spec("crowd", f"run: {{{run}}}\nbindings: {{code: {{file: crowd.py}}}}\n")
    box.spec("allowed", f"run: {{{run}, limits: {{processes: 100}}}}\nbindings: {{code: {{file: crowd.py}}}}\n")
    box.start()
    assert box.wait_for("crowd", state="sleeping")["last_run"]["outcome"] == "failed"
    (finished,) = [record for record in box.log("crowd") if record["kind"] == "run_finished"]
    assert "more than 40 processes at a time; if it needs them, say run.limits.processes" in str(finished["payload"])
    eventually(lambda: "all there" in box.run("output", "allowed").stdout)
    assert box.row("allowed")["state"] == "running"
    assert "processes 40" in box.words("doctor")


@pytest.fixture
def full_group(tmp_path: Path) -> Iterator[Path]:
    """A control group that takes a few processes and threads: it holds root, too."""
    for mount in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        group = mount / f"wakeful-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / "pids.max").write_text("300")
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        yield group
        # No more of them from now on, so that all are found.
        (group / "pids.max").write_text("0")
        eventually(lambda: not end_all(group))
        return
    pytest.skip("no control group of processes may be made here: it takes root and the pids controller")


def end_all(group: Path) -> bool:
    """Kill what is in the group, and remove it; whether that is still to be done."""
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGKILL)
    with contextlib.suppress(OSError):
        group.rmdir()
    return group.exists()


# Every one of its processes forks without end, and leaves its session so that no signal to a group reaches all.
STORM = """
import os, time
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.01)
"""


@pytest.mark.faults
def test_a_storm_of_processes_in_a_full_group_takes_no_daemon_down(box: Box, full_group: Path) -> None:
    """The kernel refuses the daemon itself. A run that cannot start fails in words and is tried again; the storm is ended, and then it runs."""
    box.wrap = ("sh", "-c", f'echo $$ > {full_group}/cgroup.procs && exec "$@"', "sh")
    box.write("storm.py", STORM)
    box.spec("storm", "run: {command: [python3, storm.py], grace: 1s}\nbindings: {code: {file: storm.py}}\n")
    box.spec("other", "run: {command: [echo, done]}\nbindings: {go: {file: go.txt}}\n")
    box.start()
    eventually(lambda: "max " in (events := (full_group / "pids.events").read_text()) and events.split()[1] != "0", what="the kernel refused somebody")
    box.write("go.txt", "go")
    eventually(lambda: "cannot start 'echo': the system gave no process" in box.output.read_text(), what="the start of the other was refused")
    box.ask("interrupt", "storm")
    assert box.wait_at_rest("storm")["last_run"]["outcome"] == "interrupted"
    assert int((full_group / "pids.current").read_text()) < 100
    box.ask("activate", "other")
    eventually(lambda: (last := box.row("other")["last_run"]) is not None and last["outcome"] == "succeeded")
    assert box.stop() == 0
    assert "Traceback" not in box.output.read_text()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace puts the fault into the daemon's reads")
def test_a_watcher_that_cannot_be_read_leaves_no_session_running(box: Box, tmp_path: Path) -> None:
    """Reads of inotify fail while a run writes what another session reads: both come to rest, what changed is found, and the watcher is exchanged."""
    box.write("in.txt", "1")
    box.spec("first", "run: {command: [cp, in.txt, out.txt]}\nbindings: {in: {file: in.txt}, out: {file: out.txt, access: write}}\n")
    box.spec("second", "run: {command: [cat, out.txt]}\nbindings: {in: {file: out.txt}}\n")
    box.start()
    box.wait_at_rest("second", runs=1)
    assert box.daemon is not None
    report = tmp_path / "strace"
    words = ("-f", "-p", str(box.daemon.pid), "-P", "anon_inode:inotify", "-e", "trace=read", "-e", "inject=read:error=EIO:when=1..6", "-o", str(report))
    with subprocess.Popen(["strace", *words], stderr=subprocess.PIPE) as strace:
        try:
            assert strace.stderr is not None and b"attached" in strace.stderr.readline()
            box.write("in.txt", "2")
            eventually(lambda: report.read_text().count("INJECTED") == 6, what="every fault fired")
            box.write("in.txt", "3")
            eventually(lambda: "3" in box.run("output", "second").stdout)
        finally:
            strace.terminate()
    assert box.wait_at_rest("first")["last_run"]["outcome"] == "succeeded"
    assert box.wait_at_rest("second")["last_run"]["outcome"] == "succeeded"
    assert "Traceback" not in box.output.read_text()
    assert box.stop() == 0
