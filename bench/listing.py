"""The wall time of the whole `wakeful list` command, compared with the start of a bare interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from place import Place, daemon
from table import Bar, Row, print_table

SECTION = "wakeful list (CLI), wall"
BARS = {100: 100.0, 10_000: 300.0}
ROUNDS = 20
SPEC = """\
objective: Be listed.
first: adopt
bindings: {{input: {{file: data/{number}.txt}}}}
run: {{command: ["true"]}}
"""


def declare(place: Place, sessions: int) -> None:
    (place.folder / "data").mkdir()
    for number in range(sessions):
        (place.folder / "data" / f"{number}.txt").write_text("0\n")
        (place.specs / f"s{number}.yaml").write_text(SPEC.format(number=number))


def start_python() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.monotonic() - began


def measure() -> list[Row]:
    rows = []
    for sessions, bar in BARS.items():
        with tempfile.TemporaryDirectory() as text, daemon(Path(text)) as place:
            declare(place, sessions)
            place.start()
            took = {"list": [], "list --json": [], "python -c pass": []}
            for _ in range(ROUNDS):
                took["list"].append(place.ask("list"))
                took["list --json"].append(place.ask("list", "--json"))
                took["python -c pass"].append(start_python())
            for what, seconds in took.items():
                limit = None if what.startswith("python") else Bar("<=", bar)
                rows.append(
                    Row(SECTION, f"{what}, {sessions:,} sessions", statistics.median(seconds) * 1e3, "ms p50", limit)
                )
    return rows


if __name__ == "__main__":
    print_table(measure())
