"""The places of a log: never a network file system. On the overlay of a container it keeps its acknowledged records.

A network file system cannot be mounted everywhere. The process under test therefore sees another table of mounts.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog.engines import append
from eventlog.test_sqlite_crash import acknowledged
from wait_conditions import PATIENCE_SECONDS
from wakeful.eventlog.sqlite import open_log

APPENDER = Path(__file__).with_name("append_process.py")
WAKEFUL = str(Path(sys.executable).parent / "wakeful")
APART = ["unshare", "--mount", "--propagation", "private", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def can_mount() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*APART, "true"], capture_output=True, check=False).returncode == 0
    )


pytestmark = pytest.mark.skipif(not can_mount(), reason="no mount namespaces here: NO OTHER FILE SYSTEM WAS TRIED")


def run_apart(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with its own mounts, and with these arguments."""
    return subprocess.run(
        [*APART, "sh", "-ec", script, "sh", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def write_mounts(folder: Path, file_system: str) -> Path:
    """Write a table of mounts in which the disk below `folder` has another type."""
    device = os.stat(folder).st_dev
    wanted = f" {os.major(device)}:{os.minor(device)} "
    lines = Path("/proc/self/mountinfo").read_text().splitlines(keepends=True)
    assert any(wanted in line for line in lines)
    table = folder / "mountinfo"
    table.write_text(
        "".join(re.sub(r" - \S+ ", f" - {file_system} ", line) if wanted in line else line for line in lines)
    )
    return table


@pytest.mark.parametrize(
    "file_system", ["nfs4", *(pytest.param(one, marks=pytest.mark.faults) for one in ("9p", "fuse.sshfs"))]
)
def test_a_daemon_refuses_a_state_folder_on_a_network_file_system(tmp_path: Path, file_system: str) -> None:
    table = write_mounts(tmp_path, file_system)
    (tmp_path / "sessions.d").mkdir()
    script = 'mount --bind "$1" /proc/$$/mountinfo; shift; exec "$@"'
    places = ["--specs", str(tmp_path / "sessions.d"), "--state", str(tmp_path / "state")]
    ended = run_apart(script, str(table), WAKEFUL, "daemon", "--once", *places, "--socket", str(tmp_path / "w.sock"))
    assert ended.returncode == 1
    assert (
        f"{tmp_path / 'state'} lies on {file_system}, where a write-ahead log is not safe; choose a local folder with --state"
        in ended.stderr
    )
    assert list((tmp_path / "state").iterdir()) == []
    told = run_apart(
        script, str(table), WAKEFUL, "doctor", "--state", str(tmp_path / "state"), "--socket", str(tmp_path / "none")
    )
    assert f"lies on {file_system}, where a write-ahead log is not safe" in " ".join(told.stdout.split())


def test_a_log_on_an_overlay_goes_on_from_its_lower_layer_and_keeps_what_it_acknowledges(tmp_path: Path) -> None:
    """As in a container whose image has a log: the first write copies its files to the upper layer."""
    log = open_log(tmp_path / "lower" / "state")
    append(log, "s0", "one", "two")
    log.close()
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    script = 'cd "$1"; mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged || exit 77; shift; "$@" 20; exec "$@" 5'
    ended = run_apart(script, str(tmp_path), sys.executable, str(APPENDER), str(tmp_path / "merged" / "state"))
    if ended.returncode == 77:
        pytest.skip(f"cannot mount an overlay, NO OVERLAY WAS TRIED: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    heads = acknowledged(ended.stdout.splitlines(keepends=True))
    assert heads["s0"] > 2
    # The upper layer has every file that was written.
    log = open_log(tmp_path / "upper" / "state")
    assert {name: head.seq for name, head in log.heads().items()} == heads
    assert log.verify().is_sound
    log.close()
