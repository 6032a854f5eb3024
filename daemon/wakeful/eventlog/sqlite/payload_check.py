"""Compares payloads with their hashes: the half of a verification that does not need the chain.

`verification` calls it on its own connection. For a large store, and outside of a daemon, a second process does it at
the same time. A million records are then verified in half the time. It distinguishes erased, archived and damaged
payloads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from wakeful.eventlog import chain
from wakeful.eventlog.sqlite.files import connect_reader

# The errors of a damaged store. UnicodeDecodeError is one of them, because SQLite returns the bytes of a text column
# unchecked.
UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.SQLError, UnicodeDecodeError)
# The number of records from which a second process saves more time than its start costs.
WORTH_RECORDS = 200_000
# The kind of the first record of a session, and of a record that names an erased payload.
OPENING, ERASURE = "session_opened", "payload_erased"
_GONE = "its payload is gone, and not by erasure"


class PayloadFindings(msgspec.Struct, frozen=True):
    """The result of a check. `wrong` has, by session, the seqs with a wrong payload and the reason.

    `erased` and `archived` count the payloads that are missing for a valid reason.
    """

    wrong: dict[str, list[tuple[int, str]]]
    erased: int
    archived: int


def check_payloads(database: Path, session: str | None) -> PayloadFindings:
    """Check the payloads of one session or of all, through its own connection."""
    connection = connect_reader(database)
    wrong: dict[str, list[tuple[int, str]]] = {}
    erased = archived = 0
    try:
        connection.execute("BEGIN")
        for key, name, first, last in _read_sessions(connection, session):
            found = _Session(first, last)
            try:
                found.check(connection, key)
            except UNREADABLE:
                # The check of the chain reads the same pages and reports the damage.
                found.wrong.append((0, "its payloads cannot be read to their end"))
            if found.wrong:
                wrong[name] = found.wrong
            erased += found.erased
            archived += found.archived
    except UNREADABLE:
        pass  # the table of sessions is damaged, which the check of the chain reports
    finally:
        connection.close()
    return PayloadFindings(wrong, erased, archived)


@contextmanager
def start_check(database: Path, session: str | None, *, may_use_process: bool) -> Iterator[PendingCheck]:
    """Start the check, in a second process if `may_use_process`. `result` waits for it."""
    if not may_use_process or (os.cpu_count() or 1) < 2:
        yield PendingCheck(database, session, None)
        return
    # A separate program, because a fork would share the open connections of this process. -P keeps the current folder
    # out of sys.path.
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()", str(database)]
    words = [*command, *([session] if session is not None else [])]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield PendingCheck(database, session, process)
        finally:
            process.kill()  # does nothing if the process has answered


class PendingCheck:
    """A check in a second process. If there is no such process, `result` makes the check itself."""

    def __init__(self, database: Path, session: str | None, process: subprocess.Popen[bytes] | None) -> None:
        self._database = database
        self._session = session
        self._process = process

    def result(self) -> PayloadFindings:
        if self._process is not None:
            answer, _ = self._process.communicate()
            if self._process.returncode == 0:
                return msgspec.json.decode(answer, type=PayloadFindings)
        # There is no second process, or it could not start or was killed. So make the check here.
        return check_payloads(self._database, self._session)


class _Session:
    """The check of one session's payloads."""

    def __init__(self, archived_first: int, archived_last: int) -> None:
        self._archived_first = archived_first
        self._archived_last = archived_last
        self._erasures: set[int] | None = None
        self._is_folded = True
        self.wrong: list[tuple[int, str]] = []
        self.erased = 0
        self.archived = 0

    def check(self, connection: apsw.Connection, key: int) -> None:
        """Compare every payload. The loop runs a million times, so it makes no unnecessary call."""
        hash_bytes = chain.hash_bytes
        rows = connection.execute(
            "SELECT e.seq, e.payload_hash, p.event, CAST(p.body AS BLOB) FROM event e INDEXED BY event_by_seq "
            "LEFT JOIN payload p ON p.event = e.id WHERE e.session = ? ORDER BY e.seq",
            (key,),
        )
        for seq, digest, payload, body in rows:
            if body is not None:
                if hash_bytes(body) != digest:
                    self.wrong.append((seq, chain.CHANGED_PAYLOAD))
            elif payload is not None:
                if self._is_purpose_known(connection, key, seq):
                    self.erased += 1
                else:
                    self.wrong.append((seq, _GONE))
            elif self._archived_first <= seq <= self._archived_last:
                self.archived += 1
            else:
                self.wrong.append((seq, _GONE))

    def _is_purpose_known(self, connection: apsw.Connection, key: int, seq: int) -> bool:
        """Does a record show that this payload was erased? Without such a record no start can fold the session.

        A log that begins with another kind of record is not a session, and is never folded.
        """
        if self._erasures is None:
            first = connection.execute("SELECT kind FROM event WHERE session = ? AND seq = 1", (key,)).get
            self._erasures = self._read_erasures(connection, key) if first == OPENING else None
            self._is_folded = first == OPENING
        return not self._is_folded or self._erasures is None or seq in self._erasures

    def _read_erasures(self, connection: apsw.Connection, key: int) -> set[int] | None:
        """Read the seqs that records of erasures name. None if such a record is archived and cannot be read here."""
        sql = """
            SELECT e.seq, p.body FROM event e LEFT JOIN payload p ON p.event = e.id
            WHERE e.session = ? AND e.kind = ? ORDER BY e.seq DESC
        """
        named: dict[int, dict[str, object]] = {}
        rows: list[tuple[Any, ...]] = connection.execute(sql, (key, ERASURE)).fetchall()
        for seq, body in rows:
            if body is None and self._archived_first <= seq <= self._archived_last:
                return None
            try:
                # The record of an erasure may itself have been erased. Then the later erasure has a stand-in for it.
                content = msgspec.json.encode(named.get(seq)) if body is None else body
                erasure = msgspec.json.decode(content, type=_Erasure)
            except msgspec.MsgspecError:
                continue  # the check of this record's own hash reports the damage
            named[erasure.erased] = erasure.stand_in
        return set(named)


class _Erasure(msgspec.Struct):
    erased: int
    stand_in: dict[str, object] = {}


def _read_sessions(connection: apsw.Connection, session: str | None) -> list[tuple[int, str, int, int]]:
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT s.key, s.id, coalesce(a.first_seq, 0), coalesce(a.last_seq, -1) FROM session s LEFT JOIN archived a "
        "ON a.session = s.key "
        "WHERE s.id = coalesce(?, s.id) ORDER BY s.key",
        (session,),
    ).fetchall()
    return rows


def main() -> None:
    """Run as the second process. Its arguments are a database and perhaps a session, its output the findings."""
    database, *session = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(check_payloads(Path(database), session[0] if session else None)))
