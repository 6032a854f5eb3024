"""The time from a saved file to the command's first instruction, compared with a C floor, two flushes and peers.

The floor is raw inotify and posix_spawn in C, which looks at no file and records nothing. Ours looks at the file,
records the wake and the run durably (two flushes), and then starts the command. All take turns, so that other load on
the machine affects each alike. Peers are measured if they are installed. Ten sessions take turns, too, because a single
one would soon be put to sleep as a loop (12 starts a minute).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from place import TookTooLong, daemon, end, wait_until
from table import Bar, Row, print_table

SECTION = "file saved -> the command's first instruction, settle 0"
REFERENCE = Path(__file__).parent / "reference"
SESSIONS = 10
ROUNDS = 100
PAUSE_SECONDS = 0.1
# The bars: our time is at most so many times the floor's, and the fastest peer's is at least so many times ours.
MOST_TIMES_FLOOR = 5 / 1.1
LEAST_LEAD = 1.1
ANSWER_SECONDS = 3.0
# Peers do not say when they are ready. Those that watch each file take seconds for the large tree.
WARM_UP_SECONDS = 30.0
MISSES = 10
SPEC = """\
objective: Be started as fast as possible.
first: adopt
bindings: {{input: {{file: "{pattern}", settle: 0ms}}}}
run: {{command: [{stamp}, {stamps}]}}
allow: {{read: ["{stamp}"], write: ["{stamps}"]}}
"""

Start = Callable[[Path, Path], "Iterator[Contestant]"]


@dataclass
class Contestant:
    name: str
    folder: Path
    took: list[float] = field(default_factory=list)
    missed: int = 0

    def target(self, number: int) -> Path:
        return self.folder / "watched" / "d0" / f"f{number % SESSIONS}.txt"

    @property
    def is_out(self) -> bool:
        """Whether it has stopped answering. Waiting for it in every round would take minutes from the others."""
        return self.missed >= MISSES

    def play(self, number: int) -> None:
        """Save once. The time is from closing the file to the stamp that the command writes."""
        stamps = self.folder / "stamps"
        known = stamps.stat().st_size if stamps.exists() else 0
        file = os.open(self.target(number), os.O_WRONLY | os.O_TRUNC)
        os.write(file, f"{time.time_ns()}\n".encode())
        saved = time.monotonic_ns()
        os.close(file)
        try:
            wait_until(lambda: stamps.exists() and stamps.stat().st_size > known, ANSWER_SECONDS, "a stamp")
        except TookTooLong:
            self.missed += 1
            return
        with stamps.open() as written:
            written.seek(known)
            self.took.append((int(written.readline()) - saved) / 1e6)

    def warm_up(self) -> None:
        deadline = time.monotonic() + WARM_UP_SECONDS
        while len(self.took) < 3 and not self.is_out and time.monotonic() < deadline:
            self.play(len(self.took))
            time.sleep(PAUSE_SECONDS)
        self.missed = 0 if self.took else MISSES
        self.took.clear()


class Flushes(Contestant):
    """The present cost of two flushes, of a log that grows and of an anchor that does not.

    This is the least that a durable record can cost.
    """

    def play(self, number: int) -> None:
        files = [os.open(self.folder / name, os.O_WRONLY | os.O_CREAT) for name in ("log", "anchor")]
        began = time.monotonic_ns()
        for file, offset in zip(files, (number * 4096, 0), strict=True):
            os.pwrite(file, bytes(4096), offset)
            os.fdatasync(file)
        self.took.append((time.monotonic_ns() - began) / 1e6)
        for file in files:
            os.close(file)


def build(folder: Path) -> Path | None:
    """Compile the stamp and the other programs into one folder. Return None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    for name in ("stamp", "floor", "lines"):
        subprocess.run([compiler, "-O2", "-o", folder / name, REFERENCE / f"{name}.c"], check=True)
    return folder / "stamp"


