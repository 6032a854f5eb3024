"""A log whose files were taken away under its writer acknowledges nothing more, says so, and makes no file anew.

A real process appends and prints its acknowledgements. It is stopped while the test changes its files. A copy from that
moment is the truth: it must have every acknowledged record, from before and after.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.engines import append
from eventlog.test_sqlite_crash import acknowledged, assert_nothing_lost
from process_state import is_stopped
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.eventlog.contract import StateInUse, StoreBehindAnchor, StoreFailed, StoreFull, StoreGone, StoreUnsafe
from wakeful.eventlog.sqlite import judge_state, open_log
from wakeful.eventlog.sqlite.file_identity import FileIdentity
from wakeful.eventlog.sqlite.files import StoreFiles
from wakeful.eventlog.state_lock import find_holder, lock_state
from wakeful.system.private_files import make_plain, make_private

APPENDER = Path(__file__).with_name("append_process.py")
FEW = 5


def replace(path: Path) -> None:
    """Replace the file by an equal copy, as a person does who restores a backup under a running daemon."""
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def end(files: StoreFiles, name: str) -> Path:
    return files.database.with_name(f"events.db-{name}")


LOSSES: dict[str, Callable[[StoreFiles], object]] = {
    "state folder deleted": lambda files: shutil.rmtree(files.state_dir),
    "state folder moved": lambda files: files.state_dir.rename(files.state_dir.with_name("moved")),
    "folder of the log deleted": lambda files: shutil.rmtree(files.folder),
    "database deleted": lambda files: files.database.unlink(),
    "database replaced": lambda files: replace(files.database),
    "database cut short": lambda files: os.truncate(files.database, 8192),
    "anchor deleted": lambda files: files.anchor.unlink(),
    "anchor replaced": lambda files: replace(files.anchor),
    "anchor emptied": lambda files: os.truncate(files.anchor, 0),
    "write-ahead log deleted": lambda files: end(files, "wal").unlink(),
    "write-ahead log emptied": lambda files: os.truncate(end(files, "wal"), 0),
    "its index deleted": lambda files: end(files, "shm").unlink(),
    "lock deleted": lambda files: (files.state_dir / "lock").unlink(),
}
# After these a start goes on by itself, because every record is in the remaining files.
HARMLESS = ("anchor replaced", "write-ahead log deleted", "its index deleted", "lock deleted")


# One of each kind belongs to `make test`.
QUICK = ("state folder deleted", "database replaced", "write-ahead log deleted", "lock deleted")


@pytest.mark.parametrize(
    "loss", [pytest.param(loss, marks=() if loss in QUICK else pytest.mark.faults) for loss in LOSSES]
)
def test_a_log_whose_files_are_gone_or_replaced_acknowledges_nothing(tmp_path: Path, loss: str) -> None:
    files = StoreFiles(tmp_path / "state")
    process, lines = start_appender(files)
    with held_still(process):
        copy = shutil.copytree(files.state_dir, tmp_path / "copy")
        LOSSES[loss](files)
        left = sorted(files.state_dir.rglob("*"))
    rest, words = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "the log's files were deleted, moved or replaced while the daemon ran" in words
    assert "nothing is acknowledged any more" in words
    heads = acknowledged([*lines, *rest.splitlines(keepends=True)])
    assert sum(heads.values()) >= FEW
    assert_nothing_lost(copy, heads)
    assert sorted(files.state_dir.rglob("*")) == left, "something was made anew"
    if loss in HARMLESS:
        assert_nothing_lost(files.state_dir, heads)


def start_appender(files: StoreFiles) -> tuple[subprocess.Popen[str], list[str]]:
    process = subprocess.Popen(
        [sys.executable, str(APPENDER), str(files.state_dir), "1000000", "200", "0", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, [process.stdout.readline() for _ in range(FEW * 2)]


@contextlib.contextmanager
def held_still(process: subprocess.Popen[str]) -> Iterator[None]:
    """Keep the process stopped while the body runs."""
    process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: is_stopped(process.pid))
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_a_log_at_rest_notices_that_its_files_are_gone(tmp_path: Path) -> None:
    told: list[StoreFailed] = []
    log = open_log(tmp_path / "state", on_fatal=told.append)
    append(log, "a", "one")
    shutil.rmtree(tmp_path / "state")
    gone = log.find_loss()
    assert gone is not None
    eventually(lambda: told)
    assert isinstance(told[0], StoreGone)
    assert str(told[0]) == str(gone)
    with pytest.raises(StoreGone):
        log.append_blocking([], at=1)
    log.close()
    assert len(told) == 1
    assert not (tmp_path / "state").exists()


def test_a_file_that_grows_is_the_same_file(tmp_path: Path) -> None:
    log = open_log(tmp_path / "state")
    identity = FileIdentity(StoreFiles(tmp_path / "state"), 8192)
    append(log, "a", *("x" * 1000 for _ in range(3000)))
    assert identity.find_loss() is None
    lost = identity.find_loss(wal_frames=1_000_000)
    assert lost is not None
    assert "events.db-wal was cut to" in lost.words
    log.close()


# The state folder


def test_a_deleted_lock_lets_no_second_daemon_in(tmp_path: Path) -> None:
    lock = lock_state(tmp_path / "state")
    (tmp_path / "state" / "lock").unlink()
    with pytest.raises(StateInUse, match=f"in use by pid {os.getpid()}"):
        lock_state(tmp_path / "state")
    (tmp_path / "state" / "lock").touch()
    with pytest.raises(StateInUse):
        lock_state(tmp_path / "state")
    assert find_holder(tmp_path / "state") == os.getpid()
    lock.release()
    assert find_holder(tmp_path / "state") is None
    lock_state(tmp_path / "state").release()


@pytest.mark.parametrize("make", [make_private, make_plain])
def test_a_state_folder_that_was_deleted_is_not_made_anew_while_it_is_locked(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    state = tmp_path / "link" / "state"
    lock = lock_state(state)
    make(state / "blobs" / "ab")
    shutil.rmtree(state)
    for path in (state / "blobs" / "ab", tmp_path / "real" / "state" / "scratch"):
        with pytest.raises(FileNotFoundError, match="not made again while its daemon runs"):
            make(path)
    assert not state.exists()
    lock.release()
    make(state / "blobs")


@pytest.fixture
def remains(tmp_path: Path) -> Iterator[StoreFiles]:
    files = StoreFiles(tmp_path / "state")
    log = open_log(files.state_dir)
    append(log, "a", "one")
    log.backup(tmp_path / "backup")
    log.close()
    make_private(files.state_dir / "blobs" / "ab")
    (files.state_dir / "blobs" / "ab" / "cd").write_text("what a run printed")
    return files


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "an empty database", "a database without records"])
def test_a_state_folder_with_blobs_and_no_log_does_not_start_empty(
    remains: StoreFiles, tmp_path: Path, left: str
) -> None:
    shutil.rmtree(remains.folder)
    match left:
        case "an empty folder":
            remains.folder.mkdir()
        case "an empty database":
            remains.folder.mkdir()
            remains.database.touch()
        case "a database without records":
            open_log(tmp_path / "other").close()
            shutil.copytree(tmp_path / "other" / "log", remains.folder)
    with pytest.raises(
        StoreBehindAnchor,
        match=r"has no log, but has files .*\(blobs\).*wakeful restore BACKUP.*start with an empty log.*mv .*state .*state\.old",
    ):
        open_log(remains.state_dir)
    assert "has no log" in (judge_state(remains.state_dir) or "")
    remains.state_dir.rename(remains.state_dir.with_name("state.old"))
    open_log(remains.state_dir).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root, cannot mount: A FULL DISK WAS NOT TRIED")
def test_no_room_for_the_lock_is_told_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk, A FULL DISK WAS NOT TRIED: {mounted.stderr.strip()}")
    try:
        (folder / "ballast").write_bytes(bytes(16 * 1024))
        with pytest.raises(StoreFull, match="cannot be locked: No space left on device.*free some space"):
            lock_state(folder / "state")
        assert (folder / "state" / "lock").exists(), "the disk was full before the lock was written"
        (folder / "ballast").unlink()
        lock_state(folder / "state").release()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_state_folder_that_is_a_file_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(StoreUnsafe, match="cannot be used as state folder"):
        lock_state(tmp_path / "state")
