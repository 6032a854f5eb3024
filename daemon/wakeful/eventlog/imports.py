"""Records from elsewhere, checked one by one before they become rows.

The group calls `check_records` while a batch is planned; `begin` and `finish` run on the writer's connection, inside its
transaction. A batch must continue the chain of what is here, record by record: what arrives wrong is refused with the place
where it went wrong. Nothing here decides whether a session may be brought in: that is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from wakeful.eventlog import chain
from wakeful.eventlog.contract import BadImport, Conflict, Head, Import, Record


def check_records(
    session: str, records: Sequence[Record], announced: Import | None, previous: bytes, held: Sequence[bytes]
) -> None:
    """Raise unless the batch follows `previous` and repeats what is `held`: the hashes from its first seq on, as far as there are.

    A hash that follows from the content and the record before it, and equals the one that is here, makes the whole record equal."""
    if announced is None:
        raise BadImport(f"session {session}: no import was begun; announce its head first")
    seq = records[0].seq - 1
    for place, record in enumerate(records):
        seq += 1
        where = f"session {session}, seq {record.seq}"
        if record.session != session or record.seq != seq or seq > announced.last_seq:
            raise BadImport(
                f"{where}: found among the records of {session} at seq {seq} of {announced.last_seq}; give them in order, without a gap"
            )
        if record.payload is not None and chain.hash_bytes(record.payload) != record.payload_hash:
            raise BadImport(
                f"{where}: its payload is not the one that was recorded; the copy is damaged, fetch it again"
            )
        if link(previous, record) != record.hash:
            raise BadImport(
                f"{where}: its hash does not follow from its content and the record before it; the copy is damaged, fetch it again"
            )
        if place < len(held) and held[place] != record.hash:
            raise Conflict(f"{where}: another record stands here already; these are two histories of one session")
        previous = record.hash


def link(previous: bytes, record: Record) -> bytes:
    """What the record's hash must be after `previous`."""
    return chain.link_record(
        previous, record.session, record.seq, record.at, record.kind, record.author, record.run, record.parent, record.rationale, record.payload_hash
    )  # fmt: skip


def read_imports(connection: apsw.Connection) -> tuple[Import, ...]:
    rows = connection.execute(
        "SELECT i.session, i.last_seq, i.head, coalesce(max(e.seq), 0) FROM import i LEFT JOIN session s ON s.id = i.session "
        "LEFT JOIN event e ON e.session = s.key GROUP BY i.session ORDER BY i.session"
    )
    return tuple(Import(*row) for row in rows)


def begin(connection: apsw.Connection, session: str, last_seq: int, head: bytes, extend: bool) -> int:
    """Announce an import, unless all of it is here; the seq of the first record that is missing."""
    if last_seq < 1 or len(head) != len(chain.NOTHING):
        raise BadImport(
            f"session {session}: an import up to seq {last_seq} with a head of {len(head)} bytes; expected at least one record and 32"
        )
    here = read_head(connection, session)
    begun = connection.execute("SELECT last_seq, head FROM import WHERE session = ?", (session,)).get
    if begun is not None and begun != (last_seq, head):
        if last_seq <= begun[0]:
            raise Conflict(
                f"session {session}: another import, up to seq {begun[0]}, is not finished; finish it with its own bundle first"
            )
        return _announce_longer(connection, session, begun[0], last_seq, head)
    if here.seq >= last_seq:
        if read_hash(connection, session, last_seq) != head:
            raise Conflict(
                f"session {session}: another record stands at seq {last_seq} already; these are two histories of one session"
            )
        return last_seq + 1
    if begun is None and here.seq and not extend:
        raise Conflict(
            f"session {session}: it lives here, up to seq {here.seq}, and the bundle goes on to {last_seq}: it holds a later past of the same session; "
            "if the session moved there, bring it home with `wakeful migrate` there and `wakeful load --move` here"
        )
    if begun is None:
        connection.execute("INSERT INTO import VALUES (?, ?, ?)", (session, last_seq, head))
        connection.execute("INSERT INTO imported VALUES (?, ?, ?)", (session, here.seq + 1, last_seq))
    return here.seq + 1


def _announce_longer(connection: apsw.Connection, session: str, before: int, last_seq: int, head: bytes) -> int:
    """A move that was given up before it was complete, and begun again later, has more records. All that came are compared once more."""
    first = connection.execute(
        "SELECT first_seq FROM imported WHERE session = ? AND last_seq = ?", (session, before)
    ).get
    connection.execute("UPDATE import SET last_seq = ?, head = ? WHERE session = ?", (last_seq, head, session))
    connection.execute(
        "UPDATE imported SET last_seq = ? WHERE session = ? AND last_seq = ?", (last_seq, session, before)
    )
    return first or 1


def finish(connection: apsw.Connection, session: str, is_inert: bool) -> Head:
    """End an import that has come to the head it announced."""
    here = read_head(connection, session)
    begun = connection.execute("SELECT last_seq, head FROM import WHERE session = ?", (session,)).get
    if begun is not None and Head(*begun) != here:
        raise BadImport(f"session {session}: its import has come to seq {here.seq} of {begun[0]}; bring the rest first")
    connection.execute("DELETE FROM import WHERE session = ?", (session,))
    if is_inert:
        connection.execute("INSERT OR IGNORE INTO inert VALUES (?)", (session,))
    else:
        connection.execute("DELETE FROM inert WHERE session = ?", (session,))
    return here


def read_head(connection: apsw.Connection, session: str) -> Head:
    row = connection.execute(
        "SELECT e.seq, e.hash FROM session s JOIN event e ON e.session = s.key WHERE s.id = ? ORDER BY e.seq DESC LIMIT 1",
        (session,),
    ).fetchone()
    return Head(*row) if row is not None else Head(0, chain.NOTHING)


def read_hash(connection: apsw.Connection, session: str, seq: int) -> bytes | None:
    sql = "SELECT e.hash FROM session s JOIN event e ON e.session = s.key WHERE s.id = ? AND e.seq = ?"
    found: bytes | None = connection.execute(sql, (session, seq)).get
    return found
