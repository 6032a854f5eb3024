"""One run, one shortage or one client does not take the daemon down: real limits of the kernel, put on a real daemon.

Each test proves that its shortage was there: the kernel refused something while the daemon went on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from e2e.box import WAKEFUL, Box
from ordinary_user import OrdinaryBox, OrdinaryUser
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.cli.client import Client

# A user of its own: the kernel counts processes by user, and other tests of the suite have theirs.
CROWDED_UID = 61_235
# Forks until the kernel refuses, prints the refusal, and keeps its processes.
FORK_UNTIL_REFUSED = """
import os, time
number = 0
while True:
    try:
        pid = os.fork()
    except OSError as error:
        print("refused after", number, error.strerror, flush=True)
        time.sleep(60)
        break
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    number += 1
"""

# Starts 60 processes that end by themselves, whatever becomes of the test.
CROWD = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print("all there", flush=True)
time.sleep(60)
"""


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[OrdinaryBox]:
    """A daemon of an ordinary user who may have a few more processes than now."""
    (tmp_path / "project").mkdir()
    box = OrdinaryBox(tmp_path / "project", OrdinaryUser(tmp_path / "home", CROWDED_UID))
    most = count_tasks(box.user.uid) + 200
    box.wrap = ("prlimit", f"--nproc={most}:{most}", *box.wrap)
    yield box
    box.close()


def count_tasks(uid: int) -> int:
    return sum(one.num_threads() for one in psutil.process_iter() if one.uids().real == uid)


def test_a_run_that_forks_until_it_is_refused_leaves_the_daemon_and_other_runs_alone(crowded: OrdinaryBox) -> None:
    """The kernel refuses the run before it refuses the daemon.

    People are answered, another session runs, and the run can be ended.
    """
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
    """The limit holds for root, too, whom the kernel does not refuse.

    The daemon counts while the run lasts, and ends all of it. A spec may set a higher limit.
    """
    box.write("wakeful.yaml", "limits: {processes: 40}\n")
    box.write("crowd.py", CROWD)
    run = "command: [python3, crowd.py], retries: 0"
    box.spec("crowd", f"run: {{{run}}}\nbindings: {{code: {{file: crowd.py}}}}\n")
    box.spec("allowed", f"run: {{{run}, limits: {{processes: 100}}}}\nbindings: {{code: {{file: crowd.py}}}}\n")
    box.start()
    assert box.wait_for("crowd", state="sleeping")["last_run"]["outcome"] == "failed"
    (finished,) = [record for record in box.log("crowd") if record["kind"] == "run_finished"]
    assert "more than 40 processes at a time; if it needs them, say run.limits.processes" in str(finished["payload"])
    eventually(lambda: "all there" in box.run("output", "allowed").stdout)
    assert box.row("allowed")["state"] == "running"
    assert "processes 40" in box.words("doctor")
    # End the run, so that none of its processes stays behind.
    box.ask("interrupt", "allowed")
    box.wait_at_rest("allowed")


@pytest.fixture
def full_group(tmp_path: Path) -> Iterator[Path]:
    """A control group that takes a few processes and threads. It limits root, too."""
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
        # No new processes from now on, so that all are found.
        (group / "pids.max").write_text("0")
        eventually(lambda: not end_all(group))
        return
    pytest.skip("no control group of processes may be made here: it takes root and the pids controller")


def end_all(group: Path) -> bool:
    """Kill what is in the group, and remove it. Return whether the group is still there."""
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGKILL)
    with contextlib.suppress(OSError):
        group.rmdir()
    return group.exists()


# Every process forks without end, and leaves its session, so that no signal to a group reaches all.
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
    """The kernel refuses the daemon itself.

    A run that cannot start fails with a message. When the storm has ended, it runs.
    """
    box.wrap = ("sh", "-c", f'echo $$ > {full_group}/cgroup.procs && exec "$@"', "sh")
    box.write("storm.py", STORM)
    box.spec("storm", "run: {command: [python3, storm.py], grace: 1s}\nbindings: {code: {file: storm.py}}\n")
    box.spec("other", "run: {command: [echo, done]}\nbindings: {go: {file: go.txt}}\n")
    box.start()
    eventually(
        lambda: "max " in (events := (full_group / "pids.events").read_text()) and events.split()[1] != "0",
        what="the kernel refused somebody",
    )
    box.write("go.txt", "go")
    eventually(
        lambda: "cannot start 'echo': the system refused a new process" in box.output.read_text(),
        what="the start of the other was refused",
    )
    box.ask("interrupt", "storm")
    assert box.wait_at_rest("storm")["last_run"]["outcome"] == "interrupted"
    assert int((full_group / "pids.current").read_text()) < 100
    box.ask("activate", "other")
    eventually(lambda: (last := box.row("other")["last_run"]) is not None and last["outcome"] == "succeeded")
    assert box.stop() == 0
    assert "Traceback" not in box.output.read_text()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace puts the fault into the daemon's reads")
