"""100,000 files change at once, also while the daemon is stopped. Every session must run once, and soon.

The kernel's queue holds 16,384 events. So the kernel tells the daemon that hints were lost, and the daemon must find
the changes by looking. `settle_max` is longer than the writing takes, so one run per session is correct.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from latency import build
from place import WAKEFUL, Place, TookTooLong, daemon, wait_until
from table import Bar, Row, print_table

SECTION = "100,000 files changed at once"
SESSIONS = 100
FILES_EACH = 1_000
ANSWER_SECONDS = 120.0
SPEC = """\
objective: Take part in a burst.
first: adopt
bindings: {{input: {{file: "data/{number}/*.txt", settle: 500ms, settle_max: 60s}}}}
run: {{command: [{stamp}, {stamps}]}}
allow: {{read: ["{stamp}"], write: ["{stamps}"]}}
"""


def declare(place: Place, stamp: Path) -> None:
    for number in range(SESSIONS):
        (place.folder / "data" / str(number)).mkdir(parents=True)
        spec = SPEC.format(number=number, stamp=stamp, stamps=place.folder / "stamps")
        (place.specs / f"s{number}.yaml").write_text(spec)
    (place.folder / "stamps").touch()
    change_all(place, 0)


def change_all(place: Place, value: int) -> None:
    content = f"{value}\n".encode()
    for number in range(SESSIONS):
        folder = f"{place.folder}/data/{number}/"
        for file in range(FILES_EACH):
            opened = os.open(f"{folder}{file}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(opened, content)
            os.close(opened)


def while_running(place: Place, value: int) -> None:
    change_all(place, value)


def while_stopped(place: Place, value: int) -> None:
    place.signal(signal.SIGSTOP)
    try:
        change_all(place, value)
    finally:
        place.signal(signal.SIGCONT)


def read_rows(place: Place) -> list[dict[str, object]]:
    told = subprocess.run(
        [WAKEFUL, "list", "--json", "--socket", place.socket],
        check=True,
        capture_output=True,
        cwd=place.folder,
        timeout=ANSWER_SECONDS,
    )
    return json.loads(told.stdout)


def burst(place: Place, change: Callable[[Place, int], None], value: int) -> list[Row]:
    stamps = place.folder / "stamps"
    known = len(stamps.read_bytes().splitlines())
    before = sum(int(row["runs"]) for row in read_rows(place))
    began = time.monotonic()
    change(place, value)
    wrote = time.monotonic()
    name = change.__name__.replace("_", " ")
    try:
        wait_until(
            lambda: len(stamps.read_bytes().splitlines()) >= known + SESSIONS, ANSWER_SECONDS, "a run of every session"
        )
        took = time.monotonic() - wrote
        wait_until(
            lambda: not any(row["owed"] or row["queued"] or row["state"] == "running" for row in read_rows(place)),
            30,
            "rest",
        )
    except TookTooLong as error:
        return [Row(SECTION, f"{name}: settled", None, "s", note=str(error))]
    runs = (sum(int(row["runs"]) for row in read_rows(place)) - before) / SESSIONS
    return [
        Row(
            SECTION,
            f"{name}: settled",
            took,
            "s",
            Bar("<=", 5.0),
            f"after the last write; writing took {wrote - began:.1f} s",
        ),
        Row(SECTION, f"{name}: runs per session", runs, "", Bar("<=", 1.0)),
    ]


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as text, daemon(Path(text)) as place:
        stamp = build(place.folder)
        if stamp is None:
            return [Row(SECTION, "settled", None, "s", note="needs a C compiler (cc)")]
        declare(place, stamp)
        place.start()
        return [*burst(place, while_running, 1), *burst(place, while_stopped, 2)]


if __name__ == "__main__":
    print_table(measure())
