"""Finds the first call with an idempotency key, so that a repeated call gets the answer of the first one.

A key is unique per session, and is stored in the log with the records of its call. The reactor looks here before it
judges a call, and the API before it prepares one. Only reads the log. A key that another call used is refused, because
the answer would be about that other call.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from wakeful.core.calls import call_types as calls
from wakeful.core.calls.call_rules import CALL_RULES
from wakeful.core.record.events import SessionForked, SessionOpened, SessionRenamed
from wakeful.core.record.state import State
from wakeful.errors import KeyReused
from wakeful.eventlog.codec import decode
from wakeful.eventlog.contract import Appended, LogReader, Record

# The fields of a call that are unchanged in its first record.
_COMPARED: dict[type[Struct], tuple[str, ...]] = {
    calls.Send: ("text",),
    calls.Ask: ("text",),
    calls.Note: ("text",),
    calls.Remember: ("key", "value"),
    calls.Forget: ("key",),
}
# The calls whose key may be in the log of a session other than the one that they name now.
_ANYWHERE = (calls.SleepAll, calls.ResumeAll, calls.Rename, calls.Fork)


class Named(Struct, frozen=True, kw_only=True):
    """The parts of a call that matter for its key. `kinds` has several kinds if a request may become any of them."""

    kinds: tuple[type[calls.Call], ...]
    name: str
    # The other name of a rename.
    new: str | None = None
    # The digest of the request. If it is None, `words` are compared instead.
    digest: bytes | None = None
    words: dict[str, Any] = {}


def name_call(call: calls.Call, digest: bytes | None = None) -> Named:
    new = call.new if isinstance(call, calls.Rename) else None
    words = {name: getattr(call, name) for name in _COMPARED.get(type(call), ())}
    return Named(kinds=(type(call),), name=call.name, new=new, digest=digest, words=words)


def find_first(log: LogReader, state: State, named: Named, key: str) -> Record | None:
    """Find the first record of the call that was carried out with this key. None if there is no such call.

    Raises KeyReused if another call used the key.
    """
    expected = tuple(kind for one in named.kinds for kind in CALL_RULES[one].first_kinds)
    session_id = state.ids.get(named.name)
    others = []
    for landed in _find_landed(log, named, session_id, key):
        record = next(log.read(landed.session, from_seq=landed.first_seq, to_seq=landed.first_seq))
        if not expected or (record.kind in expected and _is_about(record, named, session_id)):
            _refuse_another_body(landed, record, named, key)
            return record
        others.append(record)
    # The call would write a record with this key to the same log, where another call already used it.
    for record in others:
        if record.session == session_id or any(one in (calls.SleepAll, calls.ResumeAll) for one in named.kinds):
            owner = state.sessions.get(record.session)
            raise KeyReused(
                f"the key {key!r} belongs to another call: record {record.seq} of "
                f"{owner.name if owner is not None else record.session}, "
                f"{record.kind} by {record.author}; nothing was done, choose a key of its own"
            )
    return None


def _refuse_another_body(landed: Appended, record: Record, named: Named, key: str) -> None:
    """Raise KeyReused if the first call had other arguments.

    A log of an earlier release has no digests, so a few fields are compared instead.
    """
    if landed.digest is not None and named.digest is not None:
        is_same = landed.digest == named.digest
    else:
        event = decode(record.kind, record.payload) if record.payload is not None else None
        is_same = all(getattr(event, name, said) == said for name, said in named.words.items())
    if not is_same:
        raise KeyReused(
            f"the key {key!r} belongs to another call: record {record.seq}, {record.kind} by {record.author}, came of "
            "another body; nothing was done, choose a key of its own"
        )


def _find_landed(log: LogReader, named: Named, session_id: str | None, key: str) -> list[Appended]:
    if any(one in _ANYWHERE for one in named.kinds):
        return log.find_keys(key)
    landed = log.find_key(session_id, key) if session_id is not None else None
    return [landed] if landed is not None else []


def _is_about(record: Record, named: Named, session_id: str | None) -> bool:
    """Does a record that was found by its key, in any log, belong to this call?"""
    event = decode(record.kind, record.payload) if record.payload is not None else None
    match event:
        case SessionRenamed(old=old, new=new):
            return (old, new) == (named.name, named.new)
        case SessionForked():
            return record.session == session_id
        case SessionOpened(origin=None):
            return calls.Open in named.kinds and record.session == session_id
        case SessionOpened(origin=origin):
            return origin is not None and (origin.session == session_id or origin.name == named.name)
        case _:
            return True


def say_repeated(record: Record) -> str:
    return f"done already: record {record.seq}, {record.kind} by {record.author}"
