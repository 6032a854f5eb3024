"""A real daemon in a folder of its own, used through the real command line.

Tests start, kill and restart it. The box does not know what the daemon should do: tests compare its answers with
ledgers, which the sessions' own commands write.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from daemon_forks import ForkedDaemon, User, run_forked
from in_process_command import run_command
from process_state import is_stopped
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.cli.client import Client
from wakeful.runners.isolation.shield import can_shield

WAKEFUL = str(Path(sys.executable).parent / "wakeful")
WEAKENED = Path(__file__).parents[1] / "security" / "weakened_daemon.py"
SETTINGS = "wakeful.yaml"
# Commands that need a process of their own: they change the process they run in, or wait for another program.
IN_A_PROCESS_OF_THEIR_OWN = ("daemon", "migrate", "install", "uninstall")


class Box:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.specs = folder / "sessions.d"
        self.state = folder / "state"
        self.socket = folder / "w.sock"
        self.output = folder / "daemon.out"
        self.runtime = folder / "runtime"
        self.specs.mkdir(parents=True, exist_ok=True)
        self.runtime.mkdir(exist_ok=True)
        self.write(SETTINGS, "")
        # The command that starts the daemon instead of us. Empty: we start it directly.
        self.wrap: tuple[str, ...] = ()
        self.program: tuple[str, ...] = (WAKEFUL,)
        # False: the daemon is started by its script, for tests of what a forked daemon does not have.
        self.is_forked = True
        self.daemon: subprocess.Popen[bytes] | ForkedDaemon | None = None

    # -- files --------------------------------------------------------------------------------

    def spec(self, name: str, text: str) -> Path:
        path = self.specs / f"{name}.yaml"
        self._write(path, textwrap.dedent(text))
        return path

    def write(self, path: str, text: str) -> Path:
        """Write a file so that no reader finds a part of it, however busy the machine is.

        A text that is not shorter is written in place in one step. Other files are replaced by a rename.
        """
        target = self.folder / path
        self._write(target, text + self.reach() if path == SETTINGS else text)
        return target

    def _write(self, target: Path, text: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        if target.exists() and 0 < target.stat().st_size <= len(content):
            with target.open("r+b", buffering=0) as file:
                file.write(content)
            return
        # Outside the box's folder, where the daemon does not look.
        fresh = self.folder.with_name(f".{self.folder.name}.writing")
        fresh.write_bytes(content)
        fresh.replace(target.resolve())

    def reach(self) -> str:
        """Return the settings with which runs may write anywhere in the box. Otherwise runs are confined as usual."""
        if can_shield():
            return f"defaults: {{allow: {{write: [{json.dumps(str(self.folder))}]}}}}\n"
        # This machine cannot keep runs out of the state folder, which lies in the box.
        return "allow_unisolated: true\ndefaults: {isolation: none}\n"

    def save(self, path: str, text: str) -> None:
        """Write a file as an editor saves it: a new file renamed over the old one."""
        target = self.folder / path
        fresh = target.with_name(f".{target.name}.new~")
        fresh.write_text(text)
        fresh.rename(target)

    def read(self, path: str) -> str:
        target = self.folder / path
        return target.read_text() if target.exists() else ""

    def lines(self, path: str) -> list[str]:
        return self.read(path).splitlines()

    # -- the daemon ---------------------------------------------------------------------------

    def arguments(self, *extra: str) -> list[str]:
        places = ["--specs", str(self.specs), "--state", str(self.state), "--socket", str(self.socket)]
        return [*self.wrap, *self.program, "daemon", *places, *extra]

    def weaken(self, rule: str) -> None:
        """Start the next daemon without one defence, to show that an attack succeeds without it."""
        self.program = (sys.executable, str(WEAKENED), rule)

    def start(self, *, is_ready: bool = True, env: dict[str, str] | None = None) -> None:
        out = self.output.open("ab")
        self.said = out.tell()
        words, environment = self.arguments(), self.environment() | (env or {})
        self.daemon = self.launch(words, out, environment)
        out.close()
        if is_ready:
            self.wait_ready()

    def launch(
        self, words: list[str], out: IO[bytes], environment: dict[str, str], user: User | None = None
    ) -> subprocess.Popen[bytes] | ForkedDaemon:
        if self._may_fork(words, environment):
            return ForkedDaemon(words, stdout=out, cwd=self.folder, env=environment, user=user)
        return subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, env=environment)

    def _may_fork(self, words: list[str], environment: dict[str, str]) -> bool:
        """Return whether a fork of this process can stand in for the program.

        A wrapper must start the daemon itself. An interpreter reads its PYTHON variables only once, when it starts.
        """
        is_ours = words[0] == WAKEFUL or words[:2] == [sys.executable, str(WEAKENED)]
        return is_ours and self.is_forked and not any(name.startswith("PYTHON") for name in environment)

    def wait_ready(self) -> None:
        daemon = self.daemon
        assert daemon is not None
        eventually(lambda: self._is_ready() or daemon.poll() is not None)
        assert daemon.poll() is None, f"the daemon ended with {daemon.returncode}:\n{self.output.read_text()}"

    def _is_ready(self) -> bool:
        return any(
            line.startswith("ready")
            for line in self.output.read_bytes()[self.said :].decode(errors="replace").splitlines()
        )

    def once(self) -> subprocess.CompletedProcess[str]:
        return self.run_process(self.arguments("--once"), self.environment())

    def run_process(self, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a program to its end in a process of its own, which is forked if possible."""
        if self._may_fork(words, environment):
            return run_forked(words, folder=self.folder, environment=environment)
        return subprocess.run(
            words, capture_output=True, text=True, cwd=self.folder, env=environment, timeout=PATIENCE_SECONDS
        )

    def kill(self) -> None:
        """Send SIGKILL to the daemon alone. The processes it started are left to the next daemon."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait(PATIENCE_SECONDS)
        self.daemon = None

    def stop(self) -> int:
        assert self.daemon is not None
        self.daemon.terminate()
        code = self.daemon.wait(PATIENCE_SECONDS)
        self.daemon = None
        return code

    @contextlib.contextmanager
    def held_still(self) -> Iterator[None]:
        """Stop the daemon with SIGSTOP meanwhile. It then sees everything done to files as one change."""
        daemon = self.daemon
        assert daemon is not None
        daemon.send_signal(signal.SIGSTOP)
        try:
            eventually(lambda: is_stopped(daemon.pid))
            yield
        finally:
            daemon.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the daemon and its runs at once. Tests that need an orderly stop call `stop`."""
        if self.daemon is not None and self.daemon.poll() is None:
            # Processes that stay behind would slow every later test.
            tree = psutil.Process(self.daemon.pid).children(recursive=True)
            self.daemon.kill()
            self.daemon.wait()
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
        # RUNTIME_DIRECTORY holds the folders of runs. A killed daemon leaves them there, and they are removed with the
        # test.
        return kept | {"WAKEFUL_SOCKET": str(self.socket), "RUNTIME_DIRECTORY": str(self.runtime)}

    # -- asking -------------------------------------------------------------------------------

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a wakeful command, as a script does."""
        environment = self.environment() | (env or {})
        if arguments[0] in IN_A_PROCESS_OF_THEIR_OWN:
            return self.run_process([WAKEFUL, *arguments], environment)
        return run_command(*arguments, environment=environment, folder=self.folder)

    def ask(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, (
            f"wakeful {' '.join(arguments)} ended with {done.returncode}: {done.stderr}{done.stdout}"
        )
        return done.stdout

    def words(self, *arguments: str) -> str:
        """Return the answer without its line breaks, which depend on the width of the terminal."""
        return " ".join(self.ask(*arguments).split())

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ask(*arguments, "--json"))

    def log(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ask("log", name, "--json", *arguments).splitlines()]

    def rows(self) -> list[dict[str, Any]]:
        """Return what `list --json` prints, without starting a command. Waiting asks often."""
        return Client(str(self.socket)).get("/sessions")

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.rows() if row["name"] == name)

    def find_row(self, name: str) -> dict[str, Any] | None:
        """Return the session's row, or None while the daemon does not know the session."""
        return next((row for row in self.rows() if row["name"] == name), None)

    def kinds(self, name: str) -> list[str]:
        return [record["kind"] for record in self.log(name)]

    # -- waiting ------------------------------------------------------------------------------

    def wait_at_rest(self, name: str, *, runs: int | None = None, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until the session exists, does not run and owes nothing (and has had this many runs)."""

        def at_rest() -> dict[str, Any] | None:
            row = self.find_row(name)
            is_over = row is not None and row["state"] != "running" and not row["owed"] and row["queued"] is None
            return row if is_over and (runs is None or row["runs"] >= runs) else None

        return eventually(at_rest, seconds, what=f"{name} at rest after {runs} runs")

    def wait_for(self, name: str, seconds: float = PATIENCE_SECONDS, **wanted: Any) -> dict[str, Any]:
        """Wait until the session exists and its row has these values."""

        def matches() -> dict[str, Any] | None:
            row = self.find_row(name)
            return row if row is not None and all(row[key] == value for key, value in wanted.items()) else None

        return eventually(matches, seconds, what=f"{name}: {wanted}")


def copy_examples(folder: Path) -> None:
    """Copy the repository's own sessions and examples, as a fresh clone has them."""
    root = Path(__file__).resolve().parents[2]
    for name in ("sessions.d", "examples", "daemon"):
        shutil.copytree(
            root / name, folder / name, ignore=shutil.ignore_patterns("out", "__pycache__"), dirs_exist_ok=True
        )
