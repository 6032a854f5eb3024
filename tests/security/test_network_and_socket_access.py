"""Ways out of the machine and into the daemon: sockets of every kind, and the control socket."""

from __future__ import annotations

import glob
import json
import os
import socket
from pathlib import Path

import pytest

from security.conftest import Attack
from wait_conditions import eventually
from wakeful.cli.client import Client


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_nothing_leaves_by_the_network(attack: Attack, kind: str) -> None:
    """A run can send neither TCP nor UDP. The server of the test stands for one on another machine."""
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as server:
        server.bind(("127.0.0.1", 0))
        if kind == "SOCK_STREAM":
            server.listen()
        attack.carry_out(do="connect", kind=kind, port=server.getsockname()[1])
        attack.assert_stopped()


def test_what_is_declared_leaves(attack: Attack) -> None:
    """`network: [host:port]` opens that port, and no other."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        for name, told in (("listed", server), ("unlisted", other)):
            attack.declare(name, "standard", do="connect", kind="SOCK_STREAM", port=told.getsockname()[1])
            spec = attack.specs / f"{name}.yaml"
            spec.write_text(spec.read_text() + f"network: ['localhost:{server.getsockname()[1]}']\n")
        attack.start()
        assert attack.settle("listed", runs=1)["last_run"]["outcome"] == "succeeded"
        attack.settle("unlisted", runs=1)
        attack.assert_failed("unlisted", "Permission denied")
        assert any("hosts" in words for words in attack.finished("listed")["isolation"]["unenforced"])


def test_abstract_sockets_lead_nowhere(attack: Attack) -> None:
    """Abstract sockets have no file that could be denied, but they are denied, too."""
    name = f"wakeful-attack-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        attack.carry_out(do="connect_abstract", address=name)
        attack.assert_stopped("not permitted")


def test_a_run_without_its_token_is_no_person(attack: Attack) -> None:
    """The mark shows that the process belongs to a run.

    A process that removes its mark passes as a person, but an isolated run cannot remove it.
    """
    attack.carry_out(do="shed_and_call", body={"name": "target"})
    # The answer is that there is no such session. Only a person's request gets that far.
    assert "no session is called" in attack.told("open")
    attack.assert_failed_at_once("shut")
    attack.declare("plain", "standard", do="call", body={"name": "open"})
    attack.settle("plain", runs=1)
    attack.assert_failed("plain", "must use that run's token")
    attack.declare("handed", "standard", do="hand_on_and_call", body={"name": "open"})
    attack.settle("handed", runs=1)
    assert attack.row("open")["state"] != "terminated"


def test_the_token_of_another_run_is_worth_nothing(attack: Attack) -> None:
    """A found or stolen token works only for the run that it was given to."""
    attack.spec_raw(
        "holder", "objective: x\nfirst: run\nbindings: {e: {every: 1h}}\nrun: {command: [sleep, '60'], grace: 0}\n"
    )
    attack.start()
    pattern = f"{attack.runtime}/wakeful-runs-*/*/token"
    [path] = eventually(lambda: glob.glob(pattern))
    token = eventually(lambda: Path(path).read_text())
    attack.declare("thief", "standard", do="call", token=token, target="/call/note", body={"text": "mine"})
    attack.settle("thief", runs=1)
    attack.assert_failed("thief", "given to another run")
    attack.declare("reader", "standard", do="read", path=path)
    attack.settle("reader", runs=1)
    attack.assert_failed("reader", "Permission denied")
    # For a process without a run's mark, the same token works. So the mark stopped the thief.
    noted = attack.run("note", "mine", env={"WAKEFUL_TOKEN_FILE": path, "WAKEFUL_SESSION": "holder"})
    assert noted.returncode == 0, noted.stderr
    assert Client(str(attack.socket)).get("/version")
    assert json.dumps(attack.log("holder")).count("mine") == 1
