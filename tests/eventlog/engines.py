"""The engines under test and the small words the tests of the log share."""

from collections.abc import Callable
from pathlib import Path

from wakeful.eventlog.contract import Append, Draft, EventLog
from wakeful.eventlog.sqlite import open_log

# Engine -> how it opens the log that lives in a folder. A second engine is one more line.
ENGINES: dict[str, Callable[[Path], EventLog]] = {"sqlite": open_log}


def draft(text: str = "", kind: str = "note_added", author: str = "person", run: int | None = None) -> Draft:
    return Draft(kind, f'"{text}"'.encode(), author, run)


def append(log: EventLog, session: str, *texts: str, at: int = 1, key: str | None = None) -> None:
    """Record texts at the session's present head."""
    drafts = tuple(draft(text) for text in texts)
    log.append_blocking([Append(session, log.head(session).seq, drafts, key)], at)


def texts(log: EventLog, session: str) -> list[str]:
    return [record.payload.decode().strip('"') for record in log.read(session) if record.payload is not None]


def carry(source: EventLog, target: EventLog, session: str, *, extend: bool = False, batch: int = 3) -> None:
    """Bring a session from one log into another, as a load does."""
    records, head = list(source.read(session)), source.head(session)
    missing = target.begin_import(session, head.seq, head.hash, extend=extend)
    for start in range(missing - 1, len(records), batch):
        target.import_records(session, records[start : start + batch])
    target.finish_import(session)
