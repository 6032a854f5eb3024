"""Recomputes all hashes of a store and reports every place that fails.

Called by `wakeful verify`, by doctor, and for every backup and restore. It reads through its own connections, one
session at a time, and damage in one place does not hide the rest. SQLite's own check notices few flipped bits (6 of 200
measured), the chain nearly all. Neither notices that the end of the log is lost; the anchor does. If there are enough
cores, three checks run at once: the chain here, the payloads in a second process (payload_check.py), and SQLite's check
of its pages on a thread, without Python's lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import msgspec

from wakeful.eventlog import chain
from wakeful.eventlog.contract import Finding, Progress, Report
from wakeful.eventlog.sqlite import payload_check
from wakeful.eventlog.sqlite.anchor import Mark, judge_store, read_anchor
from wakeful.eventlog.sqlite.files import connect_reader, read_mark, read_roll
from wakeful.eventlog.sqlite.import_store import read_imports
from wakeful.eventlog.sqlite.schema import load_migrations, read_version
from wakeful.text.display import count

PROGRESS_RECORDS = 10_000
_UNREADABLE = payload_check.UNREADABLE
# SQLite's messages: "row 12 missing from index event_by_seq", "wrong # of entries in index event_by_seq",
# "Tree 9 page 9 cell 0: ...".
_INDEX_DISAGREES = re.compile(r"missing from index|entries in index|values differ from index|non-unique entry in index")
_TREE = re.compile(r"Tree (\d+) ")
_SCHEMA_ROWS = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
STEP_WRONG = "the log records wrongly whether the clock was set back before this record"


class _Counts(msgspec.Struct):
    """How much was checked so far, and the callback that reports it."""

    total: int = 0
    progress: Progress | None = None
    sessions: int = 0
    records: int = 0
    snapshots: int = 0

    def tell(self) -> None:
        if self.progress is not None:
            self.progress(self.records, max(self.total, self.records))


class _Session(msgspec.Struct, frozen=True):
    key: int
    name: str


def verify_store(
    database: Path,
    anchor_path: Path | None,
    session: str | None = None,
    progress: Progress | None = None,
    *,
    may_use_process: bool = False,
) -> Report:
    """Check one session, or the whole store.

    For the whole store, also check the anchor, the flushes and SQLite's own structure. A backup has no anchor. With
    `may_use_process`, a second process may check a part of a large store. A daemon may not start one, because it keeps
    track of its child processes.
    """
    counts = _Counts(progress=progress)
    # The anchor is read before the store, because a live store only grows meanwhile.
    anchor = read_anchor(anchor_path) if anchor_path is not None else None
    connection = connect_reader(database)
    try:
        connection.execute("BEGIN")  # one consistent state of a store that may be growing
        is_large = may_use_process and _count_about(connection) >= payload_check.WORTH_RECORDS
        with (
            ThreadPoolExecutor(1) as beside,
            payload_check.start_check(database, session, may_use_process=is_large) as payloads,
        ):
            structure = beside.submit(_check_structure_beside, database) if session is None else None
            findings, found = _check_sessions(connection, session, counts, payloads)
            unfinished = _count_unfinished(connection)
            if structure is not None:
                findings += _guarded("flushes", _check_flushes(connection))
                findings += _guarded(
                    "anchor", _check_anchor(connection, anchor) if anchor_path is not None else iter(())
                )
                findings += structure.result()
    finally:
        connection.close()
    counts.tell()
    return Report(
        counts.sessions,
        counts.records,
        found.erased,
        counts.snapshots,
        tuple(findings),
        archived=found.archived,
        unfinished=unfinished,
    )


def _check_sessions(
    connection: apsw.Connection, session: str | None, counts: _Counts, payloads: payload_check.PendingCheck
) -> tuple[list[Finding], payload_check.PayloadFindings]:
    """Check chains and payloads in parallel, then snapshots and keys. The findings are in the order of sessions."""
    try:
        rows: list[tuple[Any, ...]] = connection.execute(
            "SELECT key, id FROM session WHERE id = coalesce(?, id) ORDER BY key", (session,)
        ).fetchall()
        sessions = [_Session(*row) for row in rows]
        counts.total = _count_records(connection, sessions, session)
    except _UNREADABLE as error:
        return [Finding("store", f"the table of sessions cannot be read: {error}")], payload_check.PayloadFindings(
            {}, 0, 0
        )
    counts.sessions = len(sessions)
    broken = {one.name: list(_guarded_records(connection, one, counts)) for one in sessions}
    found = payloads.result()
    findings: list[Finding] = []
    for one in sessions:
        findings += _join_spans(one.name, sorted(broken[one.name] + found.wrong.get(one.name, [])))
        findings += _guarded(f"session {one.name}, snapshots", _check_snapshots(connection, one.key, one.name, counts))
        findings += _guarded(f"session {one.name}, keys", _check_keys(connection, one.key, one.name))
    return findings, found


def _count_about(connection: apsw.Connection) -> int:
    try:
        newest: int = connection.execute("SELECT coalesce(max(id), 0) FROM event").get
        return newest
    except _UNREADABLE:
        return 0  # the checks that read it report the damage


def _count_records(connection: apsw.Connection, sessions: list[_Session], session: str | None) -> int:
    """Return the approximate number of records, for the progress. It takes a seek, not a count."""
    if session is None:
        return _count_about(connection)
    return sum(
        connection.execute("SELECT coalesce(max(seq), 0) FROM event WHERE session = ?", (one.key,)).get
        for one in sessions
    )


def _count_unfinished(connection: apsw.Connection) -> int:
    try:
        return len(read_imports(connection))
    except _UNREADABLE:
        return 0  # the check of the structure reports the damage


def _guarded(where: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Turn a part that cannot be read to its end into a finding, so that the other parts are still checked."""
    try:
        yield from findings
    except _UNREADABLE as error:
        yield Finding(where, f"cannot be read to its end: {error}")


