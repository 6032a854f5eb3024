"""The control socket of a running daemon whose file was removed."""

from __future__ import annotations

import json

import pytest

from e2e.box import Box
from wait_conditions import eventually
from wakeful.cli.client import Client


@pytest.mark.long
def test_a_daemon_whose_socket_was_removed_is_named_by_doctor_and_listens_anew(box: Box) -> None:
    """`doctor` does not tell people to start a second daemon. Followers go on, and the daemon soon listens again."""
    box.spec("talk", "objective: A place to talk.\n")
    box.start()
    assert box.daemon is not None
    following = Client(str(box.socket)).stream_lines("/follow", name="talk")
    box.socket.unlink()
    told = box.run("doctor", "--json", "--state", str(box.state))
    (daemon,) = [check for check in json.loads(told.stdout) if check["name"] == "daemon"]
    assert daemon["verdict"] == "bad"
    assert f"process {box.daemon.pid} is a daemon that uses {box.state}" in daemon["words"]
    assert daemon["mend"] != "wakeful daemon"
    eventually(box.socket.exists)
    assert box.socket.stat().st_mode & 0o777 == 0o600
    box.ask("note", "talk", "still here")
    assert json.loads(next(following))["kind"] == "note_added"
    eventually(lambda: "listening again" in box.output.read_text())
    assert box.stop() == 0
    assert not box.socket.exists()


def test_a_stopped_daemon_is_told_from_none(box: Box) -> None:
    """If no process holds the state folder, `doctor` says to start a daemon."""
    box.start()
    box.stop()
    (daemon,) = [
        check
        for check in json.loads(box.run("doctor", "--json", "--state", str(box.state)).stdout)
        if check["name"] == "daemon"
    ]
    assert daemon["mend"] == "wakeful daemon"
