"""The checks of `doctor` on the machine: systemd, clock, git, bubblewrap, strace and kernel limits, each with its
remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wakeful import __version__
from wakeful.cli.systemd_units import USER_SERVICE, render_user, user_folder
from wakeful.cli.verbs.doctor_machine import (
    check_bubblewrap,
    check_clock,
    check_git,
    check_instances,
    check_service,
    check_strace,
    count_instances,
    read_environ,
)
from wakeful.cli.verbs.doctor_store import Check


def put_program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make PATH a folder that holds only this program."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def describe(checks: list[Check]) -> list[tuple[str, str]]:
    return [(check.name, check.verdict) for check in checks]


@pytest.mark.parametrize(
    ("script", "verdict", "said"),
    [
        ("echo git version 2.47.1", "good", "2.47.1"),
        ("echo git version 2.25.1", "warn", "older than 2.32"),
        ("echo git version 3.0.rc1", "good", "3.0"),
        ("echo nonsense; exit 3", "bad", "nonsense"),
    ],
)
def test_git_is_judged_by_what_our_looks_need(
    script: str, verdict: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git older than 2.32 would read a person's configuration in our looks. A git without a version is broken."""
    put_program(tmp_path / "bin", "git", script, monkeypatch)
    found = check_git()
    assert (found.verdict, said in found.words) == (verdict, True)


def test_a_program_that_is_not_there_comes_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check names the command that installs the package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (check_git().mend, check_bubblewrap().mend) == ("sudo apt install git", "sudo apt install bubblewrap")
    assert (check_strace().verdict, check_strace().mend) == ("good", "sudo apt install strace"), "optional"


@pytest.mark.parametrize(
    ("script", "verdict", "said"),
    [
        ("case $1 in --version) echo strace -- version 6.1;; esac", "good", "6.1"),
        (
            "case $1 in --version) echo strace -- version 6.1;; *) echo 'strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted' >&2;; esac",
            "warn",
            "Operation not permitted",
        ),
    ],
)
def test_a_strace_that_may_not_trace_is_not_called_good(
    script: str, verdict: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """strace runs the program untraced if it may not trace, and only its message tells."""
    put_program(tmp_path / "bin", "strace", script, monkeypatch)
    found = check_strace()
    assert (found.verdict, said in found.words) == (verdict, True)


def test_a_bubblewrap_that_cannot_make_a_sandbox_is_not_called_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check makes a sandbox and shows the error of bwrap."""
    put_program(
        tmp_path / "bin", "bwrap", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", monkeypatch
    )
    found = check_bubblewrap()
    assert found.verdict == "warn" and "Permission denied" in found.words and found.mend


def test_a_log_from_the_future_means_that_the_clock_went_back(tmp_path: Path) -> None:
    """Slots and pauses would wait until the time of the log, without a visible reason."""
    assert check_clock(tmp_path).verdict in ("good", "warn")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "events.db").touch()
    assert check_clock(tmp_path).verdict in ("good", "warn")
    ahead = (tmp_path / "log" / "events.db").stat().st_mtime + 7200
    os.utime(tmp_path / "log" / "events.db", (ahead, ahead))
    found = check_clock(tmp_path)
    assert found.verdict == "bad" and ("119 min from now" in found.words or "120 min from now" in found.words)


@pytest.mark.parametrize(
    ("environ", "verdict", "said"),
    [
        ({}, "good", "started by hand"),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "60000000", "LISTEN_FDS": "1"}, "good", "after 60 s"),
        ({"NOTIFY_SOCKET": "/n", "LISTEN_FDS": "1"}, "warn", "no watchdog"),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "60000000"}, "warn", "no socket unit"),
    ],
)
def test_who_watches_over_the_daemon_is_read_from_the_daemon_itself(
    environ: dict[str, str], verdict: str, said: str
) -> None:
    """The check reads the environment of the daemon's process, not the unit file."""
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        [found] = [check for check in check_service(daemon.pid) if check.name == "service"]
        daemon.communicate(b"\n")
    assert (found.verdict, said in found.words) == (verdict, True)
    assert read_environ(daemon.pid) is None and describe(list(check_service(daemon.pid))) == []


def test_a_unit_of_another_version_is_to_be_written_anew() -> None:
    """An upgrade leaves the old unit in place until the person runs `wakeful install` again."""
    user_folder().mkdir(parents=True)
    unit = user_folder() / USER_SERVICE
    text = render_user("/usr/bin/wakeful", None, None)[USER_SERVICE]
    unit.write_text(text)
    assert ("service", "warn") not in describe(list(check_service(None)))
    unit.write_text(text.replace(f"version {__version__};", "version 0.0.1;"))
    [found] = [check for check in check_service(None) if check.name == "service"]
    assert found.verdict == "warn" and "written by version 0.0.1" in found.words and found.mend == "wakeful install"


def test_instances_are_counted_as_the_kernel_lists_them() -> None:
    """An inotify instance of another process is counted. Any finding names a sysctl as its remedy."""
    before = count_instances()
    script = "import ctypes, sys; ctypes.CDLL(None).inotify_init(); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        links = [os.readlink(f"/proc/{watching.pid}/fd/{name}") for name in os.listdir(f"/proc/{watching.pid}/fd")]
        assert "anon_inode:inotify" in links and count_instances() >= 1
        watching.communicate(b"")
    assert before >= 0 and all(check.mend.startswith("sudo sysctl") for check in check_instances())
