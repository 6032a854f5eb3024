"""A wall clock that is set under a running daemon.

Intervals go on, cron says when it goes on, and no slot runs twice.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime
from pathlib import Path

from e2e.box import Box
from wait_conditions import eventually

HOUR = 3600
BEAT = "objective: Beat.\nbindings: {tick: {every: 500ms}}\nrun: {command: [sh, -c, 'echo x >> ledger']}\n"
MINUTE = "objective: Run by the clock.\nbindings: {tick: {cron: '* * * * *'}}\nrun: {command: [sh, -c, 'echo x >> minutes']}\n"


def set_clock(box: Box, seconds: int) -> None:
    """Set the clock ahead by this much, far enough from a full minute that none passes while the test looks."""
    box.save("offset", str(seconds - time.time() % 60 + 5))


def wait_for_beats(box: Box, more: int) -> float:
    """Return how long the daemon took for this many more beats."""
    begun, before = time.monotonic(), len(box.lines("ledger"))
    eventually(lambda: len(box.lines("ledger")) >= before + more)
    return time.monotonic() - begun


def test_every_beats_on_when_the_clock_is_set_back_and_cron_says_when_it_goes_on(box: Box) -> None:
    """The clock goes a day ahead and then two hours back.

    There is no stall and no storm, the log keeps its order, and a cron binding names its next slot.
    """
    box.wrap = (sys.executable, str(Path(__file__).parent / "settable_clock.py"), str(box.folder / "offset"))
    set_clock(box, 0)
    box.spec("beat", BEAT)
    box.spec("minute", MINUTE)
    box.start()
    wait_for_beats(box, 2)
    set_clock(box, 24 * HOUR)
    box.wait_at_rest("minute", runs=1)
    wait_for_beats(box, 2)
    set_clock(box, 22 * HOUR)
    assert wait_for_beats(box, 3) < 2 * HOUR
    records = box.log("beat")
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    times = [record["at"] for record in records]
    assert times != sorted(times), "the clock went back, and the daemon saw it"
    slots = [record["payload"]["causes"][0]["new"] for record in records if record["kind"] == "run_started"]
    assert len(slots) == len(set(slots)), "no slot ran twice"

    why = box.json("why", "minute")
    words = " ".join(why["words"])
    (slot,) = [record["payload"]["causes"][0]["new"] for record in box.log("minute") if record["kind"] == "run_started"]
    assert f"The clock was set back: tick ran for its slots up to {slot} already, and goes on after that one." in words
    goes_on = why["next_slot"]["at"]
    assert (datetime.fromisoformat(goes_on) - datetime.fromisoformat(slot)).total_seconds() == 60
    assert f"Its next slot is at {goes_on[:19]}Z (tick)." in words
    (tick,) = [binding for binding in box.json("show", "minute")["bindings"] if binding["name"] == "tick"]
    assert tick["next_due"] == goes_on
    assert re.search(r"minute suspended 1 succeeded .* next in ", box.words("list"))
    assert box.row("minute")["runs"] == 1