def plant(folder: Path, files: int) -> None:
    """Make so many files, ten in a folder.

    A session reads each of them. The saved files are in the first folder.
    """
    for number in range(files // SESSIONS):
        place = folder / "watched" / f"d{number}"
        place.mkdir(parents=True)
        for other in range(SESSIONS):
            (place / f"f{other}.txt").write_text("0\n")


@contextmanager
def start_flushes(folder: Path, stamp: Path) -> Iterator[Contestant]:
    yield Flushes("two flushes", folder)


@contextmanager
def start_floor(folder: Path, stamp: Path) -> Iterator[Contestant]:
    process = subprocess.Popen(
        [stamp.parent / "floor", folder / "watched" / "d0", stamp, folder / "stamps"], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield Contestant("C: inotify + posix_spawn", folder)
    finally:
        end(process)


@contextmanager
def start_wakeful(folder: Path, stamp: Path) -> Iterator[Contestant]:
    with daemon(folder) as place:
        (folder / "stamps").touch()
        for number in range(SESSIONS):
            spec = SPEC.format(pattern=f"watched/**/f{number}.txt", stamp=stamp, stamps=folder / "stamps")
            (place.specs / f"bench-{number}.yaml").write_text(spec)
        place.start()
        yield Contestant("wakeful, durable", folder)


@contextmanager
def start_watchman(folder: Path, stamp: Path) -> Iterator[Contestant]:
    server = ["watchman", f"--sockname={folder}/sock", f"--statefile={folder}/state", f"--logfile={folder}/log"]
    process = subprocess.Popen([*server, "--foreground"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until((folder / "sock").exists, WARM_UP_SECONDS, "watchman's socket")
        watched = str(folder / "watched")
        trigger = {"name": "bench", "expression": ["suffix", "txt"], "command": [str(stamp), str(folder / "stamps")]}
        for words in (["watch", watched], ["trigger", watched, trigger]):
            subprocess.run(
                ["watchman", f"--sockname={folder}/sock", "--no-spawn", "-j"],
                input=json.dumps(words).encode(),
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=WARM_UP_SECONDS,
            )
        yield Contestant("watchman trigger", folder)
    finally:
        end(process)


def command(name: str, make: Callable[[Path, str, str], list[str | Path]], *, is_listing: bool = False) -> Start:
    """Return a function that starts a peer as one command in the foreground.

    Some peers read the list of files from standard input.
    """

    @contextmanager
    def start(folder: Path, stamp: Path) -> Iterator[Contestant]:
        watched = folder / "watched"
        listed = "".join(f"{path}\n" for path in watched.rglob("*.txt")) if is_listing else ""
        (folder / "list").write_text(listed)
        with (folder / "list").open() as stdin:
            process = subprocess.Popen(
                make(watched, str(stamp), str(folder / "stamps")),
                stdin=stdin if is_listing else subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
            )
        try:
            yield Contestant(name, folder)
        finally:
            end(process)

    return start


CONTESTANTS: dict[str, Start] = {
    "flushes": start_flushes,
    "floor": start_floor,
    "wakeful": start_wakeful,
    "watchfiles": command(
        "watchfiles CLI",
        lambda watched, stamp, stamps: [Path(sys.executable).parent / "watchfiles", f"{stamp} {stamps}", watched],
    ),
    "entr": command("entr", lambda watched, stamp, stamps: ["entr", "-np", stamp, stamps], is_listing=True),
    "watchman": start_watchman,
    "nodemon": command(
        "nodemon",
        lambda watched, stamp, stamps: [
            "nodemon",
            "--delay",
            "0",
            "-w",
            watched,
            "-e",
            "txt",
            "-x",
            f"{stamp} {stamps}",
        ],
    ),
    "chokidar": command(
        "chokidar-cli",
        lambda watched, stamp, stamps: [
            "chokidar",
            f"{watched}/**/*.txt",
            "-d",
            "0",
            "-t",
            "0",
            "-c",
            f"{stamp} {stamps}",
        ],
    ),
}
PEERS = tuple(CONTESTANTS)[3:]


def is_here(name: str) -> bool:
    return name not in PEERS or name == "watchfiles" or shutil.which(name) is not None


def race(files: int, folder: Path, stamp: Path, names: tuple[str, ...]) -> list[Row]:
    with ExitStack() as stack:
        racing: list[Contestant] = []
        for name in filter(is_here, names):
            home = folder / f"{name}-{files}"
            home.mkdir()
            plant(home, files)
            try:
                racing.append(stack.enter_context(CONTESTANTS[name](home, stamp)))
            except (TookTooLong, subprocess.SubprocessError):
                # A peer may fail to start here. Without ours or the floor there is no comparison.
                if name not in PEERS:
                    raise
                racing.append(Contestant(name, home, missed=MISSES))
            racing[-1].warm_up()
        for number in range(ROUNDS):
            for contestant in (one for one in racing if not one.is_out):
                contestant.play(number)
                time.sleep(PAUSE_SECONDS)
    absent = [
        Row(SECTION, f"{name}, {files:,} files", None, "ms p50", note="not installed")
        for name in names
        if not is_here(name)
    ]
    return [*make_rows(racing, files), *absent]


def make_rows(racing: list[Contestant], files: int) -> list[Row]:
    _, floor, ours, *peers = racing
    if not floor.took or not ours.took:
        return [
            Row(SECTION, f"{one.name}, {files:,} files", None, "ms p50", note="never answered")
            for one in (floor, ours)
            if not one.took
        ]
    least = statistics.median(floor.took)
    bar = Bar("<=", MOST_TIMES_FLOOR * least, "5 ms where C takes 1.1")
    rows = [make_row(one, files, least, bar if one is ours else None) for one in racing]
    fastest = min((statistics.median(peer.took) for peer in peers if peer.took), default=None)
    if fastest is not None:
        lead = fastest / statistics.median(ours.took)
        rows.append(Row(SECTION, f"the fastest peer, {files:,} files", lead, "x ours", Bar(">=", LEAST_LEAD)))
    return rows


def make_row(one: Contestant, files: int, least: float, bar: Bar | None) -> Row:
    name = f"{one.name}, {files:,} files"
    if not one.took:
        return Row(SECTION, name, None, "ms p50", note="never answered")
    p50, p95 = (statistics.quantiles(one.took, n=20)[cut] for cut in (9, 18))
    missed = f", {one.missed} saves never answered" if one.missed else ""
    return Row(SECTION, name, p50, "ms p50", bar, f"p95 {p95:.2f}, {p50 / least:.1f}x C{missed}")


def measure(names: tuple[str, ...] = tuple(CONTESTANTS)) -> list[Row]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        stamp = build(folder)
        if stamp is None:
            return [Row(SECTION, "wakeful, durable", None, "ms p50", note="needs a C compiler (cc)")]
        return [row for files in (100, 20_000) for row in race(files, folder, stamp, names)]


if __name__ == "__main__":
    print_table(measure())
