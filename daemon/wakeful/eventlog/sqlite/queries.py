"""The SQL that reads records, in pages.

Used by the engine, by the search index and by the repair. A cursor that stays open would block every checkpoint of the
write-ahead log, and an iterator may never be finished. So records are read in pages, each in its own short transaction,
continued by seq. Only `read_tails` keeps its cursors open, on a connection of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import apsw
import msgspec

from wakeful.eventlog.chain import hash_bytes
from wakeful.eventlog.contract import Head, Record, Snapshot

PAGE_RECORDS = 1_000
_NO_LIMIT = 2**63 - 1

_COLUMNS = "e.seq, e.at, e.kind, e.author, e.run, e.parent, e.rationale, CAST(p.body AS BLOB), e.payload_hash, e.hash"
_PAYLOAD = 7
_NEWEST = "(SELECT max(seq) FROM snapshot WHERE session = s.key)"
# The last seq of each session under import before that import began. 0 if the session was not here.
_ENDS = """
    SELECT i.session AS session, coalesce(max(d.first_seq), 1) - 1 AS seq FROM import i
    LEFT JOIN imported d ON d.session = i.session AND d.last_seq = i.last_seq GROUP BY i.session
"""
_WHOLE = f"NOT EXISTS (SELECT 1 FROM ({_ENDS}) ends WHERE ends.session = s.id AND e.seq > ends.seq)"
_LIVING = f"s.id NOT IN (SELECT session FROM ({_ENDS}) WHERE seq = 0 UNION ALL SELECT session FROM inert)"
_OWN = "AND NOT EXISTS (SELECT 1 FROM imported i WHERE i.session = s.id AND e.seq BETWEEN i.first_seq AND i.last_seq)"
_FROM = "FROM event e INDEXED BY event_by_seq LEFT JOIN payload p ON p.event = e.id"


def make_record(session: str, row: Sequence[Any]) -> Record:
    """Make a record from a row of `_COLUMNS`. A payload that does not match its recorded hash is left out."""
    payload = row[_PAYLOAD]
    if payload is None or hash_bytes(payload) == row[_PAYLOAD + 1]:
        return Record(session, *row)
    return msgspec.structs.replace(Record(session, *row), payload=None, is_damaged=True)


def try_opening(connection: apsw.Connection) -> None:
    """Read what a writer reads first, through a connection that cannot write.

    If that fails, no writer may touch the files.
    """
    connection.execute(
        "SELECT (SELECT max(key) FROM session), (SELECT count(*) FROM import), (SELECT count FROM payload_change)"
    ).fetchall()


def read_sessions(connection: apsw.Connection) -> list[str]:
    """List the ids of all sessions that are shown."""
    return [session for (session,) in connection.execute(f"SELECT s.id FROM session s WHERE {_LIVING} ORDER BY s.key")]


class Slice(msgspec.Struct, frozen=True):
    """The range and filters of a read. Bounds are inclusive; None means no bound."""

    from_seq: int = 1
    to_seq: int | None = None
    kinds: Sequence[str] | None = None
    run: int | None = None
    author: str | None = None
    newest_first: bool = False


def read_slice(
    connection: apsw.Connection, session: str, wanted: Slice, since: int | None, until: int | None, limit: int | None
) -> Iterator[Record]:
    """Read the selected records of one session, in the order of seqs."""
    key = connection.execute("SELECT key FROM session WHERE id = ?", (session,)).get
    if key is None:
        return
    left = limit if limit is not None else _NO_LIMIT
    for low, high in find_seqs(connection, key, wanted, since, until):
        while low <= high and left > 0:
            sql, values = _write_query(key, low, high, wanted)
            rows: list[tuple[Any, ...]] = connection.execute(sql, (*values, min(PAGE_RECORDS, left))).fetchall()
            for row in rows:
                yield make_record(session, row)
            left -= len(rows)
            if len(rows) < PAGE_RECORDS:
                break
            low, high = (low, rows[-1][0] - 1) if wanted.newest_first else (rows[-1][0] + 1, high)


def find_seqs(
    connection: apsw.Connection, key: int, wanted: Slice, since: int | None, until: int | None
) -> list[tuple[int, int]]:
    """Find the ranges of seqs within the bounds, in the order of reading.

    There is more than one range only if the clock was set back.
    """
    last: int = connection.execute("SELECT coalesce(max(seq), 0) FROM event WHERE session = ?", (key,)).get
    low, high = max(1, wanted.from_seq), last if wanted.to_seq is None else min(last, wanted.to_seq)
    if since is None and until is None:
        return [(low, high)]
    steps: list[int] = [
        seq for (seq,) in connection.execute("SELECT seq FROM clock_step WHERE session = ? ORDER BY seq", (key,))
    ]

    def find_at(seq: int) -> int:
        at: int = connection.execute("SELECT at FROM event WHERE session = ? AND seq = ?", (key, seq)).get
        return at

    ranges = []
    for start, end in zip([1, *steps], [*(seq - 1 for seq in steps), last], strict=True):
        start, end = max(low, start), min(high, end)
        span = range(start, end + 1)
        first = start if since is None else start + bisect_left(span, since, key=find_at)
        final = end if until is None else start + bisect_right(span, until, key=find_at) - 1
        if first <= final:
            ranges.append((first, final))
    return ranges[::-1] if wanted.newest_first else ranges


def _write_query(key: int, low: int, high: int, wanted: Slice) -> tuple[str, tuple[object, ...]]:
    conditions = ["e.session = ?", "e.seq BETWEEN ? AND ?"]
    values: list[int | str] = [key, low, high]
    for condition, value in (("e.run = ?", wanted.run), ("e.author = ?", wanted.author)):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if wanted.kinds is not None:
        conditions.append(f"e.kind IN ({', '.join('?' * len(wanted.kinds))})")
        values += wanted.kinds
    turn = "DESC" if wanted.newest_first else "ASC"
    sql = f"SELECT {_COLUMNS} {_FROM} WHERE {' AND '.join(conditions)} ORDER BY e.seq {turn} LIMIT ?"
    return sql, tuple(values)


def read_heads(connection: apsw.Connection) -> dict[str, Head]:
    rows = connection.execute(
        f"""
        SELECT s.id, e.seq, e.hash FROM session s CROSS JOIN event e
        ON e.session = s.key AND e.seq = (SELECT max(seq) FROM event WHERE session = s.key) WHERE {_LIVING}
        """
    )
    heads = {session: Head(seq, digest) for session, seq, digest in rows}
    cut = connection.execute(
        f"SELECT s.id, e.seq, e.hash FROM ({_ENDS}) ends JOIN session s ON s.id = ends.session JOIN event e "
        f"ON e.session = s.key AND e.seq = ends.seq WHERE {_LIVING}"
    )
    return heads | {session: Head(seq, digest) for session, seq, digest in cut}


def read_sizes(connection: apsw.Connection) -> dict[str, int]:
    rows = connection.execute(
        "SELECT s.id, coalesce(sum(length(p.body)), 0) FROM session s JOIN event e ON e.session = s.key "
        f"LEFT JOIN payload p ON p.event = e.id WHERE {_LIVING} GROUP BY s.id"
    )
    return dict(rows)


def read_after(
    connection: apsw.Connection,
    position: int,
    limit: int,
    kinds: Sequence[str] | None = None,
    *,
    imported: bool = False,
    most_bytes: int | None = None,
) -> tuple[int, list[Record]]:
    """Read the next records of all sessions in the order of recording.

    Returns the position up to which all records were read, and the records.
    """
    chosen = "" if kinds is None else f"AND e.kind IN ({', '.join('?' * len(kinds))})"
    newest = connection.execute("SELECT coalesce(max(id), 0) FROM event").get
    rows = connection.execute(
        f"SELECT e.id, s.id, {_COLUMNS} FROM event e JOIN session s ON s.key = e.session LEFT JOIN payload p "
        "ON p.event = e.id "
        f"WHERE e.id > ? AND e.id <= ? {chosen} {'' if imported else _OWN} ORDER BY e.id LIMIT ?",
        (position, newest, *(kinds or ()), limit),
    )
    reached, records, read_bytes = position, list[Record](), 0
    for row in rows:
        reached, record = row[0], make_record(row[1], row[2:])
        records.append(record)
        read_bytes += len(record.payload or b"")
        if len(records) == limit or (most_bytes is not None and read_bytes >= most_bytes):
            rows.close()
            return reached, records
    return max(position, newest), records


def read_positions(
    connection: apsw.Connection, positions: Sequence[int], since: int | None, until: int | None
) -> Iterator[tuple[int, Record]]:
    """Read the records at these positions within a time span, in any order.

    Records of an unfinished import are left out.
    """
    rows: list[tuple[Any, ...]] = connection.execute(
        f"SELECT e.id, s.id, {_COLUMNS} FROM event e JOIN session s ON s.key = e.session LEFT JOIN payload p "
        "ON p.event = e.id "
        f"WHERE e.id IN ({', '.join('?' * len(positions))}) AND {_WHOLE} AND e.at BETWEEN ? AND ?",
        (*positions, -(2**63) if since is None else since, _NO_LIMIT if until is None else until),
    ).fetchall()
    return ((row[0], make_record(row[1], row[2:])) for row in rows)


def read_ends(connection: apsw.Connection) -> dict[str, int]:
    """Read the last shown seq of each session under import."""
    return dict(connection.execute(_ENDS))


def read_tails(connection: apsw.Connection) -> Iterator[tuple[str, Snapshot | None, list[Record]]]:
    """Read every session with its newest snapshot and the records after it.

    These are two ordered scans in parallel, in one transaction. No other caller may use the connection.
    """
    connection.execute("BEGIN")
    snapshots = connection.execute(
        "SELECT s.key, n.seq, CAST(n.state AS BLOB), CAST(n.state_hash AS BLOB) FROM session s "
        f"JOIN snapshot n ON n.session = s.key AND n.seq = {_NEWEST} WHERE {_LIVING} ORDER BY s.key"
    )
    # One seek per session, as the query plan shows. A join with a grouped table of newest snapshots took 4 s for 10,000
    # sessions.
    rows = connection.execute(
        f"""
        SELECT s.key, s.id, {_COLUMNS} FROM session s
        LEFT JOIN event e INDEXED BY event_by_seq ON e.session = s.key AND e.seq > coalesce({_NEWEST}, 0)
        LEFT JOIN payload p ON p.event = e.id
        WHERE {_LIVING} ORDER BY s.key, e.seq
        """
    )
    ends = read_ends(connection)
    newest = next(snapshots, None)
    for key, tail in groupby(rows, key=itemgetter(0)):
        snapshot = None
        if newest is not None and newest[0] == key:
            snapshot = Snapshot(*newest[1:])
            newest = next(snapshots, None)
        first = next(tail)
        session = first[1]
        end = ends.get(session, _NO_LIMIT)
        # A session whose snapshot is at its head has one row without a record.
        yield (
            session,
            snapshot,
            [make_record(session, row[2:]) for row in (first, *tail) if row[2] is not None and row[2] <= end],
        )
