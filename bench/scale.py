"""10,000 declared sessions with 50,000 bound files: start, rest, memory, and the latency of a wake beside ten sessions.

At rest the daemon does the same work every second: a slice of the sweep, which covers every path once in ten minutes.
So one minute is enough; `WAKEFUL_BENCH_WHOLE=1` measures all ten.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from latency import Contestant, build
from place import Place, daemon
from table import Bar, Row, print_table

SECTION = "10,000 declared sessions, 50,000 bound files"
SESSIONS = 10_000
FEW = 10
FILES_EACH = 5
ROUNDS = 50
SWEEP_SECONDS = 600
REST_SECONDS = SWEEP_SECONDS if os.environ.get("WAKEFUL_BENCH_WHOLE") else 60
# Some work is left after a start, such as reading files again that were hashed right after they were written. Wait for
# it.
CALM_SECONDS = 10
SPEC = """\
objective: Stand for one of many.
first: adopt
bindings: {{input: {{file: "data/{part}/{number}/*.txt", settle: 0ms}}}}
run: {{command: [{stamp}, {stamps}]}}
allow: {{read: ["{stamp}"], write: ["{stamps}"]}}
"""


class Session(Contestant):
    """A contestant that saves in another session of its daemon in each round."""

    sessions = 0

    def target(self, number: int) -> Path:
        return folder_of(self.folder, number * 7919 % self.sessions) / "0.txt"


def folder_of(folder: Path, number: int) -> Path:
    return folder / "data" / str(number // 100) / str(number)


def declare(place: Place, sessions: int, stamp: Path) -> Session:
    for number in range(sessions):
        own = folder_of(place.folder, number)
        own.mkdir(parents=True)
        for file in range(FILES_EACH):
            (own / f"{file}.txt").write_text(f"{number} {file}\n")
        spec = SPEC.format(part=number // 100, number=number, stamp=stamp, stamps=place.folder / "stamps")
        (place.specs / f"s{number}.yaml").write_text(spec)
    (place.folder / "stamps").touch()
    session = Session(f"a change among {sessions:,} sessions", place.folder)
    session.sessions = sessions
    return session


def measure_rest(place: Place) -> Row:
    time.sleep(CALM_SECONDS)
    began, before = time.monotonic(), place.cpu_seconds()
    time.sleep(REST_SECONDS)
    each = (place.cpu_seconds() - before) / (time.monotonic() - began) * 1e3
    return Row(
        SECTION, "CPU at rest", each, "ms/s", Bar("<=", 5.0), f"over {REST_SECONDS} s of a sweep of {SWEEP_SECONDS} s"
    )


def compare_wakes(few: Session, many: Session) -> list[Row]:
    for number in range(ROUNDS):
        for session in (few, many):
            session.play(number)
            time.sleep(0.1)
    medians = [statistics.median(session.took) for session in (few, many)]
    return [
        Row(SECTION, few.name, medians[0], "ms p50"),
        Row(
            SECTION,
            many.name,
            medians[1],
            "ms p50",
            note=f"{many.missed} of {ROUNDS} never answered" if many.missed else "",
        ),
        Row(SECTION, "many beside few", medians[1] / medians[0], "x", Bar("<=", 1.5)),
    ]


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        stamp = build(folder)
        if stamp is None:
            return [Row(SECTION, "ready, warm", None, "s", note="needs a C compiler (cc)")]
        with daemon(folder / "few") as little, daemon(folder / "many") as place:
            few, many = declare(little, FEW, stamp), declare(place, SESSIONS, stamp)
            cold = place.start()
            # The cache is written by a clean stop, and some seconds after each look.
            place.stop()
            warm = place.start()
            rows = [
                Row(SECTION, "ready, the first time", cold, "s"),
                Row(SECTION, "ready, warm", warm, "s", Bar("<=", 5.0)),
            ]
            rows.append(measure_rest(place))
            little.start()
            rows += compare_wakes(few, many)
            rows.append(Row(SECTION, "RSS", place.rss_megabytes(), "MB", Bar("<=", 300.0)))
            return rows


if __name__ == "__main__":
    print_table(measure())
