"""Events to JSON payloads and back. The kind stands in the envelope, so the payload holds only fields.

Unknown fields of a newer release are ignored, missing ones take their defaults: old logs fold for ever.
"""

from __future__ import annotations

import re
from typing import get_args

import msgspec

from wakeful.core.events import Event
from wakeful.errors import InternalError


def _kind_of(cls: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


KINDS: dict[type, str] = {cls: _kind_of(cls) for cls in get_args(Event)}
_DECODERS = {kind: msgspec.json.Decoder(cls) for cls, kind in KINDS.items()}
_ENCODER = msgspec.json.Encoder()


def encode(event: Event) -> tuple[str, bytes]:
    """The kind and the JSON payload of an event."""
    return KINDS[type(event)], _ENCODER.encode(event)


def decode(kind: str, payload: bytes) -> Event:
    try:
        decoder = _DECODERS[kind]
    except KeyError:
        raise InternalError(f"the log holds an event of kind {kind!r} that this version does not know; a newer wakeful wrote it") from None
    return decoder.decode(payload)
