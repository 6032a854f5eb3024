"""One group commit, planned: queued calls in, rows and answers out.

The writer fills a group with the calls it found waiting and then writes the rows in one transaction. Here it is decided
which call conflicts, which repeats a key, and what every record hashes to. Nothing is written here; what the store knows
is asked through `Known`. A refused call leaves the group as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from wakeful.eventlog import chain
from wakeful.eventlog.contract import Append, Appended, BadAppend, Conflict


class Tip(msgspec.Struct, frozen=True, gc=False):
    """Where a session ends, as the writer knows it; `key` is the store's own number for the session."""

    key: int
    seq: int
    hash: bytes


class Known(Protocol):
    """What the store holds already."""

    def tip(self, session: str) -> Tip | None: ...

    def find_key(self, session: str, key: str) -> Appended | None: ...


class Rows:
    """Rows by table, each in column order."""

    __slots__ = ("events", "keys", "payloads", "sessions")

    def __init__(self) -> None:
        self.sessions: list[tuple[int, str]] = []
        self.events: list[tuple[object, ...]] = []
        self.payloads: list[tuple[int, bytes]] = []
        self.keys: list[tuple[int, str, int, int]] = []

    def add(self, other: Rows) -> None:
        self.sessions += other.sessions
        self.events += other.events
        self.payloads += other.payloads
        self.keys += other.keys


class Group:
    """Calls that will be committed together, after `position` records and `sessions` sessions."""

    def __init__(self, known: Known, position: int, sessions: int) -> None:
        self._known = known
        self._position = position
        self._sessions = sessions
        self._appended: dict[tuple[str, str], Appended] = {}
        self.rows = Rows()
        self.hashes: list[bytes] = []
        self.tips: dict[str, Tip] = {}

    @property
    def position(self) -> int:
        return self._position + len(self.rows.events)

    @property
    def sessions(self) -> int:
        return self._sessions + len(self.rows.sessions)

    def add(self, appends: Sequence[Append], at: int) -> tuple[Appended, ...]:
        """Take one call whole. Raises Conflict or BadAppend and takes nothing of it.

        A repeated key comes before a conflict: whoever repeats a call expects the head it saw the first time.
        """
        repeated = self._find_repeated(appends)
        if repeated is not None:
            return repeated
        call = _Call(self)
        appended = tuple([call.add(append, at) for append in appends])
        self.rows.add(call.rows)
        self.hashes += call.hashes
        self.tips.update(call.tips)
        for append, landed in zip(appends, appended, strict=True):
            if append.key is not None:
                self._appended[append.session, append.key] = landed
        return appended

    def tip(self, session: str) -> Tip | None:
        return self.tips.get(session) or self._known.tip(session)

    def _find_repeated(self, appends: Sequence[Append]) -> tuple[Appended, ...] | None:
        if not any(append.key is not None for append in appends):
            return None
        found = [self._find_key(append) for append in appends]
        if not any(found):
            return None
        return tuple(
            msgspec.structs.replace(landed, duplicate=True) if landed else Appended(append.session, 0, 0, duplicate=True)
            for append, landed in zip(appends, found, strict=True)
        )

    def _find_key(self, append: Append) -> Appended | None:
        if append.key is None:
            return None
        return self._appended.get((append.session, append.key)) or self._known.find_key(append.session, append.key)


class _Call:
    """The rows of one call while it may still be refused."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.rows = Rows()
        self.hashes: list[bytes] = []
        self.tips: dict[str, Tip] = {}

    def add(self, append: Append, at: int) -> Appended:
        session = append.session
        if not append.drafts:
            raise BadAppend(f"session {session}: an append without drafts; give it at least one")
        tip = self._tip(session)
        if tip.seq != append.expected_seq:
            raise Conflict(f"session {session}: the append expected head {append.expected_seq}, the log is at {tip.seq}; read again and decide anew")
        landed = Appended(session, tip.seq + 1, tip.seq + len(append.drafts))
        self.tips[session] = self._add_drafts(append, tip, at)
        if append.key is not None:
            if any(row[0] == tip.key and row[1] == append.key for row in self.rows.keys):
                raise BadAppend(f"session {session}: key {append.key!r} twice in one call; a key names one append")
            self.rows.keys.append((tip.key, append.key, landed.first_seq, landed.last_seq))
        return landed

    def _add_drafts(self, append: Append, tip: Tip, at: int) -> Tip:
        key, seq, previous = tip.key, tip.seq, tip.hash
        position = self._group.position + len(self.rows.events)
        for draft in append.drafts:
            seq += 1
            position += 1
            digest = chain.hash_bytes(draft.payload)
            previous = chain.link_record(
                previous, append.session, seq, at, draft.kind, draft.author, draft.run, draft.parent, draft.rationale, digest
            )
            self.rows.events.append(
                (position, key, seq, at, draft.kind, draft.author, draft.run, draft.parent, draft.rationale, digest, previous)
            )
            self.rows.payloads.append((position, draft.payload))
            self.hashes.append(previous)
        return Tip(key, seq, previous)

    def _tip(self, session: str) -> Tip:
        tip = self.tips.get(session) or self._group.tip(session)
        if tip is not None:
            return tip
        key = self._group.sessions + len(self.rows.sessions) + 1
        self.rows.sessions.append((key, session))
        return Tip(key, 0, chain.NOTHING)
