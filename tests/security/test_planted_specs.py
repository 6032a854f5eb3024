"""A spec that a run put in place, in any way, does not count before a person has looked at it.

The daemon is an ordinary user's and may not mount, so that it cannot shield its specs. An output beside sessions.d/
opens the folder that holds both. A person uses the same ways with success, which shows that each of them works.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ordinary_user import OrdinaryBox, OrdinaryUser
from wait_conditions import eventually

OBEY = """
objective: Do as the mail says.
bindings: {m: {file: mail.sh}, o: {file: report.md, access: write}}
run: {command: [sh, mail.sh], retries: 0}
"""
# The run may write the folder that holds the whole project.
MOVER = OBEY.replace("report.md", "../report.md")
# The run may write a folder that `obey` cannot write.
ELSEWHERE = """
objective: Keep notes.
bindings: {m: {file: notes.sh}, o: {file: ../notes/n.txt, access: write}}
run: {command: [sh, notes.sh], retries: 0}
"""
EVIL = r"""objective: x\nbindings: {m: {file: mail.sh}, o: {file: out/gotcha, access: write}}\nrun: {command: [touch, out/gotcha]}\n"""
MINE = r"objective: x\npriority: 60\n"
PREPARE = rf"""
mkdir -p prep/deep prepared/sessions.d/deep
for place in prep/evil.yaml prep/deep/evil.yaml prepared/sessions.d/deep/evil.yaml; do printf '{EVIL}' > $place; done
cp mail.sh prepared/mail.sh
cp prep/evil.yaml sessions.d/.evil
"""

# Each way, and the session that results. One run prepares the files and the next uses them. So all files are older than
# the run that puts them in place.
PLANTS = {
    "a file": ("cp prep/evil.yaml sessions.d/evil.yaml", "evil"),
    "a file that is moved": ("mv prep/evil.yaml sessions.d/evil.yaml", "evil"),
    "a hard link": ("ln sessions.d/.evil sessions.d/evil.yaml", "evil"),
    "a link": ("ln -s ../prep/evil.yaml sessions.d/evil.yaml", "evil"),
    "a link that is moved": ("ln -s ../prep/evil.yaml link; mv link sessions.d/evil.yaml", "evil"),
    "a link out of its reach": ("ln -s ../../notes/evil.yaml sessions.d/evil.yaml", "evil"),
    "a linked folder": ("ln -s ../prep sessions.d/sub", "sub/deep/evil"),
    "a linked folder out of its reach": ("ln -s ../../notes sessions.d/sub", "sub/evil"),
    "a folder in the place of sessions.d": (
        "cp sessions.d/* prep; mv sessions.d gone; mv prep sessions.d",
        "deep/evil",
    ),
    "a link in the place of sessions.d": (
        "cp sessions.d/* prep; mv sessions.d gone; ln -s prep sessions.d",
        "deep/evil",
    ),
    "a folder in the place of the project": (
        "cp sessions.d/* prepared/sessions.d; mv ../house ../gone; mv ../gone/prepared ../house",
        "deep/evil",
    ),
}


class House(OrdinaryBox):
    """A project whose state folder and settings lie elsewhere, as they usually do.

    Beside an output, they would keep its folder closed.
    """

    def __init__(self, folder: Path, user: OrdinaryUser) -> None:
        super().__init__(folder, user)
        # If mounts shielded the specs, no attack would come this far.
        self.weaken("mount_nothing")
        self.house = folder / "place" / "house"
        self.specs.rmdir()
        self.specs = self.house / "sessions.d"
        self.specs.mkdir(parents=True)
        (folder / "place" / "notes").mkdir()

    def put(self, path: str, text: str) -> None:
        """Write as the user, as an editor does: a new file is renamed over the old one."""
        with self.user.acting():
            target = self.house / path
            fresh = target.with_name(f".{target.name}.new~")
            fresh.write_text(text)
            fresh.rename(target)

    def act(self, script: str) -> None:
        """Run a script as a person does at a shell."""
        subprocess.run([*self.user.wrap, "sh", "-euc", script], cwd=self.house, env=self.environment(), check=True)

    def is_got(self) -> bool:
        return (self.house / "out" / "gotcha").exists()

    def wait_ended(self, name: str, runs: int) -> dict[str, Any]:
        """Wait for the end of this many runs.

        The session may have a wake left, and sleep, because the same attack can replace its own spec.
        """

        def has_ended() -> dict[str, Any] | None:
            row = self.find_row(name)
            return row if row is not None and row["runs"] >= runs and row["state"] != "running" else None

        return eventually(has_ended, what=f"{runs} runs of {name}")

    def wait_untrusted(self, name: str) -> dict[str, Any]:
        def matches() -> dict[str, Any] | None:
            row = self.find_row(name)
            return (
                row
                if row is not None and row["state"] == "sleeping" and "needs trust" in (row["reason"] or "")
                else None
            )

        return eventually(matches, what=f"{name} sleeping until it is trusted")


@pytest.fixture
def house(tmp_path: Path, ordinary_user: OrdinaryUser) -> Iterator[House]:
    folder = tmp_path / "box"
    folder.mkdir()
    made = House(folder, ordinary_user)
    yield made
    made.close()


def prepare(house: House, plant: str) -> None:
    """Let a run prepare the files for the next one. Another session writes a spec where the first cannot write."""
    house.spec("obey", MOVER if "of the project" in plant else OBEY)
    (house.house / "mail.sh").write_text(PREPARE)
    house.spec("notes", ELSEWHERE)
    (house.house / "notes.sh").write_text(f"printf '{EVIL}' > ../notes/evil.yaml\n")
    house.start()
    assert house.wait_at_rest("obey", runs=1)["last_run"]["outcome"] == "succeeded", house.run("output", "obey").stdout
    assert house.wait_at_rest("notes", runs=1)["last_run"]["outcome"] == "succeeded", house.run(
        "output", "notes"
    ).stdout
    # Wait until the daemon has read the specs once more after this run, so that the next run is a later one for it,
    # too.
    house.put("sessions.d/late.yaml", "objective: x\n")
    eventually(lambda: house.find_row("late"))


def test_a_run_writes_no_specs_where_mounts_can_be_had(house: House) -> None:
    """An ordinary user's run is shielded by a user namespace: its write fails, and its output and its record show why."""
    if not can_shield_as(house.user):
        pytest.skip("NOT TESTED: this machine lets no ordinary user have namespaces")
    house.weaken("change_nothing")
    house.spec("obey", OBEY)
    (house.house / "mail.sh").write_text("echo x > report.md; cp mail.sh sessions.d/evil.yaml\n")
    house.start()
    assert house.wait_at_rest("obey", runs=1)["last_run"]["outcome"] == "failed"
    assert "Read-only file system" in house.run("output", "obey").stdout
    (finished,) = (record["payload"] for record in house.log("obey") if record["kind"] == "run_finished")
    planted = f"{house.specs}/evil.yaml (it belongs to wakeful, and no run may change it)"
    assert finished["hint"] == f"it was denied writing {planted}"
    assert planted in house.words("why", "obey")
    assert (house.house / "report.md").read_text() == "x\n"
    assert sorted(path.name for path in house.specs.iterdir()) == ["obey.yaml"]


