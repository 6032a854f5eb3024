"""`wakeful top`: what runs and what it uses, as one frame, as JSON, and live on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time

import pytest

from e2e.box import WAKEFUL, Box
from wait_conditions import eventually
from wakeful.cli.text import measure

# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long

BURNING = """
    objective: Burn.
    bindings: {input: {file: in.txt, settle: 10ms}}
    run: {command: [sh, -c, 'while [ ! -e stop ]; do :; done']}
"""
# Each of its characters is two columns wide.
LONG_NAME = "月次報告" * 10


@pytest.fixture
def busy(box: Box) -> Box:
    """Three sessions: one burns a core, one has failed, one is at rest."""
    box.write("in.txt", "1\n")
    box.spec("burn", BURNING)
    box.spec("fails", "bindings: {input: {file: in.txt}}\nrun: {command: ['false'], retries: 0}\n")
    box.spec("rests", "objective: nothing\n")
    box.start()
    box.wait_for("burn", state="running")
    box.wait_for("fails", state="sleeping")
    return box


def test_one_frame_tells_state_cpu_memory_runs_and_what_is_owed(busy: Box) -> None:
    """Running sessions come first, and 80 columns hold each row. A long name of wide characters is cut."""
    eventually(lambda: busy.json("top")["sessions"][0]["run"]["usage"]["cpu_seconds"] > 0.2)
    heading, columns, *rows = busy.ask("top", "--once").splitlines()
    assert heading.startswith("3 sessions: 1 running, 1 sleeping; 1 of ") and "daemon " in heading
    assert columns.split() == ["NAME", "STATE", "CPU", "MEM", "RUNS", "OWED"]
    assert [row.split()[0] for row in rows] == ["burn", "fails", "rests"]
    name, state, cpu, memory, runs, *_ = rows[0].split()
    assert (
        (name, state, runs) == ("burn", "running", "1")
        and int(cpu.removesuffix("%")) > 5
        and memory.endswith(("M", "k"))
    )
    assert "failed: exit code 1" in rows[1] and all(measure(row) <= 80 for row in rows)
    assert [row.split()[0] for row in busy.ask("top", "--sort", "name").splitlines()[2:]] == ["burn", "fails", "rests"]
    busy.spec(LONG_NAME, "objective: nothing\n")
    busy.wait_at_rest(LONG_NAME)
    _, columns, *rows = busy.ask("top", "--once").splitlines()
    assert columns.split() == ["NAME", "STATE", "CPU", "MEM", "RUNS", "OWED"]
    assert all(measure(row) <= 80 for row in rows)
    start, _, rest = rows[3].partition("…")
    assert LONG_NAME.startswith(start.strip()) and 20 < measure(start) < 30 and rest.split()[0] == "suspended", rows[3]


def test_json_has_the_row_of_list_and_the_run_beside_it(busy: Box) -> None:
    """It is one document, with what the process tree of each run uses and how many processes it has."""
    found = busy.json("top")
    burn, fails, rests = found["sessions"]
    assert burn["state"] == "running" and fails["run"] is None and rests["runs"] == 0
    assert (
        burn["run"]["usage"]["rss_bytes"] > 100_000
        and burn["run"]["usage"]["processes"] == 1
        and burn["run"]["cpu"] >= 0
    )
    assert found["slots"]["used"] == 1 and found["daemon"]["rss_bytes"] > 1_000_000


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_it_is_live_on_a_terminal_and_ends_with_a_key(busy: Box, key: bytes) -> None:
    """It follows what happens. It leaves the terminal as it found it, and the exit code is 0."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(busy.folder)
        os.execvpe(WAKEFUL, [WAKEFUL, "top", "--every", "100ms"], busy.environment() | {"TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    before = termios.tcgetattr(terminal)
    read_until(terminal, b"running")
    busy.write("stop", "")
    read_until(terminal, b"succeeded")
    os.write(terminal, key)
    rest = read_until(terminal, None)
    assert b"\x1b[?1049l" in rest and b"\x1b[?25h" in rest, "the other screen is left and the cursor shown"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert termios.tcgetattr(terminal)[3] == before[3]
    os.close(terminal)


def read_until(terminal: int, wanted: bytes | None, seconds: float = 30) -> bytes:
    """Read the terminal's output until `wanted` comes. With None, read to the end."""
    seen, end = b"", time.monotonic() + seconds
    while wanted is None or wanted not in seen:
        assert select.select([terminal], [], [], max(end - time.monotonic(), 0))[0], seen
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            piece = b""
        if not piece:
            assert wanted is None, seen
            return seen
        seen += piece
    return seen
