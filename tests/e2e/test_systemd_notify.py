"""What the daemon tells systemd: ready after the first look, alive while the loop turns, reloading, stopping."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.eventlog.sqlite.files import StoreFiles

BUSY = Path(__file__).with_name("daemon_recording_nonstop.py")


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(PATIENCE_SECONDS)
        yield listener


def listen_for(heard: socket.socket, word: str) -> str:
    while True:
        text = heard.recv(4096).decode()
        if word in text:
            return text


def test_systemd_hears_of_every_turn_of_life(box: Box, heard: socket.socket) -> None:
    """READY comes after the first look, WATCHDOG from a loop that turns, RELOADING on SIGHUP, STOPPING on SIGTERM."""
    box.write("in.txt", "1\n")
    box.spec("copy", "objective: Copy.\nbindings: {i: {file: in.txt}}\nrun: {command: [sh, -c, 'env > environment']}\n")
    box.start(env={"NOTIFY_SOCKET": str(box.folder / "notify"), "WATCHDOG_USEC": "400000"})
    assert "1 session," in listen_for(heard, "READY=1")
    listen_for(heard, "WATCHDOG=1")
    assert box.daemon is not None
    box.wait_at_rest("copy", runs=1)
    box.daemon.send_signal(signal.SIGHUP)
    listen_for(heard, "RELOADING=1")
    listen_for(heard, "READY=1")
    box.daemon.terminate()
    listen_for(heard, "STOPPING=1")
    assert box.daemon.wait(PATIENCE_SECONDS) == 0
    box.daemon = None
    assert not any(line.startswith(("NOTIFY_SOCKET", "WATCHDOG")) for line in box.lines("environment"))


def test_a_stopped_loop_is_not_called_alive(box: Box, heard: socket.socket) -> None:
    """A daemon whose loop does not turn sends nothing, so that the watchdog can see it."""
    box.start(env={"NOTIFY_SOCKET": str(box.folder / "notify"), "WATCHDOG_USEC": "200000"})
    listen_for(heard, "WATCHDOG=1")
    with box.held_still():
        heard.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            while True:
                heard.recv(4096)
        heard.settimeout(0.5)
        with pytest.raises(TimeoutError):
            heard.recv(4096)
    heard.settimeout(PATIENCE_SECONDS)
    listen_for(heard, "WATCHDOG=1")


def silence(heard: socket.socket) -> None:
    """Throw away the messages that came before."""
    heard.settimeout(0.0)
    with contextlib.suppress(BlockingIOError):
        while True:
            heard.recv(4096)
    heard.settimeout(PATIENCE_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("rule", ["so_far", "all"])
def test_a_daemon_that_records_without_pause_is_alive(box: Box, heard: socket.socket, rule: str) -> None:
    """The watchdog waits for what was recorded so far.

    If it waited until nothing is on its way to disk, it would send nothing, and systemd would kill a busy daemon.
    """
    box.program = (sys.executable, str(BUSY), rule)
    box.spec("busy", "objective: Take notes.\n")
    box.start(env={"NOTIFY_SOCKET": str(box.folder / "notify"), "WATCHDOG_USEC": "200000"})
    listen_for(heard, "WATCHDOG=1")
    box.ask("note", "busy", "the first of many")
    silence(heard)
    if rule == "all":
        heard.settimeout(1.5)
        with pytest.raises(TimeoutError):
            listen_for(heard, "WATCHDOG=1")
        return
    seen = []
    for _ in range(3):
        listen_for(heard, "WATCHDOG=1")
        seen.append(box.json("show", "busy")["seq"])
    assert seen == sorted(set(seen)), "it went on recording meanwhile"


def test_a_closed_window_does_not_end_the_daemon(box: Box) -> None:
    """No program reads standard output any more. Sessions wake all the same."""
    box.write("in.txt", "1\n")
    box.spec(
        "copy",
        "objective: Copy.\nbindings: {i: {file: in.txt, settle: 10ms}}\nrun: {command: [sh, -c, 'cat in.txt >> ledger']}\n",
    )
    box.daemon = subprocess.Popen(box.arguments(), stdout=subprocess.PIPE, cwd=box.folder, env=box.environment())
    assert box.daemon.stdout is not None
    # On a busy machine the daemon tells about the first look before that.
    assert any(line.startswith(b"ready") for line in iter(box.daemon.stdout.readline, b""))
    box.daemon.stdout.close()
    for number in ("2", "3", "4"):
        box.write("in.txt", f"{number}\n")
        eventually(lambda number=number: number in box.lines("ledger"))
    box.wait_at_rest("copy")


@pytest.mark.long
def test_a_stopped_reader_of_standard_output_stops_nobody(box: Box) -> None:
    """A full pipe holds back the output, not the loop: the daemon answers and sessions wake."""
    box.write("in.txt", "1\n")
    for number in range(150):
        box.spec(
            f"s{number}",
            f"objective: {'Copy. ' * 40}\nbindings: {{i: {{file: in.txt, settle: 10ms}}}}\nrun: {{command: ['true']}}\n",
        )
    box.daemon = subprocess.Popen(box.arguments(), stdout=subprocess.PIPE, cwd=box.folder, env=box.environment())
    eventually(lambda: box.socket.exists())
    eventually(lambda: len(rows := box.rows()) == 150 and all(row["runs"] >= 1 for row in rows))
    for number in range(2, 5):
        box.write("in.txt", f"{number}\n")
        eventually(lambda number=number: all(row["runs"] >= number for row in box.rows()))
    box.daemon.kill()
    assert box.daemon.stdout is not None
    box.daemon.stdout.close()


def test_a_stop_closes_the_log_although_the_folder_of_runs_is_gone(box: Box) -> None:
    """The runtime folder was removed. The daemon ends in good order, and every record is in the main file."""
    box.write("in.txt", "1\n")
    box.spec("copy", "objective: Copy.\nbindings: {i: {file: in.txt}}\nrun: {command: ['true']}\n")
    box.start()
    box.wait_at_rest("copy", runs=1)
    for path in box.runtime.iterdir():
        shutil.rmtree(path)
    assert box.stop() == 0, box.output.read_text()
    assert not StoreFiles(box.state).database.with_name("events.db-wal").exists()
