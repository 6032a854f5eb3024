"""Access to the control socket: for our own user, and for runs within their own session."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from api.conftest import SocketConnection, Speaker
from api.small_daemon import RunningDaemon, declare, reads
from wakeful.cli.client import Client
from wakeful.client.refusals import NotOurDaemon
from wakeful.core.record.observations import ProcessOwner

NOBODY = 65534


@pytest.fixture
def token(daemon: RunningDaemon) -> str:
    """Return the token of payroll's current run. The session `other` is at rest."""
    daemon.do(
        lambda d: d.declare(declare("payroll", reads("salaries", "s.csv")), declare("other", reads("x", "x.csv")))
    )
    daemon.do(lambda d: d.finish("other"))
    return daemon.small.give_token("payroll")


def test_a_run_speaks_for_its_own_session_without_naming_it(
    daemon: RunningDaemon, speaker: Speaker, token: str
) -> None:
    """`note`, `remember` and `send` need no session's name, and the record names the run as author."""
    assert speaker.call("note", token, text="row 7").json["name"] == "payroll"
    assert speaker.call("remember", token, key="currency", value="CNY").status == 200
    assert speaker.call("send", token, name="other", text="paid").status == 200
    assert [fact["value"] for fact in speaker.get("/sessions/payroll/facts", token).json] == ["CNY"]
    records = speaker.get("/sessions/payroll/log", token).lines
    noted = next(record for record in records if record["kind"] == "note_added")
    assert (noted["author"], noted["run"]) == ("run:payroll#1", 1)
    assert any(record["kind"] == "message_sent" for record in records)
    received = speaker.get("/sessions/other/log?kind=message_added").lines[0]
    assert received["payload"]["sender"] == "run:payroll#1"


@pytest.mark.parametrize(
    "target",
    [
        "/sessions",
        "/sessions/payroll",
        "/sessions/other/log",
        "/sessions/other/facts",
        "/sessions/payroll/output",
        "/follow",
        "/plan",
        "/why?x=payroll",
        "/doctor",
    ],
)
def test_a_run_reads_nothing_but_its_own_record(speaker: Speaker, token: str, target: str) -> None:
    """The token of a run opens nothing but the records of its own session."""
    assert speaker.get(target, token).status == 403


@pytest.mark.parametrize(
    "verb", ["activate", "resume", "suspend", "sleep", "interrupt", "cancel", "terminate", "open", "rename", "forget"]
)
def test_a_run_makes_no_system_calls(daemon: RunningDaemon, speaker: Speaker, token: str, verb: str) -> None:
    """A run cannot start, stop or close a session, not even its own."""
    before = daemon.small.log.position()
    assert speaker.call(verb, token, name="payroll").status == 403
    assert daemon.small.log.position() == before


def test_a_process_of_a_run_speaks_as_that_run_or_not_at_all(
    daemon: RunningDaemon, speaker: Speaker, token: str
) -> None:
    """Without its token a process of a run is refused, and with the token of another run it is refused as well."""
    daemon.small.owner = ProcessOwner(run_id=daemon.small.tokens[token].run_id, mark=1, sign="")
    assert speaker.call("note", token, text="mine").status == 200
    assert speaker.get("/sessions").status == 403
    assert speaker.call("terminate", None, name="payroll").status == 403
    daemon.small.owner = ProcessOwner(run_id="another.7", mark=2, sign="")
    refused = speaker.call("note", token, text="theirs")
    assert (refused.status, "another run" in refused.error) == (403, True)


def test_a_run_of_another_daemon_is_refused_in_words_unless_it_shows_a_token(
    daemon: RunningDaemon, speaker: Speaker, token: str
) -> None:
    """A token made by a person is valid in the hands of any process.
    The token of a run is valid only within that run."""
    given = speaker.ask("POST", "/tokens", {"scopes": ["read"]}).json["token"]
    daemon.small.owner = ProcessOwner(run_id=None, mark=3, sign="WAKEFUL_RUN is set in its environment")
    refused = speaker.get("/sessions")
    assert refused.status == 403 and "not to a person (WAKEFUL_RUN is set in its environment)" in refused.error
    assert speaker.get("/sessions", given).status == 200
    assert speaker.ask("POST", "/tokens", {"scopes": ["admin"]}, token=given).status == 403
    assert speaker.call("note", token, text="theirs").status == 403


