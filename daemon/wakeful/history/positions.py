"""The past of a session: finds the record of a position, and folds the session as it was there.

A position is a SEQ, a TIME or the name of a CHECKPOINT, as people write it after `--at` and `@`. The state at a record
is folded from the newest snapshot at or before it and the records that follow. It is exactly the state that the daemon
had then. Only reads the log. Blocking: the API calls it off the loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.core.record.events import SessionArchived, SessionOpened
from wakeful.core.record.fold import fold
from wakeful.core.record.knowledge import RecordRange
from wakeful.core.record.state import Archived, Session
from wakeful.errors import CallerError, OperatorError
from wakeful.eventlog.codec import decode, decode_state, gather_stand_ins, hash_state
from wakeful.eventlog.contract import LogReader, Record, Snapshot
from wakeful.specs.value_parsers import parse_duration
from wakeful.views.times import read_time, say_time


def read_moment(text: str, now: int) -> int:
    """Read a TIME: RFC 3339, or how long ago it was, such as 2h. Returns microseconds UTC."""
    if not text[:1].isdigit() or "-" in text or ":" in text:
        return read_time(text)
    try:
        # No record is older than 1970, and an engine cannot store every negative number.
        return max(0, now - round(parse_duration(text) * 1_000_000))
    except ValueError:
        raise CallerError(
            f"{text!r} is not a time; expected RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 30m, "
            "2h or 7d"
        ) from None


def find_seq(log: LogReader, session: Session, position: str, now: int) -> int:
    """Find the seq of a position. For a TIME, it is the newest record at that time.

    Raises CallerError if there is no such record.
    """
    if position.isascii() and position.isdigit():
        return _check_seq(session, position)
    mark = session.lineage.checkpoints.get(position)
    if mark is not None:
        return mark.seq
    if not position[:1].isdigit():
        named = (
            f"its checkpoints are {', '.join(session.lineage.checkpoints)}"
            if session.lineage.checkpoints
            else "it has none"
        )
        raise CallerError(
            f"{session.name} has no checkpoint {position!r} ({named}); expected a seq, a time (RFC 3339, or 2h for two "
            "hours ago), or a checkpoint"
        )
    moment = read_moment(position, now)
    newest = next(log.read(session.id, until=moment, limit=1, newest_first=True), None)
    if newest is None:
        raise CallerError(
            f"{session.name} was opened at {say_time(session.opened_at)}; it has no record at {say_time(moment)}"
        )
    return newest.seq


def list_origins(log: LogReader, session: Session) -> list[RecordRange]:
    """List the records that a fork or a loaded session came from, nearest first.

    These are the parent's records up to the fork, then those of the parent's parent, and so on.
    """
    origins: list[RecordRange] = []
    origin = session.lineage.origin
    while origin is not None:
        record = next(log.read(origin.session, to_seq=1), None)
        if record is None:
            break
        origins.append(RecordRange(origin.session, 1, origin.seq))
        opened = decode(record.kind, record.payload) if record.payload is not None else None
        origin = opened.origin if isinstance(opened, SessionOpened) else None
    return origins


def fold_position(log: LogReader, session: Session, position: str, now: int) -> Session:
    """Fold the session at a position.

    If the position is before the session was forked or loaded, the result is its parent at that position, with the
    parent's id. `~SEQ` is a record of the parent. A checkpoint, or a time before the session was opened, is also
    searched in the parent.
    """
    origins = list_origins(log, session)
    if position.startswith("~") and position[1:].isdigit():
        if not origins:
            raise CallerError(
                f"{session.name} was neither forked nor loaded: it has no past but its own records; leave the ~ out"
            )
        return _fold_origin(log, session, origins[0], int(position[1:]))
    try:
        return fold_until(log, session, find_seq(log, session, position, now))
    except CallerError:
        is_time, is_seq = position[:1].isdigit(), position.isdigit()
        for origin in origins if not is_seq else ():
            assert origin.last is not None
            if not is_time:
                mark = _fold_origin(log, session, origin, origin.last).lineage.checkpoints.get(position)
                if mark is not None:
                    return _fold_origin(log, session, origin, mark.seq)
                continue
            newest = next(
                log.read(
                    origin.session, to_seq=origin.last, until=read_moment(position, now), limit=1, newest_first=True
                ),
                None,
            )
            if newest is not None:
                return _fold_origin(log, session, origin, newest.seq)
        raise


def _fold_origin(log: LogReader, session: Session, origin: RecordRange, seq: int) -> Session:
    assert origin.last is not None
    if not 1 <= seq <= origin.last:
        raise CallerError(
            f"{session.name} comes from record {origin.last} of another session: its past has records ~1 to "
            f"~{origin.last}, there is no ~{seq}"
        )
    try:
        return fold_at(log, origin.session, seq)
    except PastGone as gone:
        raise CallerError(str(gone)) from None


def _check_seq(session: Session, digits: str) -> int:
    # An engine would refuse a longer number with a message of its own.
    seq = int(digits) if len(digits) <= 18 else 0
    if not 1 <= seq <= session.seq:
        raise CallerError(f"{session.name} has records 1 to {session.seq}, there is no {digits}")
    return seq


def fold_until(log: LogReader, session: Session, seq: int) -> Session:
    """Fold the session as it was when `seq` was its newest record. Raises CallerError if a needed payload is gone."""
    if seq == session.seq:
        return session
    try:
        return fold_at(log, session.id, seq)
    except PastGone as gone:
        raise CallerError(_say_gone(session, gone.seq, seq)) from None


def fold_at(log: LogReader, session_id: str, seq: int) -> Session:
    """Fold a session, by its id, as it was when `seq` was its newest record.

    Raises PastGone if a needed payload is gone.
    """
    snapshot = log.snapshot(session_id, at_or_before=seq)
    base = decode_snapshot(session_id, snapshot)
    past = fold_records(
        log, session_id, base, log.read(session_id, from_seq=1 if base is None else base.seq + 1, to_seq=seq)
    )
    if past is None:
        raise PastGone(session_id, seq)
    return past


class StateHashes:
    """Computes the hash of a session's state after each record.

    Seqs must be requested in ascending order, so that each record is folded once.
    """

    def __init__(self, log: LogReader, session_id: str) -> None:
        self._log = log
        self._session_id = session_id
        self._past: Session | None = None

    def at(self, seq: int) -> str | None:
        """Return the hash of the state at `seq`. None if a needed payload is gone."""
        try:
            if self._past is None:
                self._past = fold_at(self._log, self._session_id, seq)
            else:
                self._past = fold_records(
                    self._log,
                    self._session_id,
                    self._past,
                    self._log.read(self._session_id, from_seq=self._past.seq + 1, to_seq=seq),
                )
        except PastGone:
            return None
        return hash_state(self._past) if self._past is not None else None


def decode_snapshot(session_id: str, snapshot: Snapshot | None) -> Session | None:
    """Decode the state of a snapshot. None if the snapshot cannot be used.

    Either a release with another fold made it, or its row is damaged: then the state is of another session or seq.
    """
    base = decode_state(snapshot.state) if snapshot is not None else None
    return (
        base
        if base is not None and snapshot is not None and (base.id, base.seq) == (session_id, snapshot.seq)
        else None
    )


class PastGone(OperatorError):
    """A payload that a past state needs was erased without a stand-in, or is in an archive."""

    def __init__(self, session_id: str, seq: int) -> None:
        super().__init__(
            f"session {session_id}: the payload of record {seq} is not in the log; `wakeful verify` says why"
        )
        self.seq = seq


def fold_records(log: LogReader, session_id: str, base: Session | None, records: Iterable[Record]) -> Session | None:
    """Fold records on top of `base`. Raises PastGone if a payload is missing.

    For an erased payload, its stand-in is folded. The payloads of archived records are in a bundle. The record of the
    archive has the state after them.
    """
    past, missing = base, 0
    stand_ins: dict[int, bytes] | None = None
    for record in records:
        payload = record.payload
        if payload is None:
            stand_ins = (
                gather_stand_ins(log.read(session_id, kinds=("payload_erased",))) if stand_ins is None else stand_ins
            )
            payload = stand_ins.get(record.seq)
        if payload is None:
            past, missing = None, missing or record.seq
            continue
        event = decode(record.kind, payload)
        if missing and isinstance(event, SessionArchived):
            past, missing = Session(id=session_id, name="", opened_at=0), 0
        if not missing:
            past = fold(past, event, seq=record.seq, at=record.at, author=record.author)
    if missing:
        raise PastGone(session_id, missing)
    return past


def _say_gone(session: Session, missing: int, seq: int) -> str:
    if isinstance(session.closed, Archived):
        return (
            f"the records of {session.name} are archived in {session.closed.bundle}; `wakeful load` brings them back, "
            f"and then its state at {seq}"
        )
    return f"record {missing} of {session.name} was erased without a stand-in, so its state at {seq} is lost"
