"""A run of root's daemon keeps only the capabilities that concern files, under `standard` as under `strict`."""

from __future__ import annotations

import json
import os
import shutil
import struct

import pytest

from e2e.box import Box
from security.conftest import Attack
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.isolation.privileges import KEPT_CAPABILITIES

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root has capabilities to lose")

KEPT = sum(1 << number for number in KEPT_CAPABILITIES.values())
SETUID, SETFCAP = 7, 31
SPEC = """
objective: Show what is left.
isolation: {level}
first: run
bindings: {{e: {{every: 1h}}}}
run: {{command: [sh, -c, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status"], retries: 0}}
"""


def read_sets(box: Box, name: str) -> dict[str, int]:
    """Return the five capability sets that the run printed, and its "no new privileges" flag."""
    box.wait_at_rest(name, runs=1)
    lines = (line.split() for line in box.ask("output", name).splitlines())
    return {label.removeprefix("Cap").rstrip(":"): int(value, 16) for label, value in lines}


def test_a_run_of_root_keeps_four_capabilities_and_no_other(attack: Attack) -> None:
    """No other capability is in a set that the run uses or passes on. An unisolated run has all of them."""
    levels = ["none", "standard", *(["strict"] if find_obstacle() is None else [])]
    for level in levels:
        attack.spec_raw(level, SPEC.format(level=level))
    attack.start()
    unheld = read_sets(attack, "none")
    assert unheld["Eff"] >> SETUID & 1 and unheld["Eff"] >> SETFCAP & 1
    for level in levels[1:]:
        sets = read_sets(attack, level)
        # The bounding set limits what an exec may add. "No new privileges" lets an exec add nothing.
        checked = [name for name in sets if name not in ("Bnd", "NoNewPrivs")]
        assert {name: sets[name] & ~KEPT for name in checked} == dict.fromkeys(checked, 0), level
        assert (sets["Eff"], sets["Prm"], sets["NoNewPrivs"]) == (KEPT, KEPT, 1)


# Each deed runs in a child of its own, because some cannot be undone.
DEEDS = """
import json, os, socket, subprocess, sys
place = sys.argv[1]
capability = bytes.fromhex("0100000280000000000000000000000000000000")

def gain(program):
    # A copy of setpriv with CAP_SETUID in its file: it becomes another user by that.
    if subprocess.run([program, "--reuid=61235", "true"], stderr=subprocess.DEVNULL).returncode:
        raise OSError

deeds = {
    "becomes another user": lambda: os.setuid(61_235),
    "becomes another group": lambda: os.setgid(61_235),
    "hands on a capability by a file": lambda: os.setxattr(f"{place}/tool", "security.capability", capability),
    "sends packets of its own making": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "changes its root": lambda: os.chroot("."),
    "gains by a program that has a capability": lambda: gain(f"{place}/with-capability"),
    "makes a device": lambda: os.mknod(f"{place}/disk", 0o60600, 0x100),
}
ended = {}
for name, deed in deeds.items():
    child = os.fork()
    if child == 0:
        try:
            deed()
        except OSError:
            os._exit(1)
        os._exit(0)
    ended[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(json.dumps(ended))
"""


def test_nothing_is_done_by_a_capability_that_is_gone(attack: Attack) -> None:
    """Each deed succeeds in an unisolated run, and fails in a confined one."""
    (attack.project / "deeds.py").write_text(DEEDS)
    for name, level in (("open", "none"), ("shut", "standard")):
        (attack.project / name).mkdir()
        (attack.project / name / "tool").write_text("")
        program = attack.project / name / "with-capability"
        shutil.copy("/usr/bin/setpriv", program)
        os.setxattr(program, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << SETUID, 0, 0, 0))
        bindings = f"{{deeds: {{file: deeds.py}}, made: {{file: {name}/, access: write}}}}"
        run = f"{{command: [python3, deeds.py, {name}], retries: 0}}"
        attack.spec_raw(
            name, f"objective: x\nisolation: {level}\nnetwork: true\nfirst: run\nbindings: {bindings}\nrun: {run}\n"
        )
    attack.start()
    for name in ("open", "shut"):
        attack.settle(name, runs=1)
    unheld, held = json.loads(attack.told("open")), json.loads(attack.told("shut"))
    assert unheld == dict.fromkeys(unheld, True)
    assert held == dict.fromkeys(unheld, False)
