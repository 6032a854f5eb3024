"""A store on a read-only mount is read as it is, or refused with harmless advice."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog.engines import append
from wait_conditions import eventually
from wakeful.eventlog.sqlite import open_log
from wakeful.eventlog.sqlite.writer import LAID_OUT_BYTES

WAKEFUL = str(Path(sys.executable).parent / "wakeful")
# Makes the first folder read-only, and then runs the command that follows.
READ_ONLY = ("unshare", "-Urm", "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"')


@pytest.fixture
def state(tmp_path: Path) -> Path:
    probe = subprocess.run([*READ_ONLY, str(tmp_path), "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this system lets us mount nothing: {probe.stderr.strip()}")
    log = open_log(tmp_path / "state")
    append(log, "a", "one", "two")
    # As a crash leaves it: the newest records are in the write-ahead log alone.
    shutil.copytree(tmp_path / "state", tmp_path / "crashed")
    log.close()
    return tmp_path / "state"


def ask(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*READ_ONLY, str(folder), WAKEFUL, *words, "--state", str(folder), "--socket", str(folder / "none")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def say_sound(folder: Path) -> str:
    return f"verifying the log in {folder}\n2 records of 1 session: all sound\n"


def test_a_store_that_was_closed_is_verified_where_it_lies(state: Path) -> None:
    done = ask(state, "verify")
    assert (done.returncode, done.stdout) == (0, say_sound(state)), done.stderr


def test_a_backup_is_made_of_it(state: Path) -> None:
    """A backup may be needed from a mounted snapshot, or from the disk of a dead machine."""
    done = ask(state, "backup", str(state.parent / "copy"))
    assert done.returncode == 0, done.stderr


def test_one_whose_newest_records_cannot_be_read_there_is_refused_without_harm(state: Path) -> None:
    """The advice is to copy the state folder, which then verifies.

    It must not be to restore a backup over a sound log.
    """
    crashed = state.parent / "crashed"
    for file in crashed.glob("log/*-shm"):
        file.unlink()
    for verb in ("verify", "doctor"):
        done = ask(crashed, verb)
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 1
        assert "mounted read-only" in said and "copy the whole state folder" in said
        assert "restore" not in said and "Traceback" not in said
    assert "ok    git" in ask(crashed, "doctor").stdout
    copy = state.parent / "copied"
    shutil.copytree(crashed, copy)
    sound = subprocess.run(
        [WAKEFUL, "verify", "--state", str(copy), "--socket", "none"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert sound.stdout == say_sound(copy)


def test_one_that_was_killed_before_it_recorded_anything_is_read(state: Path) -> None:
    """The write-ahead log was laid out, and has no records."""
    log = open_log(state)
    eventually(lambda: (state / "log" / "events.db-wal").stat().st_size == LAID_OUT_BYTES)
    shutil.copytree(state, state.parent / "killed")
    log.close()
    done = ask(state.parent / "killed", "verify")
    assert (done.returncode, done.stdout) == (0, say_sound(state.parent / "killed")), done.stderr
