"""The state folder is removed under a running daemon, or it comes back without its log.

The daemon acknowledges nothing that it cannot keep, and never starts with an empty log in silence.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.box import Box
from process_state import is_alive
from wait_conditions import PATIENCE_SECONDS, eventually

SPEC = """
    objective: Say what is there, and stay.
    bindings:
      input: {file: in.txt}
    run:
      command: [sh, -c, 'echo $$ > pid; echo said; sleep {seconds}']
"""


def is_removed(folder: Path) -> bool:
    """Remove the folder. Return False if the daemon has just written a file there: then it must be tried again."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_a_daemon_whose_state_folder_is_deleted_acknowledges_nothing_ends_its_run_and_says_why(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec("a", SPEC.replace("{seconds}", "600"))
    box.start()
    pid = int(eventually(lambda: box.read("pid").strip()))
    daemon = box.daemon
    assert daemon is not None
    eventually(lambda: is_removed(box.state))
    called = box.run("remember", "a", "key", "value")
    assert called.returncode != 0, "a call was acknowledged into a file that nobody will find"
    assert daemon.wait(PATIENCE_SECONDS) == 1
    words = box.output.read_text()
    assert (
        f"stopping at once: the log's files were deleted, moved or replaced while the daemon ran: {box.state} is gone"
        in words
    )
    assert "start the daemon again" in words
    assert "Traceback" not in words
    assert not box.state.exists()
    assert not is_alive(pid)
    # The service manager starts the daemon again.
    box.start()
    assert box.row("a")["runs"] <= 1
    assert box.state.exists()


@pytest.mark.faults
def test_a_state_folder_that_lost_its_log_is_refused_until_a_person_decides(box: Box) -> None:
    box.write("in.txt", "1\n")
    box.spec("a", SPEC.replace("{seconds}", "0"))
    box.start()
    box.wait_at_rest("a", runs=1)
    box.ask("backup", "kept", "--state", str(box.state))
    # A deleted lock lets no second daemon in. The first daemon is stopped meanwhile, so that it cannot end before the
    # second one tries.
    with box.held_still():
        (box.state / "lock").unlink()
        second = box.once()
        assert second.returncode == 1
        assert f"{box.state} is in use by pid {box.daemon.pid if box.daemon else 0}" in second.stderr
    assert box.daemon is not None
    assert box.daemon.wait(PATIENCE_SECONDS) == 1
    assert f"{box.state / 'lock'} is gone" in box.output.read_text()
    shutil.rmtree(box.state / "log")
    refused = box.once()
    assert refused.returncode == 1
    assert f"{box.state} has no log, but has files of its runs" in refused.stderr
    assert "wakeful restore BACKUP" in refused.stderr
    assert f"mv {box.state} {box.state}.old" in refused.stderr
    assert not (box.state / "log" / "events.db").exists()
    doctor = box.run("doctor", "--state", str(box.state))
    assert doctor.returncode == 1
    assert "has no log, but has files" in " ".join(doctor.stdout.split())
    box.ask("restore", str(box.folder / "kept"), "--state", str(box.state))
    assert box.once().returncode == 0
    subprocess.run(["mv", str(box.state), f"{box.state}.old"], check=True)
    assert box.once().returncode == 0
