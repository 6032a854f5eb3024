"""Golden logs as files: their form on disk, how they are folded, and which part of a fold is compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from wakeful.core.record.events import PayloadErased
from wakeful.core.record.flat_state import flatten
from wakeful.core.record.fold import fold
from wakeful.core.record.state import Session
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Record

HERE = Path(__file__).parent


class RecordRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record as one line, with its payload as text, so that people can read the records of a release."""

    session: str
    seq: int
    at: int
    kind: str
    author: str
    run: int | None
    parent: str | None
    rationale: str | None
    payload: str | None
    payload_hash: str
    hash: str


class StateRow(msgspec.Struct, frozen=True):
    """The fields that a record changed in its session's state. All rows in turn give the state."""

    session: str
    seq: int
    changed: dict[str, Any]


def releases() -> list[Path]:
    """List the folders of all releases with a golden log."""
    return sorted(path for path in HERE.iterdir() if (path / "records.jsonl").is_file())


def write_records(path: Path, records: Sequence[Record]) -> None:
    rows = (
        RecordRow(
            r.session, r.seq, r.at, r.kind, r.author, r.run, r.parent, r.rationale,
            r.payload.decode() if r.payload is not None else None, r.payload_hash.hex(), r.hash.hex(),
        )
        for r in records
    )  # fmt: skip
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def read_records(release: Path) -> list[Record]:
    rows = (msgspec.json.decode(line, type=RecordRow) for line in (release / "records.jsonl").read_bytes().splitlines())
    return [
        Record(
            row.session, row.seq, row.at, row.kind, row.author, row.run, row.parent, row.rationale,
            row.payload.encode() if row.payload is not None else None, bytes.fromhex(row.payload_hash), bytes.fromhex(row.hash),
        )
        for row in rows
    ]  # fmt: skip


def read_states(release: Path) -> list[StateRow]:
    return [msgspec.json.decode(line, type=StateRow) for line in (release / "states.jsonl").read_bytes().splitlines()]


def fold_all(records: Sequence[Record]) -> Iterator[tuple[Record, Session]]:
    """Yield every record with the state after it. An erased payload folds by its stand-in."""
    stand_ins: dict[tuple[str, int], bytes] = {}
    for record in records:
        event = (
            decode(record.kind, record.payload)
            if record.kind == "payload_erased" and record.payload is not None
            else None
        )
        if isinstance(event, PayloadErased):
            stand_ins[record.session, event.erased] = msgspec.json.encode(event.stand_in)
    states: dict[str, Session] = {}
    for record in records:
        payload = record.payload if record.payload is not None else stand_ins[record.session, record.seq]
        event = decode(record.kind, payload)
        state = fold(states.get(record.session), event, seq=record.seq, at=record.at, author=record.author)
        states[record.session] = state
        yield record, state


def read_fields(state: Session) -> dict[str, Any]:
    """Return the state as a snapshot holds it."""
    return msgspec.json.decode(msgspec.json.encode(flatten(state)))


def list_changes(records: Sequence[Record]) -> Iterator[StateRow]:
    before: dict[str, dict[str, Any]] = {}
    for record, state in fold_all(records):
        now = read_fields(state)
        was = before.get(record.session, {})
        yield StateRow(
            record.session,
            record.seq,
            {key: value for key, value in now.items() if key not in was or was[key] != value},
        )
        before[record.session] = now


def find_difference(expected: Any, found: Any, where: str = "state") -> str | None:
    """Return the first place where an expected value is missing or different. New fields are not a difference."""
    match expected, found:
        case dict(), dict():
            for key, value in expected.items():
                if key not in found:
                    return f"{where}.{key} is gone; expected {value!r}"
                wrong = find_difference(value, found[key], f"{where}.{key}")
                if wrong is not None:
                    return wrong
            return None
        case list(), list() if len(expected) == len(found):
            pairs = enumerate(zip(expected, found, strict=True))
            return next(
                (
                    wrong
                    for place, (one, other) in pairs
                    if (wrong := find_difference(one, other, f"{where}[{place}]")) is not None
                ),
                None,
            )
        case _:
            return None if expected == found else f"{where} is {found!r}; expected {expected!r}"
