"""The past of a session: which record a position means, and what the session was there.

A position is a SEQ, a TIME or the name of a CHECKPOINT, as people write it behind `--at` and `@`. The state at a record is the
newest snapshot at or before it and the fold of what follows: exactly what the daemon held then. Reads the log alone, and
blocks while it does: the API calls it off the loop.
"""

from __future__ import annotations

import msgspec

from wakeful.core.events import PayloadErased
from wakeful.core.reducer import fold
from wakeful.core.state import Session
from wakeful.errors import CallerError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import EventLog
from wakeful.specs.scalars import parse_duration
from wakeful.views.times import read_time, say_time

_DECODER = msgspec.json.Decoder(Session)


def read_moment(text: str, now: int) -> int:
    """A TIME in microseconds: RFC 3339, or how long ago it was, such as 2h."""
    if not text[:1].isdigit() or "-" in text or ":" in text:
        return read_time(text)
    try:
        # Before 1970 there is nothing, and an engine could not hold every such number.
        return max(0, now - round(parse_duration(text) * 1_000_000))
    except ValueError:
        raise CallerError(f"{text!r} is not a time; expected RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 30m, 2h or 7d") from None


def find_seq(log: EventLog, session: Session, position: str, now: int) -> int:
    """The record a position means; of a TIME, the newest one that was there then."""
    if position.isascii() and position.isdigit():
        return _check_seq(session, position)
    mark = session.checkpoints.get(position)
    if mark is not None:
        return mark.seq
    if not position[:1].isdigit():
        named = f"its checkpoints are {', '.join(session.checkpoints)}" if session.checkpoints else "it has none"
        raise CallerError(f"{session.name} has no checkpoint {position!r} ({named}); expected a seq, a time (RFC 3339, or 2h for two hours ago), or a checkpoint")
    moment = read_moment(position, now)
    newest = next(log.read(session.id, until=moment, limit=1, newest_first=True), None)
    if newest is None:
        raise CallerError(f"{session.name} was opened at {say_time(session.opened_at)}; there is nothing of it at {say_time(moment)}")
    return newest.seq


def _check_seq(session: Session, digits: str) -> int:
    # Longer numbers than an engine can hold would be refused there, in its words.
    seq = int(digits) if len(digits) <= 18 else 0
    if not 1 <= seq <= session.seq:
        raise CallerError(f"{session.name} has records 1 to {session.seq}, there is no {digits}")
    return seq


def fold_until(log: EventLog, session: Session, seq: int) -> Session:
    """The session as its log knew it when `seq` was its newest record."""
    if seq == session.seq:
        return session
    snapshot = log.snapshot(session.id, at_or_before=seq)
    past = _DECODER.decode(snapshot.state) if snapshot is not None else None
    stand_ins: dict[int, bytes] | None = None
    for record in log.read(session.id, from_seq=1 if snapshot is None else snapshot.seq + 1, to_seq=seq):
        payload = record.payload
        if payload is None:
            stand_ins = _read_stand_ins(log, session) if stand_ins is None else stand_ins
            payload = stand_ins.get(record.seq)
        if payload is None:
            raise CallerError(_say_gone(session, record.seq, seq))
        past = fold(past, decode(record.kind, payload), seq=record.seq, at=record.at, author=record.author)
    assert past is not None
    return past


def _read_stand_ins(log: EventLog, session: Session) -> dict[int, bytes]:
    """What is folded in the place of erased payloads. They are told by records anywhere behind, so all are read, once."""
    stand_ins: dict[int, bytes] = {}
    for record in log.read(session.id, kinds=("payload_erased",)):
        erased = decode(record.kind, record.payload) if record.payload is not None else None
        if isinstance(erased, PayloadErased):
            stand_ins[erased.erased] = msgspec.json.encode(erased.stand_in)
    return stand_ins


def _say_gone(session: Session, missing: int, seq: int) -> str:
    if session.archive is not None:
        return f"the records of {session.name} are archived in {session.archive}; `wakeful load` brings them back, and then its state at {seq}"
    return f"record {missing} of {session.name} was erased without a stand-in: its state at {seq} cannot be told any more"
