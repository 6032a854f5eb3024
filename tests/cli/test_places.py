"""Where a command looks: what was named, then the project one stands in, then the person's own places."""

from pathlib import Path

import pytest
from cli.conftest import run_wakeful

from wakeful.cli.places import find_socket, find_state
from wakeful.eventlog.sqlite import open_log


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of its own, in which we stand."""
    (tmp_path / ".wakeful").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_state_folder_is_the_named_one_then_the_projects_then_ones_own(
    project: Path, private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest that was said wins."""
    assert find_state("x") == str(project / "x")
    assert find_state() == str(project / ".wakeful")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")
    assert find_state() == "/var/lib/a"
    monkeypatch.setenv("WAKEFUL_STATE", "~/mine")
    assert find_state() == str(private_environment / "mine")
    monkeypatch.delenv("WAKEFUL_STATE")
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.chdir("/")
    assert find_state() == str(private_environment / ".local/state/wakeful")


def test_a_projects_own_daemon_is_found_before_the_persons(project: Path, private_environment: Path) -> None:
    """Two daemons, two sockets: where one stands decides, and a project without a socket of its own hides nobody."""
    own = private_environment / "run" / "wakeful.sock"
    own.touch()
    assert find_socket() == str(own)
    (project / ".wakeful" / "wakeful.sock").touch()
    assert find_socket() == str(project / ".wakeful" / "wakeful.sock")
    assert find_socket("other.sock") == str(project / "other.sock")


def test_backup_verify_and_restore_mean_the_same_log_with_the_daemon_stopped(project: Path, private_environment: Path) -> None:
    """A restore goes where the backup came from, and says so before it does anything."""
    open_log(project / ".wakeful").close()
    assert run_wakeful("verify").returncode == 0
    assert run_wakeful("backup", "copy").returncode == 0
    done = run_wakeful("restore", "copy")
    assert done.returncode == 0 and done.stdout.startswith(f"restoring the log in {project / '.wakeful'}\nrestored"), done.stderr
    assert (project / ".wakeful" / "log.before-restore-1").is_dir()
    assert not (private_environment / ".local/state/wakeful").exists()
    refused = run_wakeful("restore", "nowhere")
    assert refused.returncode == 1 and str(project / ".wakeful") in refused.stdout


def test_doctor_without_a_daemon_looks_at_the_project(project: Path) -> None:
    """The folder it judges is the one the daemon that was stopped had used."""
    assert f"state: {project / '.wakeful'}, for its owner alone" in run_wakeful("doctor", COLUMNS="500").stdout
