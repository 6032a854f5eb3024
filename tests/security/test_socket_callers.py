"""The connection tells who calls: no process of a run passes as a person, at its own daemon or at another.

Each attack is made twice. It succeeds at a daemon with the old rule (weakened_daemon.py), and fails at the usual daemon.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.box import WAKEFUL
from ordinary_user import OrdinaryBox, OrdinaryUser
from wait_conditions import eventually
from wakeful.api.gate.callers import GONE, Unknown, find_absence, judge_peer
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.process.process_mark import OWN, mark_of, read_mark_of

HERE = Path(__file__).parent
OBSTACLE = find_obstacle()
LEVELS = [
    "standard",
    "standard as root",
    pytest.param(
        "strict", marks=pytest.mark.skipif(OBSTACLE is not None, reason=f"NOT TESTED under strict: {OBSTACLE}")
    ),
]
SESSION = """
isolation: {level}
first: run
allow: {{read: [{read}]}}
run:
  command: [python3, hostile_socket_client.py, {arguments}]
  retries: 0
  timeout: 120s
"""


class Suite(OrdinaryUser):
    """The user that runs the tests. If an ordinary user was made for them, that is root."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.is_made, self.uid, self.wrap = False, os.geteuid(), ()


class CallersBox(OrdinaryBox):
    """A daemon of an ordinary user, weakened by the named rule."""

    def __init__(self, folder: Path, user: OrdinaryUser, rule: str = "change_nothing") -> None:
        super().__init__(folder, user)
        self.weaken(rule)
        for place in ("in", "out"):
            (folder / place).mkdir()
        shutil.copy(HERE / "hostile_socket_client.py", folder / "hostile_socket_client.py")

    def declare(self, name: str, level: str, *arguments: str, read: str = "in") -> None:
        self.spec(
            name,
            SESSION.format(
                level=level.removesuffix(" as root"), read=read, arguments=", ".join(f'"{one}"' for one in arguments)
            ),
        )

    def say(self, word: str) -> None:
        with self.user.acting():
            (self.folder / "in" / f"{word}.txt").write_text(word)

    def told(self, name: str) -> str:
        return self.run("output", name).stdout

    def outcome(self, name: str) -> str:
        return self.wait_at_rest(name, runs=1)["last_run"]["outcome"]


@pytest.fixture
def make_box(tmp_path: Path, ordinary_user: OrdinaryUser) -> Iterator[object]:
    with contextlib.ExitStack() as made:

        def make(name: str, rule: str = "change_nothing", level: str = "") -> CallersBox:
            folder = tmp_path / name
            folder.mkdir()
            box = CallersBox(folder, Suite(tmp_path / "home") if level.endswith("as root") else ordinary_user, rule)
            made.callback(box.close)
            return box

        yield make


# -- a number that was reused -----------------------------------------------------------------------


def find_connected(box: CallersBox) -> psutil.Process:
    """Return the impostor's child, once it has connected."""
    eventually(lambda: "connected" in box.told("impostor"))
    found = [
        one for one in psutil.Process(box.daemon.pid).children(recursive=True) if "outlive_its_number" in one.cmdline()
    ]
    (child,) = [one for one in found if not one.children()]
    return child


@contextlib.contextmanager
def person_with_number(user: OrdinaryUser, pid: int) -> Iterator[None]:
    """Start a process of the person, under a number that a run's process had."""
    command = [sys.executable, str(HERE / "run_with_pid.py"), str(pid), *user.wrap, "sleep", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as person:
        assert person.stdout is not None and person.stderr is not None
        try:
            if person.stdout.readline().strip() != str(pid):
                pytest.skip(f"NOT TESTED, a number cannot be chosen here: {person.stderr.read()}")
            eventually(lambda: psutil.Process(pid).name() == "sleep" and psutil.Process(pid).uids().real == user.uid)
            yield
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("rule", "outcome"),
    [pytest.param("know_by_number", "succeeded", marks=pytest.mark.long), ("change_nothing", "failed")],
)
def test_a_number_that_was_a_runs_and_is_a_persons_now_opens_nothing(
    make_box, level: str, rule: str, outcome: str
) -> None:
    """A run cannot use a person's rights through a reused process number.

    The run's child connects and ends. A person's process gets its number. The run then asks for an admin token over the
    connection.
    """
    box = make_box("project", rule, level)
    box.declare("impostor", level, "outlive_its_number")
    box.start()
    child = find_connected(box)
    box.say("leave")
    eventually(lambda: not psutil.pid_exists(child.pid))
    with person_with_number(box.user, child.pid):
        box.say("speak")
        assert box.outcome("impostor") == outcome, box.told("impostor")
    tokens = box.json("token", "list")
    if outcome == "succeeded":
        assert [token["scopes"] for token in tokens] == [["admin"]]
    else:
        assert "the process that connected is gone" in box.told("impostor")
        assert tokens == []


