"""The SQL that reads records, and the pages it reads them in.

Used by the engine and by verification. A read never keeps a cursor open between two records: an iterator someone forgot would
hold the write-ahead log back for ever. So records come in pages, each its own short transaction, continued by key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import apsw
import msgspec

from wakeful.eventlog.contract import Record, Snapshot

PAGE_RECORDS = 1_000

_COLUMNS = "e.seq, e.at, e.kind, e.author, e.run, e.parent, e.rationale, p.body, e.payload_hash, e.hash"
_NEWEST = "newest AS MATERIALIZED (SELECT session, max(seq) AS seq FROM snapshot GROUP BY session)"
_FROM = "FROM event e LEFT JOIN payload p ON p.event = e.id"


class Slice(msgspec.Struct, frozen=True):
    """The bounds of a read, each inclusive; None where there is none. `last_id` is where the page before ended, by time."""

    from_seq: int = 1
    to_seq: int | None = None
    since: int | None = None
    until: int | None = None
    kinds: Sequence[str] | None = None
    run: int | None = None
    author: str | None = None
    newest_first: bool = False
    last_id: int | None = None

    @property
    def is_by_time(self) -> bool:
        return self.since is not None or self.until is not None


def read_slice(connection: apsw.Connection, session: str, bounds: Slice, limit: int | None) -> Iterator[Record]:
    """The records of one session within bounds."""
    key = connection.execute("SELECT key FROM session WHERE id = ?", (session,)).get
    if key is None:
        return
    remaining = limit
    page: Slice | None = bounds
    while page is not None and (remaining is None or remaining > 0):
        wanted = PAGE_RECORDS if remaining is None else min(PAGE_RECORDS, remaining)
        sql, values = _write_query(key, page)
        rows = connection.execute(sql, (*values, wanted)).fetchall()
        for row in rows:
            yield Record(session, *row[1:])
        remaining = None if remaining is None else remaining - len(rows)
        page = _narrow(page, *rows[-1][:3]) if len(rows) == wanted else None


def _narrow(bounds: Slice, last_id: int, last_seq: int, last_at: int) -> Slice:
    """What is left of the bounds after a page. One bound moves, none is added: of two lower bounds on a column SQLite
    seeks to the first and filters by the other, which makes paging quadratic."""
    replace = msgspec.structs.replace
    match bounds.is_by_time, bounds.newest_first:
        case True, False:
            return replace(bounds, since=last_at, last_id=last_id)
        case True, True:
            return replace(bounds, until=last_at, last_id=last_id)
        case False, False:
            return replace(bounds, from_seq=last_seq + 1)
        case _:
            return replace(bounds, to_seq=last_seq - 1)


def _write_query(key: int, bounds: Slice) -> tuple[str, tuple[object, ...]]:
    """Within a session ids rise with seqs, so the id breaks ties of time."""
    turn = "DESC" if bounds.newest_first else "ASC"
    if bounds.is_by_time:
        index, order = "event_by_time", f"e.at {turn}, e.id {turn}"
    else:
        index, order = "event_by_seq", f"e.seq {turn}"
    conditions, values = ["e.session = ?", "e.seq >= ?"], [key, bounds.from_seq]
    for condition, value in (
        ("e.seq <= ?", bounds.to_seq),
        ("e.at >= ?", bounds.since),
        ("e.at <= ?", bounds.until),
        ("e.run = ?", bounds.run),
        ("e.author = ?", bounds.author),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if bounds.last_id is not None:
        # The records at the very moment where the last page ended, less those it held.
        moment, beyond = (bounds.until, "<") if bounds.newest_first else (bounds.since, ">")
        conditions.append(f"(e.at != ? OR e.id {beyond} ?)")
        values += [moment, bounds.last_id]
    if bounds.kinds is not None:
        conditions.append(f"e.kind IN ({', '.join('?' * len(bounds.kinds))})")
        values += bounds.kinds
    sql = (
        f"SELECT e.id, {_COLUMNS} FROM event e INDEXED BY {index} LEFT JOIN payload p ON p.event = e.id "
        f"WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT ?"
    )
    return sql, tuple(values)


def read_after(connection: apsw.Connection, position: int, limit: int) -> tuple[int, list[Record]]:
    """The next records of all sessions, in the order of recording."""
    rows = connection.execute(
        f"SELECT e.id, s.id, {_COLUMNS} {_FROM} JOIN session s ON s.key = e.session WHERE e.id > ? ORDER BY e.id LIMIT ?",
        (position, limit),
    ).fetchall()
    return (rows[-1][0] if rows else position), [Record(*row[1:]) for row in rows]


def read_tails(connection: apsw.Connection) -> Iterator[tuple[str, Snapshot | None, list[Record]]]:
    """Every session, its newest snapshot and the records after it: two ordered scans side by side, in one transaction
    of a connection that belongs to the caller of this alone."""
    connection.execute("BEGIN")
    snapshots = connection.execute(f"WITH {_NEWEST} SELECT p.seq, p.state, p.state_hash FROM newest n JOIN snapshot p USING (session, seq) ORDER BY n.session")
    rows = connection.execute(
        f"""
        WITH {_NEWEST}
        SELECT s.key, s.id, n.seq, {_COLUMNS}
        FROM session s LEFT JOIN newest n ON n.session = s.key
        LEFT JOIN event e INDEXED BY event_by_seq ON e.session = s.key AND e.seq > coalesce(n.seq, 0)
        LEFT JOIN payload p ON p.event = e.id
        ORDER BY s.key, e.seq
        """
    )
    for _, tail in groupby(rows, key=itemgetter(0)):
        first = next(tail)
        session, has_snapshot = first[1], first[2] is not None
        snapshot = Snapshot(*next(snapshots)) if has_snapshot else None
        records = [Record(session, *row[3:]) for row in (first, *tail) if row[3] is not None]
        yield session, snapshot, records
