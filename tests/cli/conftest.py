"""Fixtures that run the command against a small daemon on a real socket."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.small_daemon import RunningDaemon, declare, reads, writes
from in_process_command import run_command
from wakeful.eventlog.sqlite import open_log

Command = Callable[..., subprocess.CompletedProcess[str]]

PAYROLL = declare(
    "payroll", reads("salaries", "salaries.csv"), writes("result", "out.csv"), objective="Pay everybody.", priority=80
)
FILING = declare("hr/filing", reads("result", "out.csv"))


def run_wakeful(*words: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `wakeful` to its end, with these variables added to the test's environment."""
    return run_command(*words, environment={**os.environ, **environ}, folder=cwd)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    with RunningDaemon(tmp_path, open_log=open_log) as running:
        yield running


@pytest.fixture
def rested(daemon: RunningDaemon) -> RunningDaemon:
    """Declare payroll and hr/filing, and let each run once."""
    daemon.do(lambda d: d.declare(PAYROLL, FILING))
    daemon.do(lambda d: d.finish("payroll", output=b"paid\n"))
    daemon.do(lambda d: d.finish("hr/filing"))
    return daemon


@pytest.fixture
def wakeful(daemon: RunningDaemon) -> Command:
    """Return the command, with the daemon's socket in its environment."""

    def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return run_wakeful(*words, WAKEFUL_SOCKET=str(daemon.socket), **environ)

    return run
