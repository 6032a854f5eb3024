"""The rows of an import: how it is announced, resumed and finished. The rules are in `eventlog/imports.py`.

`begin` and `finish` run on the writer's connection, inside its transaction. The writer adds the records themselves.
"""

from __future__ import annotations

import apsw

from wakeful.eventlog import chain, imports
from wakeful.eventlog.contract import Head, Import


def read_imports(connection: apsw.Connection) -> tuple[Import, ...]:
    """Read the imports that were begun and not finished."""
    rows = connection.execute(
        """
        SELECT i.session, i.last_seq, i.head, coalesce(max(e.seq), 0) FROM import i
        LEFT JOIN session s ON s.id = i.session
        LEFT JOIN event e ON e.session = s.key GROUP BY i.session ORDER BY i.session
        """
    )
    return tuple(Import(*row) for row in rows)


def begin(connection: apsw.Connection, session: str, last_seq: int, head: bytes, extend: bool) -> int:
    """Announce an import, unless all of its records are here. Returns the seq of the first missing record."""
    here = read_head(connection, session)
    begun = _read_begun(connection, session, here.seq)
    held = read_hash(connection, session, last_seq)
    match imports.judge_import(Import(session, last_seq, head, here.seq), here, begun, held, extend=extend):
        case imports.Beginning.COMPLETE:
            return last_seq + 1
        case imports.Beginning.LONGER if begun is not None:
            return _announce_longer(connection, session, begun.last_seq, last_seq, head)
        case imports.Beginning.NEW:
            connection.execute("INSERT INTO import VALUES (?, ?, ?)", (session, last_seq, head))
            connection.execute("INSERT INTO imported VALUES (?, ?, ?)", (session, here.seq + 1, last_seq))
    return here.seq + 1


def _announce_longer(connection: apsw.Connection, session: str, before: int, last_seq: int, head: bytes) -> int:
    """Replace an import by a longer one.

    Returns its first seq, because the records of the shorter import are compared again.
    """
    sql = "SELECT first_seq FROM imported WHERE session = ? AND last_seq = ?"
    first: int | None = connection.execute(sql, (session, before)).get
    connection.execute("UPDATE import SET last_seq = ?, head = ? WHERE session = ?", (last_seq, head, session))
    connection.execute(
        "UPDATE imported SET last_seq = ? WHERE session = ? AND last_seq = ?", (last_seq, session, before)
    )
    return first or 1


def finish(connection: apsw.Connection, session: str, is_inert: bool) -> Head:
    """End an import that has reached the head that it announced."""
    here = read_head(connection, session)
    imports.check_finished(_read_begun(connection, session, here.seq), here)
    connection.execute("DELETE FROM import WHERE session = ?", (session,))
    if is_inert:
        connection.execute("INSERT OR IGNORE INTO inert VALUES (?)", (session,))
    else:
        connection.execute("DELETE FROM inert WHERE session = ?", (session,))
    return here


def _read_begun(connection: apsw.Connection, session: str, seq: int) -> Import | None:
    row = connection.execute("SELECT last_seq, head FROM import WHERE session = ?", (session,)).fetchone()
    return Import(session, row[0], row[1], seq) if row is not None else None


def read_head(connection: apsw.Connection, session: str) -> Head:
    row = connection.execute(
        """
        SELECT e.seq, e.hash FROM session s JOIN event e ON e.session = s.key
        WHERE s.id = ? ORDER BY e.seq DESC LIMIT 1
        """,
        (session,),
    ).fetchone()
    return Head(*row) if row is not None else Head(0, chain.NOTHING)


def read_hash(connection: apsw.Connection, session: str, seq: int) -> bytes | None:
    sql = "SELECT e.hash FROM session s JOIN event e ON e.session = s.key WHERE s.id = ? AND e.seq = ?"
    found: bytes | None = connection.execute(sql, (session, seq)).get
    return found
