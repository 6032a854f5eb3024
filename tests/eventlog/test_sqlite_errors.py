"""Writes that the system refuses, interrupts or cuts short.

They are retried or reported, and never recorded by half.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from eventlog.engines import append
from eventlog.test_sqlite_crash import acknowledged, assert_nothing_lost, inject, needs_strace, start
from eventlog.test_sqlite_readonly import READ_ONLY, WAKEFUL
from wakeful.eventlog.sqlite import open_log

needs_prlimit = pytest.mark.skipif(
    shutil.which("prlimit") is None, reason="prlimit is not installed: NO WRITE WAS CUT SHORT"
)


@needs_strace
@pytest.mark.parametrize("error", ["EDQUOT", "EROFS", "EACCES", "EAGAIN"])
def test_a_refused_write_ends_the_process_in_words_and_is_never_acknowledged(tmp_path: Path, error: str) -> None:
    """The cause is a quota, a read-only file system or missing rights. Records acknowledged before remain."""
    state_dir = tmp_path / "state"
    open_log(state_dir).close()
    ended, fired, lines = inject(tmp_path, state_dir, "pwrite64", f"error={error}:when=60+")
    assert fired > 0
    assert ended.returncode == 1 and "the log could not be written" in ended.stderr
    heads = acknowledged(lines)
    assert 0 < sum(heads.values()) < 40
    assert_nothing_lost(state_dir, heads)


@needs_strace
def test_an_interrupted_write_is_written_again(tmp_path: Path) -> None:
    """EINTR is not a failure: every record is acknowledged and recorded."""
    state_dir = tmp_path / "state"
    ended, fired, lines = inject(tmp_path, state_dir, "pwrite64", "error=EINTR:when=5+3")
    assert fired > 10
    assert ended.returncode == 0, ended.stderr
    heads = acknowledged(lines)
    assert sum(heads.values()) > 40
    assert_nothing_lost(state_dir, heads)


@needs_prlimit
def test_a_write_that_is_cut_short_leaves_no_half_record(tmp_path: Path) -> None:
    """At the limit of a file's size the kernel accepts a part of a write, and refuses the rest."""
    state_dir = tmp_path / "state"
    open_log(state_dir).close()
    process = start(state_dir, 2_000, 1_000, before=("prlimit", "--fsize=300001"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "the log could not be written" in err, err
    heads = acknowledged(out.splitlines(keepends=True))
    assert sum(heads.values()) > 0
    assert_nothing_lost(state_dir, heads)


def test_a_daemon_on_a_read_only_state_folder_says_so(tmp_path: Path) -> None:
    """The message comes before any look and any run."""
    log = open_log(tmp_path / "state")
    append(log, "a", "one")
    log.close()
    probe = subprocess.run([*READ_ONLY, str(tmp_path), "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this system lets us mount nothing: {probe.stderr.strip()}")
    (tmp_path / "sessions.d").mkdir()
    places = [
        "--specs",
        str(tmp_path / "sessions.d"),
        "--state",
        str(tmp_path / "state"),
        "--socket",
        str(tmp_path / "none"),
    ]
    done = subprocess.run(
        [*READ_ONLY, str(tmp_path / "state"), WAKEFUL, "daemon", *places],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said and str(tmp_path / "state") in said, said
    assert "read-only" in said.lower(), said
