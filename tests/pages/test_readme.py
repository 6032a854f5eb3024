"""Type all commands of README in order, as an ordinary user with an empty HOME, in an empty folder.

The quick test has the libraries already: `.venv/` of the clone links to the environment of the suite, and the wheel is
not installed. The long test fetches everything, as a person does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ordinary_user import OrdinaryUser, ordinary_user
from pages.fenced_blocks import REPOSITORY, Block, read_blocks
from sources.commit_follower import GitRepo
from wait_conditions import PATIENCE_SECONDS, eventually

__all__ = ["ordinary_user"]

CLONE = "<this repository>"
FETCH_SECONDS = 600
# The block that installs a wheel, recognized by its first command.
INSTALLS = "make wheel"
# What the daemon's terminal shows before the next step, by the command typed or the file saved.
SEEN = {
    "make run": "all sessions rest",
    "sessions.d/words.yaml": "words: run 1 succeeded",
    "echo 'and four more words' >> notes/a.md": "words: run 2 succeeded",
    "wakeful daemon --state .wakeful": "hello: run 1 succeeded",
}


class Terminal:
    """A shell of the user, which keeps its folder and variables from one line to the next.
    Each daemon has a terminal of its own."""

    def __init__(self, user: OrdinaryUser, folder: Path, memory: Path) -> None:
        self.user, self.memory = user, memory
        memory.mkdir()
        (memory / "folder").write_text(f"{folder}\n")
        user.give(memory)
        path = f"{sys.base_prefix}/bin:/usr/bin:/bin"
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        self.environment = {"HOME": str(user.home), "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb"} | pip
        self.daemons: list[tuple[str, subprocess.Popen[bytes]]] = []

    @property
    def folder(self) -> Path:
        return Path((self.memory / "folder").read_text().strip())

    @property
    def said(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.memory.glob("daemon-*")))

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        command = line.partition("  #")[0].strip()
        if command == "make run" or (command.startswith("wakeful daemon") and "--once" not in command):
            return self._start_daemon(command)
        if "--once" in command:
            self._stop_daemons(self.folder)
        script = f"{self._recall()}\n{line}\ncode=$?; pwd > {self.memory}/folder; export -p > {self.memory}/variables; exit $code"
        return subprocess.run(
            [*self.user.wrap, "sh", "-c", script],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=FETCH_SECONDS,
        )

    def _recall(self) -> str:
        return f"[ ! -e {self.memory}/variables ] || . {self.memory}/variables; cd {self.folder}"

    def _start_daemon(self, command: str) -> subprocess.CompletedProcess[str]:
        output = self.memory / f"daemon-{len(self.daemons)}"
        with output.open("wb") as out:
            daemon = subprocess.Popen(
                [*self.user.wrap, "sh", "-c", f"{self._recall()}; exec {command}"],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self.environment,
            )
        self.daemons.append((str(self.folder), daemon))
        eventually(
            lambda: "\nready" in f"\n{output.read_text(errors='replace')}" or daemon.poll() is not None,
            FETCH_SECONDS,
            what=command,
        )
        return subprocess.CompletedProcess(command, daemon.poll() or 0, output.read_text(errors="replace"), "")

    def _stop_daemons(self, folder: Path | None = None) -> None:
        """Send a signal to each process of the terminal, as Ctrl-C does, because make does not pass SIGTERM on."""
        for place, daemon in self.daemons:
            if daemon.poll() is None and (folder is None or place == str(folder)):
                tree = [*psutil.Process(daemon.pid).children(recursive=True), psutil.Process(daemon.pid)]
                for process in tree:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.terminate()
                daemon.wait(PATIENCE_SECONDS)
                psutil.wait_procs(tree, PATIENCE_SECONDS)

    def close(self) -> None:
        self._stop_daemons()


@pytest.fixture
def repository(tmp_path: Path, ordinary_user: OrdinaryUser) -> Path:
    """Make a repository of this checkout that can be cloned, with uncommitted files included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).is_file()]
    if not names:
        pytest.skip("NOT TESTED: this folder is no repository, so nothing can be cloned")
    made = tmp_path / "repository"
    for name in names:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, made / name)
    repo = GitRepo(made)
    repo("add", "-A")
    repo("commit", "-q", "-m", "all")
    ordinary_user.give(made)
    return made


