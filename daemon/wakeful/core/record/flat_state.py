"""A session's state as it is stored on disk: all fields side by side in one JSON object.

A snapshot and the record of an archive hold a session in this form. In memory its fields are in groups (`state.py`).
The names on disk are those from before there were groups, so old logs and snapshots can still be read.
Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields, replace

from wakeful.core.record.state import (
    Activation,
    Archived,
    Closed,
    Declaration,
    Departed,
    Knowledge,
    Lineage,
    Mailbox,
    Marks,
    Move,
    Moving,
    Session,
    Tally,
    Terminated,
)

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


class _Flags(Struct, frozen=True, kw_only=True):
    """How a session is closed, in the form on disk: flags side by side."""

    is_terminated: bool = False
    archive: str | None = None
    move: str | None = None
    moving_to: str | None = None
    has_departed: bool = False


def _copy_field(one: FieldInfo) -> Any:
    if one.required:
        return one.name, one.type
    if one.default_factory is not msgspec.NODEFAULT:
        return one.name, one.type, msgspec.field(default_factory=one.default_factory)
    return one.name, one.type, one.default


# The fields that the session itself has besides its groups. On disk the flags stand next to them.
_UNGROUPED = tuple(one for one in fields(Session) if one.name not in (*_GROUPS, "closed"))
_Ungrouped = msgspec.defstruct(
    "_Ungrouped", [_copy_field(one) for one in _UNGROUPED], bases=(_Flags,), frozen=True, kw_only=True
)
_DECODERS: dict[type[Struct], msgspec.json.Decoder[Any]] = {
    part: msgspec.json.Decoder(part) for part in (_Ungrouped, *_GROUPS.values())
}


def flatten(session: Session) -> dict[str, Any]:
    """Return the fields of a session and of its groups, by name on disk. Hashes of states depend on their order."""
    flags = _write_flags(session.closed)
    flat = {one.name: getattr(session, one.name) for one in _UNGROUPED}
    flat |= {"is_terminated": flags.is_terminated, "archive": flags.archive}
    for name in _GROUPS:
        if name == "move":
            flat |= {"move": flags.move, "moving_to": flags.moving_to, "has_departed": flags.has_departed}
        group = getattr(session, name)
        flat.update(
            zip(group.__struct_encode_fields__, (getattr(group, one) for one in group.__struct_fields__), strict=True)
        )
    return flat


def _write_flags(closed: Closed | None) -> _Flags:
    match closed:
        case None:
            return _Flags()
        case Terminated():
            return _Flags(is_terminated=True)
        case Moving(move=move, to=to, before=before):
            return _Flags(is_terminated=before is not None, move=move, moving_to=to)
        case Departed(move=move, to=to, before=before):
            return _Flags(is_terminated=before is not None, move=move, moving_to=to, has_departed=True)
        case Archived(bundle=bundle, before=before):
            return replace(_write_flags(before), archive=bundle)
        case _:
            assert_never(closed)


def _read_flags(flags: _Flags) -> Closed | None:
    terminated = Terminated() if flags.is_terminated else None
    before: Moving | Departed | Terminated | None = terminated
    if flags.has_departed:
        before = Departed(flags.move, flags.moving_to, terminated)
    elif flags.move is not None:
        before = Moving(flags.move, flags.moving_to, terminated)
    return Archived(flags.archive, before) if flags.archive is not None else before


def group_fields(flat: dict[str, Any]) -> Session:
    """Build the session from a flat object of plain values."""
    return _group(lambda part: msgspec.convert(flat, part))


def decode_flat(text: bytes | memoryview) -> Session:
    """Decode the session from a flat JSON object.

    Each group is decoded from the whole text, and ignores the fields of other groups.
    """
    return _group(lambda part: _DECODERS[part].decode(text))


def _group(read: Callable[[type[Struct]], Any]) -> Session:
    top = read(_Ungrouped)
    values: dict[str, Any] = {one.name: getattr(top, one.name) for one in _UNGROUPED}
    values |= {name: read(part) for name, part in _GROUPS.items()}
    return Session(**values, closed=_read_flags(top))
