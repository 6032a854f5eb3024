"""The control socket: bound once, replaced only when no process answers on it, and removed when the daemon stops."""

import http.client
import json
import os
import socket
from pathlib import Path

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon
from wakeful import __version__
from wakeful.api.server import SocketRefused, bind_socket


def test_both_sides_tell_their_version(daemon: RunningDaemon, speaker: Speaker) -> None:
    """Every answer has the daemon's version, errors included."""
    assert speaker.get("/version").headers["wakeful-version"] == __version__
    assert speaker.get("/nothing").headers["wakeful-version"] == __version__
    assert speaker.get("/version").json["pid"] == 4711


def test_the_socket_is_gone_when_the_daemon_is(tmp_path: Path) -> None:
    """A clean stop removes the socket's file. A follower's stream ends with an incomplete read."""
    with RunningDaemon(tmp_path) as daemon:
        path = daemon.socket
        _, answer = Speaker(path).stream("/follow")
        assert path.exists()
    assert not path.exists()
    with pytest.raises(http.client.IncompleteRead):
        answer.read()


def test_a_socket_that_nobody_answers_is_replaced(tmp_path: Path) -> None:
    """The socket that a killed daemon left behind does not keep the next daemon out."""
    path = tmp_path / "wakeful.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    bind_socket(str(path)).close()


def test_a_socket_that_answers_is_never_taken(tmp_path: Path) -> None:
    """The second daemon refuses to start, because the socket answers."""
    path = str(tmp_path / "wakeful.sock")
    with bind_socket(path) as living:
        living.listen(1)
        with pytest.raises(SocketRefused, match="answers"):
            bind_socket(path)
        assert os.path.exists(path)


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    """A wrong --socket removes no file."""
    path = tmp_path / "precious.txt"
    path.write_text("mine")
    with pytest.raises(SocketRefused):
        bind_socket(str(path))
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_is_refused_with_its_length(tmp_path: Path) -> None:
    """Our check fails before the system's own error, and the message names the limit."""
    path = tmp_path / ("x" * 120)
    with pytest.raises(SocketRefused, match="107"):
        bind_socket(str(path))


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /version HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"A" * 100_000,
    ],
)
def test_what_is_no_http_does_not_disturb_the_daemon(daemon: RunningDaemon, speaker: Speaker, sent: bytes) -> None:
    """Garbage is answered or dropped, and the next caller is served."""
    with socket.socket(socket.AF_UNIX) as rude:
        rude.settimeout(10)
        rude.connect(str(daemon.socket))
        rude.sendall(sent)
        rude.shutdown(socket.SHUT_WR)
        try:
            rude.recv(1000)
        except ConnectionResetError:
            pass
    assert speaker.get("/version").status == 200


def test_a_link_in_the_place_of_the_socket_is_not_followed(tmp_path: Path) -> None:
    """Neither the link nor its target is removed or listened on."""
    real, link = tmp_path / "real.sock", tmp_path / "wakeful.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(real))
    link.symlink_to(real)
    with pytest.raises(SocketRefused, match="not a socket"):
        bind_socket(str(link))
    assert link.is_symlink() and real.exists()
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SocketRefused):
        bind_socket(str(link))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("mode", "is_taken"), [(0o700, True), (0o755, True), (0o1777, True), (0o777, False), (0o770, False)]
)
def test_a_folder_in_which_others_can_replace_the_socket_is_refused(tmp_path: Path, mode: int, is_taken: bool) -> None:
    """Another user who could replace our socket would receive every token."""
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    if is_taken:
        bind_socket(str(folder / "wakeful.sock")).close()
        assert os.stat(folder / "wakeful.sock").st_mode & 0o777 == 0o600
        return
    with pytest.raises(SocketRefused, match="chmod 700"):
        bind_socket(str(folder / "wakeful.sock"))
    assert not (folder / "wakeful.sock").exists()


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """The owner of a folder may replace any file in it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    with pytest.raises(SocketRefused, match="user 65534"):
        bind_socket(str(folder / "wakeful.sock"))


def test_what_is_no_http_is_answered_as_a_problem(daemon: RunningDaemon) -> None:
    """The error has the same format as every other error."""
    with socket.socket(socket.AF_UNIX) as rude:
        rude.settimeout(60)
        rude.connect(str(daemon.socket))
        rude.sendall(b"GET\r\n\r\n")
        answer = http.client.HTTPResponse(rude)
        answer.begin()
        assert answer.status == 400 and answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.read())["type"] == "urn:wakeful:bad-request"