@pytest.fixture
def terminal(tmp_path: Path, ordinary_user: OrdinaryUser) -> Iterator[Terminal]:
    folder = tmp_path / "empty"
    folder.mkdir()
    ordinary_user.give(folder)
    made = Terminal(ordinary_user, folder, tmp_path / "terminal")
    yield made
    made.close()


def read_along(terminal: Terminal, repository: Path, *, is_quick: bool) -> None:
    """Do what README says, block by block."""
    for block in read_blocks("README.md"):
        if (
            block.file is not None
            and (terminal.folder / Path(block.file).parent).is_dir()
            and "agent:" not in "".join(block.lines)
        ):
            save(terminal, block)
        if not block.is_run_here or (is_quick and block.commands[0] == INSTALLS):
            continue
        for number, (line, code) in enumerate(zip(block.commands, block.exits, strict=True)):
            done = terminal.type(line.replace(CLONE, str(repository)))
            assert str(done.returncode) == code, (
                f"{block.place}: {line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
            if CLONE in line and is_quick:
                lend_libraries(terminal)
            wait_seen(terminal, line.partition("  #")[0].strip())
            assert_alike(block, number, done.stdout + done.stderr)


def save(terminal: Terminal, block: Block) -> None:
    """Save a block as a file in one step, as the user's editor does."""
    path = terminal.folder / str(block.file)
    half = terminal.memory / "half"
    half.write_text("\n".join(block.lines) + "\n")
    terminal.user.give(terminal.memory)
    half.replace(path)
    wait_seen(terminal, str(block.file))


def wait_seen(terminal: Terminal, what: str) -> None:
    if what in SEEN:
        eventually(lambda: SEEN[what] in terminal.said, what=f"{SEEN[what]} after {what}")


def lend_libraries(terminal: Terminal) -> None:
    """Provide the libraries that `make` would fetch, with stamps newer than the files they depend on."""
    venv = terminal.folder / ".venv"
    venv.mkdir()
    (venv / "bin").symlink_to(Path(sys.executable).parent)
    for stamp in (".ready-venv", ".ready-run", ".ready-agents", ".ready"):
        (venv / stamp).touch()
    terminal.user.give(venv)
    os.utime(terminal.folder / "pyproject.toml", (0, 0))


def assert_alike(block: Block, number: int, said: str) -> None:
    """Assert that each word README shows below a command is in its output. Times, ids and paths are left out."""
    shown = block.answers[number]
    wanted = {word for line in shown for word in line.split() if re.fullmatch(r"[A-Za-z][a-z:.]+|[A-Z]{3,}", word)}
    # A relative time has other words a second later.
    missing = wanted - set(said.split()) - {"ago"}
    assert not missing, f"{block.place}: {block.commands[number]} did not say {sorted(missing)}:\n{said}"


def test_the_walkthrough_works_from_its_first_command(terminal: Terminal, repository: Path) -> None:
    """The walkthrough has a clone, a daemon, a new session, a mistake in it, and a project of its own."""
    read_along(terminal, repository, is_quick=True)
    assert (terminal.folder / "words.txt").read_text().split()[0] == "3"


@pytest.mark.long
def test_all_of_it_works_with_nothing_installed(terminal: Terminal, repository: Path) -> None:
    """The libraries and agents are fetched, and the wheel is built and installed."""
    read_along(terminal, repository, is_quick=False)
    assert (terminal.folder / "words.txt").read_text().split()[0] == "3"
    assert (terminal.user.home / ".local/bin/wakeful").is_symlink()
