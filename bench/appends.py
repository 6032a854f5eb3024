"""Durable appends: our log, bare SQLite, one commit per event, and a peer, in one run on the same disk.

Every method acknowledges an append only after its flush. "bare group" is the ceiling for our method. It has the same
queue, one writer and one transaction per group, but plain rows (session, seq, body): no hashes, no anchor, no time
index, no idempotency. The peer is optional: `pip install openai-agents`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import apsw

from table import Bar, Row, print_table
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import open_log

SECTION = "durable appends, 1 KiB"
PRODUCERS = 64
BODY = b'"' + b"x" * 1022 + b'"'
SECONDS = 3.0
ROUNDS = 3

Produce = Callable[[int, int], Awaitable[object]]


@dataclass(frozen=True)
class Pace:
    method: str
    producers: int
    events_a_second: float
    p50_milliseconds: float
    p99_milliseconds: float


async def drive(method: str, producers: int, produce: Produce) -> Pace:
    """Let each producer append one event after another, and wait for each acknowledgement."""
    took: list[float] = []
    end = time.perf_counter() + SECONDS / ROUNDS

    async def run(producer: int) -> None:
        seq = 0
        while (start := time.perf_counter()) < end:
            await produce(producer, seq)
            took.append(time.perf_counter() - start)
            seq += 1

    start = time.perf_counter()
    await asyncio.gather(*(run(producer) for producer in range(producers)))
    elapsed = time.perf_counter() - start
    cuts = statistics.quantiles(took, n=100)
    return Pace(method, producers, len(took) / elapsed, cuts[49] * 1e3, cuts[98] * 1e3)


class BareGroup:
    """The simplest possible group commit: a queue, a writer, and one transaction for all waiting appends."""

    def __init__(self, path: Path) -> None:
        self._connection = connect_bare(path)
        self._queue: SimpleQueue[tuple[int, int, asyncio.Future[None]] | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._run)
        self._writer.start()

    def append(self, session: int, seq: int) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._queue.put((session, seq, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._writer.join()
        self._connection.close()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            while len(group) < 512 and self._queue.qsize():
                group.append(self._queue.get())
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT INTO event (session, seq, body) VALUES (?, ?, ?)", [(s, q, BODY) for s, q, _ in group]
            )
            self._connection.execute("COMMIT")
            first[2].get_loop().call_soon_threadsafe(resolve, [future for _, _, future in group])


def resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


def connect_bare(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE event (id INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, body BLOB); CREATE UNIQUE INDEX by_seq ON event (session, seq)"
    )
    return connection


async def measure_ours(folder: Path, producers: int) -> Pace:
    log = open_log(folder / "ours")
    draft = Draft("message_added", BODY, "bench")
    try:
        return await drive(
            "wakeful log", producers, lambda who, seq: log.append([Append(f"session-{who}", seq, (draft,))], at=seq)
        )
    finally:
        log.close()


async def measure_bare_group(folder: Path, producers: int) -> Pace:
    bare = BareGroup(folder / "bare.db")
    try:
        return await drive("bare apsw group", producers, bare.append)
    finally:
        bare.close()


async def measure_commit_each(folder: Path, producers: int) -> Pace:
    connection = connect_bare(folder / "each.db")

    async def produce(session: int, seq: int) -> None:
        connection.execute("INSERT INTO event (session, seq, body) VALUES (?, ?, ?)", (session, seq, BODY))
        await asyncio.sleep(0)

    try:
        return await drive("one commit per event", producers, produce)
    finally:
        connection.close()


async def measure_peer(folder: Path, producers: int) -> Pace | None:
    try:
        from agents import SQLiteSession
    except ImportError:
        return None
    sessions = [SQLiteSession(f"session-{number}", folder / "peer.db") for number in range(producers)]
    item = {"role": "user", "content": BODY.decode()}
    return await drive("OpenAI Agents SQLiteSession", producers, lambda who, _seq: sessions[who].add_items([item]))


async def measure_two_flushes(folder: Path) -> Pace:
    """Measure the floor of one durable append with an anchor.

    It is two small writes in two files, each flushed, on this thread.
    """
    files = [os.open(folder / name, os.O_WRONLY | os.O_CREAT) for name in ("log", "anchor")]
    os.write(files[1], bytes(8192))

    async def produce(_who: int, _seq: int) -> None:
        os.write(files[0], BODY * 12)  # as much as one append adds to the write-ahead log
        os.fdatasync(files[0])
        os.pwrite(files[1], bytes(104), 0)
        os.fdatasync(files[1])

    try:
        return await drive("two bare flushes", 1, produce)
    finally:
        for file in files:
            os.close(file)


def measure() -> list[Row]:
    """Measure every method in turns, so that a slow moment of the machine affects all.

    Take the median round of each.
    """
    cases: list[tuple[Callable[..., Awaitable[Pace | None]], tuple[int, ...]]] = [
        (measure_bare_group, (PRODUCERS,)),
        (measure_ours, (PRODUCERS,)),
        (measure_commit_each, (PRODUCERS,)),
        (measure_peer, (PRODUCERS,)),
        (measure_two_flushes, ()),
        (measure_bare_group, (1,)),
        (measure_ours, (1,)),
    ]
    rounds: list[list[Pace | None]] = [[] for _ in cases]
    for _ in range(ROUNDS):
        for results, (case, words) in zip(rounds, cases, strict=True):
            with tempfile.TemporaryDirectory() as folder:
                results.append(asyncio.run(case(Path(folder), *words)))
    medians = [pick_median(results) for results in rounds]
    return [*(make_row(pace) for pace in medians if pace is not None), *compare(*medians[:4])]


def pick_median(results: list[Pace | None]) -> Pace | None:
    paces = sorted((pace for pace in results if pace is not None), key=lambda pace: pace.events_a_second)
    return paces[len(paces) // 2] if paces else None


def make_row(pace: Pace) -> Row:
    note = f"p50 {pace.p50_milliseconds:.3f} ms, p99 {pace.p99_milliseconds:.3f} ms"
    return Row(SECTION, f"{pace.method}, {pace.producers} producers", pace.events_a_second, "events/s", note=note)


def compare(bare: Pace | None, ours: Pace | None, each: Pace | None, peer: Pace | None) -> list[Row]:
    assert bare is not None and ours is not None and each is not None
    rows = [
        Row(SECTION, "ours beside bare group commit", ours.events_a_second / bare.events_a_second, "x", Bar(">=", 0.5)),
        Row(
            SECTION,
            "ours beside one commit per event",
            ours.events_a_second / each.events_a_second,
            "x",
            Bar(">=", 5.0),
        ),
    ]
    if peer is None:
        return [
            *rows,
            Row(SECTION, "ours beside SQLiteSession", None, "x", note="not installed: pip install openai-agents"),
        ]
    return [
        *rows,
        Row(SECTION, "ours beside SQLiteSession", ours.events_a_second / peer.events_a_second, "x", Bar(">=", 10.0)),
    ]


if __name__ == "__main__":
    print_table(measure())
