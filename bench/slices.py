"""Opening and slicing long sessions: what it costs must not depend on how long they are.

`make bench` calls `measure`; run as a script it prints its own table. One store holds a session of each length, 1 KiB
payloads, with a 164 KiB snapshot 100 records before its end. "open" is a new connection, the snapshot and the tail after it.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import SqliteLog, open_log, open_reader

LENGTHS = (10_000, 100_000, 1_000_000)
BODY = b'"' + b"x" * 1022 + b'"'
STATE = bytes(164 * 1024)
TAIL = 100
ROUNDS = 50
GROUP = 500
MICROSECONDS_BETWEEN = 1_000


@dataclass(frozen=True)
class Row:
    events: int
    what: str
    p50_milliseconds: float
    worst_milliseconds: float


def build(state_dir: Path) -> None:
    """Sessions of each length, interleaved in groups so that none lies in one piece."""
    log = open_log(state_dir)
    drafts = tuple(Draft("message_added", BODY, "bench") for _ in range(GROUP))
    for start in range(0, max(LENGTHS), GROUP):
        appends = [Append(f"session-{length}", start, drafts) for length in LENGTHS if start < length]
        log.append_blocking(appends, at=(start + GROUP) * MICROSECONDS_BETWEEN)
    for length in LENGTHS:
        log.save_snapshot_blocking(f"session-{length}", length - TAIL, STATE)
    log.close()


def time_rounds(length: int, what: str, look: Callable[[], object], expected: int) -> Row:
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = look()
        took.append(time.perf_counter() - start)
        assert found == expected, f"{what}: {found} records, {expected} expected"
    return Row(length, what, statistics.median(took) * 1e3, max(took) * 1e3)


def measure() -> list[Row]:
    chance = random.Random(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        log = open_reader(Path(folder))
        for length in LENGTHS:
            name = f"session-{length}"
            rows.append(time_rounds(length, "open: snapshot + tail of 100", lambda name=name: open_session(Path(folder), name), TAIL))
            rows.append(time_rounds(length, "slice of 100 by seq", lambda name=name, n=length: slice_by_seq(log, name, chance.randrange(1, n - 100)), 100))
            rows.append(time_rounds(length, "slice of 100 by time", lambda name=name, n=length: slice_by_time(log, name, chance.randrange(1, n - GROUP)), 100))
            rows.append(time_rounds(length, "newest 100", lambda name=name: len(list(log.read(name, limit=100, newest_first=True))), 100))
        log.close()
    return rows


def open_session(state_dir: Path, session: str) -> int:
    log = open_reader(state_dir)
    snapshot = log.snapshot(session)
    tail = list(log.read(session, from_seq=snapshot.seq + 1 if snapshot else 1))
    log.close()
    return len(tail)


def slice_by_seq(log: SqliteLog, session: str, seq: int) -> int:
    return len(list(log.read(session, from_seq=seq, to_seq=seq + 99)))


def slice_by_time(log: SqliteLog, session: str, seq: int) -> int:
    return len(list(log.read(session, since=seq * MICROSECONDS_BETWEEN, limit=100)))


def main() -> None:
    print(f"{'what':30} {'events':>10} {'p50 ms':>8} {'worst ms':>9}")
    for row in sorted(measure(), key=lambda row: row.what):
        print(f"{row.what:30} {row.events:10,} {row.p50_milliseconds:8.3f} {row.worst_milliseconds:9.3f}")


if __name__ == "__main__":
    sys.exit(main())
