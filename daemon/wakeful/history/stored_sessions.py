"""Loads the sessions of a log at the start of a daemon.

Each session is folded from its newest snapshot and the records after it. A session with a damaged record does not keep
the others from starting. It becomes a `DamagedSession`, folded as far as its records can be read. It is shown, and
accepts no calls. Reads the log, changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec
from msgspec.structs import asdict

from wakeful.core.record.events import SessionRenamed, SpecDeclared
from wakeful.core.record.fold import fold
from wakeful.core.record.state import DamagedSession, Session
from wakeful.errors import WakefulError
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import LogReader, LogVerification, Record, StoreDamaged
from wakeful.history.positions import decode_snapshot, fold_records

# The errors that folding may raise if a payload, or one before it, is damaged.
_UNFOLDABLE = (WakefulError, msgspec.MsgspecError, AssertionError, AttributeError, KeyError, TypeError, ValueError)


class VerifiableLog(LogReader, LogVerification, Protocol):
    """A log that can find its damaged records."""


def load_sessions(log: VerifiableLog) -> tuple[list[Session], dict[str, int]]:
    """Fold every session. Also returns the seqs of the snapshots that were used, by session id."""
    sessions: list[Session] = []
    snapshots: dict[str, int] = {}
    damaged: list[tuple[str, str]] = []
    for session_id, snapshot, records in log.tails():
        base = decode_snapshot(session_id, snapshot)
        try:
            session = _fold_tail(log, session_id, base, records, is_from_snapshot=snapshot is not None)
        except _UNFOLDABLE as error:
            damaged.append((session_id, _find_damage(log, session_id, error)))
            continue
        if base is not None:
            snapshots[session_id] = base.seq
        if session is not None:
            sessions.append(session.seen_from(log.store))
    names = {session.name for session in sessions}
    for session_id, words in damaged:
        sessions.append(found := salvage(log, session_id, words, names))
        names.add(found.name)
    return sessions, snapshots


def _fold_tail(
    log: LogReader,
    session_id: str,
    base: Session | None,
    records: list[Record] | StoreDamaged,
    *,
    is_from_snapshot: bool,
) -> Session | None:
    if isinstance(records, StoreDamaged):
        raise records
    # If a release with another fold made the snapshot, all records are folded once.
    whole: Iterable[Record] = log.read(session_id) if base is None and is_from_snapshot else records
    return fold_records(log, session_id, base, whole)


def _find_damage(log: LogVerification, session_id: str, error: Exception) -> str:
    """Describe the damage to the session's records.

    Raises the error again if the records are intact. Then it is a defect, or the records are of a newer release.
    """
    findings = [finding for finding in log.verify(session_id).findings if not finding.is_derived]
    if not findings:
        raise error
    # Prefer a finding that names a record, because it is the most precise.
    first = next((finding for finding in findings if ", seq " in finding.where), findings[0])
    where = first.where.removeprefix(f"session {session_id}").removeprefix(", ")
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{where or 'its log'}: {first.what}{more}"


def salvage(log: LogReader, session_id: str, words: str, taken: set[str]) -> DamagedSession:
    """Fold a damaged session as far as its records can be read.

    If its name is unknown or taken, its name is made from its id.
    """
    session = _fold_readable(log, session_id)
    name = session.name if session is not None else _find_name(log, session_id)
    if not name or name in taken:
        name = f"damaged-{session_id}"
    if session is None:
        return DamagedSession(id=session_id, name=name, opened_at=0, damage=words)
    # Drop the open run and the wake, because a damaged log cannot record how they end.
    left_run = session.run.run_id if session.run is not None else None
    return DamagedSession(
        **{**asdict(session), "name": name, "run": None, "wake": None}, damage=words, left_run=left_run
    )


def _fold_readable(log: LogReader, session_id: str) -> Session | None:
    session = None
    with contextlib.suppress(StoreDamaged):
        session = decode_snapshot(session_id, log.snapshot(session_id))
    with contextlib.suppress(*_UNFOLDABLE):
        for record in log.read(session_id, from_seq=session.seq + 1 if session is not None else 1):
            if record.payload is None:
                break
            session = fold(
                session, decode(record.kind, record.payload), seq=record.seq, at=record.at, author=record.author
            )
    return session


def _find_name(log: LogReader, session_id: str) -> str:
    """Find the name in the newest readable record that has a name. Empty if no such record exists."""
    with contextlib.suppress(StoreDamaged):
        for event in _read_naming(log, session_id):
            return event.new if isinstance(event, SessionRenamed) else event.spec.name
    return ""


def _read_naming(log: LogReader, session_id: str) -> Iterator[SessionRenamed | SpecDeclared]:
    for record in log.read(session_id, kinds=("session_renamed", "spec_declared"), newest_first=True):
        with contextlib.suppress(msgspec.MsgspecError):
            event = decode(record.kind, record.payload) if record.payload is not None else None
            if isinstance(event, SessionRenamed | SpecDeclared):
                yield event
