"""Runs cannot read, write, replace or remove files that are not declared, by name or through links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from security.conftest import Attack


def test_a_private_key_cannot_be_read(attack: Attack) -> None:
    """~/.ssh is not bound, so the run cannot read it."""
    attack.carry_out(do="read", path="~/.ssh/id_ed25519")
    assert "PRIVATE KEY" in attack.told("open")
    attack.assert_stopped()
    assert "PRIVATE KEY" not in attack.told("shut")


def test_a_link_in_scratch_leads_nowhere(attack: Attack) -> None:
    """The daemon's rules apply to the file itself, not to the name by which it is reached."""
    attack.carry_out(do="link_and_read", path=str(attack.home / ".ssh" / "id_ed25519"))
    attack.assert_stopped()


def test_the_passwords_of_the_system_cannot_be_read(attack: Attack) -> None:
    """A run may read /etc except its closed files, also if the daemon is root."""
    if os.geteuid() != 0:
        pytest.skip("nobody but root could read them anyway")
    attack.carry_out(do="read", path="/etc/shadow")
    attack.assert_stopped()


def test_nothing_is_written_outside(attack: Attack) -> None:
    """Files beside the project, in it, in the home and in /tmp cannot be written."""
    shared = f"/tmp/wakeful-attack-{os.getpid()}"
    places = {
        "-beside": str(attack.project / "../outside.txt"),
        "-shared": shared,
        "-home": "~/.bashrc",
        "-project": str(attack.project / "other.txt"),
    }
    try:
        attack.carry_out_all({what: {"do": "write", "path": path, "text": "x"} for what, path in places.items()})
        for what in places:
            attack.assert_stopped(what=what)
    finally:
        Path(shared).unlink(missing_ok=True)


def test_a_run_cannot_edit_its_own_spec(attack: Attack) -> None:
    """A session cannot widen its own rights."""
    text = "isolation: none\nrun: {command: ['true']}\n"
    attack.carry_out_all(
        {
            f"-{how}": {"do": how, "path": str(attack.specs / "{name}.yaml"), "text": text}
            for how in ("write", "replace")
        }
    )
    for what in ("-write", "-replace"):
        attack.assert_stopped(what=what)
        assert "isolation: standard" in (attack.specs / f"shut{what}.yaml").read_text()


def test_settings_state_and_units_are_out_of_reach(attack: Attack) -> None:
    """A run cannot write the daemon's settings, its state folder or its systemd unit."""
    places = {
        "-told": "wakeful.yaml",
        "-kept": "../state/planted",
        "-unit": "../home/.config/systemd/user/evil.service",
    }
    for place in places.values():
        (attack.project / place).parent.mkdir(parents=True, exist_ok=True)
    text = "allow_unisolated: true\nconcurrency: 4\n# {name}\n"
    attack.carry_out_all(
        {what: {"do": "write", "path": str(attack.project / place), "text": text} for what, place in places.items()}
    )
    for what in places:
        attack.assert_stopped(what=what)


def test_specs_beside_an_output_stay_as_they_are(attack: Attack) -> None:
    """An output in the folder that holds sessions.d opens that folder, but not the specs in it."""
    attack.carry_out(do="replace", path=str(attack.specs / "{name}.yaml"), text="run: {command: ['true']}\n")
    attack.assert_stopped()
    (attack.project / "beside.json").write_text('{"do": "replace", "path": "sessions.d/beside.yaml", "text": "x"}')
    spec = attack.specs / "beside.yaml"
    text = "objective: x\nbindings: {m: {file: beside.json}, r: {file: report.md, access: write}}\n"
    spec.write_text(text + "run: {command: [python3, obedient_program.py, beside.json], retries: 0}\n")
    attack.settle("beside", runs=1)
    finished = attack.finished("beside")
    if "the specs are within its reach" in " ".join(finished["isolation"]["unenforced"]):
        pytest.skip("not root here: the specs are within its reach, and the record says so")
    assert attack.outcome("beside") == "failed"
    assert spec.read_text().startswith(text)


def test_what_is_written_beside_an_output_is_reported(attack: Attack) -> None:
    """The folder of an output is writable. The record lists the other files that a run changed in it."""
    attack.declare("neighbour", "standard", do="write", path="out/planted.txt", text="x")
    attack.start()
    attack.settle("neighbour", runs=1)
    assert attack.finished("neighbour")["undeclared"] == ["out/planted.txt"]
    assert "no binding declares them: out/planted.txt" in attack.words("show", "neighbour")


def test_a_folder_swapped_for_a_link_is_not_followed(attack: Attack) -> None:
    """A run may have replaced its own output folder by a link to ~/.ssh. The next run does not write there."""
    (attack.project / "out").symlink_to(attack.home / ".ssh")
    attack.declare("swapped", "standard", do="write", path="out/authorized_keys", text="attacker")
    attack.start()
    attack.settle("swapped", runs=1)
    assert attack.outcome("swapped") == "failed"
    assert "by a symbolic link" in attack.row("swapped")["reason"]
    assert not (attack.home / ".ssh" / "authorized_keys").exists()