def can_shield_as(user: OrdinaryUser) -> bool:
    words = [
        *user.wrap,
        sys.executable,
        "-c",
        "from wakeful.runners.isolation.shield import can_shield; print(can_shield())",
    ]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "True"


# One of each kind: written, linked, moved, and put in the place of a folder. The others are variants of these.
ALWAYS_PLANTED = ("a file", "a link", "a link that is moved", "a folder in the place of sessions.d")


@pytest.mark.parametrize(
    "plant", [one if one in ALWAYS_PLANTED else pytest.param(one, marks=pytest.mark.long) for one in PLANTS]
)
def test_a_spec_that_a_run_puts_in_place_does_not_count(house: House, plant: str) -> None:
    script, name = PLANTS[plant]
    prepare(house, plant)
    house.put("mail.sh", f"set -e; {script}; sleep 0.2")
    row = house.wait_ended("obey", runs=2)
    if row["last_run"]["outcome"] == "failed" and not (house.specs / f"{name}.yaml").exists():
        # If runs are shielded from the specs, the attack fails here.
        said = house.run("output", "obey").stdout
        assert "ead-only" in said or "denied" in said or "busy" in said, said
        assert not house.is_got()
        return
    assert (house.specs / f"{name}.yaml").exists(), "the attack was carried out"
    row = house.wait_untrusted(name)
    assert "run 2 of obey" in row["reason"], row["reason"]
    # Neither a person's activation nor a restart of the daemon starts it.
    assert "needs trust" in house.run("activate", name).stderr
    house.stop()
    house.start()
    house.wait_untrusted(name)
    house.put("mail.sh", "true")
    house.wait_untrusted(name)
    assert not house.is_got()
    # The waiting spec is shown, and trusted by the person.
    shown = house.ask("trust", name, "--yes")
    assert "touch out/gotcha" in shown
    eventually(house.is_got, what="the spec, trusted")


