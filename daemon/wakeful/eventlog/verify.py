"""Recompute everything the log claims and name every place where it does not hold.

Called by `wakeful verify`, by doctor, and on every backup and restore. It reads through a connection of its own and one session at
a time; damage in one place does not hide the rest. SQLite's own check sees few flipped bits (6 of 200 measured), the chain
nearly all, and neither sees a lost tail: that is the anchor's part.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from wakeful.eventlog import chain
from wakeful.eventlog.anchor import Mark, judge_store, read_anchor
from wakeful.eventlog.contract import Finding, Report
from wakeful.eventlog.store import connect_reader, read_mark, read_roll

_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.SQLError)


class _Counts(msgspec.Struct):
    sessions: int = 0
    records: int = 0
    erased: int = 0
    snapshots: int = 0


def verify_store(database: Path, anchor_path: Path | None, session: str | None = None) -> Report:
    """Check one session, or everything: then also the anchor (a backup has none), the order of all and SQLite's own structure."""
    counts = _Counts()
    # The anchor before the store: a live store may only have moved on since, never back.
    anchor = read_anchor(anchor_path) if anchor_path is not None else None
    connection = connect_reader(database)
    try:
        connection.execute("BEGIN")  # one moment of a store that may be growing
        findings = list(_check_sessions(connection, session, counts))
        if session is None:
            findings += _guarded("flushes", _check_flushes(connection))
            findings += _guarded("anchor", _check_anchor(connection, anchor) if anchor_path is not None else iter(()))
            findings += _guarded("store", _check_structure(connection))
    finally:
        connection.close()
    return Report(counts.sessions, counts.records, counts.erased, counts.snapshots, tuple(findings))


def _check_sessions(connection: apsw.Connection, session: str | None, counts: _Counts) -> Iterator[Finding]:
    try:
        sessions = connection.execute("SELECT key, id FROM session WHERE id = coalesce(?, id) ORDER BY key", (session,)).fetchall()
    except _UNREADABLE as error:
        yield Finding("store", f"the table of sessions cannot be read: {error}")
        return
    for key, name in sessions:
        counts.sessions += 1
        yield from _guarded(f"session {name}", _check_session(connection, key, name, counts))
        yield from _guarded(f"session {name}, snapshots", _check_snapshots(connection, key, name, counts))
        yield from _guarded(f"session {name}, keys", _check_keys(connection, key, name))


def _guarded(where: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """A part that cannot be read to its end is itself a finding, and the other parts are still looked at."""
    try:
        yield from findings
    except _UNREADABLE as error:
        yield Finding(where, f"cannot be read to its end: {error}")


def _check_session(connection: apsw.Connection, key: int, name: str, counts: _Counts) -> Iterator[Finding]:
    """Seqs without a gap, payloads as hashed, the chain as recorded. After a break the chain goes on from the recorded
    hash, so that one damaged record is one finding."""
    seq, latest, previous = 0, None, chain.NOTHING
    steps = {step for (step,) in connection.execute("SELECT seq FROM clock_step WHERE session = ?", (key,))}
    rows = connection.execute(
        "SELECT e.seq, e.at, e.kind, e.author, e.run, e.parent, e.rationale, e.payload_hash, e.hash, p.event, p.body "
        "FROM event e INDEXED BY event_by_seq LEFT JOIN payload p ON p.event = e.id WHERE e.session = ? ORDER BY e.seq",
        (key,),
    )
    for found, at, kind, author, run, parent, rationale, digest, link, payload, body in rows:
        counts.records += 1
        where = f"session {name}, seq {found}"
        if found != seq + 1:
            yield Finding(where, f"follows seq {seq}: {found - seq - 1} records between them are missing")
        if payload is None:
            yield Finding(where, "its payload is gone, and not by erasure")
        elif body is None:
            counts.erased += 1
        elif chain.hash_bytes(body) != digest:
            yield Finding(where, "its payload is not the one that was recorded")
        if chain.link_record(previous, name, found, at, kind, author, run, parent, rationale, digest) != link:
            yield Finding(where, "its hash does not follow from its content and the record before it")
        if (latest is not None and at < latest) != (found in steps):
            yield Finding(where, "whether the clock was set back before it is noted wrongly")
        seq, latest, previous = found, at, link
    if seq == 0:
        yield Finding(f"session {name}", "has no records")


def _check_snapshots(connection: apsw.Connection, key: int, name: str, counts: _Counts) -> Iterator[Finding]:
    for seq, state, state_hash in connection.execute("SELECT seq, state, state_hash FROM snapshot WHERE session = ? ORDER BY seq", (key,)):
        counts.snapshots += 1
        if chain.hash_bytes(state) != state_hash:
            where = f"session {name}, snapshot at seq {seq}"
            yield Finding(where, "its state is not the one that was saved; it is ignored, a replay replaces it")


def _check_keys(connection: apsw.Connection, key: int, name: str) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT key, first_seq, last_seq FROM idempotency WHERE session = ? AND NOT (first_seq BETWEEN 1 AND last_seq "
        "AND last_seq <= (SELECT coalesce(max(seq), 0) FROM event WHERE session = idempotency.session))",
        (key,),
    )
    for text, first, last in rows:
        yield Finding(f"session {name}, key {text!r}", f"names seqs {first} to {last}, which the session does not have")


def _check_flushes(connection: apsw.Connection) -> Iterator[Finding]:
    """The roll over all records in the order of recording, as each flush noted it."""
    roll, position, number = chain.NOTHING, 0, 0
    records = connection.execute("SELECT id, hash FROM event ORDER BY id")
    for found, last, noted in connection.execute("SELECT number, last_event, roll FROM flush ORDER BY number"):
        number += 1
        if found != number:
            yield Finding(f"flush {found}", f"follows flush {number - 1}")
            number = found
        hashes = []
        while position < last:
            row = next(records, None)
            position += 1
            if row is None or row[0] != position:
                yield Finding(f"flush {found}", f"record {position} of all sessions is missing")
                return
            hashes.append(row[1])
        roll = chain.roll_forward(roll, hashes)
        if roll != noted:
            yield Finding(f"flush {found}", f"its records up to {last} of all sessions are not those it noted")
            roll = noted
    if next(records, None) is not None:
        yield Finding("flushes", f"there are records after the last flush, which ends at {position}")


def _check_anchor(connection: apsw.Connection, anchor: Mark | None) -> Iterator[Finding]:
    wrong = judge_store(anchor, read_mark(connection), read_roll(connection, anchor.flush) if anchor else None)
    if wrong is not None:
        yield Finding("anchor", f"the store is not what it vouches for: {wrong}")


def _check_structure(connection: apsw.Connection) -> Iterator[Finding]:
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield Finding("store", line)
    for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield Finding("store", f"row {rowid} of {table} refers to a {parent} that does not exist")
