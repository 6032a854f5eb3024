"""A session's state as it lies on disk: all fields side by side in one JSON object.

A snapshot and the record of an archive hold a session in this form. In memory its fields stand in groups (`state.py`);
the names on disk stay as they were before there were groups, so old logs and snapshots are read as ever.
Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from wakeful.core.record.state import Activation, Declaration, Knowledge, Lineage, Mailbox, Marks, Move, Session, Tally

_GROUPS: dict[str, type[Struct]] = {
    "declaration": Declaration,
    "marks": Marks,
    "tally": Tally,
    "activation": Activation,
    "mailbox": Mailbox,
    "knowledge": Knowledge,
    "lineage": Lineage,
    "move": Move,
}


def _copy_field(one: FieldInfo) -> Any:
    if one.required:
        return one.name, one.type
    if one.default_factory is not msgspec.NODEFAULT:
        return one.name, one.type, msgspec.field(default_factory=one.default_factory)
    return one.name, one.type, one.default


# The fields that stand in the session itself.
_Ungrouped = msgspec.defstruct(
    "_Ungrouped",
    [_copy_field(one) for one in fields(Session) if one.name not in _GROUPS],
    frozen=True,
    kw_only=True,
)
_DECODERS: dict[type[Struct], msgspec.json.Decoder[Any]] = {
    part: msgspec.json.Decoder(part) for part in (_Ungrouped, *_GROUPS.values())
}


def flatten(session: Session) -> dict[str, Any]:
    """The fields of a session and of its groups, by their names on disk."""
    flat = {name: getattr(session, name) for name in _Ungrouped.__struct_fields__}
    for name in _GROUPS:
        group = getattr(session, name)
        flat.update(
            zip(group.__struct_encode_fields__, (getattr(group, one) for one in group.__struct_fields__), strict=True)
        )
    return flat


def group_fields(flat: dict[str, Any]) -> Session:
    """The session that a flat object of plain values holds."""
    return _group(lambda part: msgspec.convert(flat, part))


def decode_flat(text: bytes | memoryview) -> Session:
    """The session that a flat JSON object holds.

    Each group is decoded from the whole text and passes over the fields of the others.
    """
    return _group(lambda part: _DECODERS[part].decode(text))


def _group(read: Callable[[type[Struct]], Struct]) -> Session:
    top = read(_Ungrouped)
    values: dict[str, Any] = {name: getattr(top, name) for name in _Ungrouped.__struct_fields__}
    values |= {name: read(part) for name, part in _GROUPS.items()}
    return Session(**values)