def test_a_watcher_that_cannot_be_read_leaves_no_session_running(box: Box, tmp_path: Path) -> None:
    """Reads of inotify fail while a run writes what another session reads.

    Both sessions come to rest, the change is found, and the watcher is exchanged.
    """
    box.write("in.txt", "1")
    box.spec(
        "first",
        "run: {command: [cp, in.txt, out.txt]}\nbindings: {in: {file: in.txt}, out: {file: out.txt, access: write}}\n",
    )
    box.spec("second", "run: {command: [cat, out.txt]}\nbindings: {in: {file: out.txt}}\n")
    box.start()
    box.wait_at_rest("second", runs=1)
    assert box.daemon is not None
    report = tmp_path / "strace"
    # Only reads of the watcher fail: the daemon reads much else.
    with attach(box.daemon.pid, report, "trace=read", "inject=read:error=EIO:when=1..3", only="anon_inode:inotify"):
        # Each fault hits the first read of another watcher, which the daemon makes after a longer pause.
        eventually(
            lambda: box.write("in.txt", str(time.monotonic())) and report.read_text().count("INJECTED") == 3,
            what="every fault fired",
        )
        box.write("in.txt", "the last of all that was written")
        eventually(lambda: "the last of all" in box.run("output", "second").stdout)
    assert box.wait_at_rest("first")["last_run"]["outcome"] == "succeeded"
    assert box.wait_at_rest("second")["last_run"]["outcome"] == "succeeded"
    assert "Traceback" not in box.output.read_text()
    assert box.stop() == 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace refuses the daemon's forks")
def test_a_start_that_the_kernel_refuses_is_recorded_and_tried_again_later(box: Box, tmp_path: Path) -> None:
    """Every fork fails with EAGAIN for a while.

    Runs fail with a message, each after a longer pause, and one succeeds once there are processes again.
    """
    box.write("in.txt", "1")
    box.spec("work", "run: {command: [cat, in.txt]}\nbindings: {in: {file: in.txt}}\n")
    box.start()
    box.wait_at_rest("work", runs=1)
    assert box.daemon is not None
    report = tmp_path / "strace"
    refusal = "cannot start 'cat': the system refused a new process"
    # If a vfork is refused, Python tries a fork.
    with attach(box.daemon.pid, report, "trace=vfork,clone", "inject=vfork,clone:error=EAGAIN"):
        box.write("in.txt", "2")
        eventually(lambda: refusal in box.output.read_text())
        assert "INJECTED" in report.read_text()
    eventually(lambda: "succeeded" == box.wait_at_rest("work", runs=3)["last_run"]["outcome"])
    # The daemon gives up after three attempts. A loop would have made more.
    assert box.row("work")["runs"] <= 4 and "again in 1 s" in box.output.read_text()


@contextlib.contextmanager
def attach(pid: int, report: Path, *expressions: str, only: str | None = None) -> Iterator[None]:
    """Attach strace to all threads of a running daemon. With `only`, trace only calls about this file."""
    words = [*(("-P", only) if only else ()), *(word for one in expressions for word in ("-e", one))]
    with subprocess.Popen(
        ["strace", "-f", "-p", str(pid), *words, "-o", str(report)], stderr=subprocess.PIPE
    ) as strace:
        try:
            assert strace.stderr is not None and b"attached" in strace.stderr.readline()
            yield
        finally:
            strace.terminate()


