"""A probe that obeys a hostile file is confined like its session's runs. Without isolation, each attack works."""

from __future__ import annotations

import json
import socket

import pytest

from security.conftest import Attack
from wait_conditions import eventually

SPEC = """
objective: Watch what the mail says.
isolation: {level}
first: adopt
bindings:
  asked: {{probe: [python3, obedient_program.py, {name}.json], check_every: 1h}}
  mail:  {{file: {name}.json}}
run: {{command: ['true']}}
"""


def probe_both(attack: Attack, **order: object) -> tuple[str, str]:
    """Return the output of `show` for the same probe in a session without isolation and in one with it."""
    for name, level in (("open", "none"), ("shut", "standard")):
        (attack.project / f"{name}.json").write_text(json.dumps(order))
        attack.spec_raw(name, SPEC.format(name=name, level=level))
    attack.start()
    return attack.words("show", "open"), attack.words("show", "shut")


def test_a_probe_reads_no_keys(attack: Attack) -> None:
    unheld, held = probe_both(attack, do="read", path="~/.ssh/id_ed25519")
    assert "Permission denied" not in unheld
    assert "Permission denied" in held and "confined as its session's runs are" in held


def test_a_probe_reaches_nobody_by_the_network(attack: Attack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        unheld, held = probe_both(attack, do="connect", kind="SOCK_STREAM", port=server.getsockname()[1])
        assert "failed" not in unheld and "Permission denied" in held
        connection, _ = server.accept()
        assert connection.recv(6) == b"stolen"
        server.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_probe_changes_nothing(attack: Attack) -> None:
    """The probe can write neither its session's bindings nor other files."""
    # The target is not the program of the probes. If the unisolated probe rewrote that program, the other would no
    # longer attack.
    beside = attack.project / "beside.txt"
    beside.write_text("before")
    unheld, held = probe_both(attack, do="write", path=str(beside), text="mine")
    assert "Permission denied" in held and "Permission denied" not in unheld
    eventually(lambda: beside.read_text() == "mine")


def test_a_probe_is_no_person_at_the_control_socket(attack: Attack) -> None:
    """A probe has no token. Its mark shows that it is a run's process, isolated or not."""
    order = {"do": "call", "target": "/call/sleep", "body": {"name": "shut", "words": "mine"}}
    environ = f"WAKEFUL_SOCKET={attack.socket}"
    for name, level in (("open", "none"), ("shut", "standard")):
        (attack.project / f"{name}.json").write_text(json.dumps(order))
        attack.spec_raw(name, SPEC.format(name=name, level=level).replace("[python3,", f"[env, {environ}, python3,"))
    attack.start()
    for name in ("open", "shut"):
        assert "must use that run's token" in attack.words("show", name)
    assert attack.row("shut")["state"] != "sleeping"
