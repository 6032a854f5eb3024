"""Commands that take longer than a second show it on a person's terminal, on stderr, and remove the line at the end."""

from __future__ import annotations

import os
import pty
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.conftest import run_wakeful
from wakeful import __version__
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import open_log
from wakeful.specs.folder_reading import FILES_PER_REPORT

ASK = "import sys; from wakeful.cli.client import Client; print(Client(sys.argv[1]).get('/version'))"
WAIT = "import sys; from wakeful.cli.progress import Waiting\nwith Waiting('asking', is_shown=True): open(sys.argv[1]).read()\nprint('done')"

# The time after which a command tells a person that it waits.
A_MOMENT_SECONDS = 1.3


def on_terminal(
    *words: str, cwd: Path | None = None, until: str = "", then: Callable[[], object] = lambda: None
) -> tuple[str, str]:
    """Run a command on a terminal.
    Return what it printed and what a person saw besides. `then` is called as soon as `until` was seen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=cwd)
    os.close(theirs)
    seen, is_seen = "", False
    # Reading a closed terminal ends with an error when no output is left.
    while piece := _read(ours):
        seen += piece.decode()
        if until in seen and not is_seen:
            is_seen = True
            then()
    os.close(ours)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return said, seen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


class Slow:
    """A stub server that answers as the daemon does, when the test lets it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.go = threading.Event()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    slow = Slow(str(tmp_path / "socket"))
    answer = f"HTTP/1.1 200 OK\r\nwakeful-version: {__version__}\r\ncontent-length: 2\r\n\r\n{{}}".encode()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(slow.path)
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                slow.go.wait()
                slow.go.clear()
                connection.sendall(answer)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    yield slow
    slow.go.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    serving.join(60)


def test_a_slow_answer_is_counted_in_seconds_and_leaves_no_trace(slow: Slow) -> None:
    """All verbs use the same client, so all show it. Nothing is printed when the output is piped."""
    counted = "waiting for the daemon: 1 s of at most 60"
    said, seen = on_terminal(sys.executable, "-c", ASK, slow.path, until=counted, then=slow.go.set)
    assert said == "{}\n" and counted in seen
    assert seen.rstrip("\r").rsplit("\r", 1)[-1].strip() == ""
    threading.Timer(A_MOMENT_SECONDS, slow.go.set).start()
    piped = subprocess.run(
        [sys.executable, "-c", ASK, slow.path], capture_output=True, text=True, timeout=60, check=True
    )
    assert (piped.stdout, piped.stderr) == ("{}\n", "")


def test_what_has_no_measure_is_counted_in_seconds(tmp_path: Path) -> None:
    """This is used for systemd's start and for a repeated run."""
    os.mkfifo(tmp_path / "go")
    words = (sys.executable, "-c", WAIT, str(tmp_path / "go"))
    said, seen = on_terminal(*words, until="asking: 1 s", then=lambda: (tmp_path / "go").write_text("x"))
    assert said == "done\n" and "asking: 1 s" in seen and seen.rstrip("\r").rsplit("\r", 1)[-1].strip() == ""
    threading.Timer(A_MOMENT_SECONDS, lambda: (tmp_path / "go").write_text("x")).start()
    piped = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert piped.stderr == ""


@pytest.mark.long
def test_backup_and_restore_show_how_far_they_are(tmp_path: Path) -> None:
    """Both verify every record, which takes longer for a longer log."""
    log = open_log(tmp_path / "state")
    log.append_blocking([Append("a", 0, tuple(Draft("note_added", b"{}", "x") for _ in range(3)))], at=1)
    log.close()
    wakeful = (sys.executable, "-m", "wakeful")
    _, seen = on_terminal(*wakeful, "backup", "copy", "--state", "state", cwd=tmp_path)
    assert "3 of 3" in seen
    _, seen = on_terminal(*wakeful, "restore", "copy", "--state", "other", cwd=tmp_path)
    assert "3 of 3" in seen
    assert run_wakeful("backup", "second", "--state", "state", cwd=tmp_path).stderr == ""


@pytest.mark.long
def test_check_shows_how_far_it_is_in_a_folder_of_many(tmp_path: Path) -> None:
    """A few specs are checked before a person could look, so nothing is shown for them."""
    specs = tmp_path / "sessions.d"
    specs.mkdir()
    wakeful = (sys.executable, "-m", "wakeful")
    (tmp_path / "a.txt").write_text("one\n")
    for number in range(FILES_PER_REPORT + 1):
        (specs / f"s{number}.yaml").write_text("objective: x\nbindings: {f: {file: a.txt}}\nrun: {command: ['true']}\n")
    said, seen = on_terminal(*wakeful, "check", "sessions.d", cwd=tmp_path)
    assert (
        said == f"{FILES_PER_REPORT + 1} sessions: all good\n"
        and f"{FILES_PER_REPORT} of {FILES_PER_REPORT + 1}" in seen
    )
    (specs / "s0.yaml").unlink()
    (specs / "s1.yaml").unlink()
    assert on_terminal(*wakeful, "check", cwd=tmp_path)[1].strip() == ""
    assert run_wakeful("check", "sessions.d", cwd=tmp_path).stderr == ""


def test_a_start_shows_how_far_it_is_until_it_is_ready(tmp_path: Path) -> None:
    """The start waits for a probe that answers when the test lets it."""
    specs, socket_path = tmp_path / "sessions.d", tmp_path / "w.sock"
    specs.mkdir()
    os.mkfifo(tmp_path / "go")
    probe = f"{{probe: [cat, {tmp_path / 'go'}], check_every: 1h, timeout: 60s}}"
    (specs / "slow.yaml").write_text(
        f"objective: x\nfirst: adopt\nallow: {{read: [go]}}\nbindings: {{p: {probe}}}\nrun: {{command: ['true']}}\n"
    )
    ours, theirs = pty.openpty()
    words = (
        sys.executable,
        "-m",
        "wakeful",
        "--socket",
        str(socket_path),
        "daemon",
        "--specs",
        str(specs),
        "--state",
        str(tmp_path / "state"),
    )
    daemon = subprocess.Popen(words, stdout=theirs, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    seen = ""
    while "ready" not in seen and (piece := _read(ours)):
        was_told, seen = "looked at" in seen, seen + piece.decode()
        if "looked at" in seen and not was_told:
            (tmp_path / "go").write_text("there\n")
    daemon.terminate()
    daemon.wait(60)
    os.close(ours)
    assert re.search(r"starting, \d+ s: 0 of 1 looked at", seen)
    # The line of progress is overwritten by the ready message.
    plain = re.sub(r"\x1b\[\d+m", "", seen)
    assert re.match(r"looked at *\rready: 1 session", plain[plain.rindex("looked at") :])
