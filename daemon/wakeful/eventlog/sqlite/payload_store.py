"""Erases, archives and restores payloads.

`erase`, `archive` and `restore` run on the writer's connection, inside its transaction, one batch each. A million
payloads in one transaction would all go through the write-ahead log at once and block every append. A payload with a
NULL body was erased. A payload without a row was archived if its seq is in the archived span; otherwise it is damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw

from wakeful.eventlog.contract import BadImport, Conflict, Record, Span, StoreDamaged
from wakeful.eventlog.imports import check_payload
from wakeful.eventlog.sqlite.files import StoreFiles

BATCH = 2_000
# The beginnings of the names of the copies that the store makes of itself before a migration or a mend.
_BEFORE = ("before-migration-", "before-mend-")


def erase(connection: apsw.Connection, session: str, seqs: Sequence[int]) -> int:
    """Erase payloads and the snapshots that could contain them. Returns how many payloads were still there.

    An archived payload gets a row without a body, so that it stays erased when the archive is restored.
    """
    key = find_session(connection, session)
    if key is None or not seqs:
        return 0
    erased = 0
    for seq in seqs:
        event = connection.execute("SELECT id FROM event WHERE session = ? AND seq = ?", (key, seq)).get
        if event is None:
            raise BadImport(f"session {session}: there is no record at seq {seq} whose payload could be erased")
        erased += connection.execute("SELECT count(*) FROM payload WHERE event = ? AND body IS NOT NULL", (event,)).get
        connection.execute("INSERT INTO payload VALUES (?, NULL) ON CONFLICT DO UPDATE SET body = NULL", (event,))
    connection.execute("DELETE FROM snapshot WHERE session = ? AND seq >= ?", (key, min(seqs)))
    _count_change(connection)
    return erased


def archive(connection: apsw.Connection, session: str, first: int, last: int) -> int:
    """Remove the payloads of one batch. Returns how many.

    The archived span grows with the batch, so that a crash between two batches leaves no damage.
    """
    key = find_session(connection, session)
    newest = connection.execute("SELECT coalesce(max(seq), 0) FROM event WHERE session = ?", (key,)).get
    if last > newest:
        raise BadImport(f"session {session}: an archive through seq {last}, but its log ends at {newest}")
    connection.execute(
        "INSERT INTO archived VALUES (?, 1, ?) ON CONFLICT DO UPDATE SET first_seq = 1, last_seq = max(last_seq, "
        "excluded.last_seq)",
        (key, last),
    )
    connection.execute(
        "DELETE FROM payload WHERE body IS NOT NULL AND event IN (SELECT id FROM event WHERE session = ? "
        "AND seq BETWEEN ? AND ?)",
        (key, first, last),
    )
    return connection.changes()


def restore(connection: apsw.Connection, session: str, records: Sequence[Record]) -> int:
    """Put back one batch at the beginning of the archived span, which shrinks by it."""
    span = read_archived(connection, session)
    records = [record for record in records if span is not None and span.first <= record.seq <= span.last]
    if span is None or not records:
        return 0
    if [record.seq for record in records] != list(range(span.first, span.first + len(records))):
        raise Conflict(
            f"session {session}: its archived payloads begin at seq {span.first}; restore them in order, without a gap"
        )
    key = find_session(connection, session)
    restored = 0
    events = connection.execute(
        "SELECT id, payload_hash FROM event WHERE session = ? AND seq >= ? ORDER BY seq", (key, span.first)
    )
    for record, (event, digest) in zip(records, events, strict=False):
        check_payload(record, digest)
        connection.execute("INSERT OR IGNORE INTO payload VALUES (?, ?)", (event, record.payload))
        restored += connection.changes()
    events.close()
    if records[-1].seq == span.last:
        connection.execute("DELETE FROM archived WHERE session = ?", (key,))
    else:
        connection.execute("UPDATE archived SET first_seq = ? WHERE session = ?", (records[-1].seq + 1, key))
    _count_change(connection)
    return restored


def read_archived(connection: apsw.Connection, session: str) -> Span | None:
    row = connection.execute(
        "SELECT a.first_seq, a.last_seq FROM session s JOIN archived a ON a.session = s.key WHERE s.id = ?", (session,)
    ).fetchone()
    return Span(*row) if row is not None else None


def read_change(connection: apsw.Connection) -> int:
    """Read the counter of erasures and restores. A search index made at another count is out of date."""
    changes: int = connection.execute("SELECT count FROM payload_change").get
    return changes


def find_session(connection: apsw.Connection, session: str) -> int | None:
    key: int | None = connection.execute("SELECT key FROM session WHERE id = ?", (session,)).get
    return key


def erase_in_copies(files: StoreFiles, session: str, seqs: Sequence[int]) -> None:
    """Erase the payloads in the copies that the store made of itself before a migration, a mend or a restore."""
    unreadable = []
    for path in find_copies(files):
        copy = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            _erase_in_copy(copy, session, seqs)
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
            unreadable.append(f"{path} ({error})")
        finally:
            copy.close()
    if unreadable:
        raise StoreDamaged(
            "the payloads are erased from the log, but an old copy of it cannot be read and may hold them: "
            f"{', '.join(unreadable)}; delete it"
        )


def _erase_in_copy(copy: apsw.Connection, session: str, seqs: Sequence[int]) -> None:
    copy.execute("PRAGMA secure_delete = ON")
    with copy:
        for event in _find_events(copy, session, seqs):
            copy.execute("UPDATE payload SET body = NULL WHERE event = ?", (event,))
        copy.execute(
            "DELETE FROM snapshot WHERE session = (SELECT key FROM session WHERE id = ?) AND seq >= ?",
            (session, min(seqs, default=1)),
        )
    # Go back to a single file. This removes the copy's write-ahead log, which may contain the erased bytes.
    copy.execute("PRAGMA journal_mode = DELETE")


def find_copies(files: StoreFiles) -> list[Path]:
    """Find the copies that the store made of itself."""
    kept = [path for before in _BEFORE for path in sorted(files.folder.glob(f"{before}*.db"))]
    for folder in sorted(files.state_dir.glob("log.before-restore-*")):
        kept += [
            path
            for path in sorted(folder.glob("*.db"))
            if path.name == files.database.name or path.name.startswith(_BEFORE)
        ]
    return [path for path in kept if os.path.getsize(path)]


def _find_events(copy: apsw.Connection, session: str, seqs: Sequence[int]) -> Iterator[int]:
    for seq in seqs:
        sql = "SELECT e.id FROM session s JOIN event e ON e.session = s.key WHERE s.id = ? AND e.seq = ?"
        event = copy.execute(sql, (session, seq)).get
        if event is not None:
            yield event


def _count_change(connection: apsw.Connection) -> None:
    connection.execute("UPDATE payload_change SET count = count + 1")
