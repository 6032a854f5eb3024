"""Run a daemon and its commands as an ordinary user, although the suite runs as root. Most daemons run so.

The machine is not changed. The user has a number, a home, and an entry in an /etc/passwd that only its own processes
see (become_user.py). If an ordinary user runs the suite, that user is taken.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from daemon_forks import ForkedDaemon, User, run_forked
from e2e.box import WAKEFUL, Box
from thread_user import acting_as

BECOME = Path(__file__).with_name("become_user.py")
# Far from the numbers that distributions, containers and directory services assign.
UID = 61_234


class OrdinaryUser:
    """An ordinary user with a home. `wrap` are the words before a command that make it run as the user."""

    def __init__(self, home: Path, uid: int = UID) -> None:
        """A test that acts on all processes of its user passes another `uid`."""
        self.is_made = os.geteuid() == 0
        self.uid = uid if self.is_made else os.geteuid()
        self.home = home
        self.wrap = (sys.executable, "-I", str(BECOME), str(self.uid), str(home)) if self.is_made else ()
        home.mkdir(exist_ok=True)
        self.give(home)

    def give(self, folder: Path) -> None:
        """Give a folder and its content to the user, and make the way to it passable."""
        if not self.is_made:
            return
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, self.uid, self.uid)
        for above in folder.resolve().parents:
            if not above.stat().st_mode & 0o001:
                above.chmod(above.stat().st_mode | 0o011)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Let the calling thread act as the user towards files and sockets.
        Modules it needs must be imported before."""
        if not self.is_made:
            yield
            return
        with acting_as(self.uid):
            yield


class OrdinaryBox(Box):
    """A box whose daemon and commands run as the user.
    The test's files are given to the user before the daemon starts."""

    def __init__(self, folder: Path, user: OrdinaryUser) -> None:
        super().__init__(folder)
        self.user = user
        self.wrap = user.wrap

    def reach(self) -> str:
        """Return nothing: runs are confined as usual, and a spec must declare what they write."""
        return ""

    def environment(self) -> dict[str, str]:
        return super().environment() | {"HOME": str(self.user.home)}

    def start(self, *, is_ready: bool = True, env: dict[str, str] | None = None) -> None:
        self.output.touch()
        self.user.give(self.folder)
        super().start(is_ready=is_ready, env=env)

    def launch(
        self, words: list[str], out: IO[bytes], environment: dict[str, str], user: User | None = None
    ) -> subprocess.Popen[bytes] | ForkedDaemon:
        """Start the daemon. A forked daemon becomes the user by itself, so the words of `wrap` are left out."""
        own = len(self.user.wrap)
        if own and tuple(words[:own]) == self.user.wrap and self._may_fork(words[own:], environment):
            return super().launch(words[own:], out, environment, (self.user.uid, str(self.user.home)))
        return super().launch(words, out, environment)

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        user = (self.user.uid, str(self.user.home)) if self.user.is_made else None
        environment = self.environment() | (env or {})
        return run_forked([WAKEFUL, *arguments], folder=self.folder, environment=environment, user=user)

    def spec(self, name: str, text: str) -> Path:
        with self.user.acting() if self.daemon is not None else contextlib.nullcontext():
            return super().spec(name, text)

    def rows(self) -> list[dict[str, Any]]:
        with self.user.acting():
            return super().rows()


@pytest.fixture
def ordinary_user(tmp_path: Path) -> OrdinaryUser:
    """Return the user. Skip the test, with the reason, if root cannot become another user here."""
    user = OrdinaryUser(tmp_path / "home")
    obstacle = _find_obstacle(user.wrap[:-1], user.uid)
    if obstacle is not None:
        pytest.skip(f"NOT TESTED as an ordinary user, whom root cannot make here: {obstacle}")
    return user


@functools.cache
def _find_obstacle(words: tuple[str, ...], uid: int) -> str | None:
    """Try it once in each process of the suite. Every user can use this home."""
    wrap = [*words, "/"] if words else []
    tried = subprocess.run(
        [*wrap, sys.executable, "-c", "import os; print(os.getuid())"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        return tried.stderr.strip()[-200:]
    assert int(tried.stdout) == uid
    return None


@pytest.fixture
def ordinary_box(tmp_path: Path, ordinary_user: OrdinaryUser) -> Iterator[OrdinaryBox]:
    folder = tmp_path / "project"
    folder.mkdir()
    made = OrdinaryBox(folder, ordinary_user)
    yield made
    made.close()
