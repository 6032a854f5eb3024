"""A separate process gives the same output and exit code as the command in the test's process (tests/in_process_command.py)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from api.small_daemon import RunningDaemon
from cli.conftest import run_wakeful
from wait_conditions import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("words", "code"),
    # These commands print no relative times, which would differ between the two.
    [
        (("list", "--json"), 0),
        (("log", "payroll"), 0),
        (("log", "payroll", "--json"), 0),
        (("show", "nobody"), 1),
        (("shwo",), 2),
        (("list", "--socket", "none"), 3),
    ],
)
def test_the_command_in_a_process_of_its_own(rested: RunningDaemon, words: tuple[str, ...], code: int) -> None:
    environment = os.environ | {"WAKEFUL_SOCKET": str(rested.socket)}
    process = subprocess.run(
        [sys.executable, "-m", "wakeful", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    here = run_wakeful(*words, WAKEFUL_SOCKET=str(rested.socket))
    assert process.returncode == here.returncode == code
    assert (process.stdout, process.stderr) == (here.stdout, here.stderr) and (code == 0) == bool(process.stdout)