def test_a_connection_is_judged_once(daemon: RunningDaemon) -> None:
    """The daemon identifies the caller when it accepts a connection.
    The result holds for all requests of that connection."""
    connection = SocketConnection(daemon.socket)
    daemon.small.owner = ProcessOwner(run_id="another.7", mark=2, sign="")
    for _ in range(2):
        connection.request("GET", "/sessions")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 403
        daemon.small.owner = None
    assert Speaker(daemon.socket).get("/sessions").status == 200


def test_who_left_before_it_was_asked_for_its_name_is_refused(daemon: RunningDaemon, speaker: Speaker) -> None:
    """A process of a run may have opened the connection, handed it on and ended."""
    daemon.small.is_caller_gone = True
    assert speaker.get("/sessions").status == 403


def test_a_run_does_not_speak_for_another_session(daemon: RunningDaemon, speaker: Speaker, token: str) -> None:
    """A run may send a message to another session, but not write into its log."""
    before = daemon.small.log.position()
    for verb, body in (("note", {"text": "x"}), ("remember", {"key": "a", "value": "b"})):
        assert speaker.call(verb, token, name="other", **body).status == 403
    assert daemon.small.log.position() == before


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer ", "Basic token-of-payroll", "", "Bearer \xff"])
def test_a_wrong_token_is_not_a_person(speaker: Speaker, token: str, header: str) -> None:
    """A request with a wrong token is refused. It does not fall back to the rights of the user."""
    assert speaker.ask("GET", "/sessions", Authorization=header).status == 401


def test_the_socket_is_for_its_owner_alone(daemon: RunningDaemon) -> None:
    """The socket has mode 0600 in a folder of 0700, whatever the umask."""
    assert os.stat(daemon.socket).st_mode & 0o777 == 0o600
    assert os.stat(daemon.socket.parent).st_mode & 0o777 == 0o700


def ask_as(uid: int, path: Path) -> bytes:
    """Fork a child that becomes another user, and return the first line of the answer to it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(b"GET /sessions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                os.write(writing, connection.recv(65536).split(b"\r\n")[0])
        except OSError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told


def test_another_user_is_refused_even_where_the_file_lets_him_in() -> None:
    """The daemon checks the peer's uid with the kernel, so a loose mode of the file does not let others in."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user: the refusal of other users was NOT checked")
    # Other users cannot reach files below pytest's own folders.
    with tempfile.TemporaryDirectory() as folder, RunningDaemon(Path(folder)) as daemon:
        os.chmod(folder, 0o711)
        daemon.socket.parent.chmod(0o711)
        assert b"Permission denied" in ask_as(NOBODY, daemon.socket)
        daemon.socket.chmod(0o666)
        assert b"403" in ask_as(NOBODY, daemon.socket)
        assert b"200" in ask_as(0, daemon.socket)


def test_the_command_tells_nothing_to_a_socket_of_another_user() -> None:
    """Another user may listen under our name. The client asks the kernel for the owner before it sends a byte."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user: the refusal of impostors was NOT checked")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                with socket.socket(socket.AF_UNIX) as theirs:
                    theirs.bind(f"{folder}/theirs.sock")
                    os.chmod(f"{folder}/theirs.sock", 0o666)
                    theirs.listen(1)
                    os.write(writing, b"x")
                    theirs.settimeout(20)
                    connection, _ = theirs.accept()
                    connection.settimeout(20)
                    os.write(writing, connection.recv(100) or b"nothing")
            finally:
                os._exit(0)
        os.close(writing)
        assert os.read(reading, 1) == b"x"
        other = os.fork()
        if other == 0:
            try:
                os.setgid(NOBODY - 1)
                os.setuid(NOBODY - 1)
                Client(f"{folder}/theirs.sock", "a-token").get("/sessions")
            except NotOurDaemon as refused:
                os._exit(7 if "nothing was sent" in str(refused) else 8)
            finally:
                os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 7
        os.waitpid(child, 0)
        assert os.read(reading, 100) == b"nothing"
        os.close(reading)
