"""Acknowledged records are on disk although the process is killed, its flushes fail, or its disk is full.

The acknowledgements are those that the process printed.
"""

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeful.eventlog.sqlite import files, open_log
from wakeful.eventlog.sqlite.files import StoreFiles
from wakeful.eventlog.sqlite.writer import ANCHOR_GROUPS, ANCHOR_SECONDS, LAID_OUT_BYTES

APPENDER = Path(__file__).with_name("append_process.py")
# The real interpreter: strace must not trace a launcher that only starts it.
PYTHON = Path(sys.executable)

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: NO FAULT WAS INJECTED"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root, cannot mount: A FULL DISK WAS NOT TRIED")


def start(state_dir: Path, count: int, *words: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*before, str(PYTHON), str(APPENDER), str(state_dir), str(count), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def acknowledged(lines: list[str]) -> dict[str, int]:
    """Return the highest acknowledged seq per session. A line that a kill cut short does not count."""
    heads: dict[str, int] = {}
    for line in lines:
        if match := re.fullmatch(r"(\w+) (\d+)\n", line):
            heads[match[1]] = max(heads.get(match[1], 0), int(match[2]))
    return heads


def assert_nothing_lost(state_dir: Path, heads: dict[str, int]) -> None:
    """Assert that all acknowledged records exist and are sound, and that the log opens for writing."""
    log = open_log(state_dir)
    try:
        assert log.read_only is None
        found = {name: head.seq for name, head in log.heads().items()}
        assert {name: found.get(name, 0) for name, seq in heads.items() if found.get(name, 0) < seq} == {}
        assert log.verify().findings == ()
    finally:
        log.close()


def kill_at_random(state_dir: Path, rounds: int, seed: int, *words: object) -> None:
    chance = random.Random(seed)
    print(f"seed {seed}")
    heads: dict[str, int] = {}
    for _ in range(rounds):
        process = start(state_dir, 1_000_000, *words)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        for _ in range(chance.randrange(0, 60)):
            lines.append(process.stdout.readline())
        process.kill()
        lines += process.stdout.readlines()
        process.communicate()
        heads |= acknowledged(lines)
        assert_nothing_lost(state_dir, heads)
    assert sum(heads.values()) > rounds


@pytest.mark.parametrize("rounds", [8, pytest.param(25, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path, rounds: int) -> None:
    kill_at_random(tmp_path, rounds, seed=1)


def test_nothing_acknowledged_is_lost_to_kill_9_in_a_log_that_was_laid_out(tmp_path: Path) -> None:
    kill_at_random(tmp_path, 5, 2, 200, LAID_OUT_BYTES)


@pytest.mark.long
def test_nothing_acknowledged_is_lost_to_many_kill_9(tmp_path: Path) -> None:
    kill_at_random(tmp_path, rounds=200, seed=random.randrange(10**6))


def inject(
    tmp_path: Path, state_dir: Path, calls: str, fault: str, count: int = 40
) -> tuple[subprocess.CompletedProcess[str], int, list[str]]:
    """Run the appender under a fault. Return its end, how often the fault fired, and the lines it printed."""
    trace = tmp_path / "trace"
    before = ("strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}")
    process = start(state_dir, count, before=before)
    out, err = process.communicate(timeout=60)
    ended = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    return ended, trace.read_text().count("INJECTED"), out.splitlines(keepends=True)


@needs_strace
@pytest.mark.parametrize("when", ["6", "7", "20", "21", "20+"])
def test_a_failed_flush_ends_the_process_and_is_never_acknowledged(tmp_path: Path, when: str) -> None:
    """The flush of the log or of the anchor fails, once or for ever. No acknowledgement follows it."""
    state_dir = tmp_path / "state"
    open_log(state_dir).close()
    ended, fired, lines = inject(tmp_path, state_dir, "fdatasync", f"error=EIO:when={when}")
    assert fired > 0
    assert ended.returncode == 1
    assert "the log could not be written" in ended.stderr
    assert "opened\n" in lines
    heads = acknowledged(lines)
    assert sum(heads.values()) < 40
    assert_nothing_lost(state_dir, heads)


@needs_strace
@pytest.mark.parametrize("k", range(3, 24, 4))
def test_killed_at_any_write_or_flush_nothing_acknowledged_is_lost(tmp_path: Path, k: int) -> None:
    """The kill may also come while the store is being made."""
    state_dir = tmp_path / "state"
    ended, _, lines = inject(
        tmp_path, state_dir, "pwrite64,fdatasync,fsync,mkdir,rename,unlink,ftruncate", f"signal=KILL:when={k}"
    )
    assert ended.returncode != 0
    assert_nothing_lost(state_dir, acknowledged(lines))


@needs_strace
@pytest.mark.faults
def test_killed_at_every_write_and_flush_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """The k-th call for k = 1, 2, ... is killed, until no call is left."""
    for k in range(1, 2_000):
        state_dir = tmp_path / f"state-{k}"
        ended, _, lines = inject(
            tmp_path, state_dir, "pwrite64,fdatasync,fsync,mkdir,rename,unlink,ftruncate", f"signal=KILL:when={k}", 20
        )
        assert_nothing_lost(state_dir, acknowledged(lines))
        shutil.rmtree(state_dir)
        if ended.returncode == 0:
            assert k > 100
            return
    raise AssertionError("the sweep did not come to its end")


def count_flushes(tmp_path: Path, number: int, pause_ms: int, name: str = "") -> int:
    """Count the flushes of the log and the anchor, or only those of the file of this name.

    A log that was just opened empties and lays out its write-ahead log in its first rest. Appends begin after that.
    """
    state_dir, trace = tmp_path / f"state-{number}", tmp_path / f"trace-{number}"
    before = ("strace", "-f", "-y", "-qq", "-o", str(trace), "-e", "trace=fdatasync,fsync")
    process = start(state_dir, number, 200, LAID_OUT_BYTES, pause_ms, before=before)
    process.communicate(timeout=60)
    assert process.returncode == 0
    return len(re.findall(rf"f(?:data)?sync\(\d+<[^>]*{re.escape(name)}>", trace.read_text()))


@needs_strace
def test_an_append_at_rest_costs_exactly_two_flushes(tmp_path: Path) -> None:
    pause_ms = round(ANCHOR_SECONDS * 10_000)
    assert count_flushes(tmp_path, 20, pause_ms) - count_flushes(tmp_path, 5, pause_ms) == 2 * 15


@needs_strace
def test_of_appends_in_a_row_a_few_share_the_flush_of_the_anchor(tmp_path: Path) -> None:
    """Each flush of the anchor serves at most so many groups.

    On a slow disk it serves fewer, because their time is over earlier.
    """
    assert 100 // ANCHOR_GROUPS <= count_flushes(tmp_path, 100, 0, "/log/anchor") <= 100 + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk, A FULL DISK WAS NOT TRIED: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@needs_root
def test_a_full_disk_refuses_cleanly_loses_nothing_and_recovers(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100 * 1024))
    state_dir = small_disk / "state"
    process = start(state_dir, 200, 1_000)
    out, err = process.communicate(timeout=60)
    lines = out.splitlines(keepends=True)
    assert "full\n" in lines, err
    heads = acknowledged(lines)
    assert heads
    ballast.unlink()
    assert_nothing_lost(state_dir, heads)
    process = start(state_dir, 5)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(acknowledged(out.splitlines(keepends=True))) > 0
    assert StoreFiles(state_dir).database.exists()


@needs_root
@pytest.mark.parametrize("free_times", [100, 0], ids=["seen before", "met on the way"])
def test_a_disk_near_its_end_is_not_filled_by_laying_out(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, free_times: int
) -> None:
    monkeypatch.setattr(files, "_FREE_TIMES", free_times)
    (wal := small_disk / "events.db-wal").write_bytes(b"frames")
    free = os.statvfs(small_disk).f_bavail
    files.lay_out_wal(wal, LAID_OUT_BYTES)
    assert wal.read_bytes() == b"frames"
    assert os.statvfs(small_disk).f_bavail == free