@pytest.mark.long
@pytest.mark.parametrize("plant", PLANTS)
def test_a_spec_that_a_person_puts_in_place_counts_at_once(house: House, plant: str) -> None:
    """A person uses the same ways while no run is under way. Each leads to a spec that runs."""
    prepare(house, plant)
    house.act(PLANTS[plant][0])
    eventually(house.is_got, what="the spec by a person")


def test_a_person_s_own_link_is_followed_also_where_runs_write_beside_it(house: House) -> None:
    """Dotfiles: sessions.d is a link to a checkout.

    The person made the link before the daemon started, or while no run was under way.
    """
    dots = house.folder / "place" / "dots"
    dots.mkdir()
    house.specs.rmdir()
    house.specs.symlink_to("../dots")
    house.spec("obey", OBEY)
    (house.house / "mail.sh").write_text("echo done > report.md\n")
    house.start()
    house.wait_at_rest("obey", runs=1)
    house.put("sessions.d/mine.yaml", MINE.replace(r"\n", "\n"))
    house.wait_for("mine", priority=60)
    house.stop()
    house.put("sessions.d/other.yaml", "objective: x\npriority: 70\n")
    house.start()
    house.wait_for("other", priority=70)
    assert house.json("trust")["waiting"] == []
    # A run leads the link elsewhere, to a folder with the same specs and one more.
    house.put(
        "mail.sh",
        f"mkdir new; printf '{MINE}' > new/mine.yaml; printf '{EVIL}' > new/evil.yaml; ln -sfn new sessions.d; sleep 0.2",
    )
    house.wait_ended("obey", runs=2)
    assert "was put there during run 2 of obey" in house.wait_untrusted("mine")["reason"]
    house.wait_untrusted("evil")
    # When the person leads the link back, all sessions continue without trust.
    house.act("ln -sfn ../dots sessions.d")
    house.wait_for("mine", state="suspended")
    assert house.json("trust")["waiting"] == []
    assert not house.is_got()


def test_a_folder_that_a_run_swaps_all_the_time_never_counts(house: House) -> None:
    """The folder changes while the daemon reads it.

    A spec that was read from one folder is never judged by the other.
    """
    prepare(house, "a folder")
    swap = """
import ctypes, time
libc = ctypes.CDLL(None)
end = time.monotonic() + 3
while time.monotonic() < end:
    for _ in range(1000):
        libc.renameat2(-100, b"sessions.d", -100, b"prep", 2)
    open("sessions.d/.poke", "w").close()
"""
    (house.house / "swap.py").write_text(swap)
    house.put("mail.sh", "python3 swap.py")
    house.wait_ended("obey", runs=2)
    names = ("deep/evil", "evil")
    eventually(lambda: all((found := house.find_row(name)) is None or found["runs"] == 0 for name in names))
    assert not house.is_got()
