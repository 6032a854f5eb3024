"""Where a command looks: the named place, then the project of the current folder, then the person's own places."""

import itertools
import json
import os
import socket
from pathlib import Path

import pytest

from cli.conftest import run_wakeful
from wakeful.cli.daemon_location import find_socket, find_specs, find_state
from wakeful.eventlog.sqlite import open_log
from wakeful.settings import resolve_places
from wakeful.system.state_folder import ADDRESS_FILE

NOBODY = 61_234


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a log of its own, and change to a folder below it."""
    (tmp_path / ".wakeful").mkdir(mode=0o700)
    (tmp_path / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "src" / "deep")
    return tmp_path


def test_the_state_folder_is_the_named_one_then_the_projects_then_ones_own(
    project: Path, private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place named most directly wins."""
    assert find_state("x") == str(project / "src" / "deep" / "x")
    assert find_state() == str(project / ".wakeful")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")
    assert find_state() == "/var/lib/a"
    monkeypatch.setenv("WAKEFUL_STATE", "~/mine")
    assert find_state() == str(private_environment / "mine")
    monkeypatch.delenv("WAKEFUL_STATE")
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.chdir("/")
    assert find_state() == str(private_environment / ".local/state/wakeful")
    wanted = {"flag": "/flag", "WAKEFUL_STATE": "/named", "STATE_DIRECTORY": "/given"}
    wanted |= {"project": str(project / ".wakeful"), "own": str(private_environment / ".local/state/wakeful")}
    for pair in itertools.combinations(wanted, 2):
        with monkeypatch.context() as patch:
            patch.chdir(project if "project" in pair else "/")
            for name in {"WAKEFUL_STATE", "STATE_DIRECTORY"}.intersection(pair):
                patch.setenv(name, wanted[name])
            assert find_state(wanted["flag"] if "flag" in pair else None) == wanted[pair[0]], pair


def test_the_socket_is_the_named_one_then_the_projects_then_the_persons(
    project: Path, private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is: flag, WAKEFUL_SOCKET, RUNTIME_DIRECTORY, project, XDG_RUNTIME_DIR.
    If a project's daemon is down, the person's daemon does not replace it."""
    own = private_environment / "run" / "wakeful.sock"
    own.touch()
    assert find_socket().path == str(project / ".wakeful" / "wakeful.sock")
    given = project / "given"
    given.mkdir()
    (given / "wakeful.sock").touch()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(given))
    assert find_socket().path == str(given / "wakeful.sock")
    monkeypatch.setenv("WAKEFUL_SOCKET", "named.sock")
    assert find_socket().path == str(project / "src" / "deep" / "named.sock")
    assert find_socket("flag.sock").path == str(project / "src" / "deep" / "flag.sock")
    for name in ("RUNTIME_DIRECTORY", "WAKEFUL_SOCKET"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("WAKEFUL_STATE", str(project / "other"))
    assert find_socket().path == str(own)
    monkeypatch.delenv("WAKEFUL_STATE")
    monkeypatch.chdir("/")
    assert find_socket().path == str(own)
    last = private_environment / ".local/state/wakeful/wakeful.sock"
    last.parent.mkdir(parents=True)
    last.touch()
    wanted = {"flag": "/flag.sock", "WAKEFUL_SOCKET": "/named.sock", "RUNTIME_DIRECTORY": str(given / "wakeful.sock")}
    wanted |= {"project": str(project / ".wakeful/wakeful.sock"), "XDG_RUNTIME_DIR": str(own), "own state": str(last)}
    for pair in itertools.combinations(wanted, 2):
        with monkeypatch.context() as patch:
            patch.chdir(project if "project" in pair else "/")
            patch.delenv("XDG_RUNTIME_DIR")
            for name, value in (
                ("WAKEFUL_SOCKET", "/named.sock"),
                ("RUNTIME_DIRECTORY", str(given)),
                ("XDG_RUNTIME_DIR", str(own.parent)),
            ):
                if name in pair:
                    patch.setenv(name, value)
            assert find_socket(wanted["flag"] if "flag" in pair else None).path == wanted[pair[0]], pair


def test_the_folder_of_specs_is_the_named_one_then_the_one_here_then_the_persons(
    project: Path, private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands and the daemon find the same folder. The place named most directly wins."""
    own = private_environment / ".config/wakeful/sessions.d"
    wanted = {"flag": "/flag", "WAKEFUL_SPECS": "/named", "here": str(project / "sessions.d"), "own": str(own)}
    (project / "sessions.d").mkdir()
    for pair in itertools.combinations(wanted, 2):
        with monkeypatch.context() as patch:
            patch.chdir(project if "here" in pair else "/")
            if "WAKEFUL_SPECS" in pair:
                patch.setenv("WAKEFUL_SPECS", "/named")
            flag = "/flag" if "flag" in pair else None
            assert find_specs(flag) == wanted[pair[0]], pair
            assert str(resolve_places({"specs": flag}, os.environ, Path.cwd()).specs) == wanted[pair[0]], pair


def test_a_project_whose_daemon_is_down_says_so_and_nobody_else_is_asked(
    project: Path, private_environment: Path
) -> None:
    """The command exits with 3 and names the folder and the command that starts the daemon.
    It does not ask the person's daemon."""
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(private_environment / "run" / "wakeful.sock"))
        own.listen()
        for words in (("list",), ("show", "payroll"), ("activate", "payroll"), ("list", "--json")):
            done = run_wakeful(*words)
            assert done.returncode == 3 and not done.stdout
            assert f"the daemon of this project is down: none answers for {project / '.wakeful'};" in done.stderr
            assert (
                f"start it with:\n  cd {project} && wakeful daemon --state .wakeful --socket .wakeful/wakeful.sock\n"
                in done.stderr
            )
        own.setblocking(False)
        with pytest.raises(BlockingIOError):
            own.accept()


