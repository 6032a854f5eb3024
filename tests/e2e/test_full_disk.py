"""A real disk that fills up: a small one, mounted where only the test sees it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually

# Mounts 40 MB over the folder named first, and goes on as the command that follows.
ON_SMALL_DISK = ("unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=40m tmpfs "$0" && exec "$@"')

# Leaves 1 MB free until a file appears. The mark of a disk of 40 MB is 2 MB.
FILL = """
import os, pathlib, time
scratch = pathlib.Path(os.environ["WAKEFUL_SCRATCH"])
found = os.statvfs(scratch)
(scratch / "filler").write_bytes(bytes(found.f_bavail * found.f_frsize - 1_000_000))
while not pathlib.Path("make-room").exists():
    time.sleep(0.02)
(scratch / "filler").unlink()
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[str, ...]:
    probe = subprocess.run([*ON_SMALL_DISK, str(tmp_path), "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this system lets us mount nothing: {probe.stderr.strip()}")
    return ON_SMALL_DISK


def test_runs_wait_while_the_disk_is_nearly_full_and_go_on_by_themselves(box: Box, small_disk: tuple[str, ...]) -> None:
    """The daemon lives, records what changes, and says what runs wait for. Nothing is lost."""
    box.state.mkdir()
    box.write("in.txt", "1\n")
    box.write("fill.py", FILL)
    box.spec("copy", "objective: Copy.\nbindings: {i: {file: in.txt}}\nrun: {command: [cp, in.txt, out.txt]}\n")
    box.spec("fill", "objective: Fill.\nrun: {command: [python3, fill.py]}\n")
    box.wrap = (*small_disk, str(box.state))
    box.start()
    box.wait_at_rest("copy", runs=1)
    box.ask("activate", "fill")
    eventually(lambda: "new runs wait for disk space" in box.output.read_text())
    box.save("in.txt", "2\n")
    row = eventually(lambda: (row := box.row("copy"))["queued"] and row)
    assert row["queued"].startswith("disk space: ")
    assert "disk space" in box.words("list") and "disk space" in box.words("show", "copy")
    box.ask("note", "copy", "the log goes on")
    box.write("make-room", "")
    assert box.wait_at_rest("copy", runs=2)["last_run"]["outcome"] == "succeeded"
    assert box.read("out.txt") == "2\n"
    eventually(lambda: "there is disk space again" in box.output.read_text())
    assert box.stop() == 0


def test_once_ends_with_words_where_there_is_no_room(box: Box, small_disk: tuple[str, ...]) -> None:
    """A script does not wait until a person makes room."""
    box.state.mkdir()
    box.spec("copy", "objective: Copy.\nbindings: {i: {file: in.txt}}\nrun: {command: [cp, in.txt, out.txt]}\n")
    fill = 'head -c 40500000 /dev/zero > "$0/filler"; exec "$@"'
    box.wrap = (*small_disk, str(box.state), "sh", "-c", fill, str(box.state))
    done = box.once()
    assert done.returncode == 1
    assert "owed runs wait for disk space" in done.stdout + done.stderr


def test_doctor_says_that_runs_wait_for_room(tmp_path: Path, small_disk: tuple[str, ...]) -> None:
    """`doctor` says the same as the daemon, by the same judgement."""
    ask = 'head -c 40500000 /dev/zero > "$0/filler"; exec "$1" doctor --json --state "$0" --socket "$0/none"'
    done = subprocess.run(
        [*small_disk, str(tmp_path), "sh", "-c", ask, str(tmp_path), WAKEFUL],
        capture_output=True,
        text=True,
        check=False,
    )
    (disk,) = [check for check in json.loads(done.stdout) if check["name"] == "disk"]
    assert disk["verdict"] == "bad"
    assert disk["words"].startswith("new runs wait for disk space: ")
