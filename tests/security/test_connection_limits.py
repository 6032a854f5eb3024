"""Runs and slow clients cannot keep people from the control socket, nor use up the daemon's descriptors.

If a defence is a limit, the attack is also made with the limit out of reach, and succeeds.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import termios
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, declare, reads
from e2e.box import WAKEFUL, Box
from ordinary_user import OrdinaryUser
from security.test_socket_callers import CallersBox
from wait_conditions import PATIENCE_SECONDS, eventually, eventually_async
from wakeful.api.gate import connections, protocol
from wakeful.api.gate.callers import GONE, Peer, Unknown
from wakeful.api.gate.connections import MOST_CONNECTIONS, MOST_OF_ONE_RUN, Connections
from wakeful.cli.client import Client
from wakeful.client import async_client as link_module
from wakeful.client.async_client import DaemonClient
from wakeful.core.record.observations import ProcessOwner

FAR = 600.0
FOLLOW = b"GET /follow HTTP/1.1\r\nHost: x\r\n\r\n"
HALF_HEAD = b"GET /version HTTP/1.1\r\nHost: x\r\nX-Half: "
HALF_BODY = b"POST /call/note HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"


# -- a run that takes every place -------------------------------------------------------------------


@pytest.mark.parametrize("is_defended", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_connections_of_one_run_leave_room_for_people(
    tmp_path: Path, ordinary_user: OrdinaryUser, is_defended: bool
) -> None:
    """With 900 idle connections of a run, `list` and `doctor` still work, and `doctor` names the run.

    Without the limit for a run, both commands report that all connections are in use.
    """
    (tmp_path / "project").mkdir()
    box = CallersBox(tmp_path / "project", ordinary_user, "change_nothing" if is_defended else "count_nobody")
    try:
        box.declare("hog", "standard", "crowd", "900")
        box.start()
        log = box.output
        eventually(lambda: (one := _find_program(box)) is not None and one.num_fds() > 900)
        listed, examined = box.run("list"), box.run("doctor", "--json", "--state", str(box.state))
        (daemon,) = [check for check in json.loads(examined.stdout) if check["name"] == "daemon"]
        if is_defended:
            assert listed.returncode == 0 and "hog" in listed.stdout, listed.stderr
            (told,) = [
                check
                for check in json.loads(examined.stdout)
                if check["name"] == "connections" and check["verdict"] == "warn"
            ]
            assert f"run hog#1 has {MOST_OF_ONE_RUN}" in told["words"] and told["mend"] == "wakeful interrupt hog"
            assert daemon["verdict"] == "good"
            assert box.run("interrupt", "hog").returncode == 0
            assert box.wait_at_rest("hog", runs=1)["last_run"]["outcome"] == "interrupted"
        else:
            assert (
                listed.returncode == 1
                and f"all of its {MOST_CONNECTIONS} connections are in use, {MOST_CONNECTIONS} of them by run hog#1"
                in listed.stderr
            )
            assert "not wakeful" not in listed.stderr
            assert (
                daemon["verdict"] == "bad"
                and "the daemon is busy" in daemon["words"]
                and daemon["mend"].startswith("ss -xp")
            )
        assert "Traceback" not in log.read_text()
    finally:
        box.close()


def _find_program(box: CallersBox) -> psutil.Process | None:
    assert box.daemon is not None
    return next(
        (one for one in psutil.Process(box.daemon.pid).children(recursive=True) if "crowd" in one.cmdline()), None
    )


def run_of(number: int) -> Peer:
    return Peer(os.geteuid(), 1000 + number, ProcessOwner(run_id=f"s.{number}", mark=number, sign=""))


def test_the_last_places_are_for_people_however_many_runs_there_are() -> None:
    """Runs, ended processes and other users cannot take the last places.

    A person is refused only if all places are taken.
    """
    held = Connections(str)
    taken = 0
    for number in range(MOST_CONNECTIONS):
        for _ in range(MOST_OF_ONE_RUN + 1):
            taken += held.admit(run_of(number)) is None
    assert taken == held.total == MOST_CONNECTIONS - held.kept
    for stranger in (Peer(os.geteuid(), 7, Unknown(GONE)), Peer(os.geteuid() + 1, 8)):
        refused = held.admit(stranger)
        assert refused is not None and "reserved for people" in refused
    person = Peer(os.geteuid(), 9)
    assert [held.admit(person) for _ in range(held.kept)] == [None] * held.kept
    refused = held.admit(person)
    assert refused is not None and "all of its 512 connections are in use, 64 of them by process 9" in refused
    held.release(run_of(0))
    assert held.admit(person) is None


class Name(str):
    """A string that can be referenced weakly, so that a test sees when it is freed."""


def test_a_place_that_is_given_back_is_free_again() -> None:
    """A run at its limit that closes a connection may open another.

    When it has closed all, the daemon keeps nothing of it.
    """
    names: list[weakref.ref[Name]] = []

    def name_run(run_id: str) -> str:
        name = Name(run_id)
        names.append(weakref.ref(name))
        return name

    held = Connections(name_run)
    for _ in range(MOST_OF_ONE_RUN):
        assert held.admit(run_of(1)) is None
    assert "run s.1 has 32 connections, the most it may have" in (held.admit(run_of(1)) or "")
    held.release(run_of(1))
    assert held.admit(run_of(1)) is None
    for _ in range(MOST_OF_ONE_RUN):
        held.release(run_of(1))
    assert held.total == 0
    assert names and not any(name() for name in names), "the name of the run"


def is_turned_away(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as impatient:
        impatient.settimeout(PATIENCE_SECONDS)
        try:
            impatient.connect(path)
        except BlockingIOError:
            return True
    return False


@pytest.mark.long
def test_a_storm_of_connections_does_not_keep_a_person_from_the_line(
    tmp_path: Path, ordinary_user: OrdinaryUser
) -> None:
    """Clients wait in the kernel's queue in order.

    A run that connects as fast as it can delays a person's command, which still succeeds.
    """
    (tmp_path / "project").mkdir()
    box = CallersBox(tmp_path / "project", ordinary_user)
    try:
        box.declare("hog", "standard", "storm")
        box.start()
        eventually(lambda: "storming" in box.told("hog"))
        for _ in range(3):
            # While the daemon is stopped, the queue fills up. A client that does not wait in it is then refused.
            # Commands wait.
            with box.held_still():
                with box.user.acting():
                    eventually(lambda: is_turned_away(str(box.socket)))
                asked = subprocess.Popen(
                    [*box.user.wrap, WAKEFUL, "list"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd=box.folder,
                    env=box.environment(),
                )
            told, problem = asked.communicate(timeout=PATIENCE_SECONDS)
            assert asked.returncode == 0 and "hog" in told, problem
    finally:
        box.close()


def test_an_agent_waits_for_a_place_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection was refused before its request was read.

    So the client repeats also a call without a key, and the call is made once.
    """
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    is_busy, refused = link_module.is_busy, list[bool]()
    monkeypatch.setattr(link_module, "is_busy", lambda *answer: refused.append(is_busy(*answer)) or refused[-1])
    with RunningDaemon(tmp_path) as daemon, ExitStack() as held:
        daemon.do(lambda d: d.declare(declare("talk", reads("x", "x.csv"))))
        for _ in range(4):
            held.enter_context(connect(daemon))

        async def note() -> None:
            async with DaemonClient(str(daemon.socket)) as link:
                noting = asyncio.create_task(link.call("note", {"name": "talk", "text": "patient"}))
                await eventually_async(lambda: any(refused))
                held.close()
                await noting

        asyncio.run(note())
        assert len(Speaker(daemon.socket).get("/sessions/talk/log?kind=note_added").lines) == 1


