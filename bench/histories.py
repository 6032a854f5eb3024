"""Long histories in our store and in peers: open, append, slice, fork, rewind and size at up to 1,000,000 events.

Every event is a message of 1,000 characters. All stores are on one disk and are measured in turn, in one run. Our calls
go through the reactor to a real log.

LangGraph is measured twice. "whole state" has the whole conversation in each checkpoint, as graphs do, up to 100,000
events: a checkpoint of a million would be larger than SQLite accepts. Its size is computed from one checkpoint per
turn. "floor" has only the newest message in each checkpoint. No agent could talk with that, but it can be filled to
these lengths. The peers are optional: `pip install 'wakeful[bench]'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from table import Bar, Row, print_table
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.working_state import Core
from wakeful.core.record.events import MessageAdded, SessionOpened
from wakeful.core.record.knowledge import Conversation
from wakeful.core.record.state import Knowledge, Mailbox, Session
from wakeful.core.spec.limits import Levels, Limits
from wakeful.core.spec.session import Settings
from wakeful.eventlog.codec import encode, encode_state
from wakeful.eventlog.contract import Append, Draft
from wakeful.eventlog.sqlite import open_log, open_reader
from wakeful.history.positions import fold_at
from wakeful.service.reactor import EVENTS_BETWEEN_SNAPSHOTS, Reactor, ReactorPorts

SECTION = "long histories"
LENGTHS = tuple(int(one) for one in os.environ.get("WAKEFUL_BENCH_LENGTHS", "10000,100000,1000000").split(","))
TEXT = "x" * 1000
SLICE = 100
ROUNDS = 20
CHANCE = random.Random(1)
# A store is measured in no further round after it has taken so long.
SLOW_SECONDS = 2.0
WHOLE_STATE_MOST = 100_000
COPY_MOST = 100_000
OPERATIONS = ("open", "append", "slice", "fork", "rewind")
FLAT = ("open", "slice", "fork")
MEANINGS = {
    "open": "open: state and the newest 100",
    "append": "append one durably",
    "slice": "100 from the middle",
    "fork": "fork in the middle",
    "rewind": "rewind by 100",
    "bytes": "bytes on disk an event",
}


class Store(Protocol):
    """One history in one store. An operation that it does not have, or that would take minutes, is None."""

    name: str

    def fill(self, length: int) -> None: ...

    def operations(self) -> dict[str, Callable[[], Awaitable[object]] | None]: ...

    def close(self) -> None: ...


class Ours:
    name = "wakeful"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.length = 0
        self.forks = 0
        self.state = Session(id="s", name="talk", opened_at=0)
        self.log: Any = None
        self.reactor: Reactor

    def fill(self, length: int) -> None:
        """Write the history as a daemon leaves it: the records, and a snapshot after every 500 of them."""
        self.length = length
        log = open_log(self.folder)
        opened = Draft(*encode(SessionOpened(id="s", name="talk")), "bench")
        for start in range(0, length, EVENTS_BETWEEN_SNAPSHOTS):
            positions = range(max(start, 1), start + EVENTS_BETWEEN_SNAPSHOTS)
            drafts = [
                Draft(*encode(MessageAdded(position=one, sender="bench", text=TEXT, wake=False)), "bench")
                for one in positions
            ]
            drafts = drafts if start else [opened, *drafts]
            log.append_blocking([Append("s", start, tuple(drafts))], at=start + len(drafts))
            heard = positions[-1]
            talk = Conversation(
                messages=heard, size_bytes=heard * len(TEXT), recent=heard, recent_bytes=heard * len(TEXT)
            )
            self.state = Session(
                id="s",
                name="talk",
                opened_at=500,
                seq=heard + 1,
                mailbox=Mailbox(position=heard),
                knowledge=Knowledge(conversation=talk),
                last_active_at=start + len(drafts),
            )
            log.save_snapshot_blocking("s", self.state.seq, encode_state(self.state))
        log.close()

    def operations(self) -> dict[str, Callable[[], Awaitable[object]] | None]:
        self.log = open_log(self.folder)
        core = Core([self.state])
        core.incarnation = "bench"
        # The default limits would stop a conversation long before this length.
        beyond = Levels(2**40, 2**40)
        core.settings = Settings(limits=Limits(conversation=beyond, mailbox=beyond, records=beyond))
        outside = ReactorPorts(
            follow=ignore, forget=ignore, look=ignore, start=ignore, wake_at=ignore, runner=None, fatal=raise_it
        )  # type: ignore[arg-type]
        self.reactor = Reactor(core, self.log, outside, snapshots={"s": self.state.seq})
        return {"open": self.open, "append": self.append, "slice": self.slice, "fork": self.fork, "rewind": self.rewind}

    async def open(self) -> None:
        log = open_reader(self.folder)
        state = fold_at(log, "s", log.head("s").seq)
        newest = list(log.read("s", limit=SLICE, newest_first=True))
        log.close()
        assert state.mailbox.position >= self.length - 1 and len(newest) == SLICE

    async def append(self) -> None:
        await self.reactor.call(calls.Send(name="talk", text=TEXT, wake=False), author="bench")

    async def slice(self) -> None:
        middle = pick_middle(self.length)
        assert len(list(self.log.read("s", from_seq=middle, to_seq=middle + SLICE - 1))) == SLICE

    async def fork(self) -> None:
        self.forks += 1
        past = fold_at(self.log, "s", pick_middle(self.length))
        await self.reactor.call(calls.Fork(name="talk", new=f"fork-{self.forks}", past=past), author="bench")

    async def rewind(self) -> None:
        past = fold_at(self.log, "s", self.reactor.core.state.get("s").seq - SLICE)
        await self.reactor.call(calls.Rewind(name="talk", to=past.seq, past=past.recollect()), author="bench")

    def close(self) -> None:
        self.reactor.close()
        self.log.close()


def pick_middle(length: int) -> int:
    """Return a random position in the middle half, so that it seldom falls on a snapshot."""
    return CHANCE.randrange(length // 4, length * 3 // 4)


def ignore(*_: object) -> None:
    return None


def raise_it(error: BaseException) -> None:
    raise error


class AgentsSession:
    """OpenAI Agents SDK, SQLiteSession.

    It has no slice, fork or rewind. They are done as its users would do them, with get_items and pop_item.
    """

    name = "Agents SQLiteSession"

    def __init__(self, folder: Path) -> None:
        from agents import SQLiteSession

        self.make = SQLiteSession
        self.path = folder / "agents.db"
        self.session = SQLiteSession("talk", self.path)
        self.length = 0
        self.forks = 0

    def fill(self, length: int) -> None:
        self.length = length
        for start in range(0, length, 1000):
            asyncio.run(self.session.add_items([item() for _ in range(min(1000, length - start))]))

    def operations(self) -> dict[str, Callable[[], Awaitable[object]] | None]:
        copies = self.length <= COPY_MOST
        return {
            "open": self.open,
            "append": lambda: self.session.add_items([item()]),
            "slice": self.slice if copies else None,
            "fork": self.fork if copies else None,
            "rewind": self.rewind,
        }

    async def open(self) -> None:
        session = self.make("talk", self.path)
        assert len(await session.get_items(limit=SLICE)) == SLICE
        session.close()

    async def slice(self) -> None:
        middle = pick_middle(self.length)
        assert len((await self.session.get_items())[middle : middle + SLICE]) == SLICE

    async def fork(self) -> None:
        self.forks += 1
        other = self.make(f"fork-{self.forks}", self.path)
        await other.add_items((await self.session.get_items())[: pick_middle(self.length)])
        other.close()

    async def rewind(self) -> None:
        for _ in range(SLICE):
            await self.session.pop_item()

    def close(self) -> None:
        self.session.close()


def item() -> dict[str, str]:
    return {"role": "user", "content": TEXT}


class Batched(sqlite3.Connection):
    """A connection that skips commits while it is filled.

    So the store is filled by LangGraph's own `put`, with one flush per thousand.
    """

    is_filling = False

    def commit(self) -> None:
        if not self.is_filling:
            super().commit()


class LangGraph:
    """SqliteSaver, with one message in each checkpoint."""

    name = "LangGraph floor"

    def __init__(self, folder: Path) -> None:
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.base.id import uuid6
        from langgraph.checkpoint.sqlite import SqliteSaver

        self.empty, self.uuid6, self.saver_type = empty_checkpoint, uuid6, SqliteSaver
        self.path = folder / "langgraph.db"
        self.connection = self.connect()
        self.saver = SqliteSaver(self.connection)
        self.graph = make_graph(self.saver)
        self.config: dict[str, Any] = {"configurable": {"thread_id": "talk", "checkpoint_ns": ""}}
        self.ids: list[str] = []
        self.version: str | None = None
        self.length = 0

    def connect(self) -> Batched:
        return sqlite3.connect(self.path, check_same_thread=False, factory=Batched)

    def put(self, value: Any) -> None:
        self.version = self.saver.get_next_version(self.version, None)
        versions = {"said": self.version}
        checkpoint = {
            **self.empty(),
            "id": str(self.uuid6()),
            "channel_values": {"said": value},
            "channel_versions": versions,
        }
        self.config = self.saver.put(self.config, checkpoint, {"source": "loop", "step": len(self.ids)}, versions)
        self.ids.append(checkpoint["id"])

    def fill(self, length: int) -> None:
        self.length = length
        self.saver.setup()
        for number in range(length):
            self.connection.is_filling = number % 1000 != 999
            self.put([TEXT])
        self.connection.is_filling = False
        self.connection.commit()

    def operations(self) -> dict[str, Callable[[], Awaitable[object]] | None]:
        return {"open": self.open, "append": self.append, "slice": self.slice, "fork": self.fork, "rewind": self.rewind}

    async def open(self) -> None:
        with contextlib.closing(self.connect()) as connection:
            saver = self.saver_type(connection)
            thread = {"configurable": {"thread_id": "talk", "checkpoint_ns": ""}}
            assert saver.get_tuple(thread) is not None
            assert len(list(saver.list(thread, limit=SLICE))) == SLICE

    async def append(self) -> None:
        self.put([TEXT])

    def at(self, checkpoint: str) -> dict[str, Any]:
        return {"configurable": {"thread_id": "talk", "checkpoint_ns": "", "checkpoint_id": checkpoint}}

    async def slice(self) -> None:
        before = self.at(self.ids[pick_middle(self.length)])
        thread = {"configurable": {"thread_id": "talk", "checkpoint_ns": ""}}
        assert len(list(self.saver.list(thread, before=before, limit=SLICE))) == SLICE

    async def fork(self) -> None:
        self.graph.update_state(self.at(self.ids[pick_middle(self.length)]), {"said": [TEXT]}, as_node="say")

    async def rewind(self) -> None:
        self.graph.update_state(self.at(self.ids[-SLICE]), {"said": [TEXT]}, as_node="say")

    def close(self) -> None:
        self.connection.close()


class LangGraphWhole(LangGraph):
    """SqliteSaver with the whole conversation in the state, as a graph over messages has it.

    It has one checkpoint of that length, and turns on top of it.
    """

    name = "LangGraph, whole state"

    def fill(self, length: int) -> None:
        self.length = length
        self.talk = [TEXT] * length
        self.put(self.talk)

    def operations(self) -> dict[str, Callable[[], Awaitable[object]] | None]:
        return {"open": self.open, "append": self.append, "slice": self.slice, "fork": self.fork, "rewind": self.rewind}

    async def open(self) -> None:
        with contextlib.closing(self.connect()) as connection:
            found = self.saver_type(connection).get_tuple({"configurable": {"thread_id": "talk", "checkpoint_ns": ""}})
            assert found is not None and len(found.checkpoint["channel_values"]["said"]) >= self.length

    async def append(self) -> None:
        self.talk = [*self.talk, TEXT]
        self.put(self.talk)

    async def slice(self) -> None:
        found = self.saver.get_tuple(self.at(self.ids[0]))
        middle = pick_middle(self.length)
        assert found is not None and len(found.checkpoint["channel_values"]["said"][middle : middle + SLICE]) == SLICE

    async def fork(self) -> None:
        self.graph.update_state(self.at(self.ids[0]), {"said": self.talk[: pick_middle(self.length)]}, as_node="say")

    async def rewind(self) -> None:
        self.graph.update_state(self.at(self.ids[0]), {"said": self.talk[:-SLICE]}, as_node="say")


def make_graph(saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    said = TypedDict("said", {"said": list})
    graph = StateGraph(said)
    graph.add_node("say", lambda state: state)
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    return graph.compile(checkpointer=saver)


class Filled:
    """A store with its history, the seconds to fill it, and the bytes of one event on disk."""

    def __init__(self, kind: type[Any], folder: Path, length: int) -> None:
        self.store: Store = kind(folder)
        began = time.perf_counter()
        self.store.fill(length)
        self.seconds = time.perf_counter() - began
        for database in folder.rglob("*.db"):
            with contextlib.closing(sqlite3.connect(database)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        # One checkpoint of the whole conversation was written. In use, there is one per turn, each as long as the
        # history was then.
        self.bytes_an_event = size / 2 if kind is LangGraphWhole else size / length


async def time_in_turns(operations: dict[str, Callable[[], Awaitable[object]]]) -> dict[str, float]:
    """Return the milliseconds of each store, from its median round.

    The stores take turns, so that a slow moment of the machine affects all. Each round has another order, because the
    next store after one that has written 100 MB finds cold caches and a busy disk.
    """
    took: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(ROUNDS + 1):
        for name, do in CHANCE.sample(list(operations.items()), len(operations)):
            if sum(took[name]) > SLOW_SECONDS:
                continue
            start = time.perf_counter()
            await do()
            took[name].append(time.perf_counter() - start)
    # The first round fills caches in every store, and does not count.
    return {name: statistics.median(times[1:] or times) * 1e3 for name, times in took.items()}


async def measure_operations(stores: list[Store]) -> dict[str, dict[str, float]]:
    operations = {store.name: store.operations() for store in stores}
    try:
        return {
            what: await time_in_turns({name: do for name, all_ in operations.items() if (do := all_[what]) is not None})
            for what in OPERATIONS
        }
    finally:
        for store in stores:
            store.close()


def measure_length(kinds: list[type[Any]], length: int) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Return the figures by operation and store, and a note of how long each store took to fill."""
    with tempfile.TemporaryDirectory(prefix="wakeful-bench-") as text:
        filled = []
        for kind in kinds:
            (folder := Path(text) / kind.__name__).mkdir()
            filled.append(Filled(kind, folder, length))
        gc.collect()
        found = asyncio.run(measure_operations([one.store for one in filled]))
        found["bytes"] = {one.store.name: one.bytes_an_event for one in filled}
        return found, {one.store.name: f"filled in {one.seconds:.0f} s" for one in filled}


