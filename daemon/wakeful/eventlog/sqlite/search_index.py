"""The full-text index over all payloads: a file next to the log, derived from it.

It costs nothing until the first search. Each search first indexes the records since the last search, then asks the
index. The index contains words and positions, no text; the found records are read from the log. An index that is
missing, damaged, of another store or of an older count of erasures is built again. A million records take about half a
minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from wakeful.eventlog.contract import Record, StoreUnsafe
from wakeful.eventlog.search_text import Query, has_word, parse_phrases, read_text
from wakeful.eventlog.sqlite import queries
from wakeful.eventlog.sqlite.files import BUSY_MILLISECONDS, StoreFiles, read_mark
from wakeful.eventlog.sqlite.payload_store import read_change

CATCH_UP_RECORDS = 5_000
CANDIDATES = 500
_LAYOUT = 2
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError)

_SCHEMA = f"""
PRAGMA user_version = {_LAYOUT};
CREATE TABLE reached (store BLOB NOT NULL, change INTEGER NOT NULL, position INTEGER NOT NULL) STRICT;
CREATE VIRTUAL TABLE word USING fts5 (
    text, session, kind, author, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
"""


def search(files: StoreFiles, log: apsw.Connection, wanted: Query) -> list[Record]:
    """Bring the index up to date, then search it. A damaged index is removed and built again."""
    query = write_match(wanted)
    if wanted.kinds is not None and not wanted.kinds:
        return []
    try:
        return _search(files, log, query, wanted)
    except _DAMAGED:
        remove(files)
        return _search(files, log, query, wanted)


def forget_outdated(files: StoreFiles, log: apsw.Connection) -> None:
    """Empty an index that may contain words of payloads that were erased since it was built."""
    if not files.search.exists():
        return
    try:
        index = _connect(files)
        try:
            with write_index(index):
                _prepare(index, log)
        finally:
            index.close()
    except _DAMAGED:
        remove(files)


def remove(files: StoreFiles) -> None:
    """Remove the index. The next search builds it again."""
    for path in (files.search, files.search.with_name(files.search.name + "-journal")):
        path.unlink(missing_ok=True)


def write_match(wanted: Query) -> str:
    """Write the search as an FTS5 expression.

    Session, kinds and author are part of it, so that the index itself skips other records.
    """
    phrases = [_quote(phrase.text) + ("*" if phrase.is_prefix else "") for phrase in parse_phrases(wanted.text)]
    parts = [f"text : ({' AND '.join(phrases)})"]
    columns: tuple[tuple[str, Sequence[str | None]], ...] = (
        ("session", [wanted.session]),
        ("kind", wanted.kinds or []),
        ("author", [wanted.author]),
    )
    for column, names in columns:
        quoted = [_quote(name) for name in names if name is not None and has_word(name)]
        if quoted and len(quoted) == len(names):
            parts.append(f"{column} : ({' OR '.join(quoted)})")
    return " AND ".join(parts)


def _quote(phrase: str) -> str:
    escaped = phrase.replace('"', '""')
    return f'"{escaped}"'


def _search(files: StoreFiles, log: apsw.Connection, query: str, wanted: Query) -> list[Record]:
    index = _connect(files)
    try:
        _catch_up(index, log)
        found: list[Record] = []
        for positions in _ask(index, query):
            records = dict(queries.read_positions(log, positions, wanted.since, wanted.until))
            found += [
                records[position] for position in positions if position in records and wanted.admits(records[position])
            ]
            if len(found) >= wanted.limit:
                break
        return found[: max(0, wanted.limit)]
    finally:
        index.close()


def _ask(index: apsw.Connection, query: str) -> Iterator[list[int]]:
    """Find the positions that match, newest first, in pages, because most searches need only a few of many matches."""
    before = 2**63 - 1
    while True:
        rows: list[tuple[Any, ...]] = index.execute(
            "SELECT rowid FROM word WHERE word MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?",
            (query, before, CANDIDATES),
        ).fetchall()
        if not rows:
            return
        yield [position for (position,) in rows]
        before = rows[-1][0]


def _connect(files: StoreFiles) -> apsw.Connection:
    try:
        if not files.search.exists():
            os.close(os.open(files.search, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        index = apsw.Connection(str(files.search), flags=apsw.SQLITE_OPEN_READWRITE)
    except (OSError, apsw.CantOpenError) as error:
        raise StoreUnsafe(
            f"{files.search} cannot be written: {error}; a search keeps its index there, make the folder writable"
        ) from error
    index.set_busy_timeout(BUSY_MILLISECONDS)
    # One file without a write-ahead log, which could keep erased words.
    for pragma in ("journal_mode = DELETE", "synchronous = NORMAL", "secure_delete = ON", "cache_size = -65536"):
        index.execute(f"PRAGMA {pragma}")
    return index


def _prepare(index: apsw.Connection, log: apsw.Connection) -> int:
    """Empty the index if it does not fit the log, inside a transaction of the index.

    Returns the position that the index has reached.
    """
    mark, change = read_mark(log), read_change(log)
    store, newest = mark.store, mark.position
    version = index.execute("PRAGMA user_version").get
    row = index.execute("SELECT store, change, position FROM reached").get if version == _LAYOUT else None
    if row is not None and row[:2] == (store, change) and row[2] <= newest:
        return int(row[2])
    # The index is emptied in place and its pages are overwritten, because another process may have the file open.
    index.execute("DROP TABLE IF EXISTS word; DROP TABLE IF EXISTS reached")
    index.execute(_SCHEMA)
    index.execute("INSERT INTO reached VALUES (?, ?, 0)", (store, change))
    return 0


def _catch_up(index: apsw.Connection, log: apsw.Connection) -> None:
    """Index the new records.

    The log is read inside the index's transaction, so a concurrent erasure waits for it, then empties the index.
    """
    is_behind = True
    while is_behind:
        with write_index(index):
            position = _prepare(index, log)
            reached, records = queries.read_after(log, position, CATCH_UP_RECORDS, imported=True)
            is_behind = len(records) == CATCH_UP_RECORDS
            if not records:
                return
            places = range(reached - len(records) + 1, reached + 1)
            index.executemany(
                "INSERT INTO word (rowid, text, session, kind, author) VALUES (?, ?, ?, ?, ?)",
                (
                    (place, read_text(record), record.session, record.kind, record.author)
                    for place, record in zip(places, records, strict=True)
                    if record.payload is not None
                ),
            )
            index.execute("UPDATE reached SET position = ?", (reached,))


@contextmanager
def write_index(index: apsw.Connection) -> Iterator[None]:
    """Open a transaction that takes the write lock at once."""
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
        index.execute("COMMIT")
    except BaseException:
        if index.in_transaction:
            index.execute("ROLLBACK")
        raise