# -- clients that keep us waiting -------------------------------------------------------------------


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    with RunningDaemon(tmp_path) as running:
        running.do(lambda d: d.declare(declare("talk", reads("x", "x.csv"))))
        yield running


def connect(daemon: RunningDaemon, sent: bytes = b"") -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_SECONDS)
    connection.connect(str(daemon.socket))
    connection.sendall(sent)
    return connection


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


def is_open(connection: socket.socket) -> bool:
    return not select.select([connection], [], [], 0)[0]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b""),
        (HALF_HEAD, b"the head of the request was not complete"),
        (HALF_BODY, b"the body of the request was not complete"),
    ],
)
def test_a_request_that_is_never_complete_is_ended(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch, sent: bytes, told: bytes
) -> None:
    """After a time, the daemon closes a connection with no request, half a head or half a body, and says why.

    With the limit out of reach, such a connection stays open.
    """
    monkeypatch.setattr(protocol, "HEAD_SECONDS", FAR)
    monkeypatch.setattr(protocol, "BODY_SECONDS", FAR)
    undefended = connect(daemon, sent)
    # The daemon runs in a thread of this process. When it answers, it has accepted the earlier connections.
    assert Speaker(daemon.socket).get("/version").status == 200
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.1)
    answer = read_all(connect(daemon, sent))
    assert told in answer and answer.startswith(b"HTTP/1.1 408" if told else b"")
    assert is_open(undefended)


