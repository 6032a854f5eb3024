"""A closed file of /etc stays closed: a run of root's daemon can change its mode, but no later run can read it.

The daemon sees a copy of /etc, mounted over the real one in its own mount namespace. The machine is not changed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from security.conftest import Attack
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.isolation.landlock import probe_abi

OBSTACLE = find_obstacle()
SECRET = "canary-of-the-machine"
# Mounts the copy over /etc, and then executes the command.
COVER = 'mount --make-rprivate / && mount --bind "$0" /etc && exec "$@"'

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root owns the files of /etc")


class Machine(Attack):
    """An attack on a machine whose /etc is the folder `settings`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings = folder / "etc"
        subprocess.run(["cp", "-a", "/etc", self.settings], check=True)
        (self.settings / "alone").write_text(SECRET)
        (self.settings / "alone").chmod(0o600)
        (self.settings / "private").mkdir(mode=0o700)
        (self.settings / "private/key").write_text(SECRET)
        (self.settings / "private/key").chmod(0o644)
        (self.settings / "open").write_text("for everybody")
        self.wrap = ("unshare", "-m", "sh", "-c", COVER, str(self.settings))

    def say(self, name: str, text: str, level: str = "standard") -> str:
        """Run this Python program in a session. Return its outcome and its output."""
        (self.project / f"{name}.py").write_text(text)
        command = f"[python3, {name}.py]"
        self.spec_raw(
            name,
            f"objective: x\nisolation: {level}\nfirst: run\nbindings: {{it: {{file: {name}.py}}}}\nrun: {{command: {command}, retries: 0}}\n",
        )
        self.settle(name, runs=1)
        return f"{self.outcome(name)}: {self.told(name)}"

    def read(self, name: str, path: str, level: str = "standard") -> str:
        return self.say(name, f"print(open('/etc/{path}').read())", level)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if probe_abi() == 0:
        pytest.skip("NOT TESTED: this kernel has no Landlock")
    made = Machine(tmp_path)
    tried = subprocess.run([*made.wrap, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: /etc cannot be covered here: {tried.stderr.strip()}")
    yield made
    made.close()


OPEN_UP = "import os; os.chmod('/etc/alone', 0o644); os.chmod('/etc/private', 0o755)"
LEVELS = ["standard", *(["strict"] if OBSTACLE is None else [])]


def test_a_file_whose_mode_a_run_changed_is_read_by_no_later_run(machine: Machine) -> None:
    """Neither the next run nor one after a restart reads the file, under standard and strict.

    A daemon that never saw the file closed lets a run read it.
    """
    machine.start()
    assert machine.read("before", "alone").startswith("failed")
    assert machine.read("plain", "open") == "succeeded: for everybody\n"
    # The kernel lets a confined run of root change modes. The defence prevents the reading afterwards.
    assert machine.say("opener", OPEN_UP).startswith("succeeded")
    assert (machine.settings / "alone").stat().st_mode & 0o777 == 0o644
    for level in LEVELS:
        for path in ("alone", "private/key"):
            said = machine.read(f"after-{level}-{path[:5]}", path, level)
            assert said.startswith("failed") and SECRET not in said, (level, path)
    assert machine.stop() == 0
    machine.start()
    for level in LEVELS:
        said = machine.read(f"restarted-{level}", "alone", level)
        assert said.startswith("failed") and SECRET not in said, level
    assert "/etc/alone" in machine.run("doctor").stdout
    machine.stop()
    # Without its list of closed files, the same daemon lets the run read the file.
    (machine.state / "etc-closed.json").unlink()
    machine.start()
    assert SECRET in machine.read("forgetful", "alone")


@pytest.mark.long
def test_a_file_that_a_person_put_in_its_place_is_judged_by_its_own_mode(machine: Machine) -> None:
    """No run can replace a file in /etc. A person who can also chooses the mode of the new file."""
    machine.start()
    assert machine.say(
        "replacer", "import os; os.link('/etc/alone', '/etc/alone.new'); os.rename('/etc/alone.new', '/etc/alone')"
    ).startswith("failed")
    fresh = machine.settings / "alone.new"
    fresh.write_text("public now")
    fresh.rename(machine.settings / "alone")
    assert machine.read("after", "alone") == "succeeded: public now\n"


def test_a_folder_that_others_may_list_and_not_enter_is_closed(machine: Machine) -> None:
    """Others may list the folder but not enter it. No run reads a file in it, under strict as under standard."""
    odd = machine.settings / "odd"
    odd.mkdir()
    (odd / "key").write_text(SECRET)
    odd.chmod(0o744)
    machine.start()
    for level in LEVELS:
        said = machine.read(f"odd-{level}", "odd/key", level)
        assert said.startswith("failed") and SECRET not in said, level
