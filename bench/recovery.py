"""From kill -9 to `ready` again, with 1,000 sessions, 64 live runs and 1,000,000 events in the log.

The events are notes. They are written through the log's own API, with the snapshots that a daemon would have left.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

from place import Place, daemon, wait_until
from table import Bar, Row, print_table
from wakeful.core.record.events import NoteAdded
from wakeful.core.record.fold import fold
from wakeful.eventlog.codec import decode, decode_state, encode, encode_state
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import SqliteLog, open_log
from wakeful.service.reactor import EVENTS_BETWEEN_SNAPSHOTS

SECTION = "kill -9 -> ready, 1,000 sessions, 64 live runs, 1,000,000 events"
SESSIONS = 1_000
LIVE = 64
EVENTS = 1_000_000
# More rounds are not possible: a session whose runs were lost three times sleeps until a person has looked.
ROUNDS = 2
RUN_SECONDS = 60.0
AT_REST = """\
objective: Have a long past.
first: adopt
bindings: {{input: {{file: data/{number}.txt}}}}
run: {{command: ["true"]}}
"""
LIVING = """\
objective: Run until killed.
bindings: {{input: {{file: data/{number}.txt}}}}
run: {{command: [sleep, "3600"]}}
"""


def declare(place: Place, numbers: range, spec: str) -> None:
    for number in numbers:
        (place.folder / "data" / f"{number}.txt").write_text("0\n")
        (place.specs / f"s{number}.yaml").write_text(spec.format(number=number))


def lengthen(log: SqliteLog, events: int) -> None:
    """Add so many events, spread over all sessions of the log."""
    payload = NoteAdded(text="x" * 200)
    kind, body = encode(payload)
    drafts = (Draft(kind, body, "bench"),) * EVENTS_BETWEEN_SNAPSHOTS
    tails = list(log.tails())
    for session_id, snapshot, records in tails:
        session = decode_state(snapshot.state) if snapshot is not None else None
        for record in records:
            session = fold(
                session, decode(record.kind, record.payload), seq=record.seq, at=record.at, author=record.author
            )
        assert session is not None
        for _ in range(math.ceil(events / len(tails) / EVENTS_BETWEEN_SNAPSHOTS)):
            at = time.time_ns() // 1000
            log.append_blocking([Append(session_id, session.seq, drafts)], at)
            for _ in drafts:
                session = fold(session, payload, seq=session.seq + 1, at=at, author="bench")
            log.save_snapshot_blocking(session_id, session.seq, encode_state(session))


def kill_and_start(place: Place) -> tuple[float, float]:
    """Kill the daemon and start it. Return the seconds until it was ready, and until all runs were under way."""
    place.kill()
    began = time.monotonic()
    ready = place.start()
    wait_until(lambda: place.count_running() == LIVE, RUN_SECONDS, f"{LIVE} runs", every=0.05)
    return ready, time.monotonic() - began


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as text, daemon(Path(text)) as place:
        (place.folder / "data").mkdir()
        (place.folder / "wakeful.yaml").write_text(f"concurrency: {{commands: {LIVE}}}\nstop_grace: 0s\n")
        declare(place, range(LIVE, SESSIONS), AT_REST)
        place.start()
        place.stop()
        log = open_log(place.folder / "state")
        lengthen(log, EVENTS)
        log.close()
        declare(place, range(LIVE), LIVING)
        place.start()
        wait_until(lambda: place.count_running() == LIVE, RUN_SECONDS, f"{LIVE} runs", every=0.05)
        ready, again = zip(*(kill_and_start(place) for _ in range(ROUNDS)), strict=True)
    return [
        Row(SECTION, "ready again", min(ready), "s", Bar("<=", 2.0), f"the other time {max(ready):.2f}"),
        Row(SECTION, f"all {LIVE} runs ended, recorded lost and started anew", min(again), "s"),
    ]


if __name__ == "__main__":
    print_table(measure())
