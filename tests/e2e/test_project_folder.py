"""A project with a state folder of its own: real daemons, and commands given below the project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from daemon_forks import run_forked
from e2e.box import WAKEFUL, Box


class Project(Box):
    """A daemon started as the README says: `wakeful daemon --state .wakeful`, with a login's runtime folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.state = folder / ".wakeful"
        self.socket = self.runtime / "wakeful.sock"
        (folder / "src").mkdir(exist_ok=True)

    def arguments(self, *extra: str) -> list[str]:
        return [WAKEFUL, "daemon", "--state", ".wakeful", *extra]

    def environment(self) -> dict[str, str]:
        kept = super().environment()
        return {name: kept[name] for name in kept if name not in ("WAKEFUL_SOCKET", "RUNTIME_DIRECTORY")} | {
            "XDG_RUNTIME_DIR": str(self.runtime)
        }

    def below(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in src/ of the project."""
        return run_forked([WAKEFUL, *words], folder=self.folder / "src", environment=self.environment())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_a_verb_finds_its_projects_daemon_upwards_and_no_other(project: Project, tmp_path: Path) -> None:
    """A living daemon is found wherever it listens.

    A stopped or killed one is reported as down, even if another daemon has taken its socket.
    """
    project.spec("mine", "objective: Listen.\nrun: {command: ['true']}\n")
    project.runtime.chmod(0o700)
    project.start()
    try:
        assert "mine" in project.below("list").stdout
        assert str(project.state) in project.below("verify").stdout
        subprocess.run(["git", "init", "-q"], cwd=project.folder, check=True, env=project.environment())
        tracked = subprocess.run(
            ["git", "status", "--porcelain", "-uall"],
            cwd=project.folder,
            capture_output=True,
            text=True,
            check=True,
            env=project.environment(),
        )
        assert "sessions.d/mine.yaml" in tracked.stdout and ".wakeful" not in tracked.stdout
        project.kill()
        other = Box(tmp_path / "other")
        other.socket = project.socket
        other.spec("theirs", "objective: Listen.\nrun: {command: ['true']}\n")
        other.start()
        try:
            down = project.below("list")
            assert down.returncode == 3 and str(project.state) in down.stderr and "theirs" not in down.stdout
            named = project.below("list", "--socket", str(project.socket))
            assert named.returncode == 0 and "theirs" in named.stdout
        finally:
            other.stop()
        project.start()
        assert "mine" in project.below("list").stdout
        project.stop()
        assert project.below("list").returncode == 3 and not os.path.exists(project.state / "address")
    finally:
        project.close()


@pytest.mark.long
def test_a_daemon_that_leaves_the_projects_log_alone_says_so(project: Project) -> None:
    """By default a daemon keeps its log elsewhere, where commands given in the project would not find it."""
    project.state.mkdir(mode=0o700)
    home = project.folder / "home"
    done = subprocess.run(
        [WAKEFUL, "daemon", "--once"], capture_output=True, text=True, cwd=project.folder, check=False, timeout=60,
        env=project.environment() | {"HOME": str(home), "XDG_RUNTIME_DIR": ""},
    )  # fmt: skip
    assert done.returncode == 0 and (home / ".local/state/wakeful/log").is_dir()
    assert f"to start that one, add --state {project.state}" in done.stderr
