"""Opening and slicing long sessions: the cost must not depend on their length.

One store holds a session of each length, with payloads of 1 KiB and a snapshot of 164 KiB 100 records before its end.
"open" is a new connection, the snapshot and the tail after it.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from table import Bar, Row, print_table
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import SqliteLog, open_log, open_reader

SECTION = "opening and slicing long sessions"
LENGTHS = (10_000, 100_000, 1_000_000)
BODY = b'"' + b"x" * 1022 + b'"'
STATE = bytes(164 * 1024)
TAIL = 100
ROUNDS = 50
GROUP = 500
MICROSECONDS_BETWEEN = 1_000


def build(state_dir: Path) -> None:
    """Write sessions of each length, interleaved in groups so that none is in one piece."""
    log = open_log(state_dir)
    drafts = tuple(Draft("message_added", BODY, "bench") for _ in range(GROUP))
    for start in range(0, max(LENGTHS), GROUP):
        appends = [Append(f"session-{length}", start, drafts) for length in LENGTHS if start < length]
        log.append_blocking(appends, at=(start + GROUP) * MICROSECONDS_BETWEEN)
    for length in LENGTHS:
        log.save_snapshot_blocking(f"session-{length}", length - TAIL, STATE)
    log.close()


def time_rounds(length: int, what: str, look: Callable[[], object], expected: int, bar: float) -> Row:
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = look()
        took.append(time.perf_counter() - start)
        assert found == expected, f"{what}: {found} records, {expected} expected"
    note = f"worst {max(took) * 1e3:.2f}"
    return Row(SECTION, f"{what}, {length:,} events", statistics.median(took) * 1e3, "ms p50", Bar("<=", bar), note)


def measure() -> list[Row]:
    chance = random.Random(1)
    rows = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        build(folder)
        log = open_reader(folder)
        for length in LENGTHS:
            name = f"session-{length}"
            looks: dict[str, tuple[Callable[[], int], float]] = {
                "open: snapshot + tail of 100": (partial(open_session, folder, name), 10.0),
                "slice of 100 by seq": (lambda: slice_by_seq(log, name, chance.randrange(1, length - 100)), 2.0),
                "slice of 100 by time": (lambda: slice_by_time(log, name, chance.randrange(1, length - GROUP)), 2.0),
                "newest 100": (lambda: len(list(log.read(name, limit=100, newest_first=True))), 2.0),
            }
            rows += [time_rounds(length, what, look, TAIL, bar) for what, (look, bar) in looks.items()]
        log.close()
    opened = [row.value for row in rows if row.what.startswith("open") and row.value is not None]
    flat = Row(SECTION, "open: the longest beside the shortest", opened[-1] / opened[0], "x", note="flat is 1")
    return [*sorted(rows, key=lambda row: row.what.split(",")[0]), flat]


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


if __name__ == "__main__":
    print_table(measure())
