"""A terminal of 80 columns: needed text is not cut, no word is split, and a bad name is refused before any question."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from api.small_daemon import RunningDaemon, declare, reads
from cli.conftest import Command, run_wakeful
from wakeful.core.calls.call_types import Sleep
from wakeful.core.spec.session import CommandRun

LONG_NAME = "social-insurance-filing"


def at_terminal(*words: str, **environ: str) -> tuple[int, list[str]]:
    """Run `wakeful` at a terminal. Return its exit code and the lines on the screen."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "dumb"} | environ
    done = subprocess.run(
        [sys.executable, "-m", "wakeful", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    return done.returncode, shown.splitlines()


def test_top_cuts_the_remark_and_no_other_column(rested: RunningDaemon, wakeful: Command) -> None:
    """A long name and a long reason leave all other headings and states whole."""
    rested.do(lambda d: d.declare(declare(LONG_NAME, reads("a", "a.csv"))))
    rested.do(lambda d: d.finish(LONG_NAME))
    rested.do(
        lambda d: d.call(
            Sleep(name=LONG_NAME, words="waiting for " + "a very long reason " * 20), author="x", key=None, run=None
        )
    )
    rested.small.pid = os.getpid()
    done = wakeful("top", "--once", COLUMNS="80")
    assert not done.stderr
    _, columns, first, *rest = done.stdout.splitlines()
    assert columns.split() == ["NAME", "STATE", "CPU", "MEM", "RUNS", "OWED"]
    assert first.startswith(f"{LONG_NAME}  sleeping ") and "waiting for a" in first and first.endswith("…")
    assert all(len(line) <= 80 and "…" not in line for line in (columns, *rest)) and len(first) <= 80


def test_a_record_is_one_line_on_a_screen_and_whole_in_a_pipe(rested: RunningDaemon, wakeful: Command) -> None:
    """A search in a pipe finds words at the end of a line, too."""
    rested.do(
        lambda d: d.call(
            Sleep(name="payroll", words="a very long reason " * 4 + "and its end"), author="x", key=None, run=None
        )
    )
    assert "and its end" in wakeful("log", "payroll", COLUMNS="").stdout.splitlines()[-1]
    _, lines = at_terminal("log", "payroll", "--socket", str(rested.socket))
    assert all(len(line) <= 80 for line in lines) and lines[-1].endswith("…")


def test_an_error_breaks_between_words(tmp_path: Path) -> None:
    """Lines are broken at a terminal only. A pipe gets the error as one line."""
    words = ("check", "--specs", str(tmp_path / "none"))
    code, lines = at_terminal(*words)
    assert code == 1 and len(lines) > 1 and " ".join(lines) == run_wakeful(*words).stderr.strip()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [(("new", "a b"), "a b"), (("secret", "set", "a b"), "a b"), (("new", "taken"), "exists already")],
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_asked(
    tmp_path: Path, words: tuple[str, ...], wrong: str
) -> None:
    """A person does not answer five questions, or type a value twice, for nothing."""
    (tmp_path / "taken.yaml").write_text("objective: taken\n")
    code, lines = at_terminal(*words, WAKEFUL_SPECS=str(tmp_path), HOME=str(tmp_path))
    assert code == 1 and lines[0].startswith("wakeful:") and wrong in " ".join(lines)


def test_what_holds_a_session_is_said_once(daemon: RunningDaemon, wakeful: Command) -> None:
    """If the session sleeps for the reason for which its wake waits, `show` and `why` name the reason once."""
    daemon.do(lambda d: d.declare(declare("fails", reads("a", "a.csv"), run=CommandRun(argv=("false",), retries=3))))
    daemon.do(lambda d: d.finish("fails", exit_code=1))
    for verb in ("show", "why"):
        assert wakeful(verb, "fails").stdout.count("backing off: attempt 2") == 1
