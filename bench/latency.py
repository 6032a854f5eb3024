"""File saved -> the command's first instruction, beside a C floor, two measured flushes and peers, in one run.

The floor is raw inotify + posix_spawn in C: it looks at nothing and records nothing. Ours looks at the file, records
the wake and the run durably (two flushes), and only then starts the command. Rounds of all rows are interleaved, so
that the machine's noise falls on each alike. Peers are measured where they are installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from table import Bar, Row

REFERENCE = Path(__file__).parent / "reference"
WAKEFUL = Path(sys.executable).parent / "wakeful"
ROUNDS = 60
PAUSE_SECONDS = 0.15
PEER_WAIT_SECONDS = 3.0
SPEC = """\
objective: Be started as fast as possible.
bindings: {{input: {{file: "{pattern}", settle: 0ms}}}}
run: {{command: [{stamp}, {stamps}]}}
"""


@dataclass
class Contestant:
    name: str
    folder: Path
    stamps: Path
    process: subprocess.Popen[bytes]
    took: list[float] = field(default_factory=list)
    missed: int = 0

    @property
    def target(self) -> Path:
        return self.folder / "watched" / "d0" / "f0.txt"

    def save_and_wait(self, number: int) -> None:
        """One save, timed from the close of the file to the stamp the command wrote."""
        size = self.stamps.stat().st_size if self.stamps.exists() else 0
        self.target.write_text(f"{number}\n")
        saved = time.monotonic_ns()
        deadline = time.monotonic() + PEER_WAIT_SECONDS
        while not self.stamps.exists() or self.stamps.stat().st_size == size:
            if time.monotonic() > deadline:
                self.missed += 1
                return
            time.sleep(0.0005)
        stamp = int(self.stamps.read_text()[size:].splitlines()[0])
        self.took.append((stamp - saved) / 1e6)


def build(folder: Path) -> tuple[Path, Path] | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    for name in ("stamp", "floor"):
        subprocess.run([compiler, "-O2", "-o", folder / name, REFERENCE / f"{name}.c"], check=True)
    return folder / "stamp", folder / "floor"


def plant(folder: Path, files: int) -> None:
    """So many files, ten in a folder; the one that is saved is in the first."""
    watched = folder / "watched"
    for number in range(max(files // 10, 1)):
        (watched / f"d{number}").mkdir(parents=True)
        for other in range(10):
            (watched / f"d{number}" / f"f{other}.txt").write_text("0\n")


def start_floor(folder: Path, stamp: Path, floor: Path) -> Contestant:
    stamps = folder / "stamps"
    process = subprocess.Popen([floor, folder / "watched" / "d0", stamp, stamps], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return Contestant("C: inotify + posix_spawn", folder, stamps, process)


def start_wakeful(folder: Path, stamp: Path) -> Contestant:
    stamps = folder / "stamps"
    (folder / "sessions.d").mkdir()
    spec = SPEC.format(pattern="watched/**/*.txt", stamp=stamp, stamps=stamps)
    (folder / "sessions.d" / "bench.yaml").write_text(spec)
    arguments = [WAKEFUL, "daemon", "--specs", folder / "sessions.d", "--state", folder / "state", "--socket", folder / "s"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=folder)
    assert process.stdout is not None
    while not process.stdout.readline().startswith(b"ready"):
        pass
    return Contestant("wakeful, durable", folder, stamps, process)


def _peer(name: str, make: Callable[[Path, Path, Path], list[object]], stdin: bool = False) -> Callable[[Path, Path], Contestant]:
    def start(folder: Path, stamp: Path) -> Contestant:
        stamps = folder / "stamps"
        listed = "".join(f"{path}\n" for path in sorted((folder / "watched").rglob("*.txt")))
        process = subprocess.Popen(
            make(folder / "watched", stamp, stamps),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        assert process.stdin is not None
        if stdin:
            process.stdin.write(listed.encode())
            process.stdin.close()
        return Contestant(name, folder, stamps, process)

    return start


PEERS: dict[str, Callable[[Path, Path], Contestant]] = {
    "entr": _peer("entr", lambda watched, stamp, stamps: ["entr", "-np", stamp, stamps], stdin=True),
    "watchfiles": _peer("watchfiles CLI", lambda watched, stamp, stamps: [Path(sys.executable).parent / "watchfiles", f"{stamp} {stamps}", watched]),
    "nodemon": _peer("nodemon", lambda watched, stamp, stamps: ["nodemon", "-w", watched, "-e", "txt", "-x", f"{stamp} {stamps}"]),
    "chokidar": _peer("chokidar-cli -d 0", lambda watched, stamp, stamps: ["chokidar", f"{watched}/**/*.txt", "-d", "0", "-c", f"{stamp} {stamps}"]),
    "watchman": _peer("watchman-make", lambda watched, stamp, stamps: ["watchman-make", "--root", watched, "-p", "**/*.txt", "--run", f"{stamp} {stamps}", "-s", "0"]),
}


def measure_flushes(folder: Path, rounds: int = 200) -> float:
    """Two flushes of one page each, as a durable record and its anchor cost: median in milliseconds."""
    took = []
    with (folder / "flush").open("wb") as one, (folder / "flush2").open("wb") as other:
        for _ in range(rounds):
            began = time.monotonic_ns()
            for file in (one, other):
                os.pwrite(file.fileno(), b"x" * 4096, 0)
                os.fdatasync(file.fileno())
            took.append((time.monotonic_ns() - began) / 1e6)
    return statistics.median(took)


def race(files: int, folder: Path, stamp: Path, floor: Path) -> list[Row]:
    with ExitStack() as stack:
        contestants = []
        for name, start in {"floor": None, "wakeful": None, **PEERS}.items():
            home = folder / f"{name}-{files}"
            home.mkdir()
            if name in PEERS and not (shutil.which(name) or name == "watchfiles"):
                contestants.append(Row("latency", f"{name}, {files} files", None, "ms p50", note="not installed"))
                continue
            plant(home, files)
            match name:
                case "floor":
                    made = start_floor(home, stamp, floor)
                case "wakeful":
                    made = start_wakeful(home, stamp)
                case _:
                    assert start is not None
                    made = start(home, stamp)
            stack.callback(_end, made.process)
            contestants.append(made)
        _settle([c for c in contestants if isinstance(c, Contestant)])
        racing = [c for c in contestants if isinstance(c, Contestant)]
        for number in range(1, ROUNDS + 1):
            for contestant in racing:
                contestant.save_and_wait(number)
                time.sleep(PAUSE_SECONDS)
        return _rows(racing, files, measure_flushes(folder)) + [c for c in contestants if isinstance(c, Row)]


def _settle(contestants: list[Contestant]) -> None:
    """Peers do not say when they are ready: warm up until each has answered once."""
    for contestant in contestants:
        for warm in range(5):
            before = len(contestant.took)
            contestant.save_and_wait(-warm)
            time.sleep(PAUSE_SECONDS)
            if len(contestant.took) > before and warm:
                break
        contestant.took.clear()
        contestant.missed = 0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()


def _rows(racing: list[Contestant], files: int, flushes: float) -> list[Row]:
    medians = {c.name: statistics.median(c.took) for c in racing if c.took}
    floor = medians["C: inotify + posix_spawn"]
    bar = 3 * floor + flushes
    rows = [Row("latency", f"two flushes, {files} files", flushes, "ms p50")]
    for contestant in racing:
        name = f"{contestant.name}, {files} files"
        if not contestant.took:
            rows.append(Row("latency", name, None, "ms p50", note="never answered"))
            continue
        cuts = statistics.quantiles(contestant.took, n=100)
        note = f"p99 {cuts[98]:.2f}, {contestant.missed} missed, {medians[contestant.name] / floor:.1f}x the floor"
        mine = contestant.name.startswith("wakeful")
        rows.append(Row("latency", name, medians[contestant.name], "ms p50", Bar("<=", bar, "3x floor + 2 flushes") if mine else None, note))
    return rows


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        built = build(folder)
        if built is None:
            return [Row("latency", "file saved -> first instruction", None, "ms p50", note="needs a C compiler (cc)")]
        return [row for files in (100, 20_000) for row in race(files, folder, *built)]


if __name__ == "__main__":
    from table import print_table

    print_table(measure())
