"""A daemon with 100 streams and 1,000 calls a minute over TCP while 64 runs print lines.

The benchmark measures how long calls take, and how much longer it takes from a saved file to its command than without
streams and calls. Phases with and without them alternate in one run, so that other load on the machine affects both.
The runs print in all phases. The clients are processes of their own (http_clients.py). A call is timed from the moment
it was due.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latency import Contestant, build
from place import END_SECONDS, TICKS_A_SECOND, Place, TookTooLong, daemon, end, wait_until
from table import Bar, Row, print_table

SECTION = "100 streams and 1,000 calls a minute while 64 runs print lines"
STREAMS = 100
CALLS_A_MINUTE = 1_000
PRINTING = 64
# Enough sessions that none is put to sleep as a loop, which happens at 12 starts a minute.
WAKING = 40
PHASES = 6
PHASE_SECONDS = 20.0
# Opening a hundred streams at once, each with a snapshot, is not measured. Wait until it is done.
CALM_SECONDS = 2.0
SAVE_EVERY_SECONDS = 0.25
START_SECONDS = 120.0
CLIENTS = Path(__file__).parent / "http_clients.py"
SETTINGS = "concurrency: {{commands: {slots}}}\nstop_grace: 0s\n"
# Each prints ten lines a second until the benchmark ends.
PRINT_SPEC = """\
objective: Print lines.
first: run
bindings: {{input: {{file: data/{number}.txt}}}}
run: {{command: [{lines}]}}
allow: {{read: ["{lines}"]}}
"""
WAKE_SPEC = """\
objective: Be started as fast as possible.
first: adopt
bindings: {{input: {{file: watched/{number}.txt, settle: 0ms}}}}
run: {{command: [{stamp}, {stamps}]}}
allow: {{read: ["{stamp}"], write: ["{stamps}"]}}
"""


class Saves(Contestant):
    """Saves files, each of which one session reads."""

    def target(self, number: int) -> Path:
        return self.folder / "watched" / f"{number % WAKING}.txt"


@dataclass
class Side:
    """The figures of the phases of one kind: with streams and calls, or without."""

    took: list[float] = field(default_factory=list)
    missed: int = 0
    daemon_seconds: float = 0.0
    busy_seconds: float = 0.0
    seconds: float = 0.0

    def say_busy(self) -> str:
        cores = os.cpu_count() or 1
        return f"daemon {self.daemon_seconds / self.seconds:.1%} of a core, machine {self.busy_seconds / self.seconds:.0%} of {cores:.0%}"

    def find_quantile(self, share: float) -> float:
        return find_quantile(self.took, share)


@dataclass
class Reports:
    """The reports of the clients at the end of each phase."""

    calls: list[tuple[str, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    # The fewest events that a stream got in a phase, and the streams that ended before their time.
    fewest_events: int | None = None
    ended: int = 0
    cpu_seconds: float = 0.0

    def take(self, streams: dict[str, Any], calls: dict[str, Any]) -> None:
        self.calls += [(kind, seconds * 1e3) for kind, seconds in calls["took"]]
        self.errors += calls["errors"]
        fewest = min(streams["events"], default=0)
        self.fewest_events = fewest if self.fewest_events is None else min(fewest, self.fewest_events)
        self.ended += streams["ended"]
        self.cpu_seconds += streams["cpu_seconds"] + calls["cpu_seconds"]


def find_quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def declare(place: Place, stamp: Path) -> Saves:
    (place.folder / "wakeful.yaml").write_text(SETTINGS.format(slots=PRINTING + WAKING))
    for folder in ("data", "watched"):
        (place.folder / folder).mkdir()
    for number in range(PRINTING):
        (place.folder / "data" / f"{number}.txt").write_text("0\n")
        spec = PRINT_SPEC.format(number=number, lines=stamp.parent / "lines")
        (place.specs / f"print-{number}.yaml").write_text(spec)
    for number in range(WAKING):
        (place.folder / "watched" / f"{number}.txt").write_text("0\n")
        spec = WAKE_SPEC.format(number=number, stamp=stamp, stamps=place.folder / "stamps")
        (place.specs / f"wake-{number}.yaml").write_text(spec)
    (place.folder / "stamps").touch()
    return Saves("saved -> first instruction", place.folder)


def plan_calls() -> list[dict[str, Any]]:
    """Return a round of calls as people and scripts make them.

    Messages go to sessions with a run under way, so they start nothing.
    """
    calls: list[dict[str, Any]] = []
    for number in range(PRINTING):
        name = f"print-{number}"
        body = json.dumps({"name": name, "text": f"Look at line {number}."})
        show, log = f"/sessions/{name}", f"/sessions/{name}/log?last=50"
        calls += [
            {"kind": "list", "method": "GET", "target": "/sessions?limit=100"},
            {"kind": "show", "method": "GET", "target": show},
            {"kind": "log", "method": "GET", "target": log},
            {"kind": "show", "method": "GET", "target": show},
            {"kind": "send", "method": "POST", "target": "/call/send", "body": body},
            {"kind": "why", "method": "GET", "target": f"/why?x={name}"},
        ]
    return calls


@contextlib.contextmanager
def client(kind: str, plan: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, CLIENTS, kind, json.dumps(plan)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise TookTooLong(f"the client for {kind} did not start")
        yield process
    finally:
        end(process)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(process.communicate(timeout=END_SECONDS)[0])
    return report


@contextlib.contextmanager
def clients(place: Place, token: str, reports: Reports) -> Iterator[None]:
    """Make streams and calls while the block runs."""
    targets = ["/live" if number % 2 else "/follow" for number in range(STREAMS)]
    shared = {"port": place.port, "token": token}
    with client("streams", {**shared, "targets": targets}) as streams:
        plan = {**shared, "calls": plan_calls(), "calls_a_minute": CALLS_A_MINUTE}
        with client("calls", plan) as calls:
            yield
            reports.take(calls=finish(calls), streams=finish(streams))


def read_busy_seconds() -> float:
    """Return the CPU seconds that the whole machine has spent so far, on all cores together."""
    user, nice, system, _idle, _waiting, *others = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    return sum(map(int, (user, nice, system, *others))) / TICKS_A_SECOND


def play_phase(place: Place, saves: Saves, side: Side, first: int) -> int:
    """Save files for the length of a phase. Return the number of the next save."""
    time.sleep(CALM_SECONDS)
    saves.took, saves.missed = [], 0
    began, spent, busy = time.monotonic(), place.cpu_seconds(), read_busy_seconds()
    number = first
    while time.monotonic() - began < PHASE_SECONDS:
        due_at = began + (number - first) * SAVE_EVERY_SECONDS
        time.sleep(max(0.0, due_at - time.monotonic()))
        saves.play(number)
        number += 1
    side.seconds += time.monotonic() - began
    side.daemon_seconds += place.cpu_seconds() - spent
    side.busy_seconds += read_busy_seconds() - busy
    side.took += saves.took
    side.missed += saves.missed
    return number


def make_rows(alone: Side, watched: Side, reports: Reports) -> list[Row]:
    if not (alone.took and watched.took and reports.calls):
        return [Row(SECTION, "wakes and calls", None, "ms", note="never answered")]
    took = [milliseconds for _, milliseconds in reports.calls]
    kinds = Counter(kind for kind, _ in reports.calls)
    each = ", ".join(
        f"{kind} {find_quantile([one for name, one in reports.calls if name == kind], 0.99):.0f}"
        for kind in sorted(kinds)
    )
    told = f"p50 {statistics.median(took):.1f}; p99 of {each}; {len(took)} calls, {len(reports.errors)} failed"
    if reports.errors:
        told += f", first: {reports.errors[0]}"
    rows = [
        Row(SECTION, "API call, with streams", find_quantile(took, 0.99), "ms p99", Bar("<=", 200.0), told),
        Row(
            SECTION, "events that reached the slowest stream", reports.fewest_events, "a phase",
            note=f"{reports.ended} streams ended early; clients took {reports.cpu_seconds:.1f} s of CPU",
        ),
    ]  # fmt: skip
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        without, with_ = alone.find_quantile(share), watched.find_quantile(share)
        missed = f"{watched.missed} of {len(watched.took) + watched.missed} never answered" if watched.missed else ""
        rows += [
            Row(SECTION, f"saved -> started, without, {name}", without, "ms", note=alone.say_busy()),
            Row(
                SECTION,
                f"saved -> started, with, {name}",
                with_,
                "ms",
                note="; ".join(filter(None, (watched.say_busy(), missed))),
            ),
            Row(SECTION, f"with beside without, {name}", with_ / without, "x", Bar("<=", 1.2)),
        ]
    return rows


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        stamp = build(folder)
        if stamp is None:
            return [Row(SECTION, "API call, with streams", None, "ms p99", note="needs a C compiler (cc)")]
        with daemon(folder / "watched-daemon", has_http=True) as place:
            saves = declare(place, stamp)
            place.start()
            wait_until(lambda: place.count_running() == PRINTING, START_SECONDS, f"{PRINTING} runs", every=0.2)
            saves.warm_up()
            token = place.make_token("read", "send")
            sides, reports, number = (Side(), Side()), Reports(), 0
            for phase in range(PHASES):
                with clients(place, token, reports) if phase % 2 else contextlib.nullcontext():
                    number = play_phase(place, saves, sides[phase % 2], number)
            return make_rows(*sides, reports)


if __name__ == "__main__":
    print_table(measure())
