"""The rules of an import: which records of another log are accepted. Pure; every engine uses them.

`begin_import` calls `judge_import`, `import_records` calls `check_records`, `finish_import` calls `check_finished`. A
batch must continue the chain of the records that are here. A wrong record is refused with its place. The caller decides
whether a session may be imported at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from wakeful.eventlog.chain import BROKEN_LINK, CHANGED_PAYLOAD, NOTHING, hash_bytes, hash_record
from wakeful.eventlog.contract import BadImport, Conflict, Head, Import, Record


class Beginning(Enum):
    """How an import begins."""

    # All of its records are here, so nothing is announced.
    COMPLETE = "complete"
    NEW = "new"
    # The import was announced before and continues where it stopped.
    RESUMED = "resumed"
    # The import replaces a shorter, unfinished import of the session. All records are compared again.
    LONGER = "longer"


def judge_import(wanted: Import, here: Head, begun: Import | None, held: bytes | None, *, extend: bool) -> Beginning:
    """Decide how the import `wanted` begins.

    `held` is the hash of the record that is already here at the last seq of `wanted`. Raises Conflict, or BadImport if
    the announcement itself is not valid.
    """
    session, last_seq = wanted.session, wanted.last_seq
    if last_seq < 1 or len(wanted.head) != len(NOTHING):
        raise BadImport(
            f"session {session}: an import up to seq {last_seq} with a head of {len(wanted.head)} bytes; "
            "expected at least one record and a head of 32 bytes"
        )
    if begun is not None and (begun.last_seq, begun.head) != (last_seq, wanted.head):
        if last_seq <= begun.last_seq:
            raise _refuse_second(begun)
        return Beginning.LONGER
    if here.seq >= last_seq:
        if held != wanted.head:
            raise Conflict(
                f"session {session}: there is already another record at seq {last_seq}; "
                "these are two histories of one session"
            )
        return Beginning.COMPLETE
    if begun is not None:
        return Beginning.RESUMED
    if here.seq and not extend:
        raise Conflict(
            f"session {session}: this session is already here, up to seq {here.seq}; the bundle has newer records of "
            f"it, up to seq {last_seq}; if the session moved to another host, move it back: `wakeful migrate` there, "
            "then `wakeful load --move` here"
        )
    return Beginning.NEW


def announce_whole(session: str, records: Sequence[Record], begun: Import | None) -> Import:
    """Return the import that consists of only these records. Raises Conflict if another import is not finished."""
    if begun is not None:
        raise _refuse_second(begun)
    last = records[-1]
    return Import(session, last.seq, last.hash, records[0].seq - 1)


def _refuse_second(begun: Import) -> Conflict:
    return Conflict(
        f"session {begun.session}: another import, up to seq {begun.last_seq}, is not finished; "
        "finish it with its own bundle first"
    )


def check_records(
    session: str, records: Sequence[Record], announced: Import | None, previous: bytes, held: Sequence[bytes]
) -> None:
    """Raise BadImport unless the batch follows `previous`, Conflict unless it repeats the hashes in `held`.

    `held` are the hashes of the records that are already here, from the first seq of the batch on. A chain hash covers
    the whole record, so equal hashes mean equal records.
    """
    if announced is None:
        raise BadImport(f"session {session}: no import was begun; announce its head first")
    seq = records[0].seq - 1
    for place, record in enumerate(records):
        seq += 1
        where = f"session {session}, seq {record.seq}"
        if record.session != session or record.seq != seq or seq > announced.last_seq:
            raise BadImport(
                f"{where}: found among the records of {session} at seq {seq} of {announced.last_seq}; "
                "give them in order, without a gap"
            )
        if record.payload is not None and hash_bytes(record.payload) != record.payload_hash:
            raise BadImport(f"{where}: {CHANGED_PAYLOAD}; the copy is damaged, fetch it again")
        if hash_record(previous, record) != record.hash:
            raise BadImport(f"{where}: {BROKEN_LINK}; the copy is damaged, fetch it again")
        if place < len(held) and held[place] != record.hash:
            raise Conflict(f"{where}: there is already another record here; these are two histories of one session")
        previous = record.hash


def check_finished(begun: Import | None, here: Head) -> None:
    """Raise BadImport unless the import has reached the head that it announced."""
    if begun is not None and (begun.last_seq, begun.head) != (here.seq, here.hash):
        raise BadImport(
            f"session {begun.session}: its import has reached seq {here.seq} of {begun.last_seq}; import the rest first"
        )


def check_payload(record: Record, recorded: bytes) -> None:
    """Raise BadImport unless a restored payload has the recorded hash."""
    found = record.payload_hash if record.payload is None else hash_bytes(record.payload)
    if found != recorded:
        raise BadImport(f"session {record.session}, seq {record.seq}: {CHANGED_PAYLOAD}; the archive is damaged")
