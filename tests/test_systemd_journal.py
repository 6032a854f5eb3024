"""Entries for systemd's journal in its own protocol, which no text can break, and the same fields as JSON."""

import array
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeful.core.record import events as ev
from wakeful.service.log_printer import Line, LogPrinter, as_entry, as_json
from wakeful.system.journal import INFO, NOTICE, WARNING, Journal, encode, find_journal
from wakeful.views.narration import grade


def decode(entry: bytes) -> dict[str, str]:
    """Read an entry as the journal does."""
    fields = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
            entry = rest
        else:
            name, size = line, int.from_bytes(rest[:8], "little")
            value, entry = rest[8 : 8 + size], rest[8 + size + 1 :]
        fields[name.decode()] = value.decode()
    return fields


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "journal"))
        channel.settimeout(10)
        yield channel


@pytest.mark.parametrize(
    "value", ["plain", "", "two\nlines", "PRIORITY=0\nMESSAGE=forged", "=", "\x1b[31m\x00", "\ud800 half", "ü" * 1000]
)
def test_a_value_is_one_value_whatever_it_holds(value: str) -> None:
    """A newline, an equals sign or a lone surrogate adds no field and ends none early."""
    fields = {"MESSAGE": value, "WAKEFUL_SESSION": value, "PRIORITY": "6"}
    told = value.encode(errors="backslashreplace").decode()
    assert decode(encode(fields)) == {"MESSAGE": told, "WAKEFUL_SESSION": told, "PRIORITY": "6"}


def test_an_entry_is_one_datagram(listener: socket.socket, tmp_path: Path) -> None:
    """The journal reads the fields that were sent."""
    assert Journal(str(tmp_path / "journal")).send({"MESSAGE": "one\ntwo", "WAKEFUL_RUN": "3"})
    assert decode(listener.recv(1 << 16)) == {"MESSAGE": "one\ntwo", "WAKEFUL_RUN": "3"}


def test_an_entry_larger_than_a_datagram_is_a_sealed_file(listener: socket.socket, tmp_path: Path) -> None:
    """The entry arrives whole, as a memory file that can no longer be changed."""
    huge = "x" * (8 << 20)
    assert Journal(str(tmp_path / "journal")).send({"MESSAGE": huge})
    _, ancillary, _, _ = listener.recvmsg(1, socket.CMSG_SPACE(4))
    [number] = array.array("i", ancillary[0][2][:4])
    try:
        assert decode(os.pread(number, len(huge) + 100, 0)) == {"MESSAGE": huge}
        with pytest.raises(PermissionError):
            os.write(number, b"more")
    finally:
        os.close(number)


def test_a_journal_that_is_gone_is_not_an_error(tmp_path: Path) -> None:
    """`send` returns false, and the caller prints to standard output instead."""
    assert not Journal(str(tmp_path / "nobody")).send({"MESSAGE": "lost"})


def test_the_variable_alone_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process started by a service inherits the variable. It counts only if it matches our own output stream."""
    assert find_journal({}) is None
    assert find_journal({"JOURNAL_STREAM": "0:1"}) is None


def test_what_is_said_carries_session_run_and_priority(listener: socket.socket, tmp_path: Path) -> None:
    """Each line is one entry with WAKEFUL_SESSION and WAKEFUL_RUN.
    The message has no time, because the journal adds it."""
    voice = LogPrinter(is_terminal=False, journal=Journal(str(tmp_path / "journal")))
    voice.say("run 3 failed: exit 1", name="payroll", at=1, priority=WARNING, fields={"WAKEFUL_RUN": "3"})
    voice.close()
    assert decode(listener.recv(1 << 16)) == {
        "MESSAGE": "payroll: run 3 failed: exit 1",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "wakeful",
        "WAKEFUL_SESSION": "payroll",
        "WAKEFUL_RUN": "3",
    }


@pytest.mark.parametrize(
    ("event", "priority"),
    [
        (ev.RunFinished(run=1, outcome="failed", is_final=True), WARNING),
        (ev.RunFinished(run=1, outcome="succeeded", is_final=True), INFO),
        (ev.SessionTerminated(), NOTICE),
        (ev.SpecRemoved(), NOTICE),
    ],
)
def test_priorities_follow_what_a_person_must_know(event: ev.Event, priority: int) -> None:
    """A failed run is a warning, a successful one is information."""
    assert grade(event) == priority


def test_json_has_the_same_fields_on_one_line() -> None:
    """The JSON is one line, whatever the message contains."""
    line = Line("12:00:00 a: b", "a: b\n\x1b", WARNING, {"WAKEFUL_SESSION": "a\n", "WAKEFUL_RUN": "3"})
    text = as_json(line)
    assert "\n" not in text and "\x1b" not in text
    told = json.loads(text)
    assert told.pop("at").endswith("Z")
    assert told == {"level": "warning", "message": "a: b\n\x1b", "session": "a\n", "run": "3"}
    assert as_entry(line)["PRIORITY"] == "4"


def test_a_daemon_speaks_json_when_asked(tmp_path: Path) -> None:
    """Every line of `wakeful daemon --log json` is an object. It has the session and the run, if there are any."""
    wakeful = Path(sys.executable).with_name("wakeful")
    (tmp_path / "sessions.d").mkdir()
    (tmp_path / "sessions.d" / "one.yaml").write_text(
        "objective: One.\nbindings: {i: {file: in.txt}}\nrun: {command: ['true']}\n"
    )
    (tmp_path / "in.txt").write_text("1\n")
    words = [wakeful, "daemon", "--once", "--log", "json", "--state", tmp_path / "state", "--socket", tmp_path / "s"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and {one.get("session") for one in told} == {None, "one"}
    assert [one["event"] for one in told if one.get("run") == "1"][:1] == ["run_started"]
