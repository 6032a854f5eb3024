"""Sixty-four at once: writers on the control socket, and runs under a daemon that is killed."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from e2e.box import SETTINGS, Box
from process_state import is_alive
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.cli.client import Client

MANY = 64
CALLS = 10


@pytest.mark.faults
def test_sixty_four_writers_at_once_are_all_recorded_once(box: Box) -> None:
    """No call is refused as locked, lost or recorded twice. Each writer's own order is kept."""
    box.spec("talk", "objective: A place to talk.\n")
    box.start()

    def write(writer: int) -> float:
        client, slowest = Client(str(box.socket)), 0.0
        for number in range(CALLS):
            begun = time.monotonic()
            client.call("note", f"key-{writer}-{number}", name="talk", text=f"{writer} {number}")
            slowest = max(slowest, time.monotonic() - begun)
        return slowest

    with ThreadPoolExecutor(MANY) as pool:
        slowest = max(pool.map(write, range(MANY)))
    notes = [
        tuple(map(int, record["payload"]["text"].split()))
        for record in box.log("talk")
        if record["kind"] == "note_added"
    ]
    assert sorted(notes) == [(writer, number) for writer in range(MANY) for number in range(CALLS)]
    assert all([number for one, number in notes if one == writer] == list(range(CALLS)) for writer in range(MANY))
    assert slowest < PATIENCE_SECONDS / 2, "nobody starves"


@pytest.mark.faults
def test_sixty_four_runs_of_a_killed_daemon_each_end_as_what_they_are(box: Box) -> None:
    """All runs are recorded as lost, and are gone before they are tried again. No session runs twice at a time."""
    box.write(SETTINGS, f"concurrency: {MANY}\n")
    names = [f"run{number}" for number in range(MANY)]
    for name in names:
        box.spec(
            name,
            f"objective: Last.\nfirst: run\nbindings: {{i: {{file: in-{name}.txt}}}}\nrun: {{command: [sh, -c, 'echo $$ >> pids-{name}; exec sleep 1000']}}\n",
        )
    box.start()
    eventually(lambda: all(box.lines(f"pids-{name}") for name in names), 2 * PATIENCE_SECONDS, what="all of them run")
    before = [psutil.Process(int(box.lines(f"pids-{name}")[0])) for name in names]
    box.kill()
    box.start()
    eventually(
        lambda: all(len(box.lines(f"pids-{name}")) == 2 for name in names),
        2 * PATIENCE_SECONDS,
        what="all of them run again",
    )
    assert not any(process.is_running() and is_alive(process.pid) for process in before)
    outcomes = Counter(
        record["payload"]["outcome"] for name in names for record in box.log(name) if record["kind"] == "run_finished"
    )
    assert outcomes == {"lost": MANY}
    assert all(box.row(name)["state"] == "running" for name in names)
    box.ask("sleep", "--all")
    eventually(lambda: not any(row["state"] == "running" for row in box.rows()), 2 * PATIENCE_SECONDS)