def find_kinds() -> list[type[Any]]:
    kinds: list[type[Any]] = [Ours]
    with contextlib.suppress(ImportError):
        import agents  # noqa: F401

        kinds.append(AgentsSession)
    with contextlib.suppress(ImportError):
        import langgraph.checkpoint.sqlite  # noqa: F401

        kinds += [LangGraph, LangGraphWhole]
    return kinds


def measure() -> list[Row]:
    kinds = find_kinds()
    rows: list[Row] = []
    ours: dict[tuple[str, int], float] = {}
    for length in LENGTHS:
        present = [kind for kind in kinds if kind is not LangGraphWhole or length <= WHOLE_STATE_MOST]
        found, notes = measure_length(present, length)
        rows += [make_row(what, length, kind.name, found[what], notes[kind.name]) for what in found for kind in present]
        ours |= {(what, length): figures[Ours.name] for what, figures in found.items()}
    first, last = LENGTHS[0], LENGTHS[-1]
    flat = [
        Row(
            SECTION,
            f"{MEANINGS[what]}: {last:,} beside {first:,}",
            ours[what, last] / ours[what, first],
            "x",
            Bar("<=", 2.0),
        )
        for what in FLAT
    ]
    missing = (
        []
        if len(kinds) > 1
        else [Row(SECTION, "beside the peers", None, "", note="not installed: pip install 'wakeful[bench]'")]
    )
    order = list(MEANINGS.values())
    return [*sorted(rows, key=lambda row: order.index(row.what.split(",")[0])), *flat, *missing]


def make_row(what: str, length: int, name: str, figures: dict[str, float], note: str) -> Row:
    unit = "bytes" if what == "bytes" else "ms p50"
    value = figures.get(name)
    # The floor is shown but not compared, because no agent can keep a conversation like that.
    peers = [figure for other, figure in figures.items() if other not in (Ours.name, LangGraph.name)]
    bar = Bar("<=", min(peers), "the better peer") if name == Ours.name and peers else None
    if what != "open":
        note = "" if value is not None else "copies everything: not measured"
    return Row(SECTION, f"{MEANINGS[what]}, {length:,}: {name}", value, unit, bar, note)


if __name__ == "__main__":
    print_table(measure())
