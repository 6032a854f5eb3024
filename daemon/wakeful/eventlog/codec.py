"""Events to JSON payloads and back, and folds to snapshots and back.

The kind stands in the envelope, so a payload holds only fields.

Unknown fields of a newer release are ignored, missing ones take their defaults: old logs fold for ever. A snapshot is a
cache of one way of folding: one that was made by another is not read but made anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import get_args

import msgspec

from wakeful.core.record.events import Event, PayloadErased
from wakeful.core.record.state import Session
from wakeful.errors import InternalError
from wakeful.eventlog.chain import hash_bytes
from wakeful.eventlog.contract import Record

# One more with every change of the reducer after which an old log folds to another state: new fields count.
FOLD = 11


def _kind_of(cls: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


KINDS: dict[type, str] = {cls: _kind_of(cls) for cls in get_args(Event)}
_DECODERS: dict[str, msgspec.json.Decoder[Event]] = {kind: msgspec.json.Decoder(cls) for cls, kind in KINDS.items()}
_ENCODER = msgspec.json.Encoder()


def encode(event: Event) -> tuple[str, bytes]:
    """The kind and the JSON payload of an event."""
    return KINDS[type(event)], _ENCODER.encode(event)


def decode(kind: str, payload: bytes) -> Event:
    try:
        decoder = _DECODERS[kind]
    except KeyError:
        raise InternalError(
            f"the log holds a record of kind {kind!r} that this version does not know; a newer wakeful wrote it"
        ) from None
    return decoder.decode(payload)


def gather_stand_ins(erasures: Iterable[Record]) -> dict[int, bytes]:
    """What stands in for erased payloads, by the numbers of their records,
    of all records of a session that tell of erasures.

    The newest first: a record that tells of an erasure may have been erased itself, by a later one."""
    stand_ins: dict[int, bytes] = {}
    for record in reversed(list(erasures)):
        payload = record.payload if record.payload is not None else stand_ins.get(record.seq)
        erased = decode(record.kind, payload) if payload is not None else None
        if isinstance(erased, PayloadErased):
            stand_ins[erased.erased] = _ENCODER.encode(erased.stand_in)
    return stand_ins


_STATE = msgspec.json.Decoder(Session)
_MARK = b"%d\n" % FOLD


def encode_state(session: Session) -> bytes:
    return _MARK + _ENCODER.encode(session)


def hash_state(session: Session) -> str:
    """The hash of a session's state, as its snapshot at this seq carries it;
    two hosts of one release that fold the same records agree."""
    return hash_bytes(encode_state(session)).hex()


def decode_state(state: bytes) -> Session | None:
    """The session a snapshot holds; None where another release folded it."""
    return _STATE.decode(memoryview(state)[len(_MARK) :]) if state.startswith(_MARK) else None
