"""Keep a real daemon busy for an hour and watch its memory: `make soak MINUTES=60` calls it.

Ordinary work and faults take turns, with two or three runs a second. There are edits, commits, messages, failing,
hanging and loud runs, broken specs, unreadable inputs, questions of every kind, and clients that vanish. Every ten
seconds the soak notes the daemon's memory, threads and descriptors. It begins with some minutes without pauses, which
fill caches and pools to their bounds. It fails if the memory still grows in the time after that. It leaves `soak.csv`
and `soak.svg` in the folder that `--out` names.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

TESTS = Path(__file__).resolve().parent.parent
sys.path[0] = str(TESTS)

from e2e.box import Box  # noqa: E402
from soak.plot import draw  # noqa: E402

SAMPLE_SECONDS = 10
PAUSE_SECONDS = 0.25
WARM_UP_MINUTES = 8.0
# The slope after the warm-up that counts as flat. 0.05 MB a minute is 72 MB a day. A smaller slope drowns in the
# allocator's noise.
FLAT_MB_A_MINUTE = 0.05
READERS = 6
QUESTIONS = (
    ("list",),
    ("why", "reader0"),
    ("log", "reader1"),
    ("show", "fails"),
    ("costs",),
    ("plan", "data/0.txt"),
    ("output", "loud"),
    ("search", "edit"),
)

SPECS = {
    "fails": "bindings: {data: {file: data/fails.txt}}\nrun: {command: [cat, no-such-file], retries: 1, backoff: 1s}\n",
    "hangs": "bindings: {data: {file: data/hangs.txt}}\nrun: {command: [sleep, '60'], timeout: 1s, retries: 0}\n",
    "loud": "bindings: {data: {file: data/loud.txt}}\nrun: {script: 'head -c 300000 /dev/zero | tr \"\\\\0\" x', retries: 0}\n",
    "ticks": "bindings: {clock: {every: 5s}}\nrun: {command: ['true']}\n",
    "mails": "run: {command: ['true']}\n",
    "commits": "bindings: {code: {commits: ., repo: repository}}\nrun: {command: ['true']}\n",
    "follows": "bindings: {sums: {file: 'out/*.txt'}}\nrun: {script: 'cat out/*.txt > /dev/null'}\n",
}


@dataclass(frozen=True)
class Sample:
    minute: float
    rss_mb: float
    threads: int
    descriptors: int
    runs: int


class Soak:
    def __init__(self, folder: Path, seed: int) -> None:
        self.box = Box(folder)
        self.random = random.Random(seed)
        self.turn = 0
        self.samples: list[Sample] = []
        self.deeds = (
            self.edit, self.edit, self.edit, self.edit, self.save, self.fail, self.hang, self.shout, self.send, self.commit, self.ask,
            self.break_spec, self.hide_input, self.vanish, self.remember, self.cancel,
        )  # fmt: skip

    def prepare(self) -> None:
        for name in [str(number) for number in range(READERS)] + ["fails", "hangs", "loud"]:
            self.box.write(f"data/{name}.txt", "first\n")
        (self.box.folder / "out").mkdir()
        for number in range(READERS):
            level = "isolation: strict\n" if number == 0 and shutil.which("bwrap") else ""
            self.box.spec(
                f"reader{number}",
                f"objective: Count.\n{level}bindings:\n  data: {{file: data/{number}.txt}}\n  sum: {{file: out/{number}.txt, access: write}}\n"
                f"run: {{script: wc -c < data/{number}.txt > out/{number}.txt}}\n",
            )
        for name, text in SPECS.items():
            self.box.spec(name, f"objective: Soak.\n{text}")
        self.git("init", "-q", "-b", "main")
        self.commit()
        self.box.start()

    def live(self, minutes: float) -> None:
        """Keep the daemon busy during the warm-up, and for this many minutes after it."""
        began = time.monotonic()
        next_sample = began
        while (now := time.monotonic()) < began + (WARM_UP_MINUTES + minutes) * 60:
            if now >= next_sample:
                next_sample += SAMPLE_SECONDS
                self.take_sample((now - began) / 60)
            self.turn += 1
            self.random.choice(self.deeds)()
            if now >= began + WARM_UP_MINUTES * 60:
                time.sleep(PAUSE_SECONDS)

    def take_sample(self, minute: float) -> None:
        assert self.box.daemon is not None
        assert self.box.daemon.poll() is None, self.box.output.read_text()[-5000:]
        daemon = psutil.Process(self.box.daemon.pid)
        runs = sum(row["runs"] for row in self.box.rows())
        sample = Sample(
            round(minute, 2), round(daemon.memory_info().rss / 1e6, 2), daemon.num_threads(), daemon.num_fds(), runs
        )
        self.samples.append(sample)
        if len(self.samples) % 6 == 1:
            print(
                f"{sample.minute:6.1f} min  {sample.rss_mb:6.1f} MB  {sample.threads} threads  {sample.descriptors} descriptors  {sample.runs} runs",
                flush=True,
            )

    # -- what happens ---------------------------------------------------------------------------

    def edit(self) -> None:
        self.box.write(f"data/{self.random.randrange(READERS)}.txt", f"edit {self.turn}\n")

    def save(self) -> None:
        self.box.save(f"data/{self.random.randrange(READERS)}.txt", f"save {self.turn}\n")

    def fail(self) -> None:
        self.box.write("data/fails.txt", f"edit {self.turn}\n")

    def hang(self) -> None:
        self.box.write("data/hangs.txt", f"edit {self.turn}\n")

    def shout(self) -> None:
        self.box.write("data/loud.txt", f"edit {self.turn}\n")

    def send(self) -> None:
        self.box.run("send", "mails", f"message {self.turn}")

    def remember(self) -> None:
        self.box.run("remember", "mails", f"key{self.turn % 20}", f"value {self.turn}")

    def cancel(self) -> None:
        self.box.run("cancel", "hangs")

    def ask(self) -> None:
        self.box.run(*self.random.choice(QUESTIONS))

    def commit(self) -> None:
        self.box.write("repository/code.txt", f"commit {self.turn}\n")
        self.git("add", "code.txt")
        self.git("commit", "-q", "-m", f"Change {self.turn}")

    def break_spec(self) -> None:
        """Write a spec that is refused in odd turns and good in even ones."""
        text = (
            "objective: ["
            if self.turn % 2
            else f"objective: Broken now and then.\n# {self.turn}\nrun: {{command: ['true']}}\n"
        )
        self.box.spec("broken", text)

    def hide_input(self) -> None:
        path = self.box.folder / "data" / f"{self.random.randrange(READERS)}.txt"
        path.unlink(missing_ok=True)
        path.symlink_to(path) if self.turn % 2 else path.mkdir()
        time.sleep(PAUSE_SECONDS)
        path.unlink() if path.is_symlink() else path.rmdir()
        path.write_text(f"back {self.turn}\n")

    def vanish(self) -> None:
        """Connect a client that asks to follow everything and is gone."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.box.socket))
            client.sendall(b"GET /follow HTTP/1.1\r\nHost: wakeful\r\n\r\n")

    def git(self, *words: str) -> None:
        folder = self.box.folder / "repository"
        folder.mkdir(exist_ok=True)
        who = ("-c", "user.name=Soak", "-c", "user.email=soak@example.invalid")
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def find_slope(samples: list[Sample]) -> float:
    """Return the slope of the memory in megabytes a minute, by least squares."""
    count = len(samples)
    middle_x = sum(sample.minute for sample in samples) / count
    middle_y = sum(sample.rss_mb for sample in samples) / count
    spread = sum((sample.minute - middle_x) ** 2 for sample in samples)
    return sum((sample.minute - middle_x) * (sample.rss_mb - middle_y) for sample in samples) / spread


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ.update(
        HOME=str(folder.with_name(f"{folder.name}.home")), GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1"
    )
    Path(os.environ["HOME"]).mkdir()
    soak = Soak(folder, asked.seed)
    try:
        soak.prepare()
        soak.live(asked.minutes)
    finally:
        soak.box.close()
    asked.out.mkdir(parents=True, exist_ok=True)
    with (asked.out / "soak.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Sample))
        writer.writerows(astuple(sample) for sample in soak.samples)
    (asked.out / "soak.svg").write_text(draw([(sample.minute, sample.rss_mb) for sample in soak.samples]))
    slope = find_slope([sample for sample in soak.samples if sample.minute >= WARM_UP_MINUTES])
    last = soak.samples[-1]
    print(
        f"{last.runs} runs in {last.minute:.0f} min; {last.rss_mb:.1f} MB at the end; {slope:+.3f} MB a minute after the warm-up (flat: {FLAT_MB_A_MINUTE})"
    )
    for place in (folder, Path(os.environ["HOME"])):
        shutil.rmtree(place, ignore_errors=True)
    return int(slope > FLAT_MB_A_MINUTE)


if __name__ == "__main__":
    sys.exit(main())
