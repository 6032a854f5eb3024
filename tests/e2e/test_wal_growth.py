"""A program reads the log's database and does not finish. The daemon goes on, and people are told."""

from __future__ import annotations

import sqlite3
import time

import pytest

from e2e.box import Box
from wait_conditions import PATIENCE_SECONDS, eventually
from wakeful.cli.client import Client

FACTS = 320
FACT_BYTES = 250_000
GROWN = "the write-ahead log has grown to"


def find_held(box: Box) -> list[str]:
    return [
        check["verdict"]
        for check in box.json("doctor", "--state", str(box.state))
        if "its write-ahead log has" in check["words"]
    ]


@pytest.mark.faults
def test_a_reader_that_holds_a_snapshot_holds_up_nobody_and_is_told(box: Box) -> None:
    """The daemon answers every append.

    It says, as `doctor` does, that the write-ahead log grows. When the reader is gone, the next appends reset it.
    """
    box.spec("one", "objective: Remember.\n")
    box.start()
    reader = sqlite3.connect(f"file:{box.state}/log/events.db?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    (seen,) = reader.execute("SELECT count(*) FROM event").fetchone()
    wal = box.state / "log" / "events.db-wal"
    client, slowest = Client(str(box.socket)), 0.0
    for number in range(FACTS):
        begun = time.monotonic()
        client.call("remember", None, name="one", key=f"fact{number}", value="x" * FACT_BYTES)
        slowest = max(slowest, time.monotonic() - begun)
    assert wal.stat().st_size > FACTS * FACT_BYTES, "the reader kept it from being put away"
    assert slowest < PATIENCE_SECONDS / 2
    eventually(lambda: GROWN in box.output.read_text())
    assert find_held(box) == ["warn"]
    assert reader.execute("SELECT count(*) FROM event").fetchone() == (seen,), "its snapshot was held until now"
    reader.close()
    # The first append after that puts the write-ahead log away. The second append begins a new one.
    for number in range(2):
        client.call("remember", None, name="one", key=f"last{number}", value="y")
    eventually(lambda: find_held(box) == [], what="it is put away")
    assert box.output.read_text().count(GROWN) == 1