def _guarded_records(connection: apsw.Connection, session: _Session, counts: _Counts) -> Iterator[tuple[int, str]]:
    """Turn records that cannot be read to their end into a finding. An unreadable part has seq 0."""
    try:
        yield from _check_records(connection, session, counts)
    except UnicodeDecodeError:
        yield from _find_undecodable(connection, session)
        yield 0, "cannot be read to its end: the records after that one were not checked"
    except _UNREADABLE as error:
        yield 0, f"cannot be read to its end: {error}"


def _find_undecodable(connection: apsw.Connection, session: _Session) -> Iterator[tuple[int, str]]:
    """Find the record whose text is not UTF-8.

    SQLite returns the bytes unchecked, so one flipped bit can stop a read.
    """
    columns = ("kind", "author", "parent", "rationale")
    read = ", ".join(f"CAST({column} AS BLOB)" for column in columns)
    rows = connection.execute(
        f"SELECT seq, {read} FROM event INDEXED BY event_by_seq WHERE session = ? ORDER BY seq", (session.key,)
    )
    for seq, *values in rows:
        for column, value in zip(columns, values, strict=True):
            if value is not None and value.decode(errors="replace").encode() != value:
                yield seq, f"its {column} is not text: {value!r}"


def _check_records(connection: apsw.Connection, session: _Session, counts: _Counts) -> Iterator[tuple[int, str]]:
    """Find every record that fails, by its seq.

    The loop runs a million times, so it makes no unnecessary call.
    """
    name, link_record = session.name, chain.link_record
    previous, seq, latest = chain.NOTHING, 0, None
    other: bytes | None = None  # the computed hash of the previous record, if it differs from the stored one
    steps = {seq for (seq,) in connection.execute("SELECT seq FROM clock_step WHERE session = ?", (session.key,))}
    rows = connection.execute(
        "SELECT seq, at, kind, author, run, parent, rationale, payload_hash, hash FROM event INDEXED BY event_by_seq "
        "WHERE session = ? ORDER BY seq",
        (session.key,),
    )
    for found, at, kind, author, run, parent, rationale, digest, link in rows:
        counts.records += 1
        if counts.records % PROGRESS_RECORDS == 0:
            counts.tell()
        if found != seq + 1:
            yield found, f"follows seq {seq}: missing between them: {count(found - seq - 1, 'record')}"
        computed = link_record(previous, name, found, at, kind, author, run, parent, rationale, digest)
        if computed == link:
            other = None
        elif (
            other is not None
            and link_record(other, name, found, at, kind, author, run, parent, rationale, digest) == link
        ):
            other = None  # the stored hash of the previous record was changed, not this record
        else:
            yield found, chain.BROKEN_LINK
            other = computed
        if (latest is not None and at < latest) != (found in steps):
            yield found, STEP_WRONG
        seq, latest, previous = found, at, link
    if seq == 0:
        yield 0, "has no records"