@pytest.mark.faults
def test_seconds_without_memory_leave_a_daemon_that_answers_runs_and_stops(box: Box) -> None:
    """No byte of address space is left while files change and people ask.

    Afterwards every session comes to rest, calls are taken, and SIGTERM ends the daemon.
    """
    for number in range(4):
        box.spec(
            f"s{number}", f"run: {{command: [sh, -c, 'echo hi; date']}}\nbindings: {{go: {{file: go{number}.txt}}}}\n"
        )
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    # Far below its present size: threads that end give room back, and there must be none.
    daemon.rlimit(psutil.RLIMIT_AS, (daemon.memory_info().vms // 2, resource.RLIM_INFINITY))

    def is_felt() -> bool:
        for number in range(4):
            box.write(f"go{number}.txt", str(time.monotonic()) * 50)
        with contextlib.suppress(Exception):
            box.rows()
        said = box.output.read_text()
        return "Cannot allocate memory" in said or "MemoryError" in said or daemon.status() == psutil.STATUS_ZOMBIE

    eventually(is_felt, what="somebody was refused memory")
    assert box.daemon.poll() is None
    daemon.rlimit(psutil.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    eventually(lambda: box.run("note", "talk", "still here").returncode == 0)
    for number in range(4):
        box.write(f"go{number}.txt", "the last")
        box.ask("resume", f"s{number}") if box.row(f"s{number}")["state"] == "sleeping" else None
    for number in range(4):
        assert eventually(
            lambda number=number: (row := box.wait_at_rest(f"s{number}"))["last_run"]["outcome"] == "succeeded" and row
        )
    assert box.stop() == 0


@pytest.mark.faults
def test_readers_that_never_read_and_heads_that_never_end_leave_room_and_memory(box: Box) -> None:
    """First 300 followers read nothing while 80 notes of 200 KB are recorded.

    Then one program sends 600 half heads. Memory is bounded, and others are answered.
    """
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    before = daemon.memory_info().rss
    with contextlib.ExitStack() as held:
        for _ in range(300):
            connect(held, box, b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n")
        with ThreadPoolExecutor(16) as callers:
            list(
                callers.map(lambda _: Client(str(box.socket)).call("note", name="talk", text="y" * 200_000), range(80))
            )
        assert daemon.memory_info().rss - before < 250e6
        assert daemon.num_fds() > 300
    # The followers left with much unread. The daemon reads nothing more for them.
    eventually(lambda: daemon.num_fds() < 100)
    with contextlib.ExitStack() as held:
        halves = [connect(held, box, b"GET /version HTTP/1.1\r\nX-Half: ") for _ in range(600)]
        listed = subprocess.run(
            [WAKEFUL, "list"],
            capture_output=True,
            text=True,
            cwd=box.folder,
            env=box.environment(),
            timeout=PATIENCE_SECONDS,
        )
        assert listed.returncode == 0 and "talk" in listed.stdout, listed
        eventually(lambda: daemon.num_fds() < 100, what="every half head was closed")
        halves[0].settimeout(PATIENCE_SECONDS)
        assert b"408 Request Timeout" in halves[0].recv(1000)
    assert box.stop() == 0


def connect(held: contextlib.ExitStack, box: Box, sent: bytes) -> socket.socket:
    connection = held.enter_context(socket.socket(socket.AF_UNIX))
    # Without a time limit, so that the connection waits in the kernel's queue.
    connection.connect(str(box.socket))
    # A connection that was refused at once may be closed by now.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(sent)
    return connection


@pytest.mark.faults
def test_a_run_that_eats_all_memory_is_recorded_so_and_the_daemon_lives(box: Box) -> None:
    """The kernel kills in a control group of memory that holds the daemon, too.

    The run goes first, and its record says why.
    """
    group = Path(f"/sys/fs/cgroup/memory/wakeful-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(400_000_000))
    except OSError:
        pytest.skip("no control group of memory may be made here: it takes root and the memory controller")
    box.wrap = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    box.write("eat.py", "import time\ntime.sleep(1)\nx = []\nwhile True:\n    x.append(bytearray(10_000_000))\n")
    box.spec("eater", "run: {command: [python3, eat.py], retries: 0}\nbindings: {code: {file: eat.py}}\n")
    box.spec("talk", "objective: A place to talk.\n")
    try:
        box.start()
        assert box.wait_for("eater", state="sleeping")["last_run"]["outcome"] == "failed"
        assert "oom_kill 0" not in (group / "memory.oom_control").read_text()
        assert "no more memory (oom)" in box.words("show", "eater")
        box.ask("note", "talk", "still here")
        assert box.stop() == 0
    finally:
        box.close()
        eventually(lambda: not end_all(group))
