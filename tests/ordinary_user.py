"""A daemon and its commands run by an ordinary user, although the suite runs as root: most people are one, and root's defences are not theirs.

Nothing of the machine is changed: the user has a number and a home, and an entry in an /etc/passwd that only its own processes see
(become_user.py). Where the suite runs as an ordinary user already, that is the user.
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

from credentials import acting_as
from daemon_forks import ForkedDaemon, User, run_forked
from e2e.box import WAKEFUL, Box

BECOME = Path(__file__).with_name("become_user.py")
# Far from the numbers that distributions, containers and directories hand out.
UID = 61_234


class OrdinaryUser:
    """`wrap` are words to put before a command, which then runs as the user."""

    def __init__(self, home: Path, uid: int = UID) -> None:
        """Another `uid` is for a test that does something to all processes of its user."""
        self.is_made = os.geteuid() == 0
        self.uid = uid if self.is_made else os.geteuid()
        self.home = home
        self.wrap = (sys.executable, "-I", str(BECOME), str(self.uid), str(home)) if self.is_made else ()
        home.mkdir(exist_ok=True)
        self.give(home)

    def give(self, folder: Path) -> None:
        """A folder with all that is in it, and the way to it."""
        if not self.is_made:
            return
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, self.uid, self.uid)
        for above in folder.resolve().parents:
            if not above.stat().st_mode & 0o001:
                above.chmod(above.stat().st_mode | 0o011)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """The calling thread is the user meanwhile, as far as files and sockets tell. What it needs must be imported before."""
        if not self.is_made:
            yield
            return
        with acting_as(self.uid):
            yield


class OrdinaryBox(Box):
    """A box whose daemon and commands are the user's. Files that the test writes are given to the user before the daemon starts."""

    def __init__(self, folder: Path, user: OrdinaryUser) -> None:
        super().__init__(folder)
        self.user = user
        self.wrap = user.wrap

    def reach(self) -> str:
        """Confined as everybody's sessions are; what is to be written must be declared."""
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
        """What becomes the user before it starts the daemon is not needed by a daemon that is forked."""
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
    """Skips, and says so, where root cannot make one here."""
    user = OrdinaryUser(tmp_path / "home")
    obstacle = _find_obstacle(user.wrap[:-1], user.uid)
    if obstacle is not None:
        pytest.skip(f"NOT TESTED as an ordinary user, whom root cannot make here: {obstacle}")
    return user


@functools.cache
def _find_obstacle(words: tuple[str, ...], uid: int) -> str | None:
    """Tried once in each process of the suite, with the home that is everybody's."""
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