def _join_spans(name: str, wrong: Iterable[tuple[int, str]]) -> list[Finding]:
    """Make one finding per damaged span.

    Consecutive seqs with the same message are one finding, not thousands.
    """
    spans: list[tuple[int, int, str]] = []
    open_spans: dict[str, int] = {}  # message of a finding -> the index of its newest span
    for seq, what in wrong:
        place = open_spans.get(what)
        if place is not None and seq <= spans[place][1] + 1:
            spans[place] = (spans[place][0], seq, what)
            continue
        open_spans[what] = len(spans)
        spans.append((seq, seq, what))
    return [_name_span(name, first, last, what) for first, last, what in sorted(spans)]


def _name_span(name: str, first: int, last: int, what: str) -> Finding:
    is_derived = what == STEP_WRONG
    if last == 0:
        return Finding(f"session {name}", what)
    if first == last:
        return Finding(f"session {name}, seq {first}", what, is_derived)
    return Finding(f"session {name}, seq {first} to {last}", f"each of the {last - first + 1}: {what}", is_derived)


def _check_snapshots(connection: apsw.Connection, key: int, name: str, counts: _Counts) -> Iterator[Finding]:
    for seq, state, state_hash in connection.execute(
        "SELECT seq, CAST(state AS BLOB), state_hash FROM snapshot WHERE session = ? ORDER BY seq", (key,)
    ):
        counts.snapshots += 1
        if chain.hash_bytes(state) != state_hash:
            where = f"session {name}, snapshot at seq {seq}"
            yield Finding(
                where, "its state is not the one that was saved; it is ignored, a replay replaces it", is_derived=True
            )


def _check_keys(connection: apsw.Connection, key: int, name: str) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT key, first_seq, last_seq FROM idempotency WHERE session = ? AND NOT (first_seq BETWEEN 1 AND last_seq "
        "AND last_seq <= (SELECT coalesce(max(seq), 0) FROM event WHERE session = idempotency.session))",
        (key,),
    )
    for text, first, last in rows:
        yield Finding(
            f"session {name}, key {text!r}",
            f"names seqs {first} to {last}, which the session does not have",
            is_derived=True,
        )


def _check_flushes(connection: apsw.Connection) -> Iterator[Finding]:
    """Compare the roll over all records, in the order of recording, with the roll that each flush recorded."""
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
            first = last - len(hashes) + 1
            yield Finding(f"flush {found}", f"its records {first} to {last} of all sessions do not match its hash")
            roll = noted
    if next(records, None) is not None:
        yield Finding("flushes", f"there are records after the last flush, which ends at {position}")


def _check_anchor(connection: apsw.Connection, anchor: Mark | None) -> Iterator[Finding]:
    wrong = judge_store(anchor, read_mark(connection), read_roll(connection, anchor.flush) if anchor else None)
    if wrong is not None:
        yield Finding("anchor", f"the store does not match the anchor: {wrong}")


def _check_structure_beside(database: Path) -> list[Finding]:
    """Run SQLite's own check of its pages, on its own connection and without Python's lock."""
    connection = connect_reader(database)
    try:
        return list(_guarded("store", _check_structure(connection)))
    finally:
        connection.close()


def _check_structure(connection: apsw.Connection) -> Iterator[Finding]:
    yield from _check_schema(connection)
    roots = {
        root: name for name, root in connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'index'")
    }
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield from (
                _name_structure(one, roots) for one in line.splitlines() if not one.startswith("*** in database")
            )
    for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield Finding("store", f"row {rowid} of {table} refers to a row of {parent} that does not exist")


def _check_schema(connection: apsw.Connection) -> Iterator[Finding]:
    """Compare the declarations of tables and indexes with those that the migrations make.

    SQLite itself accepts a renamed column.
    """
    made = apsw.Connection(":memory:")
    try:
        for step in load_migrations():
            if step.number <= read_version(connection):
                made.execute(step.sql)
        expected = dict(made.execute(_SCHEMA_ROWS))
    finally:
        made.close()
    found = dict(connection.execute(_SCHEMA_ROWS))
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            yield Finding("store", f"the declaration of {name} is not the one that this release made")


def _name_structure(line: str, roots: dict[int, str]) -> Finding:
    """Make the finding for a line of SQLite's check.

    The line names an index by its name or its tree number. Anything else may be damage of a table.
    """
    tree = _TREE.match(line)
    name = roots.get(int(tree[1])) if tree is not None else None
    if name is not None:
        return Finding(f"index {name}", line, is_derived=True)
    return Finding("store", line, is_derived=_INDEX_DISAGREES.search(line) is not None)
