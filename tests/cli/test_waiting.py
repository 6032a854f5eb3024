"""Whatever takes longer than a second says so: on a person's terminal, on standard error, and gone when it is over."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import run_wakeful

from wakeful import __version__
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import open_log

ASK = "import sys; from wakeful.cli.client import Client; print(Client(sys.argv[1]).get('/version'))"
WAIT = "import subprocess; from wakeful.cli.waiting import Waiting\nwith Waiting('asking', is_shown=True): subprocess.run(['sleep', '1.5'])\nprint('done')"


def on_terminal(*words: str, cwd: Path | None = None) -> tuple[str, str]:
    """What a command prints, and what a person sees of it besides."""
    ours, theirs = pty.openpty()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=theirs, text=True, timeout=60, check=True, cwd=cwd)
    os.close(theirs)
    seen = b""
    # A closed terminal ends with an error, where nothing is left to be read.
    while piece := _read(ours):
        seen += piece
    os.close(ours)
    return done.stdout, seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[str]:
    """Something that answers as the daemon does, after a second and a half."""
    path = str(tmp_path / "socket")
    answer = f"HTTP/1.1 200 OK\r\nwakeful-version: {__version__}\r\ncontent-length: 2\r\n\r\n{{}}".encode()
    over = threading.Event()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                over.wait(1.5)
                connection.sendall(answer)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    yield path
    over.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    serving.join(5)


def test_a_slow_answer_is_counted_in_seconds_and_leaves_no_trace(slow: str) -> None:
    """For every verb alike: they all ask by the same client. What is printed can be piped."""
    said, seen = on_terminal(sys.executable, "-c", ASK, slow)
    assert said == "{}\n" and "the daemon works on it, or starts: 1 s of at most 60" in seen
    assert seen.rstrip("\r").rsplit("\r", 1)[-1].strip() == ""
    piped = subprocess.run([sys.executable, "-c", ASK, slow], capture_output=True, text=True, timeout=60, check=True)
    assert (piped.stdout, piped.stderr) == ("{}\n", "")


def test_what_has_no_measure_is_counted_in_seconds(tmp_path: Path) -> None:
    """systemd's start, a run that runs again."""
    said, seen = on_terminal(sys.executable, "-c", WAIT)
    assert said == "done\n" and "asking: 1 s" in seen and seen.rstrip("\r").rsplit("\r", 1)[-1].strip() == ""
    piped = subprocess.run([sys.executable, "-c", WAIT], capture_output=True, text=True, timeout=60, check=True)
    assert piped.stderr == ""


def test_backup_and_restore_show_how_far_they_are(tmp_path: Path) -> None:
    """Both verify every record, which takes as long as the log is."""
    log = open_log(tmp_path / "state")
    log.append_blocking([Append("a", 0, tuple(Draft("note_added", b"{}", "x") for _ in range(3)))], at=1)
    log.close()
    wakeful = (sys.executable, "-m", "wakeful")
    _, seen = on_terminal(*wakeful, "backup", "copy", "--state", "state", cwd=tmp_path)
    assert "3 of 3" in seen
    _, seen = on_terminal(*wakeful, "restore", "copy", "--state", "other", cwd=tmp_path)
    assert "3 of 3" in seen
    assert run_wakeful("backup", "second", "--state", "state", cwd=tmp_path).stderr == ""
