"""Two sessions that obey the same hostile file: `open` runs without isolation, `shut` runs with the usual isolation."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import SETTINGS, Box
from ordinary_user import ordinary_box as ordinary_box
from ordinary_user import ordinary_user as ordinary_user
from wait_conditions import PATIENCE_SECONDS
from wakeful.runners.isolation.landlock import probe_abi

# The resolution of file times (two ticks of the slowest kernel), and a margin.
HAND_SECONDS = 0.03
VICTIM = Path(__file__).with_name("obedient_program.py")
SESSION = """
objective: Do what the mail says.
isolation: {level}
bindings:
  mail:   {{file: mail.json}}
  result: {{file: out/{name}.txt, access: write}}
run:
  command: [python3, obedient_program.py, mail.json]
  retries: 0
  timeout: 60s
  limits: {{{limits}}}
"""


class Attack(Box):
    """A project whose mail is hostile. Everything outside of `project/` belongs to others."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh" / "id_ed25519").write_text("PRIVATE KEY")
        self.project = folder / "project"
        self.project.mkdir()
        self.specs = self.project / "sessions.d"
        self.specs.mkdir()
        shutil.copy(VICTIM, self.project / "obedient_program.py")
        (self.project / SETTINGS).write_text("allow_unisolated: true\nconcurrency: 4\n")
        (folder / SETTINGS).unlink()

    def reach(self) -> str:
        return ""

    def environment(self) -> dict[str, str]:
        return super().environment() | {"HOME": str(self.home)}

    def declare(self, name: str, level: str, limits: str = "", **order: Any) -> None:
        """Declare a session that obeys a mail of its own."""
        if self.daemon is not None:
            # File times are coarse: a spec written at once could have the same time as a write by a run. A person edits
            # more slowly.
            time.sleep(HAND_SECONDS)
        (self.project / f"{name}.json").write_text(json.dumps(order))
        text = SESSION.format(name=name, level=level, limits=limits).replace("mail.json", f"{name}.json")
        (self.specs / f"{name}.yaml").write_text(text)

    def carry_out(self, *, limits: str = "", **order: Any) -> None:
        """Carry out the attack without and with the defence. In the order, `{name}` stands for the session's name."""
        self.carry_out_all({"": order}, limits=limits)

    def carry_out_all(self, orders: dict[str, dict[str, Any]], *, limits: str = "") -> None:
        """Carry out several attacks at once.

        For each order, the sessions are named `open` and `shut` plus the order's key.
        """
        for what, order in orders.items():
            for name, level in ((f"open{what}", "none"), (f"shut{what}", "standard")):
                told = {
                    key: value.replace("{name}", name) if isinstance(value, str) else value
                    for key, value in order.items()
                }
                self.declare(name, level, limits if level == "standard" else "", **told)
        if self.daemon is None:
            self.start()
        for what in orders:
            self.settle(f"open{what}", runs=1)
            self.settle(f"shut{what}", runs=1)

    def spec_raw(self, name: str, text: str) -> None:
        (self.specs / f"{name}.yaml").write_text(text)

    def settle(self, name: str, *, runs: int = 1, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Wait until a session, perhaps declared only just now, has had its run."""
        return self.wait_at_rest(name, runs=runs, seconds=seconds)

    def outcome(self, name: str) -> str:
        return self.row(name)["last_run"]["outcome"]

    def finished(self, name: str) -> dict[str, Any]:
        """Return the recorded end of the session's only run."""
        return next(record["payload"] for record in self.log(name) if record["kind"] == "run_finished")

    def told(self, name: str) -> str:
        return self.run("output", name).stdout

    def assert_stopped(self, words: str = "Permission denied", what: str = "") -> None:
        """Assert that the attack succeeded without the defence and failed with it.

        The record names the level of isolation, and its hint names the denial.
        """
        assert self.outcome(f"open{what}") == "succeeded", self.told(f"open{what}")
        assert self.finished(f"open{what}")["isolation"] == {"level": "none", "unenforced": ["everything"]}
        self.assert_failed(f"shut{what}", words)

    def assert_failed_at_once(self, name: str) -> None:
        """Assert that the run failed before it did anything that it was told to do."""
        assert self.outcome(name) == "failed"
        assert "not allowed" in self.told(name)

    def assert_failed(self, name: str, words: str) -> None:
        assert self.outcome(name) == "failed", self.told(name)
        finished = self.finished(name)
        assert finished["isolation"]["level"] == "standard"
        assert words in self.told(name)
        # The hint names the denied place, or says that a denial is possible if the program's output does not show one.
        assert "denied" in (finished["hint"] or "")
        assert finished["hint"] in self.words("show", name)


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Attack]:
    if probe_abi() < 6:
        pytest.skip("this kernel's Landlock is too old for the whole suite: Linux 6.12 has all of it")
    made = Attack(tmp_path)
    yield made
    made.close()


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Start an unrelated process of the same user."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.send_signal(signal.SIGKILL)
    process.wait()
