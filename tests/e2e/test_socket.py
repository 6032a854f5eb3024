"""The control socket of a living daemon whose file somebody removed."""

from __future__ import annotations

import json

import pytest

from e2e.box import Box
from waiting import eventually
from wakeful.cli.client import Client


@pytest.mark.long
def test_a_daemon_whose_socket_was_removed_is_named_by_doctor_and_listens_anew(box: Box) -> None:
    """Nobody is told to start a second daemon beside it, who follows goes on following, and soon it is found again."""
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    following = Client(str(box.socket)).stream_lines("/follow", name="talk")
    box.socket.unlink()
    told = box.run("doctor", "--json", "--state", str(box.state))
    (daemon,) = [check for check in json.loads(told.stdout) if check["name"] == "daemon"]
    assert daemon["verdict"] == "bad"
    assert f"process {box.daemon.pid} is a daemon that has {box.state}" in daemon["words"]
    assert daemon["mend"] != "wakeful daemon"
    eventually(box.socket.exists)
    assert box.socket.stat().st_mode & 0o777 == 0o600
    box.ask("note", "talk", "still here")
    assert json.loads(next(following))["kind"] == "note_added"
    eventually(lambda: "listening again" in box.output.read_text())
    assert box.stop() == 0
    assert not box.socket.exists()


def test_a_stopped_daemon_is_told_from_none(box: Box) -> None:
    """With nobody holding the state folder the way out is to start one."""
    box.start()
    box.stop()
    (daemon,) = [
        check
        for check in json.loads(box.run("doctor", "--json", "--state", str(box.state)).stdout)
        if check["name"] == "daemon"
    ]
    assert daemon["mend"] == "wakeful daemon"
