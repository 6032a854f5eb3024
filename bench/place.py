"""A daemon with a folder of its own, for benchmarks: start it, wait for it, ask it, kill it.

Every wait has a deadline and names its condition, so that a benchmark ends although the measured program does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

WAKEFUL = Path(sys.executable).parent / "wakeful"
READY_SECONDS = 300.0
END_SECONDS = 30.0
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class TookTooLong(Exception):
    """A wait reached its deadline. The row says so, and the other rows are still measured."""


def wait_until(is_so: Callable[[], bool], seconds: float, what: str, *, every: float = 0.005) -> float:
    """Wait for the condition. Return the seconds that it took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise TookTooLong(f"waited {seconds:.0f} s for {what}")
        time.sleep(every)
    return time.monotonic() - began


class Place:
    """A daemon whose `folder` holds sessions.d/, the state and the socket.

    Its output goes to a file, because a pipe that is not read would block it.
    """

    def __init__(self, folder: Path, *, has_http: bool = False) -> None:
        self.folder = folder
        # Whether the daemon gets a TCP port, which is any free one.
        self._has_http = has_http
        self.specs = folder / "sessions.d"
        self.socket = folder / "s"
        self.said = folder / "said"
        self.specs.mkdir(parents=True, exist_ok=True)
        # The folder for the runs' folders, from the first start until `stop`.
        self.runtime: str | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the daemon. Return the seconds from the spawn to the line that begins with `ready`."""
        if self.runtime is None:
            # In memory, as usual, but under a name of our own, because a killed daemon does not remove it.
            self.runtime = tempfile.mkdtemp(
                prefix="wakeful-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else self.folder
            )
        given = {"RUNTIME_DIRECTORY": self.runtime} | ({"WAKEFUL_HTTP": "127.0.0.1:0"} if self._has_http else {})
        began = time.monotonic()
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [WAKEFUL, "daemon", "--specs", self.specs, "--state", self.folder / "state", "--socket", self.socket],
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=_environment() | given,
            )
        wait_until(self._is_ready_or_over, READY_SECONDS, "the daemon to be ready", every=0.002)
        if self.process.poll() is not None:
            raise TookTooLong(
                f"the daemon ended with {self.process.returncode}: {self.said.read_text(errors='replace')[-2000:]}"
            )
        return time.monotonic() - began

    def _is_ready_or_over(self) -> bool:
        assert self.process is not None
        said = self.said.read_bytes()
        return said.startswith(b"ready") or b"\nready" in said or self.process.poll() is not None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def ask(self, *arguments: str) -> float:
        """Return the wall seconds of one `wakeful VERB …`, as a person waits for it."""
        began = time.monotonic()
        subprocess.run(
            [WAKEFUL, *arguments, "--socket", self.socket],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            env=_environment(),
            timeout=READY_SECONDS,
        )
        return time.monotonic() - began

    def read(self, *arguments: str) -> str:
        """Return the output of one `wakeful VERB …`."""
        return subprocess.run(
            [WAKEFUL, *arguments, "--socket", self.socket],
            check=True,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=_environment(),
            timeout=READY_SECONDS,
        ).stdout

    def count_running(self) -> int:
        return sum(row["state"] == "running" for row in json.loads(self.read("list", "--json")))

    @property
    def port(self) -> int:
        """The TCP port, read from the line `ready`."""
        found = re.search(rb"http://127\.0\.0\.1:(\d+)", self.said.read_bytes())
        assert found is not None, "the daemon has no TCP port"
        return int(found[1])

    def make_token(self, *scopes: str) -> str:
        words = [word for scope in scopes for word in ("--scope", scope)]
        token: str = json.loads(self.read("token", "new", *words, "--json"))["token"]
        return token

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND

    def rss_megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(END_SECONDS)

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)
        if self.runtime is not None:
            shutil.rmtree(self.runtime)
            self.runtime = None


def _environment() -> dict[str, str]:
    """Return our environment, but let Python keep compiled modules, as an installed wakeful does.

    Otherwise compiling took 0.3 s of each start.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def end(process: subprocess.Popen[bytes]) -> None:
    """End the process by a signal, and kill it if it does not end in time."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(END_SECONDS)


@contextlib.contextmanager
def daemon(folder: Path, *, has_http: bool = False) -> Iterator[Place]:
    place = Place(folder, has_http=has_http)
    try:
        yield place
    finally:
        place.stop()
