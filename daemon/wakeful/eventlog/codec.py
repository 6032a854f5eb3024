"""Encodes events as JSON payloads and states as snapshots, and decodes them. Pure.

The kind is part of the envelope, so a payload holds only the fields. Unknown fields of a newer release are ignored and
missing ones take their defaults, so old logs can always be folded. A snapshot is a cache of one version of the fold
(`FOLD`). A snapshot of another version is not read, and a new one replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import get_args

import msgspec

from wakeful.core.record.events import Event, PayloadErased
from wakeful.core.record.flat_state import decode_flat, flatten
from wakeful.core.record.state import Session
from wakeful.errors import InternalError
from wakeful.eventlog.chain import hash_bytes
from wakeful.eventlog.contract import Record

# The version of the fold. It is incremented with every change after which an old log folds to another state, such as a
# new field of the state.
FOLD = 12


def _kind_of(cls: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


KINDS: dict[type, str] = {cls: _kind_of(cls) for cls in get_args(Event)}
_DECODERS: dict[str, msgspec.json.Decoder[Event]] = {kind: msgspec.json.Decoder(cls) for cls, kind in KINDS.items()}
_ENCODER = msgspec.json.Encoder()


def encode(event: Event) -> tuple[str, bytes]:
    """Return the kind and the JSON payload of an event."""
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
    """Return the placeholders (stand-ins) of erased payloads, by seq.

    `erasures` are all `payload_erased` records of a session. The records are read from newest to oldest, because a
    later erasure may have erased the record of an earlier one.
    """
    stand_ins: dict[int, bytes] = {}
    for record in reversed(list(erasures)):
        payload = record.payload if record.payload is not None else stand_ins.get(record.seq)
        erased = decode(record.kind, payload) if payload is not None else None
        if isinstance(erased, PayloadErased):
            stand_ins[erased.erased] = _ENCODER.encode(erased.stand_in)
    return stand_ins


_MARK = b"%d\n" % FOLD


def encode_state(session: Session) -> bytes:
    return _MARK + _ENCODER.encode(flatten(session))


def hash_state(session: Session) -> str:
    """Hash a session's state, encoded as in its snapshot.

    Two hosts of one release that fold the same records get the same hash.
    """
    return hash_bytes(encode_state(session)).hex()


def decode_state(state: bytes) -> Session | None:
    """Decode the state in a snapshot. None if another version of the fold made it."""
    return decode_flat(memoryview(state)[len(_MARK) :]) if state.startswith(_MARK) else None