# -- the run of another daemon ----------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("rule", "standing"),
    [pytest.param("know_own_runs_alone", "a person", marks=pytest.mark.long), ("change_nothing", "no person")],
)
def test_a_run_of_one_daemon_is_no_person_at_another(make_box, level: str, rule: str, standing: str) -> None:
    """A run makes projects, and tries to attach and trust them at a second daemon of the same account."""
    first, second = make_box("first", level=level), make_box("second", rule, level)
    for number in range(4):
        first.write(f"out/made{number}/sessions.d/evil.yaml", "run: {script: id}\n")
    second.start()
    first.declare(
        "impostor", level, "attach_in_disguises", str(second.socket), str(first.folder / "out"), read=str(second.folder)
    )
    first.start()
    first.wait_at_rest("impostor", runs=1)
    told = first.told("impostor")
    assert [line for line in told.splitlines() if line.endswith(" person")] == [
        f"{way}: {standing}" for way in ("plainly", "bare", "apart", "orphan")
    ], told
    attached = [row["name"] for row in second.rows()]
    assert attached == ([] if standing == "no person" else [f"made{number}/evil" for number in range(4)])
    assert told.count("belongs to a run of another daemon") == (4 if standing == "no person" else 0)


# -- what is read of the process that connected -----------------------------------------------------


class OldKernel:
    """A connection on a kernel that gives no descriptor of the peer (before Linux 6.5)."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def getsockopt(self, level: int, option: int, length: int = 0) -> int | bytes:
        if option == 77:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        return self._connection.getsockopt(level, option, length)


KERNELS = [pytest.param(lambda connection: connection, id="SO_PEERPIDFD"), pytest.param(OldKernel, id="pidfd_open")]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "l.sock"))
        made.listen(8)
        yield made


@contextlib.contextmanager
def connected_child(listener: socket.socket, *, is_leaving: bool) -> Iterator[tuple[int, socket.socket]]:
    """Start a child that connects, and then stays or ends. Yield its number and the accepted connection.

    This process keeps the client's end of the connection open, also after the child has ended.
    """
    ours = socket.socket(socket.AF_UNIX)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        ours.connect(listener.getsockname())
        os.write(writer, b"x")
        if not is_leaving:
            signal.pause()
        os._exit(0)
    try:
        assert os.read(reader, 1) == b"x"
        if is_leaving:
            # The child has ended but is not reaped yet, so no other process can have its number.
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        accepted, _ = listener.accept()
        with accepted:
            yield child, accepted
    finally:
        ours.close()
        os.close(reader)
        os.close(writer)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_living_process_is_known_and_one_that_ends_is_known_no_more(listener: socket.socket, kernel) -> None:
    """After the process has ended, its connection is refused, because its child could still hold the connection."""
    with connected_child(listener, is_leaving=False) as (child, accepted):
        peer = judge_peer(kernel(accepted), lambda pid: None)
        assert (peer.pid, peer.standing) == (child, None)
        assert find_absence(kernel(accepted), peer) is None
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert find_absence(kernel(accepted), peer) == GONE


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("is_reaped", [False, True])
def test_who_left_while_waiting_in_the_queue_is_nobody(listener: socket.socket, kernel, is_reaped: bool) -> None:
    """A connection whose process ended in the queue is refused, also while the process is a zombie.

    Any process could speak over that connection.
    """
    with connected_child(listener, is_leaving=True) as (child, accepted):
        if is_reaped:
            os.waitpid(child, 0)
        assert judge_peer(kernel(accepted), lambda pid: None).standing == Unknown(GONE)


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_was_read_of_a_number_counts_only_if_its_process_is_still_there(listener: socket.socket, kernel) -> None:
    """The process ends while /proc is read, and its number could already belong to a person's process."""
    with connected_child(listener, is_leaving=False) as (child, accepted):

        def read_late(pid: int) -> None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

        assert judge_peer(kernel(accepted), read_late).standing == Unknown(GONE)


