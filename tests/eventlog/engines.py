"""The engines under test, the ports that each offers, and small functions that the tests of the log share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from wakeful.eventlog.chain import find_damage
from wakeful.eventlog.contract import Append, Draft, EventLog, LogReader, RecordImports
from wakeful.eventlog.memory_engine import MemoryLog, MemoryStore
from wakeful.eventlog.sqlite import open_log

Log = TypeVar("Log", bound=EventLog)
Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Engine:
    """How to open the log of a folder, and the ports that the engine offers besides `EventLog`."""

    open: Callable[[Path], EventLog]
    ports: frozenset[str]


@dataclass
class MemoryFolders:
    """Stores in memory, by folder. A log that is opened again finds its records, as after a restart."""

    stores: dict[Path, MemoryStore] = field(default_factory=dict)

    def open(self, folder: Path) -> MemoryLog:
        return MemoryLog(self.stores.setdefault(folder, MemoryStore()))


PORTS = frozenset(["PayloadStore", "RecordImports", "RecordSearch", "LogVerification", "StoreHealth"])
# A new engine is one more line here.
ENGINES: dict[str, Engine] = {
    "sqlite": Engine(open_log, PORTS | {"LogBackup"}),
    "memory": Engine(MemoryFolders().open, PORTS),
}


def needs(*ports: str) -> Callable[[Test], Test]:
    """Mark a test to run only on engines with these ports."""

    def mark(test: Test) -> Test:
        test.needs = ports  # type: ignore[attr-defined]
        return test

    return mark


def is_sound(log: LogReader) -> bool:
    """Check with the engine's own verification if it has one, otherwise by the chain of every session."""
    verify = getattr(log, "verify", None)
    if verify is not None:
        return bool(verify().is_sound)
    return not any(list(find_damage(log.read(session))) for session in log.heads())


def draft(text: str = "", kind: str = "note_added", author: str = "person", run: int | None = None) -> Draft:
    return Draft(kind, f'"{text}"'.encode(), author, run)


def append(log: EventLog, session: str, *texts: str, at: int = 1, key: str | None = None) -> None:
    """Record texts at the session's present head."""
    drafts = tuple(draft(text) for text in texts)
    log.append_blocking([Append(session, log.head(session).seq, drafts, key)], at)


def texts(log: LogReader, session: str) -> list[str]:
    return [record.payload.decode().strip('"') for record in log.read(session) if record.payload is not None]


def carry(source: LogReader, target: RecordImports, session: str, *, extend: bool = False, batch: int = 3) -> None:
    """Import a session from one log into another, as a load does."""
    records, head = list(source.read(session)), source.head(session)
    missing = target.begin_import(session, head.seq, head.hash, extend=extend)
    for start in range(missing - 1, len(records), batch):
        target.import_records(session, records[start : start + batch])
    target.finish_import(session)


def look_twice(log: Log, open_again: Callable[[], Log]) -> Iterator[Log]:
    """Yield the log as it is, and again after a restart."""
    yield log
    yield open_again()