def test_another_process_at_the_noted_place_is_not_spoken_to(project: Path, private_environment: Path) -> None:
    """A killed daemon leaves its address file behind. Another process may listen on that address since."""
    path = private_environment / "run" / "wakeful.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        (project / ".wakeful" / ADDRESS_FILE).write_text(f"{os.getpid() + 1} {path}\n")
        done = run_wakeful("list")
    assert done.returncode == 3 and "the daemon of this project is down" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_passed_over_with_words(project: Path, private_environment: Path) -> None:
    """Another user may be able to make a folder above ours, and must not become our daemon.
    The user's own project further up is still found."""
    theirs = project / "src" / ".wakeful"
    theirs.mkdir(mode=0o700)
    # Check first that the folder would be found if it were ours.
    assert find_state() == str(theirs)
    os.chown(theirs, NOBODY, NOBODY)
    done = run_wakeful("list")
    assert done.returncode == 3 and str(project / ".wakeful") in done.stderr
    assert f"skipped a state folder: {theirs} belongs to user {NOBODY}, and you are user 0" in done.stderr
    theirs.rmdir()
    # A link of the other user to a folder of ours.
    theirs.symlink_to(private_environment)
    os.chown(theirs, NOBODY, NOBODY, follow_symlinks=False)
    assert find_state() == str(project / ".wakeful")


def test_a_folder_that_a_checkout_brought_is_passed_over(project: Path) -> None:
    """A daemon's own folder is closed to others.
    A folder with the mode of the umask has the log of someone else in it."""
    brought = project / "src" / ".wakeful"
    brought.mkdir()
    brought.chmod(0o755)
    done = run_wakeful("list")
    assert (
        f"skipped a state folder: {brought} is open to others (mode 0755)" in done.stderr
        and str(project / ".wakeful") in done.stderr
    )


def test_backup_verify_and_restore_mean_the_same_log_with_the_daemon_stopped(
    project: Path, private_environment: Path
) -> None:
    """Each verb uses the same folder and prints it before it begins."""
    state = project / ".wakeful"
    open_log(state).close()
    assert run_wakeful("verify").stdout.startswith(f"verifying the log in {state}\n")
    assert run_wakeful("backup", "copy").stdout.startswith(f"backing up the log in {state}\n")
    done = run_wakeful("restore", "copy")
    assert done.returncode == 0 and done.stdout.startswith(f"restoring the log in {state}\nrestored"), done.stderr
    assert run_wakeful("doctor", "--mend").stdout.startswith(f"mending the log in {state}\n")
    for words in (("verify",), ("backup", "copy2"), ("restore", "copy2"), ("doctor", "--mend")):
        assert json.loads(run_wakeful(*words, "--json").stdout)["state"] == str(state)
    assert (state / "log.before-restore-1").is_dir()
    assert not (private_environment / ".local/state/wakeful").exists()
    refused = run_wakeful("restore", "nowhere")
    assert refused.returncode == 1 and str(state) in refused.stdout


def test_doctor_without_a_daemon_looks_at_the_project(project: Path) -> None:
    """`doctor` checks the folder that the stopped daemon had used."""
    said = run_wakeful("doctor", COLUMNS="500").stdout
    assert f"state: {project / '.wakeful'}, for its owner alone" in said
    assert f"none answers for {project / '.wakeful'}\n      cd {project} && wakeful daemon --state .wakeful\n" in said


def test_a_state_folder_ignores_itself_in_git_also_an_old_one(project: Path) -> None:
    """The .gitignore is made with the folder or at the next start.
    A .gitignore written by the person stays as it is."""
    ignored = project / ".wakeful" / ".gitignore"
    open_log(project / ".wakeful").close()
    assert ignored.read_text() == "*\n"
    ignored.write_text("# mine\n")
    open_log(project / ".wakeful").close()
    assert ignored.read_text() == "# mine\n"