def test_a_process_outside_of_the_daemons_namespace_needs_a_token(listener: socket.socket, tmp_path: Path) -> None:
    """The kernel gives no number for such a process, so its mark cannot be checked."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root makes a PID namespace")
    code = (
        "import socket, sys; from wakeful.api.gate.callers import judge_peer; made = socket.socket(socket.AF_UNIX); made.bind(sys.argv[1]); made.listen(1);"
        "print('listening', flush=True); print(judge_peer(made.accept()[0], lambda pid: None))"
    )
    path = str(tmp_path / "inside.sock")
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as inside, socket.socket(socket.AF_UNIX) as ours:
        assert inside.stdout is not None and inside.stdout.readline() == "listening\n"
        ours.connect(path)
        told = inside.stdout.readline()
    assert "pid=0" in told and "outside of the daemon's PID namespace" in told and "may_show_token=True" in told


def test_every_sign_of_a_run_counts_by_itself() -> None:
    """The mark or the environment of a run is enough, and so is the mark of the daemon's own processes.

    A person's process has none of them.
    """
    state = "/var/lib/wakeful"
    mark = mark_of(state, "s.1")

    def look(command: list[str], **more: Any) -> str | None:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more) as process:
            assert process.stdin is not None and process.stdout is not None
            # The answer proves that exec is done and the environment is in place.
            process.stdin.write(b"there\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"there\n"
            sign = read_mark_of(process.pid, state)
            process.communicate()
        return None if sign is None else sign.words

    marked = ["prlimit", f"--rttime={mark}:unlimited", "env", "-i", "cat"]
    own = ["prlimit", f"--rttime={OWN}:unlimited", "cat"]
    assert look(["cat"]) is None
    assert f"the mark of a run, {mark}" in (look(marked) or "")
    assert "WAKEFUL_RUN is set" in (look(["cat"], env={**os.environ, "WAKEFUL_RUN": "anything"}) or "")
    assert "daemon's own processes" in (look(own) or "")
    with pytest.raises(ProcessLookupError):
        read_mark_of(2**22 + 1, state)


def test_the_control_group_of_a_run_is_a_sign() -> None:
    """A process in the control group of a run is known, even if it has no mark and a cleared environment.

    A run has no mark if another program set that limit first.
    """
    mark = mark_of("/var/lib/wakeful", "s.1")
    folder = next(
        (
            place
            for place in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
            if os.path.exists(f"{place}/cgroup.procs") and os.access(place, os.W_OK)
        ),
        None,
    )
    if folder is None or os.geteuid() != 0:
        pytest.skip("NOT TESTED: no control group can be made here")
    group = Path(folder) / f"wakeful-{mark:x}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"NOT TESTED: no control group can be made here: {error}")
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            (group / "cgroup.procs").write_text(str(process.pid))
            sign = read_mark_of(process.pid, "/var/lib/wakeful")
            process.communicate()
        assert sign is not None and sign.mark == mark and "control group" in sign.words
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()


def test_a_daemon_that_a_run_started_belongs_to_that_run(make_box) -> None:
    """A daemon that a run starts accepts the processes of that run as people.

    Tests that start daemons run as sessions, too. Such a daemon reaches no further than its run.
    """
    inner = make_box("inner")
    mark = mark_of("/somewhere", "s.1")
    given = inner.wrap
    inner.wrap = (*given, "prlimit", f"--rttime={mark}:unlimited")
    inner.start()
    inner.wrap = given
    within = [*given, "prlimit", f"--rttime={mark}:unlimited", WAKEFUL, "list"]
    beside = [*given, "prlimit", f"--rttime={mark + 1}:unlimited", WAKEFUL, "list"]
    done, refused = (
        subprocess.run(command, env=inner.environment(), cwd=inner.folder, capture_output=True, text=True, check=False)
        for command in (within, beside)
    )
    assert done.returncode == 0, done.stderr
    assert refused.returncode == 1 and "belongs to a run of another daemon" in refused.stderr
