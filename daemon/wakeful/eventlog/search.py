"""Full text over all payloads: an index beside the log, never the truth.

The engine asks it when somebody searches; at rest and while records are written it costs nothing. Each search first reads what was
recorded since the last one, then asks. The index holds words and places, no text: what is found is read from the log. One that
is missing, damaged, of another store or of another count of erasures is made anew, a million records in about half a minute.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from wakeful.core.record.payloads import list_values
from wakeful.eventlog import reads
from wakeful.eventlog.contract import BadSearch, Record, StoreUnsafe
from wakeful.eventlog.payloads import read_change
from wakeful.eventlog.store import BUSY_MILLISECONDS, StoreFiles, read_mark

CATCH_UP_RECORDS = 5_000
CANDIDATES = 500
_LAYOUT = 2
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError)
_WORDS = re.compile(r'"([^"]*)"|(\S+)')

_SCHEMA = f"""
PRAGMA user_version = {_LAYOUT};
CREATE TABLE reached (store BLOB NOT NULL, change INTEGER NOT NULL, position INTEGER NOT NULL) STRICT;
CREATE VIRTUAL TABLE word USING fts5 (text, session, kind, author, content = '', tokenize = 'unicode61 remove_diacritics 2');
"""


class Wanted(msgspec.Struct, frozen=True):
    """What a search asks for; bounds are inclusive, None where there is none."""

    text: str
    session: str | None
    since: int | None
    until: int | None
    kinds: Sequence[str] | None
    author: str | None
    limit: int

    def holds(self, record: Record) -> bool:
        return (
            record.payload is not None
            and (self.session is None or record.session == self.session)
            and (self.kinds is None or record.kind in self.kinds)
            and (self.author is None or record.author == self.author)
        )

    def write_query(self) -> str:
        """All of it that words can narrow: a session among many is found by the index, not by reading the others' records."""
        parts = [f"text : ({write_phrases(self.text)})"]
        for column, names in (("session", [self.session]), ("kind", self.kinds or []), ("author", [self.author])):
            quoted = [_quote(name) for name in names if name is not None and _has_word(name)]
            if quoted and len(quoted) == len(names):
                parts.append(f"{column} : ({' OR '.join(quoted)})")
        return " AND ".join(parts)


def search(files: StoreFiles, log: apsw.Connection, wanted: Wanted) -> list[Record]:
    """Catch up, then ask. A damaged index is removed and made once more."""
    query = wanted.write_query()
    if wanted.kinds is not None and not wanted.kinds:
        return []
    try:
        return _search(files, log, query, wanted)
    except _DAMAGED:
        remove(files)
        return _search(files, log, query, wanted)


def forget_outdated(files: StoreFiles, log: apsw.Connection) -> None:
    """Empty an index that may hold words of payloads that were erased since."""
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
    """Nothing is lost with it. The next search makes another."""
    for path in (files.search, files.search.with_name(files.search.name + "-journal")):
        path.unlink(missing_ok=True)


def write_phrases(text: str) -> str:
    """The person's words as the index understands them: each a quoted phrase, so that no sign of theirs is an operator."""
    phrases = []
    for quoted, word in _WORDS.findall(text):
        phrase, is_beginning = (quoted, False) if quoted else (word.rstrip("*"), word.endswith("*"))
        # Marks alone have no word to look for.
        if _has_word(phrase):
            phrases.append(_quote(phrase) + ("*" if is_beginning else ""))
    if not phrases:
        raise BadSearch(f"nothing to search for in {text!r}; give at least one word")
    return " AND ".join(phrases)


def _has_word(text: str) -> bool:
    return any(sign.isalnum() for sign in text)


def _quote(phrase: str) -> str:
    escaped = phrase.replace('"', '""')
    return f'"{escaped}"'


def _search(files: StoreFiles, log: apsw.Connection, query: str, wanted: Wanted) -> list[Record]:
    index = _connect(files)
    try:
        _catch_up(index, log)
        found: list[Record] = []
        for positions in _ask(index, query):
            records = dict(reads.read_positions(log, positions, wanted.since, wanted.until))
            found += [
                records[position] for position in positions if position in records and wanted.holds(records[position])
            ]
            if len(found) >= wanted.limit:
                break
        return found[: max(0, wanted.limit)]
    finally:
        index.close()


def _ask(index: apsw.Connection, query: str) -> Iterator[list[int]]:
    """Positions with these words, newest first, in pages: most searches want few of many."""
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
    # One file and no write-ahead log: erased words must not linger beside it.
    for pragma in ("journal_mode = DELETE", "synchronous = NORMAL", "secure_delete = ON", "cache_size = -65536"):
        index.execute(f"PRAGMA {pragma}")
    return index


def _prepare(index: apsw.Connection, log: apsw.Connection) -> int:
    """Make the index fit the log, inside a transaction of the index; returns the position it has reached."""
    mark, change = read_mark(log), read_change(log)
    store, newest = mark.store, mark.position
    version = index.execute("PRAGMA user_version").get
    row = index.execute("SELECT store, change, position FROM reached").get if version == _LAYOUT else None
    if row is not None and row[:2] == (store, change) and row[2] <= newest:
        return int(row[2])
    # Emptied in place, its pages overwritten: another process may have the file open.
    index.execute("DROP TABLE IF EXISTS word; DROP TABLE IF EXISTS reached")
    index.execute(_SCHEMA)
    index.execute("INSERT INTO reached VALUES (?, ?, 0)", (store, change))
    return 0


def _catch_up(index: apsw.Connection, log: apsw.Connection) -> None:
    """Read the log inside the index's own transaction: an erasure that comes between finds it locked, and empties it after."""
    is_behind = True
    while is_behind:
        with write_index(index):
            position = _prepare(index, log)
            reached, records = reads.read_after(log, position, CATCH_UP_RECORDS, imported=True)
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
    """A transaction that takes its lock at once."""
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
        index.execute("COMMIT")
    except BaseException:
        if index.in_transaction:
            index.execute("ROLLBACK")
        raise


def read_text(record: Record) -> str:
    """What a person could have read in a record: the values of its payload and its reason, without the names of fields."""
    assert record.payload is not None
    parts: list[str] = [record.rationale] if record.rationale else []
    try:
        parts += list_values(msgspec.json.decode(record.payload))
    except msgspec.DecodeError:
        parts.append(record.payload.decode(errors="replace"))
    return "\n".join(parts)