def test_single_bytes_that_keep_coming_do_not_turn_the_clock_back(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single bytes of a head, or of a body whose request is already answered, do not extend the time limit."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.2)
    for begin in (HALF_HEAD, b"GET /version HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"):
        connection = connect(daemon, begin)

        def drip() -> bool:
            try:
                connection.sendall(b"x")
            except OSError:
                return True
            return False

        eventually(drip, what="the connection was closed")


@pytest.mark.parametrize(
    "sent", [HALF_BODY, HALF_BODY.replace(b"/call/note", b"/trust/accept"), HALF_BODY.replace(b"POST", b"GET")]
)
def test_a_client_that_leaves_within_its_body_is_no_defect(
    daemon: RunningDaemon, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    """The daemon prints no traceback for a client that closes its connection in the middle of a body."""
    leaving = [connect(daemon, sent) for _ in range(10)]
    speaker = Speaker(daemon.socket)
    eventually(lambda: speaker.get("/doctor").json["connections"]["open"] == 11)
    for connection in leaving:
        connection.close()
    eventually(lambda: speaker.get("/doctor").json["connections"]["open"] == 1)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_a_request_under_way_is_not_hurried(daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """`follow` waits as long as nothing happens, also far beyond the time limit for a head."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.02)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.02)
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 0.02)
    following = Client(str(daemon.socket)).stream_lines("/follow", name="talk")
    for _ in range(10):
        assert read_all(connect(daemon)) == b""
    assert Speaker(daemon.socket).call("note", name="talk", text="still here").status == 200
    assert json.loads(next(following))["kind"] == "note_added"


def fill(speaker: Speaker, connection: socket.socket) -> None:
    """Add records until the kernel's buffer for this reader is full. The daemon then waits for the reader."""
    waiting, same = 0, 0
    while same < 10:
        assert speaker.call("note", name="talk", text="x" * 10_000).status == 200
        before, waiting = waiting, struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, b"\0" * 4))[0]
        same = same + 1 if waiting == before > 0 else 0


def test_a_reader_that_takes_nothing_is_cut_off(daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow reader stays connected. With the limit out of reach, a reader that takes nothing stays connected, too."""
    speaker = Speaker(daemon.socket)
    monkeypatch.setattr(protocol, "STALLED_SECONDS", FAR)
    undefended = connect(daemon, FOLLOW)
    eventually(lambda: daemon.small.listeners == 1)
    fill(speaker, undefended)
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 0.3)
    stalled, slow = (connect(daemon, FOLLOW) for _ in range(2))
    eventually(lambda: daemon.small.listeners == 3)
    slow_end = time.monotonic() + PATIENCE_SECONDS
    while daemon.small.listeners == 3 and time.monotonic() < slow_end:
        assert speaker.call("note", name="talk", text="x" * 10_000).status == 200
        slow.recv(1 << 20)
    # The reader without a limit and the slow reader stay connected.
    assert daemon.small.listeners == 2
    # The stalled reader can read what was sent before, and then reaches the end.
    assert b"note_added" in read_all(stalled)
    assert speaker.call("note", name="talk", text="last words").status == 200
    seen = b""
    while b"last words" not in seen:
        seen = seen[-20:] + slow.recv(1 << 20)


# -- without descriptors ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_defended", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_daemon_that_is_short_of_descriptors_says_so_and_goes_on(box: Box, is_defended: bool) -> None:
    """60 idle connections under a limit of 64 descriptors leave descriptors for the daemon's work at every moment.

    Their program is refused with a message, and another program is answered. Without the count of descriptors, the
    connections take every one.
    """
    if not is_defended:
        box.weaken("spend_every_descriptor")
    box.wrap = ("prlimit", "--nofile=64:64")
    box.spec("talk", "objective: A place to talk.\n")
    box.write("in.txt", "old")
    box.spec("work", "run: {command: [cat, in.txt]}\nbindings: {in: {file: in.txt}}\n")
    box.start()
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    box.wait_at_rest("work", runs=1)
    before = most = daemon.num_fds()
    with ExitStack() as held:
        for _ in range(60):
            connection = held.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(box.socket))
            # A refused connection has a descriptor until it is closed.
            most = max(most, daemon.num_fds())
        if not is_defended:
            eventually(lambda: daemon.num_fds() >= 63, what="no descriptor is left")
            return
        refused = box.run("list")
        assert refused.returncode == 1 and "connections, the most one program may have" in refused.stderr, refused
        listed = subprocess.run(
            [WAKEFUL, "list"],
            capture_output=True,
            text=True,
            cwd=box.folder,
            env=box.environment(),
            timeout=PATIENCE_SECONDS,
        )
        assert listed.returncode == 0 and "talk" in listed.stdout, listed
        # The log and the runs still have the descriptors that they need.
        box.write("in.txt", "new")
        eventually(lambda: "work: run 2 succeeded" in box.output.read_text())
        # The connections take at most half of the free descriptors, and a few more while the daemon judges new callers.
        assert most - before <= (64 - before) // 2 + 4
    eventually(lambda: box.run("list").returncode == 0)
    box.ask("note", "talk", "still here")
    assert "Traceback" not in box.output.read_text() and len(box.output.read_text().splitlines()) < 20


def test_a_daemon_without_any_descriptor_left_backs_off(box: Box) -> None:
    """Without a free descriptor, the daemon tells each client in the queue why, over one descriptor kept in reserve."""
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    daemon = psutil.Process(box.daemon.pid)
    # Lower the limit after the daemon has counted its places.
    daemon.rlimit(psutil.RLIMIT_NOFILE, (daemon.num_fds() + 10, 20_000))
    with ExitStack() as held:
        for _ in range(20):
            connection = held.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(box.socket))
        listed = box.run("list")
        assert listed.returncode == 1 and "no file descriptor left" in listed.stderr, listed
        spent = sum(daemon.cpu_times()[:2])
    eventually(lambda: box.run("list").returncode == 0)
    assert sum(daemon.cpu_times()[:2]) - spent < PATIENCE_SECONDS / 4
    assert "Traceback" not in box.output.read_text()
